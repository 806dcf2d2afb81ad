"""Submitting a sweep: a run for each point, several at once, and `max_parallel` by lanes (docs/sweeps.md)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safelaunch.adapters import runfolder, runpath
from safelaunch.adapters.runfolder import Run
from safelaunch.core.config.resolve import Resolved
from safelaunch.core.plan import AfterRun
from safelaunch.errors import RunFolderError, SafelaunchError
from safelaunch.views import submitting
from safelaunch.views.submitting import Agree, Sending, Submitted, Waits
from safelaunch.views.talk import Say

AT_ONCE = 16   # points: each waits for the disk more than for sbatch (measured: 7 fsync, 60 ms a point one by one)


@dataclass
class SubmittedSweep:
    """The runs of a sweep by point (from 1), those that were there before included; `failed`: what stopped it."""

    name: str
    id: str
    of: int
    runs: dict[int, Submitted] = field(default_factory=dict)
    failed: SafelaunchError | None = None


def submit(
    read: Callable[[], list[Resolved]], say: Say, agree: Agree | None = None,
    after: Callable[[Mapping[str, Any]], Waits] | None = None,
) -> Submitted | SubmittedSweep:
    """Submit the run of a config, or of a sweep a run for each point, or those that an earlier submission of it did not
    come to. The config is read while git and Slurm answer. It reports what happens, such as a submission that goes on.
    `agree` sees what is to be sent to Slurm before anything is made, and may raise; `after` says what the runs wait
    for. Raises ConfigError, UsageError, TemplateError, RunFolderError and SlurmError where nothing was submitted.
    """
    with submitting.open_submission(say) as sending:
        points = read()
        for one in points:
            sending.settle(one)
        waits = after(points[0].config) if after is not None else Waits()
        if points[0].point is None:
            return sending.submit(points[0], agree, waits)
        sweep, before = _find_before(points)
        if agree is not None:
            sending.show(points[0], agree)
        _Sweep(sending, sweep, before, waits).submit(_lanes(points))
        if sweep.failed is not None and not sweep.runs:
            raise sweep.failed
        return sweep


def _lanes(points: Sequence[Resolved]) -> list[list[Resolved]]:
    """The points by lane: in each, every run waits for the end of the one before it."""
    most = points[0].config["max_parallel"] or len(points)
    return [list(points[start::most]) for start in range(min(most, len(points)))]


def _find_before(points: Sequence[Resolved]) -> tuple[SubmittedSweep, dict[int, Run]]:
    """The sweep to submit, and its runs that are there already: of a submission that was cut off."""
    name = base_name(points[0])
    found: dict[int, Run] = {}
    for one in points:
        newest = _newest(Path(one.config["run_dir"]))
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
    return SubmittedSweep(name, os.urandom(4).hex(), len(points)), {}


def base_name(resolved: Resolved) -> str:
    """The name of the sweep."""
    point = resolved.point
    assert point is not None
    name: str = resolved.config["name"]
    return name.removesuffix(f"-{point.suffix}")


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


class _Sweep:
    """The submission of the points that are left."""

    def __init__(self, sending: Sending, sweep: SubmittedSweep, before: dict[int, Run], waits: Waits) -> None:
        self._sending, self._sweep, self._before, self._waits = sending, sweep, before, waits
        self._is_over = False

    def submit(self, lanes: Sequence[Sequence[Resolved]]) -> None:
        """Raises nothing of its own: `failed` says what stopped it."""
        from concurrent.futures import ThreadPoolExecutor  # a run of its own has no time for it

        with ThreadPoolExecutor(AT_ONCE) as pool:
            try:
                list(pool.map(self._submit_lane, lanes))
            finally:
                self._is_over = True   # Ctrl-C: what is under way is finished, nothing more is begun

    def _submit_lane(self, lane: Sequence[Resolved]) -> None:
        last: Submitted | None = None
        for place, one in enumerate(lane):
            if self._is_over:
                return
            try:
                last = self._submit_point(one, last, is_followed=place + 1 < len(lane))
            except SafelaunchError as error:
                self._is_over, self._sweep.failed = True, self._sweep.failed or error
                return

    def _submit_point(self, one: Resolved, last: Submitted | None, is_followed: bool) -> Submitted:
        number = _number(one)
        if (there := self._before.get(number)) is not None:
            state = there.state()
            done = Submitted(there, "" if state.ended is not None else state.jobs[-1].id)
        else:
            sweep: dict[str, Any] = {"id": self._sweep.id, "name": self._sweep.name, "point": number,
                                     "of": self._sweep.of}
            done = self._sending.submit(one, waits=self._waits_of(last, one), sweep=sweep, is_followed=is_followed)
        self._sweep.runs[number] = done
        return done

    def _waits_of(self, last: Submitted | None, one: Resolved) -> Waits:
        """What everything waits for, and the run before this one in its lane, however that ends."""
        if last is None or not last.job:   # it has ended
            return self._waits
        plan = last.run.plan
        jobs = (last.job,) if one.config["cluster"] != "local" else ()
        return Waits((*self._waits.after, AfterRun(plan.name, str(last.run.dir), plan.job_name, is_any=True)),
                     (*self._waits.jobs, *jobs))
