"""Submitting a sweep: a run for each point, several at once, and `max_parallel` by queue slots (docs/sweeps.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from safelaunch.config.resolve import Resolved
from safelaunch.config.sweeps import ARRAY_JOB, ARRAY_TASK, array_id
from safelaunch.errors import RunFolderError, SafelaunchError
from safelaunch.launch.settings import OwnScript, Settings
from safelaunch.run.io import registry, runfolder, runpath
from safelaunch.run.io.runfolder import Run
from safelaunch.run.plan import Plan
from safelaunch.verbs.common.talk import Say
from safelaunch.verbs.submit import submitting
from safelaunch.verbs.submit.submitting import Agree, QueueSlot, Sending, Submitted, Waits

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

AT_ONCE = 16   # points under way: the next ones are written while sbatch and the disk work on these


class SubmittedSweep:
    """The runs of a sweep by point (from 1), those that were there before included; `failed`: what stopped it."""

    def __init__(self, name: str, id: str, of: int) -> None:
        self.name, self.id, self.of = name, id, of
        self.runs: dict[int, Submitted] = {}
        self.failed: SafelaunchError | None = None


def submit(
    read: Callable[[], list[Resolved]], say: Say, agree: Agree | None = None,
    after: Callable[[Settings], Waits] | None = None,
) -> Submitted | SubmittedSweep:
    """Submit the run of a config, or of a sweep a run for each point. After an earlier submission of it, those that
    this did not come to. The config is read while git and Slurm answer. It reports what happens, such as a submission
    that goes on. `agree` sees what is to be sent to Slurm before anything is made, and may raise; `after` says what the
    runs wait for. Raises ConfigError, UsageError, TemplateError, RunFolderError and SlurmError where nothing was
    submitted.
    """
    with submitting.open_submission(say) as sending:
        points = [sending.settle(one) for one in read()]
        waits = after(points[0].settings) if after is not None else Waits()
        if points[0].point is None:
            return sending.submit(points[0], agree, waits)
        sweep, before = _find_before(points)
        if agree is not None:
            sending.show(points[0], agree)
        _Sweep(sending, sweep, before, waits).submit(points)
        if sweep.failed is not None and not sweep.runs:
            raise sweep.failed
        return sweep


def _find_before(points: Sequence[Resolved]) -> tuple[SubmittedSweep, dict[int, Run]]:
    """The sweep to submit, and its runs that are there already: of a submission that was cut off."""
    name = base_name(points[0])
    found: dict[int, Run] = {}
    for one in points:
        newest = _newest(Path(one.settings.run_dir))
        if newest is not None and newest.meta.get("sweep"):
            found[_number(one)] = newest
    ids = [str(run.meta["sweep"]["id"]) for run in found.values()]
    id = max(ids, key=ids.count) if ids else ""
    mine = {number: run for number, run in found.items() if run.meta["sweep"]["id"] == id
            and run.meta["sweep"]["of"] == len(points)}
    states = {number: run.state() for number, run in mine.items()}
    sent = {number: mine[number] for number, state in states.items() if state.jobs or state.ended is not None}
    if mine and len(sent) < len(points):
        return SubmittedSweep(name, id, len(points)), sent
    if any(state.ended is None for state in states.values()):
        raise RunFolderError(f"the sweep {name} ({id}) has not ended", hint=f"see it: safelaunch status {name}   "
                             f"end it: safelaunch stop {name}")
    return SubmittedSweep(name, registry.new_id(), len(points)), {}


def base_name(resolved: Resolved) -> str:
    """The name of the sweep."""
    point = resolved.point
    assert point is not None
    return resolved.settings.name.removesuffix(f"-{point.suffix}")


def _number(resolved: Resolved) -> int:
    assert resolved.point is not None
    return resolved.point.number


def _newest(wanted: Path) -> Run | None:
    """The newest run of a folder's series, as submit makes them."""
    newest = None
    for number in range(1, 10_000):
        folder = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        if not runpath.is_run_folder(folder):
            break
        newest = folder
    return None if newest is None else runfolder.load(newest)


def _numbered(point: Resolved, array: str) -> Resolved:
    """A point; a task of a script's array with the number of its array."""
    settings = point.settings
    if settings.sweep is None or ARRAY_TASK not in settings.sweep:
        return point
    return point._replace(settings=settings.with_(
        env={**settings.env, ARRAY_JOB: array},
        own=(settings.own or OwnScript())._replace(array=f"{array}_{settings.sweep[ARRAY_TASK]}")))


