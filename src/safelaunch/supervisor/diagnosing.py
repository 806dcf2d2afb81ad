"""What an ended attempt died of: its log, with all that this supervisor knows beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from safelaunch.adapters.attempt import AttemptProcess
from safelaunch.core.categories import BEHIND_A_HANG
from safelaunch.core.decide.seen import Live
from safelaunch.core.ledger import blamed_before
from safelaunch.core.why.findings import End, Evidence, TaskExit
from safelaunch.core.why.verdict import Verdict
from safelaunch.supervisor.leader import Leader, ReadLog


def look_deeper(lead: Leader, live: Live, process: AttemptProcess, shallow: Verdict) -> Verdict:
    """What the whole log says, where it says something; the exits alone know neither GPUs nor filesystems."""
    found = _read_log(lead, live, process, _evidence(lead, live, shallow))
    if found is None:
        return shallow
    lead.put(live.number, "verdict.json", found)
    return deepen(shallow, found)


def deepen(shallow: Verdict, found: Mapping[str, Any]) -> Verdict:
    """The first verdict with what `why --json` says of the whole log, where that says more."""
    verdict = found["verdict"]
    if shallow.category == "hang" and verdict["category"] not in BEHIND_A_HANG:
        return shallow   # the look at the ranks has more to say than the words of those that were ended
    if verdict["category"] == "unknown":   # in the words that `why` will use
        return replace(shallow, category="unknown", confidence=float(verdict["confidence"]), action="restart",
                       summary=str(verdict["summary"])[:400] or shallow.summary, fingerprint=found["fingerprint"])
    if verdict["category"] == "none":
        return shallow if shallow.category == "unknown" else replace(shallow, category="unknown", confidence=0.3,
                                                                     action="restart")
    evidence = tuple(str(line["text"])[:400] for line in verdict["evidence"][:4])
    return replace(shallow, category=verdict["category"], summary=str(verdict["summary"])[:400],
                   confidence=float(verdict["confidence"]), action=verdict["action"],
                   node=verdict["host"] or shallow.node, suspects=tuple(verdict["suspects"]), evidence=evidence,
                   fingerprint=found["fingerprint"])


def foresee(lead: Leader) -> None:
    """Read a failed attempt's log while its last words are waited for; it is read again only where some have come."""
    live, process = lead.attempt, lead.process
    is_failure = any(exit.code for exit in live.exits) and not live.end_row and lead.ending is None
    if process is None or not is_failure or of_hang(lead, live) or (lead.read and lead.read.attempt == live.number):
        return
    _read_log(lead, live, process, _evidence(lead, live, None))


def _read_log(lead: Leader, live: Live, process: AttemptProcess, evidence: Evidence) -> dict[str, Any] | None:
    """What the whole log says; as before where neither the log nor the evidence has changed since."""
    size = process.size()
    if lead.read is None or (lead.read.attempt, lead.read.size, lead.read.evidence) != (live.number, size, evidence):
        per_node = lead.plan.launch.nproc_per_node if lead.plan.launch.by == "torchrun" else None
        layout = (live.nodes, per_node) if per_node else None
        found = lead.world.diagnose(process, evidence, layout, _kernel_logs(lead, live, process))
        lead.read = ReadLog(live.number, size, evidence, found)
    return lead.read.found


def of_hang(lead: Leader, live: Live) -> Verdict | None:
    """What two looks at the ranks have shown of this attempt, if it was ended for a hang."""
    if lead.hangs.hung is None or lead.hangs.hung[0] != live.number:
        return None
    found = lead.hangs.hung[1]
    return Verdict("hang", found.summary, found.confidence, "restart",
                   found.suspects[0] if found.suspects else None, suspects=found.suspects,
                   evidence=found.evidence[:8])


def _evidence(lead: Leader, live: Live, shallow: Verdict | None) -> Evidence:
    """What is known beside the log. Of a hang's ranks the exits say nothing: this supervisor has ended them."""
    blamed = blamed_before(lead.nodes.evidence, lead.plan.run_id, live.number, lead.now)
    ledger = {node: count for node, count in blamed.items() if node in live.nodes}
    if shallow is not None and shallow.category == "hang" and lead.hangs.hung is not None:
        odd = tuple((one.node, f"rank {one.number}: {one.why}") for one in lead.hangs.hung[1].odd)
        return Evidence(stacks=odd or (("", shallow.summary),), stacks_sure=shallow.confidence, ledger=ledger,
                        stacks_rank=next((one.number for one in lead.hangs.hung[1].odd[:1] if one.node), None),
                        own_term_bytes=own_term_bytes(lead, live))
    exits = tuple(TaskExit(exit.node, exit.task, exit.code, exit.signal) for exit in live.exits)
    # srun's code says something only where no task's does, and comes late.
    srun_code = None if any(exit.code or exit.signal for exit in exits) else live.srun_code
    return Evidence(exits=exits, srun_code=srun_code, ledger=ledger,
                    own_term_bytes=own_term_bytes(lead, live))


def own_term_bytes(lead: Leader, live: Live) -> int | None:
    """From which byte of the log on words of a SIGTERM are this supervisor's doing; None = it has sent none."""
    at = lead.state.attempt.asked_bytes if lead.state.attempt is not None else None
    return (at or 0) if End("failed", live.end_row).sent_signals else None


def _kernel_logs(lead: Leader, live: Live, process: AttemptProcess) -> tuple[Path, ...]:
    """Files of what the kernels of the nodes said, on local disk, and on their way into the attempt's folder.

    The guards read it, where users may, when a task ends badly.
    """
    paths = []
    for node, lines in lead.server.kernel_lines(live.nodes).items():
        text = _render(node, lines).encode(errors="replace")
        path = process.system_folder / f"{node}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
        paths.append(path)
        lead.put(live.number, f"system/{node}.log", text)
    return tuple(paths)


def _render(node: str, lines: Iterable[tuple[float, str]]) -> str:
    """The lines as a system's log has them."""
    stamped = [(datetime.fromtimestamp(t, timezone.utc).isoformat(timespec="milliseconds"), said) for t, said in lines]
    return "".join(f"{stamp} {node} kernel: {said}\n" for stamp, said in stamped)
