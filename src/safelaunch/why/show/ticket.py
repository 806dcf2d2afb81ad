"""A verdict as a ticket: what the administrators of a site need to act on a node without asking back."""

from __future__ import annotations

import re
from collections.abc import Sequence

from safelaunch.base.plaintext import clean
from safelaunch.why.categories import TABLE
from safelaunch.why.show.verdictjson import evidence_of
from safelaunch.why.show.verdicttext import describe, find_rule, stamp
from safelaunch.why.verdict import Verdict

SHOWN_LINES = 8
# A GPU's PCI address as the driver writes it ("NVRM: Xid (PCI:0000:90:1c)"), adapters of InfiniBand, Omni-Path, EFA.
_DEVICE = re.compile(
    r"PCI:[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}|\b[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d\b"
    r"|\b(?:mlx[45]_(?:bond_)?\d+|hfi1_\d+|rdmap\w+|efa_\d+|GPU[ -]?\d{1,2}(?![0-9a-f:])"
    r"|GPU-[0-9a-f]{8}[-0-9a-f]+)(?::\d+)?")


def is_for_site(verdict: Verdict) -> bool:
    """Whether it is something that only administrators can mend."""
    return bool(_asked(verdict))


def _asked(verdict: Verdict) -> str:
    rule = find_rule(verdict.rule or "")
    if rule is not None and rule.ask_site:
        return rule.ask_site
    row = TABLE.get(verdict.category)
    return row.ask_site if row is not None else ""


def _title(verdict: Verdict) -> str:
    rule = find_rule(verdict.rule or "")
    return verdict.summary if rule is not None and rule.ask_site else TABLE.get(
        verdict.category, TABLE["unknown"]).page.title


def find_device(verdict: Verdict) -> str | None:
    """The device that the evidence names: a PCI address, an adapter, a GPU."""
    for cited in evidence_of(verdict):
        found = _DEVICE.search(cited.text)
        if found:
            return found[0]
    return None


def render_ticket(verdict: Verdict, job: str = "", run: str = "", nodes: str = "", outside: Sequence[str] = (),
                  noted: str = "") -> str:
    """The ticket's text, clean: a subject, facts, evidence, what is asked. `outside`: evidence that is in no log;
    `noted`: the time that the journal has.
    """
    page = TABLE.get(verdict.category, TABLE["unknown"]).page
    node = ", ".join(verdict.suspects) or verdict.host or ""
    lines = evidence_of(verdict)
    when = next((stamp(cited.t) for cited in lines if cited.t is not None), noted or "not in the log")
    seen = sum(cited.count for cited in verdict.symptoms)
    where = (job, f"({run})" if run else "", f"on {nodes}" if nodes else "")
    facts = [
        ("Node", node or "not named"), ("Device", find_device(verdict) or "not named"), ("Time", when),
        ("Job", " ".join(filter(None, where)) or "not known"),
        ("Finding", f"{verdict.category}: {verdict.summary or page.title} ({verdict.confidence:.0%} sure)"),
        ("Followed by", f"{seen} {'line' if seen == 1 else 'lines'} of other ranks' errors, which are echoes" if seen
         else "nothing"),
        ("Fingerprint", verdict.fingerprint or "none"),
    ]
    evidence = [text for cited in lines[:SHOWN_LINES]
                for text in (f"  {describe(cited, True)}", f"    {cited.text.strip()}")]
    evidence += [f"  {line}" for line in outside]
    return "\n".join(map(clean, [
        f"Subject: {f'node {node}: ' if node else ''}{_title(verdict)}", "",
        *(f"{name + ':':<13}{text}" for name, text in facts), "",
        "Evidence:", *(evidence or ["  none in the log"]), "", _asked(verdict) or "Please have a look.", ""]))
