"""The watch of all runs of a user: reads their heartbeats, asks Slurm when there is a reason to, and acts.

`tick` is a generator that yields Slurm's commands and is sent their results: its caller owns the clock and the waiting.
Slurm is asked once for all runs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safelaunch.errors import ParseError, SlurmError
from safelaunch.run.heartbeat import parse as parse_heartbeat
from safelaunch.slurm import jobstates, slurmtext
from safelaunch.slurm.io import slurm
from safelaunch.slurm.io.slurm import Command, Result
from safelaunch.slurm.slurmtext import JobAccount, KnownJob
from safelaunch.supervisor.io.world import World
from safelaunch.watch import watch, watchfacts
from safelaunch.watch.io import telling
from safelaunch.watch.io.acts import Blind, WatchAct
from safelaunch.watch.io.memory import Known, Memory
from safelaunch.watch.io.reading import RunQuestion, RunReader
from safelaunch.watch.watched import MakeSmaller, Note, SlurmAnswer, WriteEnd

# Slurm is asked a minute after something has changed, then after two, four … minutes, and at last every half an hour.
# With the jitter that is 46 times a day, where nothing happens.
FIRST_S, LAST_S, JITTER = 60.0, 1800.0, 0.1
SOON_S = 55.0               # never sooner than this after the last time
NO_SACCT_S = 1800.0         # a site without accounts is not asked again at once
SACCT_PATIENCE_S = 900.0    # slurmdbd is restarted within minutes; a person's scancel may stand there alone
TELL_EVERY_S = 3600.0       # as often as people have found it useful
MAX_NAMES_BYTES = 100_000   # of one command line argument; the kernel's limit is 131,072 (execve(2))
MAX_ANSWER_BYTES = 1 << 20  # slurm.io.slurm reads no more: a longer answer was cut off

Asking = Generator[Command, Result, None]
Tell = Callable[[str, str, str], None]   # kind (pulse, act, blind), the run's folder ("" = none), a sentence


@dataclass
class Watcher:
    """Watches `named` runs, or all registered ones where there are none; `tell` takes what people are to read."""

    world: World
    env: Mapping[str, str]
    host: str
    tell: Tell
    memory: Memory = field(default_factory=Memory)
    named: tuple[tuple[str, str], ...] = ()      # folder, job name
    reader: RunReader = field(default_factory=RunReader)
    only_watch: bool = False                     # look and tell, and do nothing
    cluster: str = ""                            # the name of the one that Slurm's commands ask here, if known
    _no_slurm: bool = False                      # it gave no clear answer when it was last asked
    _no_list: bool = False                       # the user's list of runs did not answer
    _blind_to: tuple[str, ...] = ()
    _trouble: str = ""

    def tick(self) -> Asking:
        """Check everything that is due."""
        now_s = self.world.now_s()
        runs = self._runs()
        answering = self._glance(runs, now_s)
        if runs and self._is_due(runs, now_s):
            yield from self._ask_and_judge(answering, now_s)
        for dir, known in runs.items():
            self._tell_again(dir, known, now_s)

    @property
    def has_to_tell(self) -> bool:
        return any(known.tries_left for known in self.memory.runs.values())

    def tell_people(self) -> Generator[float, None, None]:
        """Send the messages on what was done, after a tick; yields pauses."""
        waiting = {dir: known for dir, known in self.memory.runs.items() if known.tries_left}
        if waiting:
            yield from telling.tell_people(self.world, self.reader, waiting, self.host,
                                           lambda dir, text: self.tell("act", dir, text))

    @property
    def is_blind(self) -> bool:
        """Whether something that it is to watch gave no clear answer: Slurm, the list of runs, the folder of one."""
        return self._no_slurm or self._no_list or bool(self._blind_to)

    @property
    def runs(self) -> dict[str, Known]:
        """The runs that have not ended, as far as this watcher knows."""
        return {dir: known for dir, known in self.memory.runs.items() if not known.ended}

    # --- the folders ----------------------------------------------------------------------------------------------

    def _runs(self) -> dict[str, Known]:
        """The runs to watch; the list of runs is read anew each time, for one may just have been submitted."""
        listed: Sequence[tuple[str, str]] | None = self.named or self.reader.registered(self.cluster)
        self._no_list = listed is None
        if listed is None:
            self._tell_blind("the list of your runs, in your home, does not answer")
            return self.runs
        for dir, job_name in listed:
            known = self.memory.runs.get(dir)
            if known is None or known.job_name != job_name:   # another run may have taken the folder
                self.memory.runs[dir] = Known(job_name=job_name)
        wanted = {dir for dir, _ in listed}
        if not self.named:
            self.memory.runs = {dir: known for dir, known in self.memory.runs.items() if dir in wanted}
        return {dir: known for dir, known in self.runs.items() if dir in wanted}

    def _glance(self, runs: Mapping[str, Known], now_s: float) -> dict[str, Known]:
        """Note the heartbeats that have moved; the runs whose folders answer."""
        changed, blind = self.reader.glance(runs)
        for dir, row in changed.items():
            known = runs[dir]
            if isinstance(row, dict):
                continue   # an error, told when the run is examined
            known.sign, told, real, claim = row
            if known.claim_s is None and claim is not None:   # before Slurm is asked, as at every later check
                known.claim, known.claim_s = claim, now_s
            known.real = real or known.real
            pulse = None if told is None else parse_heartbeat(told)
            if known.heartbeat is None or pulse is None or pulse.beat != known.heartbeat.beat:
                known.moved_s = now_s
            known.heartbeat = pulse
        for dir, known in runs.items():
            if known.moved_s is None or dir in blind:
                known.moved_s = now_s   # an unread heartbeat is not known to stand still
        self._tell_blind_to(blind)
        return {dir: known for dir, known in runs.items() if dir not in blind}

    # --- Slurm ----------------------------------------------------------------------------------------------------

    def _is_due(self, runs: Mapping[str, Known], now_s: float) -> bool:
        """Whether to ask Slurm now: the time has come, or something has become doubtful."""
        memory = self.memory
        if memory.asked_s is None or now_s - memory.asked_s >= memory.every_s:
            return True
        if now_s - memory.asked_s < SOON_S:
            return False
        return any(not known.row or (known.row == "running" and (
            known.silent_s(now_s) >= watch.STALE_S or (known.heartbeat is not None and known.heartbeat.over)))
                   for known in runs.values())

    def _ask_and_judge(self, runs: Mapping[str, Known], now_s: float) -> Asking:
        before = {dir: known.row for dir, known in runs.items()}
        claims = {dir: known.claim if known.claim_s is not None else None for dir, known in runs.items()}
        jobs = yield from self._ask_queue(runs)
        self.memory.asked_s = self.world.now_s()
        if jobs is None:
            self._space(is_calm=False)
            return
        now_s = self.world.now_s()
        words = {dir: self._remember(known, jobs.get(known.job_name, ()), now_s) for dir, known in runs.items()}
        doubtful = {dir: known for dir, known in runs.items() if not self._note_well(dir, known, words[dir], now_s)}
        found = self._examine(doubtful, words, now_s)
        found |= yield from self._ask_more(found, doubtful, words, now_s)
        acted = False
        for dir, row in found.items():
            # Else somebody has acted since, perhaps after Slurm was asked. What a person has cancelled stays true, and
            # Slurm forgets it soon.
            if row["claim"] == claims[dir] or (row["act"] and row["act"][0] == Note.__name__):
                acted |= yield from self._act(dir, runs[dir], row)
        is_same = all(before[dir] == known.row for dir, known in runs.items())
        self._space(is_calm=is_same and not acted and not self.memory.no_word_since_s)

    def _ask_queue(self, runs: Mapping[str, Known]) -> Generator[Command, Result, dict[str, list[KnownJob]] | None]:
        """Slurm's jobs by their name; None = no clear answer, and people are told."""
        jobs: list[KnownJob] = []
        parts = list(_chunks(sorted({known.job_name for known in runs.values()})))
        while parts:
            names = parts.pop(0)
            result = yield self._run(slurm.squeue_watch(names))
            is_cut = result.is_ok and len(result.stdout.encode()) >= MAX_ANSWER_BYTES
            if is_cut and len(names) > 1:
                parts[:0] = [names[:len(names) // 2], names[len(names) // 2:]]
                continue
            try:
                if not result.is_ok or is_cut:
                    raise ParseError((result.stderr.strip() or "no answer") if not result.is_ok else
                                     "squeue's answer is too long")
                jobs += slurmtext.parse_watch(result.stdout)
            except ParseError as error:
                self._no_slurm = True
                self._tell_blind(f"Slurm gives no clear answer ({error.message[:200]})")
                return None
        self._no_slurm = False
        self._trouble = self._trouble if self.memory.no_word_since_s else ""
        by_name: dict[str, list[KnownJob]] = {}
        for job in jobs:
            by_name.setdefault(job.name, []).append(job)
        return by_name

    def _remember(self, known: Known, jobs: Sequence[KnownJob], now_s: float) -> SlurmAnswer:
        """What Slurm says of a run, with what earlier answers add to it."""
        known.seen = known.seen or bool(jobs)
        outline = watchfacts.outline(jobs)
        known.absences = 0 if outline else known.absences + 1
        running = next((job for job in jobs if job.state == jobstates.RUNNING), None)
        known.running = None if running is None else [running.elapsed_s, running.start, running.nodelist]
        if outline != known.outline:
            known.outline, known.outline_s = outline, now_s
        if not any(job.state in jobstates.QUEUED and slurmtext.lacks_nodes(job.reason) for job in jobs):
            known.short_s = None
        elif known.short_s is None:
            known.short_s = now_s
        return SlurmAnswer(tuple(jobs), known.absences, now_s - known.outline_s,
                           short_s=0.0 if known.short_s is None else now_s - known.short_s)

    def _note_well(self, dir: str, known: Known, slurm_answer: SlurmAnswer, now_s: float) -> bool:
        """Whether heartbeat and Slurm agree that all is well; then the journal is not even read."""
        pulse, jobs = known.heartbeat, slurm_answer.jobs or ()
        if pulse is None or pulse.over:
            return False   # there is no leader, or it leaves
        states = {job.number: job.state for job in jobs}
        if states.get(pulse.job) != jobstates.RUNNING or known.silent_s(now_s) >= watch.STALE_S:
            return False
        if jobstates.CANCELLED in states.values():
            return False   # a person's request is to be written down
        if not known.hands_over and (pulse.successor is None or states.get(pulse.successor) not in jobstates.QUEUED):
            return False   # it may be this watch that has to queue the next job
        self._note(dir, known, "running", "", now_s)
        return True

    def _examine(self, runs: Mapping[str, Known], answers: Mapping[str, SlurmAnswer], now_s: float) -> dict[str, Any]:
        """What the children make of these runs; noted, and returned where there is more to ask or to do."""
        looks = [RunQuestion(dir, answers[dir], known, self.world.now(), now_s, bool(self.named), self.host,
                             self.env.get("SLURM_CONF", ""), self.cluster) for dir, known in runs.items()]
        found, blind = self.reader.examine(looks)
        self._tell_blind_to([*self._blind_to, *(dir for dir in blind if dir not in self._blind_to)])
        more = {}
        for dir, row in found.items():
            known = runs[dir]
            if "error" in row:
                self._note(dir, known, "unreadable", f"cannot be read, so it is not watched: {row['error']}", now_s)
                continue
            if row["claim"] != known.claim or known.claim_s is None:
                known.claim, known.claim_s = row["claim"], now_s
            known.ended, known.hands_over = row["ended"], row["hands_over"]
            if row["job_name"] != known.job_name:
                self._note(dir, known, "unreadable", "is another run than the one that was submitted here", now_s)
                continue
            self._note(dir, known, row["row"], row["text"], now_s)
            if row["act"] or row["asks"]:
                more[dir] = row
        return more

    def _ask_more(self, found: Mapping[str, Any], runs: Mapping[str, Known], answers: dict[str, SlurmAnswer],
                  now_s: float) -> Generator[Command, Result, dict[str, Any]]:
        """What the children make of the runs that asked for sacct, then perhaps for the states of nodes, told that."""
        nodes: dict[str, tuple[tuple[str, str], ...]] = {}
        reservations: Result | None = None
        last = dict(found)
        while asking := [dir for dir, row in last.items() if row["asks"]]:
            jobs = [job for dir in asking if "sacct" in last[dir]["asks"] for job in last[dir]["jobs"]]
            accounts: dict[str, JobAccount] | None = (yield from self._ask_accounts(jobs)) if jobs else {}
            for dir in asking:
                if "sacct" in last[dir]["asks"]:
                    answers[dir] = answers[dir]._replace(accounts=accounts)
                if "nodes" not in last[dir]["asks"]:
                    continue
                partition = next((job.partition for job in answers[dir].jobs or () if jobstates.is_alive(job.state)),
                                 last[dir]["partition"])
                if partition not in nodes:
                    nodes[partition] = _parsed_nodes((yield self._run(slurm.sinfo(partition)))) or ()
                if last[dir]["reservation"] and reservations is None:
                    reservations = yield self._run(slurm.sinfo_reservations())
                answers[dir] = answers[dir]._replace(nodes=nodes[partition],
                                                     reserved=_reserved(reservations, last[dir]["reservation"]))
            answered = self._examine({dir: runs[dir] for dir in asking}, answers, now_s)
            last = {dir: row for dir, row in answered.items() if not set(row["asks"]) & set(last[dir]["asks"])}
            found = {**found, **answered}
        return dict(found)

    def _ask_accounts(self, jobs: Sequence[str]) -> Generator[Command, Result, dict[str, JobAccount] | None]:
        """What sacct says of jobs; {} where the site keeps none, None while its database does not answer."""
        if self.world.now_s() < self.memory.no_sacct_until_s:
            return {}
        result = yield self._run(slurm.sacct(sorted(set(jobs))))
        self.memory.no_word_since_s = self.memory.no_word_since_s or self.world.now_s()
        try:
            accounts = slurmtext.parse_sacct(result.check().stdout)
        except (ParseError, SlurmError):
            is_silent = result.is_unknown or slurmtext.is_database_away(result.stderr)
            if is_silent and self.world.now_s() - self.memory.no_word_since_s < SACCT_PATIENCE_S:
                self._tell_blind(f"sacct gives no clear answer ({result.stderr.strip()[:200] or 'none in time'})")
                return None
            self.memory.no_sacct_until_s = self.world.now_s() + NO_SACCT_S
            accounts = {}
        self.memory.no_word_since_s = 0.0
        return accounts

    def _space(self, *, is_calm: bool) -> None:
        """When to ask next."""
        base_s = min(LAST_S, self.memory.every_s * 2) if is_calm else FIRST_S
        self.memory.every_s = base_s * (1 + JITTER * self.world.chance())

    # --- acts and words -------------------------------------------------------------------------------------------

    def _act(self, dir: str, known: Known, row: Mapping[str, Any]) -> Generator[Command, Result, bool]:
        """Carry out what was judged; True when something was done."""
        if row["act"] is None or self.only_watch:
            return False
        try:
            act = WatchAct(Path(dir), row, self.world, self.reader.ask, self.host)
            said = yield from act.do()
        except Blind as blind:   # whatever was done has been announced, or nothing was
            known.claim_s = None
            self.tell("blind", dir, f"{blind}: the action is reconsidered ({row['act'][0].lower()})")
            return False
        if said is None:
            return False
        if row["act"][0] == MakeSmaller.__name__:
            known.short_s = None   # it may wait as long for so many
        if row["act"][0] != Note.__name__:
            known.absences = 0   # two new answers before the next conclusion
        known.claim, known.claim_s = row["claim"] + 1, self.world.now_s()
        known.ended = row["act"][0] == WriteEnd.__name__
        if act.writer.gen:   # beside a leader it is his to tell
            known.tries_left = telling.TRIES
        self.tell("act", dir, said)
        return True

    def _note(self, dir: str, known: Known, row: str, text: str, now_s: float) -> None:
        """Take a judgement in; people are told where it is another one than before."""
        is_news = row != known.row
        known.row, known.text = row, text
        if is_news and not (known.ended and known.told_s is None):   # a run that had ended before is no news
            self.tell("pulse", dir, self.sentence(known, now_s))
            known.told_s = now_s

    def _tell_again(self, dir: str, known: Known, now_s: float) -> None:
        if known.told_s is not None and not known.ended and now_s - known.told_s >= TELL_EVERY_S:
            self.tell("pulse", dir, self.sentence(known, now_s))
            known.told_s = now_s

    def sentence(self, known: Known, now_s: float) -> str:
        """What is known of a run, for people; of a running one up to this moment, since its heartbeat is."""
        if known.row != "running" or known.running is None:
            return known.text
        elapsed_s, start, nodelist = known.running
        job = KnownJob("", jobstates.RUNNING, elapsed_s=float(elapsed_s), start=str(start), nodelist=str(nodelist))
        since_s = now_s - (self.memory.asked_s if self.memory.asked_s is not None else now_s)
        step = known.heartbeat.step if known.heartbeat is not None else None
        return watchfacts.describe(job, max(0.0, since_s), step)

    def _tell_blind_to(self, dirs: Sequence[str]) -> None:
        """Say once of each folder that it does not answer."""
        for dir in dirs:
            if dir not in self._blind_to:
                self.tell("blind", dir, "its folder does not answer: no action is taken")
        self._blind_to = tuple(dirs)

    def _tell_blind(self, trouble: str) -> None:
        if trouble != self._trouble:
            self.tell("blind", "", f"{trouble}: no action is taken")
        self._trouble = trouble

    def _run(self, argv: tuple[str, ...]) -> Command:
        return self.world.command(argv, slurm.outside_job(self.env))


def _chunks(names: Sequence[str]) -> Generator[list[str], None, None]:
    """Names for one command line each."""
    chunk: list[str] = []
    size = 0
    for name in names:
        if chunk and size + len(name) + 1 > MAX_NAMES_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(name)
        size += len(name) + 1
    if chunk:
        yield chunk


def _reserved(result: Result | None, name: str) -> tuple[str, ...] | None:
    return slurmtext.reserved_nodes(result.stdout, name) if name and result is not None and result.is_ok else None


def _parsed_nodes(result: Result) -> tuple[tuple[str, str], ...] | None:
    try:
        return slurmtext.parse_sinfo(result.stdout) if result.is_ok else None
    except ParseError:
        return None
