"""Evidence from outside joined to the log's verdict: exits, lost nodes, Slurm's states, Xids, checks, stacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from safelaunch.base.endings import BAD_ENDS, AttemptEnd
from safelaunch.slurm import jobstates
from safelaunch.why.categories import (
    BEHIND_A_HANG,
    ENDS_OF_JOBS,
    OF_THE_PROGRAM,
    RECURS_ON_A_NODE,
    TABLE,
    advice,
)
from safelaunch.why.findings import Cited, Finding, OutsideEvidence, TaskExit
from safelaunch.why.fingerprint import USER_SIGNALS, exit_fingerprint, make_fingerprint
from safelaunch.why.judge.ends import judge_end
from safelaunch.why.judge.leavers import find_leaver
from safelaunch.why.read.tracebacks import parse_frames
from safelaunch.why.rulebook import BY_ID
from safelaunch.why.verdict import Verdict

CLEAR_MARGIN = 0.05       # what comes from outside replaces the log's cause only when it is surer by this
ECHO_OF_SRUN = "slurm.step_cancelled"
ECHO_OF_TERM = "batch.terminated"
# What srun says of a step that has failed, in any order: not what came first.
OF_SRUN = frozenset({"slurm.task_exit", "slurm.task_terminated", "slurm.step_teardown"})
AGREED = 0.05             # both say the same: surer than either
BESIDE = 0.5              # what a log says beside an end that the journal explains
STEP_CANCELLED = 0.6      # by whom is not known, and another SIGTERM may have come first
UNEXPLAINED = 0.45        # of a SIGKILL: that is what happened, and nobody knows why
CERTAIN = 0.85            # above budget.SURE
# Not AssertionError, ValueError and RuntimeError: programs raise those for what a node lacks, too.
MISTAKES = frozenset({"NameError", "UnboundLocalError", "TypeError", "AttributeError", "IndexError", "KeyError",
                      "ZeroDivisionError", "RecursionError", "SyntaxError", "IndentationError"})
ALIKE = MISTAKES | {"AssertionError", "ValueError", "RuntimeError", "NotImplementedError"}
# Rules of a process that was killed, where nothing says by whom.
ENDED_BY_TERM = "native.elastic_term"
ASKED_BY_TERM = "elastic.sigterm"   # by a launcher; where Slurm or safelaunch had asked, the attempt's end would tell
UNEXPLAINED_KILLS = frozenset({ENDED_BY_TERM, "memory.sigkill_elastic", "memory.bare_killed", "memory.srun_killed",
                               "memory.child_killed"})
OF_KILL = "If it was memory: dmesg -T | grep -i oom on that node, and sacct's MaxRSS; else a person or script did it."
OF_TERM = "A person, a script of the site or another process has sent it: safelaunch and Slurm have not."
OF_USER = ("scancel -s, sbatch's --signal, a person or a script has sent it; whoever does not handle it dies of it. "
           "Let the training handle it, or send it elsewhere.")
# Rules of a command line that its program refuses: the same words again on every node.
USAGE = frozenset({"config.arguments", "config.click", "config.fire", "config.hf_parser", "config.hydra",
                   "config.usage"})
USAGE_SURE = 0.95
SILENT_LOG = "the log does not say why"
MOST_ODD = 4              # ranks of more nodes than this are no suspects: they are the others' echo
_SIGNAL_NAMES = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}
KILL, TERM = 9, 15
MISSING = 127             # bash(1), EXIT STATUS: the command was not found
CRASHES = frozenset({4, 7, 8, 11})
# Checks of nodes (docs/nodes.md) whose failure is more than an unfit node.
CHECKED = {**dict.fromkeys(("gpu_count", "gpu_ecc", "gpu_nvlink", "gpu_xid", "dcgm"), "gpu_hardware"),
           "infiniband": "network"}
PEER_GONE = ("ConnectionResetError", "ConnectionAbortedError", "BrokenPipeError", "EOFError")
FAILED_CHECK = 0.8   # the node is broken now; that it was so before the failure is inferred
# Slurm's words for a job's state (squeue(1), JOB STATE CODES) that name a cause, how sure they are, and what they say.
_STATES = {
    jobstates.NODE_FAIL: ("node_failure", 0.93, "Slurm: the job ended since a node failed"),
    jobstates.BOOT_FAIL: ("node_failure", 0.93, "Slurm: a node did not boot"),
    jobstates.OUT_OF_MEMORY: ("host_oom", 0.95, "Slurm: the job ran out of memory"),
    jobstates.TIMEOUT: ("time_limit", 0.96, "Slurm: the time limit was reached"),
    jobstates.DEADLINE: ("time_limit", 0.95, "Slurm: the deadline was reached"),
    jobstates.PREEMPTED: ("preempted", 0.96, "Slurm: the job was preempted"),
    jobstates.CANCELLED: ("cancelled", 0.75, "Slurm: the job was cancelled"),
}


def signal_name(number: int) -> str:
    """SIGSEGV for 11."""
    return _SIGNAL_NAMES.get(number, f"signal {number}")


class Witness(NamedTuple):
    """One reading of the evidence, and whose fault it is."""

    category: str
    confidence: float
    summary: str
    hosts: tuple[str, ...] = ()
    rank: int | None = None
    suspects: tuple[str, ...] = ()
    is_check: bool = False    # of a node after the failure: it explains no error of the program
    is_exit: bool = False     # of the task that a guard saw end first
    mark: str = ""            # the failure's fingerprint, where it is not made of the summary
    do: str = ""


def join(verdict: Verdict, known: OutsideEvidence, has_steps: bool = True, findings: Sequence[Finding] = ()) -> Verdict:
    """The log's verdict with what is known from outside: confirmed, replaced, or given its place. `has_steps`: the
    training has logged some; `findings`: of its last launch.
    """
    told = judge_end(known.end) if known.end is not None else None
    if told is not None:
        return _told(told, verdict, known)
    if known.exits:   # how each task ended is known: srun's words on that are no cause
        candidates = (one for one in verdict.candidates if one.rule not in (*OF_SRUN, "memory.srun_killed"))
        verdict = replace(verdict, candidates=tuple(candidates))
    if known.running and verdict.cause is None:
        return Verdict("none", "the run is alive, and nothing in its log speaks of a failure", 0.7, "none")
    verdict = _uncaught(_unexplained(_not_well(_without_echo(verdict, known), known), known), known, has_steps)
    row = TABLE.get(verdict.category)
    is_programs = verdict.cause is not None and row is not None and row.blame is None
    is_told = verdict.category == "cancelled"   # by words on the same SIGTERM
    best = max((one for one in read_evidence(known)
                if not (one.is_check and is_programs) and not (one.do == OF_TERM and is_told)),
               key=lambda witness: witness.confidence, default=None)
    left = find_leaver(verdict, known, findings)
    if left is not None and (best is None or best.confidence < left.confidence):
        return left
    if best is None:
        return _placed(verdict, known)
    if best.category == verdict.category != "unknown":
        sure = round(min(0.98, max(best.confidence, verdict.confidence) + AGREED), 2)
        confirmed = replace(verdict, confidence=sure, suspects=best.suspects or verdict.suspects)
        if best.rank is not None:   # whose time ran out first only waited
            confirmed = replace(confirmed, host=best.hosts[0], rank=best.rank)
        if best.category == "hang" and known.is_hang:
            confirmed = replace(confirmed, summary=best.summary)
        return _placed(confirmed, known)
    is_surer = verdict.cause is not None and verdict.confidence + CLEAR_MARGIN > best.confidence and not (
        best.is_exit and _is_hearsay(verdict))
    # Of a hang the looks at the ranks have more to say than the words of those that were ended for it; but for the rank
    # that the others waited for, where it has raised an exception and stayed.
    has_raised = verdict.cause is not None and bool(verdict.cause.block) and verdict.rank is not None and (
        verdict.rank == best.rank)
    is_behind = verdict.category in BEHIND_A_HANG or has_raised
    if is_behind if best.category == "hang" and known.is_hang else is_surer:
        return _placed(verdict, known)
    return _replaced(verdict, best)


def _is_hearsay(verdict: Verdict) -> bool:
    """Whether the log's cause is mere words, or what ranks say that have lost another one, by sockets of their own too.
    """
    rule = BY_ID.get(verdict.rule or "")
    kind = "" if verdict.cause is None else verdict.cause.text.partition(":")[0].rpartition("]:")[2]
    return rule is None or rule.role == "symptom" or (
        verdict.category == "network" and kind.rpartition(".")[2].strip() in PEER_GONE)


def _told(told: Verdict, verdict: Verdict, known: OutsideEvidence) -> Verdict:
    """What the journal says of the end; the log's own reading stays beside it where it stood there before."""
    start = known.own_term_bytes
    is_before = verdict.cause is not None and (start is None or verdict.cause.offset < start)
    other = verdict if is_before and verdict.category != told.category and verdict.confidence >= BESIDE else None
    followed = (*((verdict.cause,) if verdict.cause is not None else ()), *verdict.symptoms)
    return replace(told, runner_up=other, notes=verdict.notes,
                   symptoms=followed if other is None and told.category != "none" else ())


