"""Why an ended attempt failed: its log, and what this supervisor knows beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from safelaunch.base.endings import BAD_ENDS, AttemptEnd
from safelaunch.base.model import STOPS, tell_stop
from safelaunch.decide.facts.seen import Live, Observation
from safelaunch.nodehealth.ledger import blamed_before
from safelaunch.stacks.scene import HangVerdict
from safelaunch.supervisor.io.attempt import AttemptProcess
from safelaunch.supervisor.state.attempt import ReadLog, RunningAttempt
from safelaunch.supervisor.state.clock import Clock
from safelaunch.supervisor.state.endpoint import GuardEndpoint
from safelaunch.supervisor.state.hangs import HangWatch
from safelaunch.supervisor.state.journal import LeaderJournal
from safelaunch.supervisor.state.nodes import Nodes
from safelaunch.supervisor.state.ports import FolderPort, Here
from safelaunch.supervisor.state.reach import Reach
from safelaunch.why.evidence import know, stacks_of
from safelaunch.why.findings import EndFacts, Log, OutsideEvidence, TaskExit
from safelaunch.why.judge.ends import judge_end
from safelaunch.why.show.verdictjson import parse
from safelaunch.why.verdict import Verdict


class WholeLog(NamedTuple):
    """The whole log of an attempt, read by `why` in a child; `listen`: what the leader does meanwhile."""

    here: Here
    files: FolderPort
    guards: GuardEndpoint
    running: RunningAttempt
    listen: Callable[[], None]

    def read(self, live: Live, process: AttemptProcess, evidence: OutsideEvidence) -> dict[str, Any] | None:
        """What it says; the earlier result where neither log nor evidence has changed since."""
        size = process.size()
        read = self.running.read
        if read is None or (read.attempt, read.size, read.evidence) != (live.number, size, evidence):
            per_node = self.here.plan.launch.local_ranks
            layout = (live.nodes, per_node) if per_node else None
            found = self.here.world.diagnose(process, evidence, layout, self._kernel_logs(live, process), self.listen)
            read = ReadLog(live.number, size, evidence, found)
            self.running.note_read(read)
        return read.found

    def _kernel_logs(self, live: Live, process: AttemptProcess) -> tuple[Path, ...]:
        """Files with the nodes' kernel messages, on local disk, and on their way into the attempt's folder.

        The guards read them when a task fails, where users may.
        """
        paths = []
        for node, lines in self.guards.server.kernel_lines(live.nodes).items():
            text = _render(node, lines).encode(errors="replace")
            path = process.system_folder / f"{node}.log"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
            paths.append(path)
            self.files.put(live.number, f"system/{node}.log", text)
        return tuple(paths)


class Beside(NamedTuple):
    """What is known of an attempt beside its log."""

    here: Here
    clock: Clock
    journal: LeaderJournal
    hangs: HangWatch
    nodes: Nodes
    reach: Reach

    def hang_of(self, live: Live) -> HangVerdict | None:
        """What two hang checks have shown of this attempt, if it was ended for a hang."""
        hung = self.hangs.hung
        return hung[1] if hung is not None and hung[0] == live.number else None

    def evidence(self, live: Live, how: str) -> OutsideEvidence:
        """All of it."""
        plan = self.here.plan
        blamed = blamed_before(self.nodes.evidence, plan.run_id, live.number, self.clock.now)
        hang = self.hang_of(live)
        stacks = None if hang is None else stacks_of(
            ((one.node, one.number, one.why) for one in hang.odd), hang.suspects, hang.summary, hang.confidence)
        attempt = self.journal.state.attempt
        return know(
            EndFacts(how, live.end_row),
            tuple(TaskExit(exit.node, exit.task, exit.code, exit.signal) for exit in live.exits),
            live.srun_code, lost=tuple(self.reach.lost_of(live)), stacks=stacks, is_hang=hang is not None,
            asked_bytes=attempt.asked_bytes if attempt is not None else None,
            ledger={node: count for node, count in blamed.items() if node in live.nodes},
            layout=plan.rank_layout(live.nodes))


class AttemptDiagnosis(NamedTuple):
    """Why an attempt failed: by its whole log, and what is known beside it."""

    log: WholeLog
    beside: Beside

    def judge(self, live: Live, facts: Observation, how: str, is_refused: bool) -> Verdict:
        """The verdict on an attempt that did not complete: from its known end, else from its log as well."""
        told = judge_end(end_of(live, facts, how, is_refused))
        if told is not None:
            return told
        known, process = self.beside.evidence(live, how), self.log.running.process
        found = self.log.read(live, process, known) if how == AttemptEnd.FAILED and process is not None else None
        if found is None:   # a log that cannot be read in time delays nobody
            return _judge_unread(known)
        self.log.files.put(live.number, "verdict.json", found)
        verdict, hang = parse(found), self.beside.hang_of(live)
        return replace(verdict, evidence=verdict.evidence or (hang.evidence[:8] if hang is not None else ()))

    def foresee(self, live: Live, ending: str | None) -> None:
        """Read a failed attempt's log while something is awaited, such as its last lines; read it again only if it has
        grown.
        """
        process, read = self.log.running.process, self.log.running.read
        is_failure = any(exit.code for exit in live.exits) and not live.end_row and ending is None
        if process is None or not is_failure or self.beside.hang_of(live) or (read and read.attempt == live.number):
            return
        self.log.read(live, process, self.beside.evidence(live, AttemptEnd.FAILED))


def _judge_unread(known: OutsideEvidence) -> Verdict:
    from safelaunch.why.judge.engine import judge_log  # most of `why`: a training that runs well needs none of it
    from safelaunch.why.judge.witnesses import SILENT_LOG

    verdict = judge_log(Log(), known)
    return replace(verdict, summary=verdict.summary.replace(SILENT_LOG, "its log was not read in time"))


def end_of(live: Live, facts: Observation, how: str, is_refused: bool = False) -> EndFacts:
    """How the attempt ended, as far as known without the log."""
    asked = facts.asked(*STOPS)
    has_lost = how in BAD_ENDS and live.end_row == "lost_progress" and live.lost is not None
    told = ("config", 0.95, str(live.lost)) if has_lost else None   # we ended its ranks: their messages are no cause
    if how in BAD_ENDS and live.end_row == "step_stuck":
        told = ("config", 0.9, str(live.stuck))
    if how in BAD_ENDS and live.end_row == "nan":
        told = ("numerical", 0.95, "its loss was no finite number in three step lines in a row")
    return EndFacts(how, live.end_row, facts.ending, tell_stop(asked) if asked is not None else None, facts.suspended,
                    is_refused, told)


def _render(node: str, lines: Iterable[tuple[float, str]]) -> str:
    """The lines in the form of a system log."""
    stamped = [(datetime.fromtimestamp(t, timezone.utc).isoformat(timespec="milliseconds"), said) for t, said in lines]
    return "".join(f"{stamp} {node} kernel: {said}\n" for stamp, said in stamped)
