"""The run folder on a filesystem as NFS clients show it (tests/sharedfs.py): each node sees it by caches of its own."""

from __future__ import annotations

import time

import pytest

from safelaunch.sandbox.cluster import Sandbox
from tests.drills.proofs import FLAGS, IS_LONG, check_completes, check_one_writer, crash, long_only, wait_standby
from tests.runs import Drill, Submitter
from tests.sharedfs import SharedFs

LATE_S = 8.0
AWAY_S = 600.0 if IS_LONG else 15.0   # longer than a lease
REFUSED_S = 8.0


def test_standby_takes_over_on_a_folder_whose_clients_remember_names(
    sandbox: Sandbox, submit: Submitter, shared_fs: SharedFs
) -> None:
    shared_fs.set(late_s=LATE_S, attributes_late_s=LATE_S, link_says_exists=True, clock_s=-300.0)
    drill = submit(sandbox)(FLAGS, overrides=("spare_nodes=1", f"run_dir={shared_fs.path}/drill"))
    drill.run_dir = shared_fs.behind / "drill"   # what the server has: this test is root, whom it does not let in now
    shared_fs.set(squash=True)
    drill.wait_step(25)
    wait_standby(drill)
    first = drill.state().attempts[0]

    crash(sandbox, first.nodes[0], silent=True)
    second = drill.wait_event("attempt_started", 2, timeout_s=120)

    assert second.data["job"] == first.job and first.nodes[0] not in second.data["nodes"], drill.story()
    check_completes(drill, has_lost_log_end=True)


def newest_step(drill: Drill) -> int:
    """The last step that a rank has made, whatever the log has of it: the stamps lie on a disk of their own."""
    rows = [line.split() for path in (drill.folder / "stamps").iterdir() for line in path.read_text().splitlines()]
    return max(int(words[2]) for words in rows if len(words) == 3)


@pytest.mark.parametrize("fault", ["away", pytest.param("EDQUOT", marks=long_only)])
def test_file_server_that_is_away_or_takes_nothing_costs_no_line_and_ends_nothing(
    sandbox: Sandbox, submit: Submitter, shared_fs: SharedFs, fault: str
) -> None:
    drill = submit(sandbox)(FLAGS, overrides=(f"run_dir={shared_fs.path}/drill",))
    drill.run_dir = shared_fs.behind / "drill"
    drill.wait_step(25)
    wait_standby(drill)
    before = newest_step(drill)

    if fault == "away":
        shared_fs.set(away=True)
    else:
        shared_fs.set(errors=[{"calls": ["fsync", "flush"], "errno": fault}])
    time.sleep(AWAY_S if fault == "away" else REFUSED_S)   # how long it lasts is the fault
    during = newest_step(drill)
    shared_fs.clear()

    assert during - before > 20, f"{during - before} steps were made meanwhile\n{drill.story()}"
    drill.wait_step(during, timeout_s=120.0)   # the log catches up
    check_completes(drill, timeout_s=120.0)
    assert len(drill.state().attempts) == 1, drill.story()


def test_kill_switch_of_a_teammate_on_another_host_is_seen_within_the_caches_time(
    sandbox: Sandbox, submit: Submitter, shared_fs: SharedFs
) -> None:
    shared_fs.set(late_s=LATE_S)
    drill = submit(sandbox)(FLAGS, overrides=(f"run_dir={shared_fs.path}/drill", "kill_switch.grace=5s"))
    drill.run_dir = shared_fs.behind / "drill"
    drill.wait_step(25)

    (shared_fs.path / "drill" / "control" / "kill").touch()
    touched_t = time.time()
    seen = drill.wait_event("kill_switch", timeout_s=60)

    assert seen.t - touched_t < LATE_S + 6.0, drill.story()
    state = drill.wait_end(60)
    assert state.ended and state.ended.how == "stopped", drill.story()
    check_one_writer(drill)