def _unexplained(verdict: Verdict, known: OutsideEvidence) -> Verdict:
    """A SIGKILL that the log reports and nothing explains is no lack of memory where a supervisor has looked on. The
    kernel's and Slurm's own words on that would be there. (A planned kill was called "host_oom (45% sure)".)
    """
    has_failed = known.running or (known.end is not None and known.end.how == AttemptEnd.FAILED)
    asked = has_failed and verdict.rule == ASKED_BY_TERM
    is_watched = bool(known.exits) or (known.running and known.layout is not None)
    if not (verdict.rule in UNEXPLAINED_KILLS or asked) or not is_watched:
        return verdict
    first = known.first_bad or next(iter(known.exits), None)
    host = _node_of(verdict.rank, known) or verdict.host or (first.host if first is not None else None)
    who = "the launcher" if asked else "a process" if verdict.rank is None else f"rank {verdict.rank}"
    who = f"{who} on {host}" if host else who
    said = verdict.cause.text if verdict.cause is not None else ""
    signal = next((one for one in USER_SIGNALS if f"(exitcode: -{one})" in said),
                  TERM if verdict.rule == ENDED_BY_TERM or asked else KILL)
    return replace(verdict, category="unknown", action="restart", summary=f"{who} was {_killed(signal)}", host=host,
                   do=_advice_on(signal), fingerprint=exit_fingerprint(128 + signal, signal),
                   confidence=min(verdict.confidence, UNEXPLAINED))


