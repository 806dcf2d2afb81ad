"""The watch's acts on one run. Each is claimed first, journalled as intent, done, and journalled as outcome.

A claim is the next number after the last one that the decision knew. If another watch or a supervisor has acted since,
it holds that number, and nothing is done. Where the supervisor is dead the claim begins a new generation, which
supersedes a leader that was only cut off. Beside a living one it has generation 0, like that of a person's `submit`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from safelaunch.base.endings import RunEnd
from safelaunch.base.io import sharedfile
from safelaunch.base.model import Event
from safelaunch.decide.io.knownnodes import try_with_fewer, try_with_known
from safelaunch.decide.nodes.resize import size_in_slurm
from safelaunch.errors import ParseError
from safelaunch.node import fresh
from safelaunch.run import acts
from safelaunch.run import plan as plans
from safelaunch.run.acts import NOTE, ActOutcome
from safelaunch.run.io import journal, ownership, runfolder
from safelaunch.run.io.journal import Direct, Writer
from safelaunch.script.laterjobs import options as later_options
from safelaunch.slurm import jobstates, nodefold, slurmtext, via
from safelaunch.slurm.excludelist import NO_SUCH_NODE, ExcludeList
from safelaunch.slurm.io import slurm
from safelaunch.slurm.io.slurm import Command, Result, outcome, said
from safelaunch.supervisor.io.world import World
from safelaunch.watch.io.reading import Ask
from safelaunch.watch.watched import (
    SMALLER,
    Act,
    Cancel,
    Free,
    MakeSmaller,
    Note,
    Queue,
    Relax,
    StartNow,
    WriteEnd,
    act_of,
)

FOLDER_S = 5.0
OWNER = "watch"     # of the evidence against a node
OVERTAKEN: ActOutcome[str | None] = ActOutcome(False, None, {"why": "somebody else acts on the run"})

# An act yields commands, is sent their results, and returns the sentence for people; None = nothing done.
Doing = Generator[Command, Result, str | None]
Effect = Generator[Command, Result, ActOutcome[str | None]]
Asking = Generator[Command, Result, Result]
Told = Callable[[], Event]          # an event, numbered when it is its turn


class Blind(Exception):
    """The run's folder no longer answers: nothing more is done in this round, and people are told."""


class Careful:
    """The run folder as a writer needs it, each touch in a disposable child."""

    def __init__(self, root: Path, ask: Ask) -> None:
        self._folder, self._ask = Direct(root), ask

    def append(self, name: str, data: bytes, deadline_s: float = FOLDER_S) -> bool:
        """True once `data` is durable at the end of the file; False = nobody knows."""
        return self._ask(lambda: self._folder.append(name, data), FOLDER_S).value is True

    def publish(self, name: str, data: bytes, deadline_s: float = FOLDER_S) -> bool | None:
        """Publish exclusively: won, lost, or unknown."""
        answer = self._ask(lambda: self._folder.publish(name, data), FOLDER_S)
        return answer.value if answer.is_ok else None


