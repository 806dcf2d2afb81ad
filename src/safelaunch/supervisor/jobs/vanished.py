"""A run folder that a person has removed or renamed while the job runs: the training goes on, and the job ends with it.

Two witnesses: this node, for a minute, and another node of the job, where there is one (decide.ends.vanished).
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from safelaunch.base.io import folderroute
from safelaunch.base.plaintext import clean_lines
from safelaunch.base.secretmask import mask
from safelaunch.decide.ends import vanished
from safelaunch.decide.ends.vanished import Look, Next
from safelaunch.supervisor.state.attempt import RunningAttempt
from safelaunch.supervisor.state.clock import Clock
from safelaunch.supervisor.state.folder import FolderState
from safelaunch.supervisor.state.helpers import Helpers
from safelaunch.supervisor.state.ports import FolderPort, Here, Say
from safelaunch.supervisor.state.reach import Reach
from safelaunch.supervisor.state.tasks import BackgroundTasks, Step, Work

LOOK_S = 2.0
TAIL_BYTES, KEPT_BYTES = 8 << 10, 64 << 20
ELSEWHERE_S, FORGET_EVERY_S = 20.0, 60.0
# On another node: whether the folder above ($1) can be listed, and the missing path ($2) is there.
_ELSEWHERE = f"""
ls -a -- "$1" >/dev/null 2>&1 || exit 3
[ -e "$2" ] || [ -L "$2" ] || exit {vanished.ELSEWHERE_GONE}
exit {vanished.ELSEWHERE_THERE}"""


def way_to(run_dir: Path) -> list[tuple[str, int, int]]:
    """The names on the way to the run folder; without them a kill switch is read all the same."""
    with contextlib.suppress(OSError):
        return folderroute.route(str(run_dir))
    return []


def save_tail(folder: FolderState, say: Say, tail: bytes) -> None:
    """The end of an attempt's log, beside the supervisor's own lines: nobody can read it elsewhere any more."""
    if folder.gone is not None and tail:
        text = clean_lines(mask(tail[-TAIL_BYTES:].decode(errors="surrogateescape")))
        say.there(f"{text.strip()}\n")


def _forget_log(here: Here, running: RunningAttempt) -> Step:
    """Nobody copies the log any more: only its newest part stays on the node's disk."""
    if running.process is not None and running.process.size() > 2 * KEPT_BYTES:
        yield here.world.command(running.process.forget_before(running.process.size() - KEPT_BYTES), here.job.env)
    yield FORGET_EVERY_S


def follow(
    helpers: Helpers, clock: Clock, files: FolderPort, running: RunningAttempt, reach: Reach, tasks: BackgroundTasks,
    say: Say
) -> bool:
    """After a read of the requests: has the folder gone? True where one that was gone has come back."""
    folder, job = files.state, helpers.here.job
    if not folder.refused:
        if folder.gone is not None:
            folder.take_up()
            say("the run folder is there again: the run goes on with it")
            return True
        return False
    if folder.gone is not None:
        tasks.begin(Work.FORGET_LOG, _forget_log(helpers.here, running))
    if folder.gone is not None or folder.refused not in folderroute.ABSENT or not folder.route:
        return False
    places = [place.path for place in folder.route]
    answer = files.ask(lambda: folderroute.look(places), LOOK_S)
    path = None
    if answer.is_ok and answer.value is not None:
        ids, is_listed = answer.value
        path = vanished.missing_at(folder.route, Look(tuple((one, two) for one, two in ids), is_listed))
    missing = folder.missing.seen(path, clock.now_s)
    folder.note_missing(missing)
    others = [node for node in job.nodes if node != job.host and node not in reach.lost]
    can_ask = bool(others) and helpers.can_run and not job.is_local
    match vanished.judge(missing, clock.now_s, has_others=can_ask):
        case Next.ASK:
            tasks.begin(Work.LOOK_ELSEWHERE,
                        _look_elsewhere(helpers, clock, folder, others[missing.looks % len(others)]))
        case Next.GONE:
            _give_up_folder(helpers.here, folder, tasks, say, missing.path)
    return False


def _look_elsewhere(helpers: Helpers, clock: Clock, folder: FolderState, node: str) -> Step:
    missing = folder.missing
    folder.note_missing(missing._replace(asked_s=clock.now_s))
    above = missing.path.rpartition("/")[0] or "/"
    result = yield from helpers.run(node, ["/bin/sh", "-c", _ELSEWHERE, "vanished", above, missing.path], ELSEWHERE_S)
    now = folder.missing
    if result is None or now.path != missing.path or now.since_s != missing.since_s:
        return
    if result.returncode == vanished.ELSEWHERE_GONE:
        folder.note_missing(now._replace(is_confirmed=True))
    elif result.returncode == vanished.ELSEWHERE_THERE:   # it is this node that cannot see it
        folder.note_missing(now.seen(None, clock.now_s))


def _give_up_folder(here: Here, folder: FolderState, tasks: BackgroundTasks, say: Say, path: str) -> None:
    folder.abandon(vanished.tell(path, str(here.run_dir)))
    for work in (Work.QUEUE_NEXT, Work.HAND_OVER):   # both would wait for the folder
        tasks.cancel(work)
    say(f"{folder.gone}. The training goes on; nothing of the run is written down any more, its kill switch "
        f"is gone, and no attempt follows. The job ends with the training; at once: "
        f"{'kill' if here.job.is_local else 'scancel'} {here.job.id}")