def _node_of(rank: int | None, known: OutsideEvidence) -> str | None:
    """The node of a rank: torchrun may call its own host "localhost"."""
    if rank is None or known.layout is None:
        return None
    nodes, per_node = known.layout
    return nodes[rank // per_node] if rank < len(nodes) * per_node else None


def _killed(signal: int) -> str:
    name = f" ({USER_SIGNALS[signal]})" if signal in USER_SIGNALS else ""
    return f"killed by signal {signal}{name}; nothing in the log says by whom"


def _advice_on(signal: int) -> str:
    return OF_KILL if signal == KILL else OF_TERM if signal == TERM else OF_USER


def _uncaught(verdict: Verdict, known: OutsideEvidence, has_steps: bool) -> Verdict:
    """An exception by which a task ended as Python ends programs (exit code 1) was caught by nobody. It is the
    program's own where it comes from the user's code and is of a type that no node can cause. So it is where ranks of
    several nodes have raised the same, and of the only rank before its first step. A command line that is refused
    there is refused again. `once` acts on that.
    """
    cause, first = verdict.cause, known.first_bad
    if first is not None and first.code == MISSING and verdict.category == "environment" and _is_everywhere(known):
        return replace(verdict, confidence=max(CERTAIN, verdict.confidence))
    is_alike = cause is not None and _is_of_all(cause, known)
    if first is not None and verdict.rule in USAGE and is_alike and not has_steps:
        return replace(verdict, confidence=max(USAGE_SURE, verdict.confidence))
    if cause is None or first is None or first.code != 1 or first.signal is not None or not cause.block:
        return verdict
    if verdict.category not in OF_THE_PROGRAM or verdict.confidence >= CERTAIN or known.ledger.get(first.host, 0):
        return verdict
    kind, frames = cause.text.partition(":")[0].rpartition(".")[2].strip(), parse_frames(cause.block)
    is_own = verdict.category == "user_code" and bool(frames) and frames[-1].is_user and kind in MISTAKES
    is_proven = is_own or (is_alike and (kind in ALIKE or not has_steps))
    return replace(verdict, confidence=CERTAIN) if is_proven else verdict


def _is_of_all(cause: Cited, known: OutsideEvidence) -> bool:
    """Whether ranks of several nodes show the cause, several ranks of the only node, or the only rank."""
    if len(cause.hosts) > 1:
        return True
    nodes = {exit.host for exit in known.exits} if known.layout is None else set(known.layout[0])
    is_only_rank = known.layout is not None and known.layout[1] == 1
    return len(nodes) == 1 and (len(cause.ranks) > 1 or is_only_rank)


def _is_everywhere(known: OutsideEvidence) -> bool:
    """Whether a command was missing on several nodes, or on the only one: one of many may lack its mount."""
    hosts = {exit.host for exit in known.exits}
    return len({exit.host for exit in known.exits if exit.code == MISSING}) > 1 or len(hosts) == 1


def _without_echo(verdict: Verdict, known: OutsideEvidence) -> Verdict:
    """srun cancels its own step when a task has failed (-K), and the supervisor ends the other tasks by SIGTERM. Where
    it saw how the first one ended, and no cancel, words about either are what followed. (A drill under load: ranks
    that were ended said "Terminated", and the run was called cancelled.)
    """
    first = known.first_bad
    if first is None:
        return verdict
    is_words = verdict.rule is None and verdict.category == "cancelled"   # the journal would know of a cancel
    is_echo = (verdict.rule == ECHO_OF_TERM or is_words) and TERM not in (first.signal, first.code - 128)
    if not first.signal and verdict.category == "unknown" and verdict.cited:
        is_echo = {cited.rule for cited in verdict.cited} <= OF_SRUN
    if verdict.rule != ECHO_OF_SRUN and not is_echo:
        return verdict
    said = f"{first.who} ended with exit code {first.code}, and {SILENT_LOG}"
    followed = (*((verdict.cause,) if verdict.cause else ()), *verdict.symptoms)
    return Verdict("unknown", said, 0.3, "restart", evidence=(said,), host=first.host or None,
                   symptoms=followed, candidates=verdict.candidates,
                   fingerprint=exit_fingerprint(first.code, first.signal))


def _not_well(verdict: Verdict, known: OutsideEvidence) -> Verdict:
    """A log without a word of failure is no sign of health where a task, srun or the job ended badly."""
    first = known.first_bad
    if verdict.category != "none" or jobstates.COMPLETED in known.states:
        return verdict
    if first is not None:
        how = f"was {_killed(first.signal)}" if first.signal in (KILL, TERM, *USER_SIGNALS) else (
            f"died of {signal_name(first.signal)}" if first.signal else f"ended with exit code {first.code}")
        said = f"{first.who} {how}"
    elif known.srun_code:
        said = f"srun ended with exit code {known.srun_code}"
    elif jobstates.FAILED in known.states:
        said = "Slurm: the job has failed"
    elif known.end is not None and known.end.how in BAD_ENDS:
        said = known.end.told[2] if known.end.told is not None and known.end.told[2] else "the attempt has failed"
    else:
        return verdict
    host = (first.host or None) if first is not None else None
    said = said if "nothing in the log" in said else f"{said}, and {SILENT_LOG}"
    return Verdict("unknown", said, 0.2, "restart", evidence=(said,), host=host,
                   candidates=verdict.candidates, notes=verdict.notes,
                   fingerprint=exit_fingerprint(first.code, first.signal) if first is not None else make_fingerprint(
                       "unknown", "", said))


def read_evidence(known: OutsideEvidence) -> list[Witness]:
    """What each piece of the evidence says by itself."""
    found = []
    if known.lost:
        found.append(Witness("node_failure", 0.9, "; ".join(f"{host}: {why}" for host, why in known.lost),
                             hosts := tuple(host for host, _ in known.lost), suspects=hosts))
    for state in known.states:
        reading = _STATES.get(state.split()[0].rstrip("+") if state else "")
        if reading is not None:
            found.append(Witness(*reading))
    if known.bad_nodes:
        found.append(Witness("node_failure", 0.8, "; ".join(f"{host}: {why}" for host, why in known.bad_nodes),
                             hosts := tuple(host for host, _ in known.bad_nodes), suspects=hosts))
    found += _read_failed_checks(known)
    if known.stacks:
        odd = tuple(dict.fromkeys(host for host, _ in known.stacks if host))
        said = known.stacks_said or "; ".join(
            f"{host}: {where}" if host else where for host, where in known.stacks[:MOST_ODD])
        hosts = odd if len(odd) <= MOST_ODD else ()
        found.append(Witness("hang", known.stacks_sure, said, hosts, rank=known.stacks_rank if hosts else None,
                             suspects=known.stacks_suspects))
    return [*found, *_read_exits(known)]


def _is_cancelled(first: TaskExit | None, known: OutsideEvidence) -> bool:
    """Whether the step was cancelled before a task ended, and `first`, the first to end badly, did so by that SIGTERM.
    """
    is_told = known.end is not None and known.end.row == "step_cancelled"
    return is_told and (first is None or TERM in (first.signal, first.code - 128))


def _read_failed_checks(known: OutsideEvidence) -> list[Witness]:
    """Of each kind of fault that full checks have found on suspects; what could not be checked says nothing."""
    of_kind: dict[str, dict[str, str]] = {}
    for host, names, why in known.failed_checks:
        category = next((CHECKED[name] for name in names if name in CHECKED), "node_failure")
        of_kind.setdefault(category, {})[host] = why
    return [Witness(category, FAILED_CHECK, "; ".join(f"{host} has failed its checks: {why}" for host, why in
                                                      of_host.items()), hosts := tuple(of_host), suspects=hosts,
                    is_check=True) for category, of_host in of_kind.items()]


def _read_exits(known: OutsideEvidence) -> list[Witness]:
    first = known.first_bad
    if _is_cancelled(first, known):
        how = f", and {first.who} ended by SIGTERM" if first is not None else ""
        return [Witness("cancelled", STEP_CANCELLED, f"its step was cancelled{how}")]
    if first is None or first.signal is None:
        return []
    said, hosts = f"{first.who} died of {signal_name(first.signal)}, before any other", (first.host,) * bool(first.host)
    if first.signal in CRASHES:
        return [Witness("native_crash", 0.7, said, hosts, is_exit=True)]
    if first.signal in (KILL, TERM, *USER_SIGNALS):
        said, mark = f"{first.who} was {_killed(first.signal)}", exit_fingerprint(128 + first.signal, first.signal)
        return [Witness("unknown", UNEXPLAINED, said, hosts, is_exit=True, mark=mark, do=_advice_on(first.signal))]
    return []


def _placed(verdict: Verdict, known: OutsideEvidence) -> Verdict:
    """The verdict with the task that ended first as its place, where the log names none, and a suspect by record."""
    first = known.first_bad
    if first is not None and verdict.category not in {"none", *ENDS_OF_JOBS}:
        verdict = replace(verdict, host=verdict.host or first.host or None)
    if not verdict.suspects and verdict.category in RECURS_ON_A_NODE and verdict.host:
        earlier = known.ledger.get(verdict.host, 0)
        if earlier:
            note = f"{verdict.host} was blamed {'once' if earlier == 1 else f'{earlier} times'} before"
            verdict = replace(verdict, suspects=(verdict.host,), notes=(*verdict.notes, note))
    return verdict


def _replaced(verdict: Verdict, best: Witness) -> Verdict:
    """A verdict from outside; the log's own reading stays as the runner-up, its lines as what followed."""
    followed = (*((verdict.cause,) if verdict.cause else ()), *verdict.symptoms)
    host = best.hosts[0] if best.hosts else None
    return Verdict(
        best.category, best.summary, best.confidence, advice(best.category), best.suspects,
        evidence=(best.summary,), host=host, rank=_rank_of(verdict, best, host), symptoms=followed,
        candidates=verdict.candidates, runner_up=verdict if verdict.cause is not None else None,
        fingerprint=best.mark or make_fingerprint(best.category, "", best.summary), do=best.do, notes=verdict.notes,
        changes="a line in the log names a surer cause",
    )


def _rank_of(verdict: Verdict, best: Witness, host: str | None) -> int | None:
    """The witness's own, or that which the log names on the same host.

    Not for a hang, whose ranks were ended there, nor for a kill that the log does not explain. For what other ranks say
    then came of it.
    """
    if best.rank is not None or best.category in ("hang", "unknown"):
        return best.rank
    return verdict.rank if verdict.host == host else None