@dataclass
class WatchAct:
    """One act on one run; `facts` are those of reading.examine."""

    run_dir: Path
    facts: Mapping[str, Any]
    world: World
    ask: Ask
    host: str

    def do(self) -> Doing:
        """Carry the act out; raises Blind."""
        name, fields = self.facts["act"]
        act = act_of(name, fields)
        self.plan = plans.of_config(self.facts["meta"]["config"], self.facts["meta"]["run_id"])
        self.folder = Careful(self.run_dir, self.ask)
        env = self.ask(lambda: (Path(self.facts["meta"]["cwd"]).is_dir(), runfolder.read_env(self.run_dir),
                                ownership.why_not_own_run(self.run_dir)), FOLDER_S)
        if not env.is_ok or env.value is None:
            raise Blind(env.error or "its folder does not answer")
        if env.value[2] is not None:
            raise Blind(env.value[2])
        self.env = slurm.outside_job(env.value[1])
        self.excluding = ExcludeList.of(self.plan.sbatch)
        beside = isinstance(act, Note | StartNow) or (isinstance(act, Queue) and act.beside)
        self.claim = int(self.facts["claim"]) + 1
        gen = 0 if beside else self.claim
        action = f"watch: {name.lower()}"
        self.content = journal.render_claim(gen, self.host, action, self.world.now(), self.world.pid)
        won = self.folder.publish(f"claims/{self.claim}", self.content)
        if won is None:
            raise Blind("its folder takes no claim")
        if not won:
            return None
        self.writer = Writer(self.folder, gen, self.host, self.world.now, self.world.pid)
        self.writer.seq = 0 if gen else int(self.facts["seq"])
        self.announce(self.writer.event("decision", row=self.facts["row"], action=name.lower(), why=act.why))
        return (yield from self._carry_out(act))

    def _carry_out(self, act: Act) -> Doing:
        match act:
            case WriteEnd():
                self.announce(self._end(act))
                return f"wrote down its end: {act.how}: {act.why}"
            case Note():
                acts.perform_now(self, NOTE, self.claim, lambda: ActOutcome(True, None), job=act.job)
                return f"noted: {act.why}"
            case Queue():
                self._suspect(act.suspects, act.exclude, act.why)
                return (yield from self._perform("queue_successor", self._queue(act)))
            case Relax():
                return (yield from self._perform("relax", self._relax(act), job=act.job, exclude=list(act.keep)))
            case MakeSmaller():
                return (yield from self._perform(SMALLER, self._make_smaller(act), job=act.job))
            case Free():
                self._suspect(act.suspects, act.exclude, act.why)
                return (yield from self._perform("free_successor", self._free(act), job=act.job,
                                                 exclude=list(act.exclude)))
            case Cancel():
                self._suspect(act.suspects, act.exclude, act.why)
                # In the journal before the end: it is no person's request (run.fold.state).
                return (yield from self._perform("cancel", self._cancel(act), job=act.job))
            case StartNow():
                return (yield from self._perform("start_now", self._start_now(act), job=act.job))

    def _perform(self, act: str, doing: Effect, **data: Any) -> Doing:
        return (yield from acts.perform(self, act, self.claim, doing, **data))

    # --- the next job ---------------------------------------------------------------------------------------------

    def _queue(self, act: Queue) -> Effect:
        looked = yield self._run(slurm.squeue_by_name(self.plan.job_name))
        found = _other_job(looked, self.plan.job_name, act.after)
        if found is None:
            return ActOutcome(False, f"did not queue its next job: squeue gave no clear answer ({said(looked)})",
                              {"why": f"squeue gave no clear answer: {said(looked)}"})
        if found:   # an earlier sbatch worked, and nobody journalled it
            return self._queued(act, found, "was found in the queue")
        if self._is_overtaken():
            return OVERTAKEN
        result, exclude = yield from try_with_fewer(act.exclude, lambda names: self._with_known_nodes(
            names, lambda: self._sbatch(act, names)))
        if not result.is_ok and act.after is None and via.is_dependency_refused(result.stderr):
            result = yield self._sbatch(act, exclude, is_single=False)   # there is nothing to depend upon
        if not result.is_ok:
            return _failed(result, "could not queue its next job")
        try:
            job = slurmtext.parse_submitted(result.stdout)
        except ParseError as error:
            return ActOutcome(None, f"queued its next job, whose id nobody knows: {error.message}",
                              {"why": error.message})
        again = f"may use {nodefold.fold(act.exclude)} again, since too few nodes are left, and "
        return self._queued(act, job, f"{'' if exclude == act.exclude else again}was queued", exclude)

    def _sbatch(self, act: Queue, exclude: tuple[str, ...], is_single: bool = True) -> Command:
        """afterany only after a job that runs: Slurm forgets others, and one that hangs at its end would hold it."""
        words = [f"afterany:{act.after}"] if act.after else []
        words += ["singleton"] if is_single else []
        options = [f"--dependency={','.join(words)}"] if words else []
        options += [*later_options(self.facts["meta"].get("later", {})), *self.excluding.options(exclude)]
        return self._run(slurm.sbatch(str(self.run_dir / "job.sbatch"), options), self.facts["meta"]["cwd"])

    def _queued(self, act: Queue, job: str, how: str, exclude: tuple[str, ...] = ()) -> ActOutcome[str | None]:
        before = act.after or self.facts["last_job"]
        told: list[Told] = [lambda: self.writer.event("submitted", job=job, name=self.plan.job_name,
                                                      successor_of=before, exclude=list(exclude))]
        if not act.beside:   # the job before it is over, or nearly
            told.append(lambda: self.writer.event("handed_over", job=job, exclude=list(exclude), why=act.why))
        return ActOutcome(True, f"job {job} {how} to go on: {act.why}", then=told)

    # --- a job that waits -----------------------------------------------------------------------------------------

    def _relax(self, act: Relax) -> Effect:
        result = yield from self._update(act.job, act.keep)
        if not result.is_ok:
            return _failed(result, f"could not change job {act.job}")
        kept = [node for node in act.keep if node not in self.excluding.own]
        return ActOutcome(True, f"job {act.job} may use {nodefold.fold(act.drop)} again: {act.why}", then=(
            *(partial(self._readmit, node, act.why) for node in act.drop),
            lambda: self.writer.event("successor_relaxed", job=act.job, exclude=kept, why=act.why)))

    def _make_smaller(self, act: MakeSmaller) -> Effect:
        result = yield from self._update(act.job, None, **size_in_slurm(self.plan, act.nodes))
        if not result.is_ok:
            return _failed(result, f"could not make job {act.job} smaller")
        return ActOutcome(True, f"job {act.job} asks for {act.nodes} nodes now: {act.why}",
                          {"job": act.job, "nodes": act.nodes})

    def _free(self, act: Free) -> Effect:
        """The exclusions first: else the next attempt could meet the last one's ranks on a silent node."""
        changes = [self._update(act.job, act.exclude)] if act.exclude else []
        for change in [*changes, self._update(act.job, None, Dependency="singleton")]:
            result = yield from change
            if not result.is_ok:
                return _failed(result, f"could not change job {act.job}")
        told = f"job {act.job} may start now, without {nodefold.fold(act.exclude) or 'exclusions'}: {act.why}"
        return ActOutcome(True, told, then=(
            lambda: self.writer.event("successor_freed", job=act.job, exclude=list(act.exclude), why=act.why),))

    def _start_now(self, act: StartNow) -> Effect:
        """Not in the same second: a node would refuse the job that it has just killed, which is then lost
        (supervisor.ends.endings.start_soon).
        """
        result = yield from self._update(act.job, act.exclude or None, StartTime="now+3")
        how = "may start now" if result.is_ok else "could not be let go"
        return _as_said(result, f"job {act.job} {how}: {act.why}")

    # --- a job that nobody supervises -----------------------------------------------------------------------------

    def _cancel(self, act: Cancel) -> Effect:
        if act.successor is not None and act.exclude:
            result = yield from self._update(act.successor, act.exclude)
            if not result.is_ok and result.is_unknown:
                return ActOutcome(False, f"did not end job {act.job}: {said(result)}", {"why": said(result)})
        if self._is_overtaken():   # its supervisor is back
            return OVERTAKEN
        result = yield self._run(slurm.scancel(act.job))
        return _as_said(result, f"{'ended' if result.is_ok else 'tried to end'} job {act.job}: {act.why}")

    def _is_overtaken(self) -> bool:
        """Whether somebody else acts on the run: this watch may have stood still since it won its claim."""
        def look() -> bool:
            fresh.see(f"{self.run_dir}/claims")
            own = self.run_dir / "claims" / str(self.claim)
            return journal.last_claim(self.run_dir) == self.claim and sharedfile.read(own) == self.content
        latest = self.ask(look, FOLDER_S)
        if not latest.is_ok:
            raise Blind(latest.error or "its folder does not answer")
        return not latest.value

    # --- services -------------------------------------------------------------------------------------------------

    def _end(self, act: WriteEnd) -> Event:
        if act.how == RunEnd.COMPLETED:
            return self.writer.event("completed", exit_code=act.exit_code, why=act.why)
        if act.how == RunEnd.STOPPED:
            return self.writer.event("stopped", exit_code=act.exit_code, why=act.why)
        return self.writer.event("gave_up", exit_code=act.exit_code, why=act.why)

    def _readmit(self, node: str, why: str) -> Event:
        return self.writer.event("node_readmitted", node=node, why=why)

    def announce(self, *events: Event) -> None:
        """Nothing is done that could not be journalled first."""
        if not self.writer.write(*events):
            raise Blind("its journal takes no line")

    def record(self, *events: Event) -> None:
        """Journal the outcome; if that is lost, the next check finds the job by its name."""
        self.writer.write(*events)

    def _suspect(self, nodes: tuple[str, ...], exclude: tuple[str, ...], why: str) -> None:
        """Evidence against nodes; they are excluded as far as the run can start without them."""
        events = [self.writer.event("node_suspected", node=node, kind="lost", why=why, owner=OWNER)
                  for node in nodes]
        if self.plan.suspects.exclude:
            events += [self.writer.event("node_excluded", node=node, why=why, owner=OWNER)
                       for node in nodes if node in exclude]
        if events:
            self.announce(*events)

    def _run(self, argv: tuple[str, ...], cwd: str = "/") -> Command:
        return self.world.command(argv, self.env, slurm.DEADLINE_S, cwd)

    def _update(self, job: str, exclude: tuple[str, ...] | None, **changes: str) -> Asking:
        """Change a job, and the nodes that it is kept from; `exclude` None = those stay as they are."""
        def start() -> Command:
            lists = {} if exclude is None else {"ExcNodeList": self.excluding.text(exclude)}
            return self._run(slurm.update_job(job, **lists, **changes))

        return (yield from self._with_known_nodes(exclude or (), start))

    def _with_known_nodes(self, named: tuple[str, ...], start: Callable[[], Command]) -> Asking:
        """The result of a command that names nodes; names that Slurm does not know are written down."""
        def leave_out(there: tuple[str, ...] | None) -> bool:
            gone = self.excluding.gone(named, there)
            self.excluding = self.excluding.without(gone)
            if gone:
                self.announce(*(self.writer.event("node_left_out", node=node, why=NO_SUCH_NODE) for node in gone))
            return bool(gone)

        result = yield from try_with_known(start, lambda: self._run(slurm.sinfo(None)), leave_out)
        assert result is not None   # `start` always starts something
        return result


def _other_job(result: Result, name: str, but: str | None) -> str | None:
    """Id of a job of that name that waits or runs, except `but`; "" = there is none, None = no clear answer."""
    jobs = slurm.jobs_in(result)
    return None if jobs is None else next(
        (job.id for job in jobs if job.name == name and job.id != but and job.state not in jobstates.ENDING), "")


def _as_said(result: Result, sentence: str) -> ActOutcome[str | None]:
    """What came of an act that is one command."""
    ok = outcome(result)
    return ActOutcome(ok, sentence, {} if ok else {"why": said(result)})


def _failed(result: Result, sentence: str) -> ActOutcome[str | None]:
    return _as_said(result, f"{sentence}: {said(result)}")
