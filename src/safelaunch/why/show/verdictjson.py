"""A verdict as the object that `why --json` prints (a public contract: docs/why.md)."""

from __future__ import annotations

from typing import Any

from safelaunch.errors import ParseError
from safelaunch.why.findings import Cited
from safelaunch.why.verdict import Verdict

VERSION = 1


def to_public(verdict: Verdict) -> dict[str, Any]:
    """The whole object: the verdict with its runner-up, and the symptoms that it explains."""
    after = verdict.cause.t if verdict.cause else None
    return {
        "v": VERSION,
        "verdict": {**_plain(verdict), "runner_up": _plain(verdict.runner_up) if verdict.runner_up else None},
        "candidates": [{"category": cited.category, "text": cited.text, "file": cited.file,
                        "line_number": cited.line_number} for cited in verdict.candidates],
        "symptoms": [_symptom(cited, after) for cited in verdict.symptoms], "fingerprint": verdict.fingerprint,
        "speakers": {"cause": list(verdict.spoken_by), "echo": list(verdict.echoed_by)},
    }


def of_subject(verdict: Verdict, then: str, follows: str, recorded: Verdict | None) -> dict[str, Any]:
    """The whole object with what the policy makes of it, and the verdict by which a run's supervisor acted."""
    before = None if recorded is None else {**_plain(recorded), "is_same": verdict.agrees_with(recorded)}
    return {**to_public(verdict), "policy": {"then": then or None, "follows": follows or None}, "recorded": before}


def parse(value: Any) -> Verdict:
    """The verdict of such an object, its lines as mere texts; raises ParseError where it has another form."""
    try:
        said = value["verdict"]
        lines = tuple(str(line["text"])[:400] for line in said["evidence"][:4])
        rank = None if said["rank"] is None else int(said["rank"])
        host = None if said["host"] is None else str(said["host"])
        speakers = value.get("speakers") or {}
        return Verdict(str(said["category"]), str(said["summary"])[:400], float(said["confidence"]),
                       str(said["action"]), tuple(map(str, said["suspects"])), lines, rank, host,
                       fingerprint=str(value.get("fingerprint", "")),
                       spoken_by=tuple(map(str, speakers.get("cause", ()))),
                       echoed_by=tuple(map(str, speakers.get("echo", ()))))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ParseError(f"no verdict: {error!r}") from error


def evidence_of(verdict: Verdict) -> tuple[Cited, ...]:
    """The lines that the verdict rests on: first the one that states the cause best, then the others in their order."""
    if verdict.cause is None:
        return verdict.cited
    return (verdict.cause, *(cited for cited in verdict.cited if cited != verdict.cause))


def _plain(verdict: Verdict) -> dict[str, Any]:
    return {
        "category": verdict.category,
        "confidence": round(verdict.confidence, 2),
        "action": verdict.action,
        "summary": verdict.summary,
        "host": verdict.host,
        "rank": verdict.rank,
        "port": verdict.port,
        "file": verdict.file or None,
        "suspects": list(verdict.suspects),
        "evidence": [{"file": cited.file, "line_number": cited.line_number, "text": cited.text, "role": cited.role}
                     for cited in evidence_of(verdict)],
    }


def _symptom(cited: Cited, after: float | None) -> dict[str, Any]:
    """`count` lines of one meaning; `after_s` from the cause to the first of them, null without a common clock."""
    return {
        "file": cited.file, "line_number": cited.line_number, "text": cited.text, "role": cited.role,
        "count": cited.count, "hosts": len(cited.hosts), "ranks": len(cited.ranks),
        "after_s": round(cited.t - after, 3) if cited.t is not None and after is not None else None,
    }