class _PointSlot(QueueSlot):
    """A point's place in its queue slot. The next one is made once this one's run is on disk. So a submission that is
    killed leaves none that waits for a run which is not there. It is sent once Slurm has taken this one's job.
    """

    def __init__(self, point: Resolved, last: _PointSlot | None, is_followed: bool) -> None:
        from concurrent.futures import Future  # a run of its own has no time for them
        from threading import Lock

        self.point, self.is_followed, self._last = point, is_followed, last
        self.is_free = Lock()   # whoever takes it sends it
        self._plan: Future[Plan | None] = Future()   # None: it has ended
        self._job: Future[str] = Future()

    def note_made(self, plan: Plan | None) -> None:
        self._plan.set_result(plan)

    def note_sent(self, job: str) -> None:
        self._job.set_result(job)

    def give_up(self) -> None:
        """Let nobody wait for what has not come."""
        for one in (self._plan, self._job):
            if not one.done():
                one.set_exception(RunFolderError("the run before it was not submitted"))

    def waits(self, all_runs: Waits) -> Waits:
        """What all runs of the sweep wait for, and the run before this one, however that ends."""
        plan = None if self._last is None else self._last._plan.result()
        if plan is None:
            return all_runs
        return Waits((*all_runs.after, plan.awaited), all_runs.jobs)

    def await_job(self) -> tuple[str, ...]:
        plan = None if self._last is None else self._last._plan.result()
        if self._last is None or plan is None:
            return ()
        job = self._last._job.result()
        return () if plan.cluster == "local" else (job,)


class _Sweep:
    """The submission of the points that are left."""

    def __init__(self, sending: Sending, sweep: SubmittedSweep, before: dict[int, Run], waits: Waits) -> None:
        self._sending, self._sweep, self._before, self._waits = sending, sweep, before, waits
        self._is_over = False
        self._sent: list[Future[None]] = []

    def submit(self, points: Sequence[Resolved]) -> None:
        """Raises nothing of its own: `failed` says what stopped it."""
        from concurrent.futures import ThreadPoolExecutor

        slots = points[0].settings.max_parallel or len(points)
        places: list[_PointSlot] = []
        for number, point in enumerate(points):
            last = places[number - slots] if number >= slots else None
            places.append(_PointSlot(point, last, is_followed=number + slots < len(points)))
        # The beginner is not this thread, which Ctrl-C would end in the middle of a folder.
        with ThreadPoolExecutor(AT_ONCE) as pool, ThreadPoolExecutor(1) as beginner:
            try:
                self._begin_all(beginner, pool, places)
                for sent in self._sent:
                    sent.result()
            finally:
                self._is_over = True   # Ctrl-C: what is under way is finished, nothing more is begun

    def _begin_all(self, beginner: Executor, pool: Executor, places: Sequence[_PointSlot]) -> None:
        try:
            begun = [beginner.submit(self._begin, pool, place) for place in places]
        except RuntimeError:   # no thread is to be had (ulimit -u): then this one does it
            for place in places:
                self._begin(pool, place)
            return
        for one in begun:
            one.result()

    def _begin(self, pool: Executor, place: _PointSlot) -> None:
        """Make the run of a point, and have it sent. In the order of the points: each waits for earlier ones only."""
        if len(self._sent) >= AT_ONCE:
            self._sent[-AT_ONCE].exception()   # waits for it
        number = _number(place.point)
        try:
            if self._is_over:
                place.give_up()
            elif number in self._before:
                self._keep(place, self._before[number])
            else:
                sweep: dict[str, object] = {"id": self._sweep.id, "name": self._sweep.name, "point": number,
                                         "of": self._sweep.of}
                point = _numbered(place.point, array_id(self._sweep.id))
                send = self._sending.begin(point, waits=place.waits(self._waits), sweep=sweep, slot=place)
                try:
                    self._sent.append(pool.submit(self._send, place, send))
                except RuntimeError:   # the same; the pool's queue has it all the same, for a thread that there is
                    self._send(place, send)
        except SafelaunchError as error:
            self._fail(place, error)

    def _send(self, place: _PointSlot, send: Callable[[], Submitted]) -> None:
        if not place.is_free.acquire(blocking=False):
            return
        try:
            self._sweep.runs[_number(place.point)] = send()
        except SafelaunchError as error:
            self._fail(place, error)
        finally:
            place.give_up()

    def _fail(self, place: _PointSlot, error: SafelaunchError) -> None:
        self._is_over, self._sweep.failed = True, self._sweep.failed or error
        place.give_up()

    def _keep(self, place: _PointSlot, there: Run) -> None:
        state = there.state()
        job = "" if state.ended is not None else state.jobs[-1].id
        place.note_made(there.plan if job else None)
        place.note_sent(job)
        self._sweep.runs[_number(place.point)] = Submitted(there, job)
