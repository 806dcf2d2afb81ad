"""Tells people what a watch has done (notify): of a run that it has ended or freed nobody else would.

Only whoever acted last in a run tells: if its next supervisor leads already, that one does.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

from safelaunch.base.io import sharedfile
from safelaunch.node import fresh
from safelaunch.notify.io.notify import Delivery
from safelaunch.notify.message import Message, compose
from safelaunch.notify.targets import targets
from safelaunch.run import plan as plans
from safelaunch.run.fold.folding import fold
from safelaunch.run.io import journal, ownership, runfolder
from safelaunch.run.io.journal import Writer
from safelaunch.run.noticewords import due
from safelaunch.supervisor.io.world import World
from safelaunch.watch.io.acts import Careful
from safelaunch.watch.io.memory import Known
from safelaunch.watch.io.reading import RunReader

TRIES = 3      # one a tick, while no target takes the message
POLL_S = 0.1


def tell_people(world: World, reader: RunReader, runs: Mapping[str, Known], host: str,
                say: Callable[[str, str], None]) -> Generator[float, None, None]:
    """Send what is due of these runs, all at once; yields pauses. `say`: the run's folder, what became of it."""
    found, blind = reader.visit(runs, lambda dir: _due(dir, runs[dir].claim, world.now()))
    on_the_way: dict[str, Delivery] = {}
    for dir, known in runs.items():
        row = found.get(dir, {})
        if "error" in row:   # perhaps for a moment
            known.tries_left -= 1
        elif "message" in row:
            known.tries_left -= 1
            on_the_way[dir] = world.deliver(targets(tuple(row["to"]), tuple(row["command"])),
                                            Message(*row["message"]), row["smtp"], row["env"])
        elif dir not in blind:
            known.tries_left = 0
    while on_the_way:
        yield POLL_S
        for dir, delivery in list(on_the_way.items()):
            if (results := delivery.poll()) is not None:
                del on_the_way[dir]
                _note(world, reader, dir, runs[dir], found[dir], host, results, say)


def _note(world: World, reader: RunReader, dir: str, known: Known, row: Mapping[str, Any], host: str,
          results: Mapping[str, str], say: Callable[[str, str], None]) -> None:
    """Journal what was told, so that nobody tells it again."""
    for label, trouble in results.items():
        say(dir, f"a message to {label} was not sent: {trouble}" if trouble else f"a message to {label} was sent")
    failed = [label for label, trouble in results.items() if trouble]
    if len(failed) == len(results) and known.tries_left:
        return
    known.tries_left = 0
    writer = Writer(Careful(Path(dir), reader.ask), known.claim, host, world.now, world.pid)
    writer.seq = int(row["seq"])
    writer.write(writer.event("notified", keys=row["keys"], sent=[one for one in results if one not in failed],
                              failed=failed))


def _due(dir: str, claim: int, now: float) -> dict[str, Any] | None:
    """In a child: what to send, and to whom; None = nothing, or somebody has acted since."""
    folder = Path(dir)
    fresh.see(f"{dir}/claims", f"{dir}/journal")
    if journal.last_claim(folder) != claim or ownership.why_not_own_run(folder) is not None:
        return None
    meta = sharedfile.read_json(folder / "run.json")
    plan = plans.of_config(meta["config"], meta["run_id"])
    if not targets(plan.notify.to, plan.notify.command):
        return None
    events = journal.read(folder, steps_kept=1).events
    state = fold(events)
    told = due(state.notices, plan.notify.when, now)
    if not told:
        return None
    return {"message": compose(plan.name, dir, state, told), "keys": [one.key for one in told], "to": plan.notify.to,
            "command": plan.notify.command, "smtp": plan.notify.smtp, "env": runfolder.read_env(folder),
            "seq": max((event.seq for event in events if event.gen == claim), default=0)}
