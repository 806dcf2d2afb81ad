"""What an ended attempt died of: its log, with all that this supervisor knows beside it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from safelaunch.adapters.attempt import AttemptProcess
from safelaunch.core import decide
from safelaunch.core.ledger import blamed_before
from safelaunch.core.why import causes
from safelaunch.core.why.causes import Verdict
from safelaunch.core.why.findings import Evidence, TaskExit
from safelaunch.lead.leader import Leader

BEHIND_A_HANG = ("gpu_hardware", "node_failure", "host_oom", "storage")   # what makes one rank stand, and is logged


def look_deeper(lead: Leader, live: decide.Live, process: AttemptProcess, shallow: Verdict) -> Verdict:
    """What the whole log says, where it says something; the exits alone know neither GPUs nor filesystems."""
    per_node = lead.plan.launch.nproc_per_node if lead.plan.launch.by == "torchrun" else None
    layout = (live.nodes, per_node) if per_node else None
    found = lead.world.diagnose(process, _evidence(lead, live, shallow), layout, _kernel_logs(lead, live, process))
    if found is None:
        return shallow
    lead.put(live.number, "verdict.json", found)
    verdict = found["verdict"]
    if shallow.category == "hang" and verdict["category"] not in BEHIND_A_HANG:
        return shallow   # the look at the ranks has more to say than the words of those that were ended
    if verdict["category"] in ("none", "unknown"):
        return shallow if shallow.category == "unknown" else replace(shallow, category="unknown", confidence=0.3,
                                                                     action="restart")
    evidence = tuple(str(line["text"])[:400] for line in verdict["evidence"][:4])
    return replace(shallow, category=verdict["category"], summary=str(verdict["summary"])[:400],
                   confidence=float(verdict["confidence"]), action=verdict["action"],
                   node=verdict["host"] or shallow.node, suspects=tuple(verdict["suspects"]), evidence=evidence,
                   fingerprint=found["fingerprint"])


def of_hang(lead: Leader, live: decide.Live) -> Verdict | None:
    """What two looks at the ranks have shown of this attempt, if it was ended for a hang."""
    if lead.hung is None or lead.hung[0] != live.number:
        return None
    found = lead.hung[1]
    return causes.Verdict("hang", found.summary, found.confidence, "restart",
                          found.suspects[0] if found.suspects else None, suspects=found.suspects,
                          evidence=found.evidence[:8])


def _evidence(lead: Leader, live: decide.Live, shallow: Verdict) -> Evidence:
    """What is known beside the log. Of a hang's ranks the exits say nothing: this supervisor has ended them."""
    blamed = blamed_before(lead.evidence, lead.plan.run_id, live.number, lead.now)
    ledger = {node: count for node, count in blamed.items() if node in live.nodes}
    if shallow.category == "hang" and lead.hung is not None:
        odd = tuple((one.node, f"rank {one.number}: {one.why}") for one in lead.hung[1].odd)
        return Evidence(stacks=odd or (("", shallow.summary),), stacks_sure=shallow.confidence, ledger=ledger,
                        stacks_rank=next((one.number for one in lead.hung[1].odd[:1] if one.node), None))
    exits = tuple(TaskExit(exit.node, exit.task, exit.code, exit.signal) for exit in live.exits)
    return Evidence(exits=exits, srun_code=live.srun_code, ledger=ledger)


def _kernel_logs(lead: Leader, live: decide.Live, process: AttemptProcess) -> tuple[Path, ...]:
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
