"""People who put a run on hold and let it go on: the project's own code behind `hold` and `resume`, under virtual time.

That code asks Slurm and waits, as commands do that a person waits for: a person is a process of the login node, and
`behind_keyboards` gives these modules the simulation's clock and Slurm for as long as a simulation runs.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from unittest import mock

from greenlet import getcurrent  # type: ignore[import-untyped,unused-ignore]

from safelaunch.run.io import runfolder
from safelaunch.run.io.loginactor import LoginActor
from safelaunch.slurm.io import slurm
from safelaunch.slurm.io.slurm import Result
from safelaunch.verbs.common import controls
from safelaunch.verbs.control import queuehold
from safelaunch.verbs.control.queuehold import Turned
from tests.simulation.command import SimCommand
from tests.simulation.hosts import Host
from tests.simulation.process import EPOCH_T, Actor

if TYPE_CHECKING:
    from tests.simulation.sim import Sim

TRIES = 40             # a person who is told "repeat this" does so
TRY_EVERY_S = 30.0
LOOK_AGAIN_S = 300.0


class Person(Actor):
    """Somebody at a login node who holds the run, or lets it go on."""

    def __init__(self, sim: Sim, host: Host, act: Callable[[Person], object]) -> None:
        self._act = act
        super().__init__(sim, host, "person")

    def main(self) -> int:
        """Type it."""
        _AT.sim = self.sim
        self._act(self)
        return 0

    def ended(self, code: int | None, error: str) -> None:
        """A verb never dies of an exception."""
        if error:
            self.sim.crashed("verb", error)

    def ask(self, argv: Sequence[str], env: Mapping[str, str], deadline_s: float) -> Result:
        """slurm.run."""
        command = SimCommand(self.sim.clock, self, argv, env, deadline_s)
        self.sim.clock.after(0.01, lambda: self.sim.slurm.start(command, self.host))
        return command.wait()


def hold(person: Person) -> None:
    """As `safelaunch hold`: the file, then the jobs that wait."""
    run = runfolder.load(person.sim.run_dir)
    if run.state().ended is None:
        touch(person.sim, "hold")
        _repeat(person, lambda: queuehold.hold_jobs(run))


def resume(person: Person) -> None:
    """As `safelaunch resume`: the file is taken away first; and its advice is followed where Slurm knows no job."""
    run = runfolder.load(person.sim.run_dir)
    if run.state().ended is None:
        (person.sim.run_dir / "control" / "hold").unlink(missing_ok=True)
        turned = _repeat(person, lambda: queuehold.release_jobs(run))
        if turned.knows_none:
            if not person.sim.watchers:
                person.sim.start_watch()
            person.sleep(LOOK_AGAIN_S)   # and the watch says so where a job is held all the same
            _repeat(person, lambda: queuehold.release_jobs(run))


def answer(person: Person) -> None:
    """Somebody finds the run on hold by safelaunch itself, looks the job up in Slurm's books, and decides."""
    if any(word == "scancel" for _, word in person.sim.said) or person.sim.cancelled_late:
        touch(person.sim, "kill")
        person.sim.a_person_says("kill")
    else:
        resume(person)


def _repeat(person: Person, turn: Callable[[], Turned]) -> Turned:
    for _ in range(TRIES):
        turned = turn()
        person.sim.trace("person", f"{turned}")
        if not (turned.trouble or turned.refused):
            break
        person.sleep(TRY_EVERY_S)
    return turned


def touch(sim: Sim, name: str) -> None:
    """A control file, from the login node."""
    path = sim.run_dir / "control" / name
    path.touch()
    os.utime(path, (sim.server_t(), sim.server_t()))
    sim.hosts["login"].mount.client.changed(path)


# --- the modules behind the verbs -----------------------------------------------------------------------------------


class _At:
    sim: Sim


_AT = _At()


def _run(argv: Sequence[str], env: Mapping[str, str], deadline_s: float = slurm.DEADLINE_S, cwd: str = "/") -> Result:
    person = next(one for one in _AT.sim.people if one.process.is_current(getcurrent()))
    return person.ask(argv, env, deadline_s)


def _login_actor(run: Any) -> LoginActor:
    seq = max((event.seq for event in run.journal().events if event.gen == 0), default=0)
    return LoginActor(run.dir, seq, "login", lambda: EPOCH_T + _AT.sim.clock.t, 1)


@contextlib.contextmanager
def behind_keyboards() -> Iterator[None]:
    """The verbs' way to Slurm and to the time of day, for as long as one simulation runs."""
    with mock.patch.object(slurm, "run", _run), mock.patch.object(controls, "login_actor", _login_actor):
        yield
