"""safelaunch watch: what it asks, how often, what it does, and what keeps it from doing anything."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safelaunch.base.io.probe import ChildAnswer, stuck_children
from safelaunch.cli import run
from safelaunch.run.fold.folding import fold
from safelaunch.run.fold.state import State
from safelaunch.run.io import journal, registry
from safelaunch.slurm.io.slurm import Pace
from safelaunch.supervisor.io.world import World
from safelaunch.verbs.jobs import watch
from safelaunch.watch.io import acts, reading, watcher
from safelaunch.watch.io import memory as watchmemory
from safelaunch.watch.io.memory import Memory
from safelaunch.watch.io.reading import RunReader
from safelaunch.watch.io.watcher import Watcher
from tests.frozen import FuseMount
from tests.handmade import YAML, Made, fake_command, make_run
from tests.patience import is_so_within

MINUTE_S = 60.0
RUNNING = "{job}|RUNNING|me|None|{nodes}|n0|{excluded}|(null)|main|2026-11-21T20:51:56|7:27|{name}"
PENDING = "{job}|PENDING|me|{reason}||n/a|{excluded}|{dependency}|main|N/A|0:00|{name}"
NAME = "bloom.1a2b3c4d"


class AtOnce(Pace):
    """Commands of a clock that jumps wait for no turn on the real one (tests/io/supervisor/test_pace.py)."""

    def take(self, now_s: float, at_once: bool = False) -> bool:
        return True


class Clock(World):
    """A world whose monotonic clock stands still until it is moved."""

    def __init__(self) -> None:
        super().__init__()
        self.at_s = 1000.0
        self._pace = AtOnce()

    def now_s(self) -> float:
        return self.at_s


def at_once(look: Callable[[], Any], deadline_s: float) -> ChildAnswer[Any]:
    """What a child would answer, without one."""
    return ChildAnswer(value=json.loads(json.dumps(look())))


@dataclass
class Cluster:
    """A Slurm of fake commands: what squeue shows stands in a file, every call is written down."""

    folder: Path
    clock: Clock = field(default_factory=Clock)
    said: list[str] = field(default_factory=list)

    def shows(self, *lines: str) -> None:
        (self.folder / "jobs").write_text("".join(f"{line}\n" for line in lines))

    def answers(self, name: str, script: str) -> None:
        fake_command(self.folder / "bin", name, f'echo "{name} $*" >>{self.folder}/calls\n{script}')

    def calls(self, start: str = "") -> list[str]:
        file = self.folder / "calls"
        return [line for line in file.read_text().splitlines() if line.startswith(start)] if file.exists() else []

    def watcher(self, *named: tuple[str, str], memory: Memory | None = None, **more: Any) -> Watcher:
        def tell(kind: str, dir: str, text: str) -> None:
            self.said.append(f"{kind} {text}")

        return Watcher(self.clock, dict(os.environ), more.pop("host", "login"), tell, memory or Memory(), named,
                       more.pop("reader", RunReader(at_once)), **more)

    def tick(self, watching: Watcher, after_s: float = 66.0, times: int = 1, *, is_telling: bool = True) -> None:
        for _ in range(times):
            self.clock.at_s += after_s
            asking, result = watching.tick(), None
            while True:
                try:
                    command = asking.send(result)   # type: ignore[arg-type]
                except StopIteration:
                    break
                result = command.wait()
            if is_telling:
                self.tell(watching)

    def tell(self, watching: Watcher) -> None:
        for pause_s in watching.tell_people():
            time.sleep(pause_s)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Where squeue knows no job, sbatch makes job 99, and there are no accounts."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.delenv("SLURM_CONF", raising=False)
    monkeypatch.setattr(watch, "GAP_S", 0.0)
    made = Cluster(tmp_path)
    # The form of the watch's own question has a dozen fields, that of the look before sbatch six.
    made.answers("squeue", f'case "$*" in *%E*) cat {tmp_path}/jobs;; esac')
    for name, script in (("sbatch", "echo 99"), ("scontrol", ":"), ("scancel", ":"), ("sacct", "exit 1"),
                         ("sinfo", "echo 'idle|n[0-5]'")):
        made.answers(name, script)
    made.shows()
    return made


@pytest.fixture
def bloom(cluster: Cluster, tmp_path: Path) -> Made:
    """A registered run whose job 12 runs."""
    made = make_run(tmp_path / "runs" / "bloom")
    made.running()
    (made.dir / "claims" / "1").write_text('{"gen": 1}')
    registry.register(made.dir, "bloom", "1a2b3c4d", "12")
    cluster.shows(line(RUNNING))
    pulse(made, 1)
    return made


def line(form: str, job: str = "12", nodes: str = "n[0-3]", **fields: str) -> str:
    return form.format(job=job, nodes=nodes, **{"name": NAME, "reason": "Priority", "excluded": "", "dependency": "",
                                                **fields})


def pulse(made: Made, count: int, job: str = "12", **more: Any) -> None:
    draft = made.dir / ".pulse"
    draft.write_text(json.dumps({"v": 1, "count": count, "t": 1.0, "gen": 1, "host": "n0", "job": job, "step": 40,
                                 "state": "running", "attempt": 1, "successor": None, **more}))
    draft.rename(made.dir / "pulse.json")


def state(made: Made) -> State:
    return made.run.state()


# --- what it says ---------------------------------------------------------------------------------------------------


def test_once_says_how_the_run_is_doing_and_the_next_minute_asks_slurm_nothing(
    cluster: Cluster, bloom: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.answers("scontrol", "echo 'ClusterName = alpha'")
    assert run(["watch", "--once"]) == 0
    first = capsys.readouterr().out
    assert run(["watch", "--once"]) == 0

    said = r"PULSE: bloom is running for 00:(\d\d:\d\d) since 2026-11-21T20:51:56 on n\[0-3\] \(step 40\)"
    for told in (first, capsys.readouterr().out):   # squeue's time, and what has passed since it was asked
        seen = re.search(said, told)
        assert seen and seen[1] >= "07:27", told
    assert len(cluster.calls("squeue")) == 1, "the state file keeps when Slurm was asked"
    assert cluster.calls("scontrol") == ["scontrol show config"], "... and the name of its cluster"


def test_json_is_one_object_a_line(cluster: Cluster, bloom: Made, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["watch", "--once", "--json", str(bloom.dir)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["v"], told["kind"], told["run"], told["run_dir"]) == (1, "pulse", "bloom", str(bloom.dir))
    assert told["text"].startswith("is running for")


def test_a_waiting_run_says_why(cluster: Cluster, bloom: Made, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.shows(line(PENDING, reason="Resources"))
    assert run(["watch", "--once"]) == 0
    assert "PULSE: bloom is waiting to be scheduled (Resources)" in capsys.readouterr().out


def test_a_watch_that_slurm_does_not_answer_says_that_it_is_blind(
    cluster: Cluster, bloom: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.answers("squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    assert run(["watch", "--once"]) == 4
    told = capsys.readouterr().out
    assert "BLIND: Slurm gives no clear answer" in told and "no action is taken" in told


@pytest.mark.parametrize("script", ["exit 1", "echo '12|RUN'", f"yes '{RUNNING}' | head -c 1100000"],
                         ids=["fails", "torn", "far too long"])
def test_no_clear_answer_is_never_taken_for_none(cluster: Cluster, bloom: Made, script: str) -> None:
    watching = cluster.watcher()
    cluster.answers("squeue", script)
    cluster.tick(watching, times=6)
    assert watching.is_blind and not cluster.calls("sbatch") and state(bloom).ended is None


def test_an_answer_that_is_too_long_is_asked_for_in_parts(cluster: Cluster, bloom: Made, tmp_path: Path) -> None:
    registry.register(make_run(tmp_path / "runs" / "other").dir, "other", "99999999", "22")
    watching = cluster.watcher()
    cluster.answers("squeue", f"case $* in *name=*,*) yes '{RUNNING}' | head -c 1100000;; *) cat {tmp_path}/jobs; esac")
    cluster.tick(watching)
    assert not watching.is_blind
    assert len(cluster.calls("squeue")) == 3


def test_it_tells_news_at_once_and_the_rest_once_an_hour(cluster: Cluster, bloom: Made) -> None:
    watching = cluster.watcher()
    for minute in range(2, 130):
        pulse(bloom, minute)
        cluster.tick(watching, MINUTE_S)
    assert len(cluster.said) == 3, cluster.said
    assert all(said.endswith("on n[0-3] (step 40)") for said in cluster.said)


# --- how often it asks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jobs", ["running", "waiting"])
def test_a_quiet_day_costs_the_controller_48_calls(cluster: Cluster, bloom: Made, jobs: str) -> None:
    cluster.shows(line(RUNNING, nodes="n[0-3]"), line(PENDING, job="13", dependency="afterany:12")) if (
        jobs == "running") else cluster.shows(line(PENDING))
    watching = cluster.watcher()
    calls = []
    for minute in range(25 * 60):
        pulse(bloom, minute + 2, successor="13")
        cluster.tick(watching, MINUTE_S)
        calls.append(len(cluster.calls()))
    assert calls[59] <= 8
    assert calls[-1] - calls[59] <= 48


def test_a_pulse_that_stands_still_is_a_reason_to_ask(cluster: Cluster, bloom: Made) -> None:
    watching = cluster.watcher()
    for minute in range(60):
        pulse(bloom, minute + 2)
        cluster.tick(watching, MINUTE_S)
    before = len(cluster.calls())
    watching.memory.every_s = 1e9
    cluster.tick(watching, MINUTE_S, times=6)
    assert len(cluster.calls()) > before
    assert "has given no pulse for 00:05:00" in cluster.said[-1]


def test_runs_share_one_question(cluster: Cluster, tmp_path: Path) -> None:
    for number in range(5):
        made = make_run(tmp_path / "many" / str(number), run_id=f"0000000{number}")
        made.running()
        registry.register(made.dir, "bloom", f"0000000{number}", str(20 + number))
    cluster.shows(*(line(RUNNING, job=str(20 + number), name=f"bloom.0000000{number}") for number in range(5)))
    cluster.tick(cluster.watcher())
    assert len(cluster.calls()) == 1 and len(cluster.said) == 5


# --- rescues ----------------------------------------------------------------------------------------------------------


def test_a_vanished_job_is_followed_by_another_after_two_answers(cluster: Cluster, bloom: Made) -> None:
    watching = cluster.watcher()
    cluster.tick(watching)
    cluster.shows()
    watching.memory.every_s = 60.0
    cluster.tick(watching)
    assert not cluster.calls("sbatch"), "one empty answer is unknown"
    cluster.tick(watching)

    assert cluster.calls("sbatch") == [
        f"sbatch --parsable --dependency=singleton {bloom.dir}/job.sbatch"]
    journal = bloom.run.journal()
    assert not journal.problems
    assert [event.event for event in journal.events if event.gen == 2] == [
        "decision", "intent", "outcome", "submitted", "handed_over"]
    after = state(bloom)
    assert (after.successor, after.intents, after.gen) == ("99", (), 2)
    assert "act job 99 was queued to go on" in cluster.said[-1]
    assert len(cluster.calls()) <= 10


def test_a_limbo_job_is_ended_once_a_next_one_waits_behind_it(cluster: Cluster, bloom: Made) -> None:
    watching = cluster.watcher()
    cluster.tick(watching)
    cluster.shows(line(RUNNING, nodes="n[1-3]"))
    before = len(cluster.calls())
    while not cluster.calls("sbatch"):
        cluster.tick(watching)
    assert cluster.calls("sbatch")[0].split()[2:4] == ["--dependency=afterany:12,singleton", "--exclude=n0"]
    assert not cluster.calls("scancel")
    cluster.shows(line(RUNNING, nodes="n[1-3]"), line(PENDING, job="99", dependency="afterany:12"))
    cluster.tick(watching)

    assert cluster.calls("scancel") == ["scancel 12"]
    assert "ExcNodeList=n0" in cluster.calls("scontrol")[0]
    after = state(bloom)
    assert after.cancelled_jobs == ("12",), "no person's request"
    assert after.excluded == ("n0",) and after.successor == "99" and not after.intents
    assert len(cluster.calls()) - before <= 10


def test_exclusions_that_keep_a_run_from_starting_give_way_and_the_evidence_stays(
    cluster: Cluster, bloom: Made
) -> None:
    bloom.event("node_suspected", node="n3", kind="lost", why="lost")
    for node in ("n3", "n4", "n5"):
        bloom.event("node_excluded", node=node, why="lost")
    cluster.shows(line(PENDING, job="13", reason="BadConstraints", excluded="n[3-5]"))
    watching = cluster.watcher()
    cluster.tick(watching, times=2)

    assert cluster.calls("scontrol") == ["scontrol update JobId=13 ExcNodeList=n[4-5]"]
    assert state(bloom).excluded == ("n4", "n5")
    assert [node for node, _ in state(bloom).suspects] == ["n3"]
    assert "act job 13 may use n3 again" in cluster.said[-1]


@pytest.mark.parametrize("sinfo", ["idle|n[0-5]", ""], ids=["sinfo answers", "sinfo says nothing"])
def test_a_next_job_is_queued_without_the_names_that_slurm_does_not_know(
    cluster: Cluster, bloom: Made, sinfo: str
) -> None:
    for node in ("n3", "gone7"):
        bloom.event("node_excluded", node=node, why="lost")
    cluster.answers("sbatch", 'case "$*" in *gone7*) echo "sbatch: error: Batch job submission failed: Invalid node '
                              'name specified" >&2; exit 1;; esac\necho 99')
    cluster.answers("sinfo", f"echo '{sinfo}'")
    cluster.shows()
    cluster.clock.at_s += 1000.0
    cluster.tick(cluster.watcher(), 130.0, times=3)

    tried = [word for call in cluster.calls("sbatch") for word in call.split() if word.startswith("--exclude")]
    if not sinfo:   # nothing is guessed, and it is asked again later
        assert set(tried) == {"--exclude=gone7,n3"} and not state(bloom).left_out
        return
    assert tried == ["--exclude=gone7,n3", "--exclude=n3"]
    assert [node for node, _ in state(bloom).left_out] == ["gone7"] and state(bloom).excluded == ("n3",)


def test_a_job_that_hangs_at_its_end_no_longer_holds_the_next_one(cluster: Cluster, bloom: Made) -> None:
    bloom.submitted("13", successor_of="12")
    hangs = line(RUNNING, nodes="n1").replace("RUNNING", "COMPLETING")
    cluster.shows(hangs, line(PENDING, job="13", reason="Dependency", dependency="afterany:12(unfulfilled)"))
    watching = cluster.watcher()
    for _ in range(9):
        if not cluster.calls("scontrol"):
            cluster.tick(watching, 130.0)
    assert cluster.calls("scontrol") == ["scontrol update JobId=13 ExcNodeList=n1",
                                         "scontrol update JobId=13 Dependency=singleton"]
    assert state(bloom).excluded == ("n1",)


def test_the_next_job_is_queued_from_here_where_nodes_may_not(cluster: Cluster, tmp_path: Path) -> None:
    made = make_run(tmp_path / "runs" / "bloom", "name: bloom\ncommand: x\nslurm: {nodes: 4}\nrestart: {via: watch}\n")
    made.running()
    (made.dir / "claims" / "1").write_text('{"gen": 1}')
    registry.register(made.dir, "bloom", "1a2b3c4d", "12")
    cluster.shows(line(RUNNING))
    pulse(made, 1)
    watching = cluster.watcher()
    cluster.tick(watching, times=2)

    assert cluster.calls("sbatch") == [
        f"sbatch --parsable --dependency=afterany:12,singleton {made.dir}/job.sbatch"]
    after = state(made)
    assert (after.successor, after.gen) == ("99", 1), "its leader is not superseded"
    claim = json.loads((made.dir / "claims" / "2").read_text())
    assert claim["gen"] == 0


@pytest.mark.parametrize("how", ["kill switch", "scancel seen by squeue", "slurmstepd's line", "sacct"])
def test_a_persons_word_is_written_down_and_final(cluster: Cluster, bloom: Made, how: str) -> None:
    watching = cluster.watcher()
    cluster.tick(watching)
    cluster.shows()
    if how == "kill switch":
        (bloom.dir / "control" / "kill").touch()
    elif how == "sacct":
        cluster.answers("sacct", "echo '12|CANCELLED by 1001|0:15'")
    elif how == "slurmstepd's line":
        words = "slurmstepd-n0: error: *** JOB 12 ON n0 CANCELLED AT 2026-11-21T20:51:56 ***\n"
        (bloom.dir / "slurm-12.out").write_text(words)
    else:
        cluster.shows(line(RUNNING).replace("RUNNING", "CANCELLED"))
    cluster.tick(watching, 130.0, times=4)

    ended = state(bloom).ended
    assert ended is not None and (ended.how, ended.exit_code) == ("stopped", 12), cluster.said
    assert not cluster.calls("sbatch") and not watching.runs
    asked = len(cluster.calls())
    cluster.tick(watching, 4000.0, times=3)
    assert len(cluster.calls()) == asked, "nothing is left to ask about"


def telling(tmp_path: Path, script: str, *more: str) -> Made:
    """A registered run of which Slurm knows no job, that tells a shell script; a hang was not told by its leader."""
    made = make_run(tmp_path / "runs" / "told", YAML, "1a2b3c4d", f"notify.command=[/bin/sh,-c,'{script}']",
                    "notify.when=[stopped,hang]", *more)
    made.running()
    made.event("hang_suspected", attempt=1, silent_s=900.0, phase="step", step=3)
    (made.dir / "claims" / "1").write_text('{"gen": 1}')
    registry.register(made.dir, "bloom", "1a2b3c4d", "12")
    return made


def test_people_are_told_once_what_a_watch_has_done_and_what_its_supervisor_had_left(
    cluster: Cluster, tmp_path: Path
) -> None:
    made = telling(tmp_path, f"echo $SAFELAUNCH_EVENTS >>{tmp_path}/mail; cat >>{tmp_path}/mail")
    (made.dir / "control" / "kill").touch()
    watching = cluster.watcher()
    cluster.tick(watching, 130.0, times=6)
    told = (tmp_path / "mail").read_text()
    assert told.startswith("hang,stopped\nsafelaunch: bloom was stopped\n") and told.count("was stopped") == 2, told
    assert f"Next: safelaunch status {made.dir}\n" in told
    assert "act a message to command:/bin/sh was sent" in cluster.said
    last = made.run.journal().events[-1]
    assert (last.event, last.gen, last.data["sent"]) == ("notified", 2, ["command:/bin/sh"])
    assert not state(made).notices.waiting and not made.run.journal().problems


def test_a_message_that_nobody_takes_is_tried_three_times_also_by_cron(cluster: Cluster, tmp_path: Path) -> None:
    made = telling(tmp_path, f"echo >>{tmp_path}/tries; exit 3")
    (made.dir / "control" / "kill").touch()
    watching, file = cluster.watcher(), tmp_path / "memory.json"
    while state(made).ended is None:
        cluster.tick(watching, 130.0)
    for _ in range(5):
        watching.memory.save(file)
        watching = cluster.watcher(memory=watchmemory.load(file))
        cluster.tick(watching, 130.0)
    assert (tmp_path / "tries").read_text() == "\n" * 3
    assert "act a message to command:/bin/sh was not sent: /bin/sh ended with exit code 3" in cluster.said
    assert state(made).notices.failing == ("command:/bin/sh",) and not state(made).notices.waiting


def test_what_a_watch_that_is_killed_has_done_is_told_by_the_next_one(cluster: Cluster, tmp_path: Path) -> None:
    class Killed(BaseException):
        """SIGKILL, as far as Python can play it."""

    def die_at_its_message(seconds: float) -> None:
        if seconds:
            raise Killed

    made = telling(tmp_path, f"cat >{tmp_path}/mail$(ls {tmp_path} | grep -c mail)")
    (made.dir / "control" / "kill").touch()
    watching, file = cluster.watcher(), tmp_path / "memory.json"
    with pytest.raises(Killed):
        while True:
            cluster.clock.at_s += 130.0
            watch.drive(watching, file, die_at_its_message)
    assert is_so_within((tmp_path / "mail0").exists, 20, 0.05), "its child lives on, and nobody knows"
    assert state(made).ended is not None
    cluster.tick(cluster.watcher(memory=watchmemory.load(file)), 130.0)
    assert (tmp_path / "mail1").read_text().startswith("safelaunch: bloom was stopped\n")
    assert not state(made).notices.waiting


def test_a_message_is_told_later_where_the_folder_gives_an_error_for_a_moment(cluster: Cluster, tmp_path: Path) -> None:
    made = telling(tmp_path, f"cat >>{tmp_path}/mail")
    (made.dir / "control" / "kill").touch()
    watching = cluster.watcher()
    while state(made).ended is None:
        cluster.tick(watching, 130.0, is_telling=False)
    (made.dir / "run.json").rename(made.dir / "away")   # ESTALE, EIO: as gone for now
    cluster.tell(watching)
    assert not (tmp_path / "mail").exists()
    (made.dir / "away").rename(made.dir / "run.json")
    cluster.tell(watching)
    assert (tmp_path / "mail").read_text().count("was stopped") == 2


@pytest.mark.parametrize("who", ["a leader lives", "the next one has begun"])
def test_a_supervisor_tells_its_own_news(cluster: Cluster, tmp_path: Path, who: str) -> None:
    made = telling(tmp_path, f"cat >{tmp_path}/mail", "restart.via=watch")
    if who == "a leader lives":
        cluster.shows(line(RUNNING))
        pulse(made, 1)
    else:
        cluster.answers("sbatch", f"echo '{{}}' >{made.dir}/claims/3; echo 99")   # it starts at once
    watching = cluster.watcher()
    while not cluster.calls("sbatch"):
        cluster.tick(watching, 130.0)
    assert not (tmp_path / "mail").exists()
    assert [one.word for one in state(made).notices.waiting] == ["hang"]


def test_a_run_whose_end_it_has_written_down_is_watched_no_longer(cluster: Cluster, bloom: Made) -> None:
    watching = cluster.watcher()
    (bloom.dir / "control" / "kill").touch()
    cluster.shows()
    cluster.tick(watching, 130.0)
    while state(bloom).ended is None:
        assert watching.runs
        cluster.tick(watching, 130.0)
    assert not watching.runs and cluster.said[-1].startswith("act wrote down its end"), cluster.said


def test_a_scancel_that_squeue_shows_once_is_final(cluster: Cluster, bloom: Made) -> None:
    """Of a job that the journal does not know, while no supervisor lives; cron looks every five minutes (simulated)."""
    cluster.shows(line(RUNNING, job="13").replace("RUNNING", "CANCELLED"))
    cluster.tick(cluster.watcher(), 300.0)
    cluster.shows()   # MinJobAge has passed
    memory = Memory()
    for _ in range(4):   # another watch, on another host
        cluster.tick(cluster.watcher((str(bloom.dir), NAME), memory=memory), 300.0)
    ended = state(bloom).ended
    assert ended is not None and ended.why == "job 13 was cancelled by a person (squeue)", cluster.said
    assert not cluster.calls("sbatch")


def test_a_cancel_of_a_node_guard_lets_the_run_go_on(cluster: Cluster, bloom: Made) -> None:
    (bloom.dir / "control" / "orphaned-12").touch()
    cluster.shows(line(RUNNING).replace("RUNNING", "CANCELLED"))
    cluster.tick(cluster.watcher(), 400.0, times=3)
    assert len(cluster.calls("sbatch")) == 1 and state(bloom).ended is None


def test_a_job_that_slurm_cancelled_since_the_batch_hosts_prolog_failed_is_followed_by_another(
    cluster: Cluster, bloom: Made
) -> None:
    (bloom.dir / "slurm-12.out").write_text("Error running slurm prolog: 1\n")   # 22.05, recorded
    cluster.shows(line(RUNNING).replace("RUNNING", "CANCELLED"))
    cluster.tick(cluster.watcher(), 400.0, times=3)
    assert len(cluster.calls("sbatch")) == 1 and state(bloom).ended is None


@pytest.mark.parametrize("away", [
    "echo 'sacct: error: Problem talking to the database: Connection refused' >&2; exit 1", "kill -9 $$"],
    ids=["it says so", "sacct is killed"])
def test_a_database_that_is_away_is_waited_for(cluster: Cluster, bloom: Made, away: str) -> None:
    cluster.answers("sacct", away)
    cluster.shows()
    watching = cluster.watcher()
    cluster.tick(watching, 130.0, times=6)
    assert not cluster.calls("sbatch") and "sacct gives no clear answer" in "\n".join(cluster.said)
    cluster.answers("sacct", "echo '12|CANCELLED by 1001|0:15'")
    cluster.tick(watching, 130.0, times=2)
    ended = state(bloom).ended
    assert ended is not None and "(sacct)" in ended.why


def test_a_database_that_stays_away_does_not_hold_the_run_for_ever(cluster: Cluster, bloom: Made) -> None:
    cluster.answers("sacct", "echo 'sacct: error: Sending PersistInit msg: Connection refused' >&2; exit 1")
    cluster.shows()
    watching, minutes = cluster.watcher(), 0
    while not cluster.calls("sbatch"):
        minutes += 1
        cluster.tick(watching)
    assert 15 <= minutes <= 20 and cluster.said[-1].startswith("act ")
    assert len([said for said in cluster.said if said.startswith("blind")]) == 1


def test_a_site_that_refuses_dependencies_gets_the_next_job_without(cluster: Cluster, bloom: Made) -> None:
    cluster.answers("sbatch", 'case "$*" in *dependency*) echo "Job dependency problem" >&2; exit 1;; esac; echo 99')
    cluster.shows()
    cluster.tick(cluster.watcher(), times=2)
    assert cluster.calls("sbatch")[1:] == [f"sbatch --parsable {bloom.dir}/job.sbatch"]
    assert state(bloom).successor == "99"


def test_a_refusing_sbatch_is_asked_less_and_less_often(cluster: Cluster, bloom: Made) -> None:
    cluster.answers("sbatch", "echo 'QOSMaxSubmitJobPerUserLimit' >&2; exit 1")
    cluster.shows()
    cluster.tick(cluster.watcher(), times=240)   # four hours
    assert 6 <= len(cluster.calls("sbatch")) <= 10, len(cluster.calls("sbatch"))


def test_a_requeued_job_starts_without_the_nodes_that_its_leader_named(cluster: Cluster, bloom: Made) -> None:
    bloom.event("resubmitted", job="12", exclude=["n1"], why="time limit")
    cluster.shows(line(PENDING, reason="BeginTime", excluded="n3"))
    watching = cluster.watcher()
    cluster.tick(watching)
    assert cluster.calls("scontrol") == ["scontrol update JobId=12 ExcNodeList=n[1,3] StartTime=now+3"]
    claim = json.loads((bloom.dir / "claims" / "2").read_text())
    assert claim["gen"] == 0, "whoever leads the job next is not superseded"


def test_a_leader_that_asks_for_a_next_job_gets_it_within_two_minutes(cluster: Cluster, bloom: Made) -> None:
    watching = cluster.watcher()
    for minute in range(60):
        pulse(bloom, minute + 2)
        cluster.tick(watching, MINUTE_S)
    bloom.event("need_successor", exclude=[], why="time limit")
    pulse(bloom, 99, over=True)
    cluster.shows()
    cluster.tick(watching, MINUTE_S, times=2)
    assert len(cluster.calls("sbatch")) == 1, cluster.said


def test_runs_that_hand_over_at_their_end_are_not_examined_for_want_of_a_next_job(
    cluster: Cluster, bloom: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    bloom.event("via_chosen", via="resubmit", why="dependencies are refused")
    watching = cluster.watcher()
    cluster.tick(watching)
    looked: list[object] = []
    monkeypatch.setattr(reading, "_examine", looked.append)
    for minute in range(90):
        pulse(bloom, minute + 2)
        cluster.tick(watching, MINUTE_S)
    assert not looked and len(cluster.calls()) > 1


# --- what it cannot see -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["claims", "journal"])
def test_an_act_that_the_folder_does_not_take_is_told_of_and_tried_again(
    cluster: Cluster, bloom: Made, what: str
) -> None:
    hangs = True

    def ask(look: Callable[[], Any], deadline_s: float) -> ChildAnswer[Any]:
        is_act = deadline_s == acts.FOLDER_S
        is_write = is_act and (what == "claims" or (bloom.dir / "claims" / "2").exists())
        return ChildAnswer(late=True) if hangs and is_write else at_once(look, deadline_s)

    watching = cluster.watcher(reader=RunReader(ask))
    cluster.shows()
    cluster.tick(watching, times=2)
    assert cluster.said[-1].startswith("blind "), cluster.said
    assert not cluster.calls("sbatch")
    hangs = False
    while not cluster.calls("sbatch"):
        cluster.tick(watching, 200.0)


@pytest.mark.root
def test_once_ends_with_4_where_a_folder_or_the_home_does_not_answer(
    cluster: Cluster, bloom: Made, fuse_mount: FuseMount, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reading, "DEADLINE_S", 1.0)
    monkeypatch.setattr(watchmemory, "HOME_S", 1.0)
    far = make_run(fuse_mount.path / "far", run_id="0000fa00")
    registry.register(far.dir, "bloom", "0000fa00", "5")
    fuse_mount.stop()
    assert run(["watch", "--once"]) == 4
    assert "its folder does not answer" in capsys.readouterr().out

    monkeypatch.setenv("XDG_STATE_HOME", str(fuse_mount.path))
    assert run(["watch", "--once"]) == 4
    told = capsys.readouterr()
    assert "the list of your runs, in your home, does not answer" in told.out
    assert "could not be saved" in told.err
    fuse_mount.cont()


def test_an_sbatch_whose_answer_is_lost_is_not_repeated_while_the_job_may_be_in(cluster: Cluster, bloom: Made) -> None:
    watching = cluster.watcher()
    cluster.shows()
    cluster.answers("sbatch", "echo 'sbatch: error: Batch job submission failed: Socket timed out' >&2; exit 1")
    cluster.tick(watching, times=2)
    assert len(cluster.calls("sbatch")) == 1 and not state(bloom).intents
    cluster.shows(line(PENDING, job="77"))
    cluster.tick(watching, 4000.0, times=3)
    assert len(cluster.calls("sbatch")) == 1
    assert "is waiting to be scheduled" in cluster.said[-1]


def test_exclusions_that_sbatch_refuses_are_left_out(cluster: Cluster, bloom: Made) -> None:
    bloom.event("node_excluded", node="n3", why="lost")
    cluster.shows()
    cluster.answers("sbatch", 'case "$*" in *exclude*) echo "Requested node configuration is not available" >&2; exit 1'
                              ';; esac; echo 99')
    cluster.tick(cluster.watcher(), times=2)
    assert [("exclude" in call) for call in cluster.calls("sbatch")] == [True, False]
    assert state(bloom).successor == "99"
    assert "job 99 may use n3 again, since too few nodes are left, and was queued" in cluster.said[-1], cluster.said


def test_a_job_found_by_its_name_is_not_doubled(cluster: Cluster, bloom: Made) -> None:
    cluster.answers("squeue", f'case "$*" in *%E*) ;; *) echo "98|PENDING|me|{NAME}|Priority|";; esac')
    cluster.tick(cluster.watcher(), times=2)
    assert not cluster.calls("sbatch") and state(bloom).successor == "98"


def test_whoever_comes_second_does_nothing(cluster: Cluster, bloom: Made) -> None:
    first, second = cluster.watcher(), cluster.watcher()
    cluster.shows()
    for watching in (first, second):
        cluster.tick(watching)
    one, two = first.tick(), second.tick()
    cluster.clock.at_s += 70.0
    ready = []
    for asking in (one, two):   # both have judged, and are about to act on the same last claim
        command = next(asking)
        while command.argv[0] != "sacct":
            command = asking.send(command.wait())
        ready.append((asking, command))
    for asking, command in ready:
        with pytest.raises(StopIteration):
            while True:
                command = asking.send(command.wait())

    assert len(cluster.calls("sbatch")) == 1
    assert [event.event for event in bloom.run.journal().events].count("intent") == 1


@pytest.mark.parametrize("later", ["goes on", "finds its claim taken away"])
def test_a_watch_that_stood_still_before_its_sbatch_queues_no_second_job(
    cluster: Cluster, bloom: Made, later: str
) -> None:
    """Its host slept, after it had won the claim and had found no job of that name; another host's watch took over."""
    first, second = cluster.watcher(), cluster.watcher(host="login2")
    for watching in (first, second):
        cluster.tick(watching)
    cluster.shows()
    cluster.tick(first)
    cluster.clock.at_s += 130.0
    asking = first.tick()
    command = next(asking)
    while "%E" in " ".join(command.argv) or command.argv[0] != "squeue":
        command = asking.send(command.wait())
    answer = command.wait()   # no job of that name
    assert (bloom.dir / "claims" / "2").exists() and not cluster.calls("sbatch")
    if later != "goes on":
        (bloom.dir / "claims" / "2").unlink()
    for _ in range(12):
        if not cluster.calls("sbatch"):
            cluster.tick(second)
    assert len(cluster.calls("sbatch")) == 1
    with pytest.raises(StopIteration):
        while True:
            answer = asking.send(answer).wait()
    assert len(cluster.calls("sbatch")) == 1 and state(bloom).successor == "99"


def test_only_looking_does_nothing(cluster: Cluster, bloom: Made, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.shows()
    watching = cluster.watcher(only_watch=True)
    before = sorted(path.name for path in bloom.dir.rglob("*"))
    cluster.tick(watching, 130.0, times=4)
    assert not cluster.calls("sbatch") and sorted(path.name for path in bloom.dir.rglob("*")) == before


# --- whom it does not trust -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["", "{", "[]", '{"config": {}, "run_id": 5}', '{"config": ' + "[" * 100_000],
                         ids=["empty", "torn", "a list", "another version", "deep"])
def test_a_bad_folder_is_told_of_and_hides_no_other(
    cluster: Cluster, bloom: Made, tmp_path: Path, content: str
) -> None:
    bad = make_run(tmp_path / "runs" / "bad", run_id="00000bad")
    (bad.dir / "run.json").write_text(content)
    registry.register(bad.dir, "bloom", "00000bad", "5")
    cluster.tick(cluster.watcher())
    assert any("cannot be read, so it is not watched" in said for said in cluster.said)
    assert any("is running for" in said for said in cluster.said)


def test_a_folder_that_holds_another_run_now_is_left_alone(cluster: Cluster, bloom: Made) -> None:
    registry.register(bloom.dir, "bloom", "ffffffff", "12")
    cluster.shows()
    cluster.tick(cluster.watcher(), 130.0, times=4)
    assert not cluster.calls("sbatch") and "another run" in cluster.said[-1]


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to give a folder away")
def test_a_run_of_somebody_else_is_left_alone(cluster: Cluster, bloom: Made) -> None:
    shutil.chown(bloom.dir, 12345)
    cluster.shows()
    cluster.tick(cluster.watcher(), 130.0, times=4)
    assert not cluster.calls("sbatch") and "belongs to somebody else" in cluster.said[-1]


def test_a_run_of_perhaps_another_cluster_is_left_alone_unless_it_is_named(cluster: Cluster, bloom: Made) -> None:
    cluster.shows()
    cluster.clock.at_s += 1000.0
    stranger = cluster.watcher()
    stranger.host = "other"
    cluster.tick(stranger, 130.0, times=4)
    assert not cluster.calls("sbatch") and "another cluster" in cluster.said[-1]

    named = cluster.watcher((str(bloom.dir), NAME))
    named.host = "other"
    cluster.tick(named, 130.0, times=3)
    assert len(cluster.calls("sbatch")) == 1


@pytest.mark.parametrize(("here", "seen", "row"), [
    ("alpha", False, "acts"), ("beta", False, "belongs to cluster alpha"), ("beta", True, "acts"), ("", False, "acts")],
    ids=["its own", "another", "renamed since: this Slurm has shown a job of it", "nobody says which, and it is named"])
def test_a_run_of_a_known_cluster_is_acted_on_there_alone(
    cluster: Cluster, bloom: Made, here: str, seen: bool, row: str
) -> None:
    meta = json.loads((bloom.dir / "run.json").read_text())
    (bloom.dir / "run.json").write_text(json.dumps({**meta, "cluster_name": "alpha"}))
    cluster.shows()
    cluster.clock.at_s += 1000.0
    named = cluster.watcher((str(bloom.dir), NAME), cluster=here)
    named.memory.runs[str(bloom.dir)] = watchmemory.Known(job_name=NAME, seen=seen)
    cluster.tick(named, 130.0, times=4)
    assert bool(cluster.calls("sbatch")) == (row == "acts") and (row == "acts" or row in cluster.said[-1])


def test_a_message_of_a_run_on_a_frozen_filesystem_hides_no_run_beside_its_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mounts").write_text("1 2 3 4 /\n1 2 3 4 /frozen\n")
    monkeypatch.setattr(reading, "MOUNTS", tmp_path / "mounts")
    hanging: list[str] = []
    monkeypatch.setattr(reading, "stuck_children", lambda: len(hanging))

    def hang(look: Callable[[], Any], deadline_s: float) -> ChildAnswer[Any]:
        hanging.append("a child")
        return ChildAnswer(late=True, took_s=deadline_s)

    reader = RunReader(hang)
    assert reader.visit({"/home/run": watchmemory.Known(real="/frozen/run")}, str)[1] == ["/home/run"]
    reader.ask = at_once
    assert reader.glance({"/home/other": watchmemory.Known()})[1] == []


@pytest.mark.root
def test_a_frozen_filesystem_hides_no_run_elsewhere(
    cluster: Cluster, bloom: Made, fuse_mount: FuseMount, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "DEADLINE_S", 3.0)
    far = make_run(fuse_mount.path / "runs" / "far", run_id="0000fa00")
    far.running()
    registry.register(far.dir, "bloom", "0000fa00", "5")
    watching = cluster.watcher(reader=RunReader())
    cluster.shows(line(RUNNING), line(RUNNING, job="5", name="bloom.0000fa00"))
    cluster.tick(watching)
    fuse_mount.stop()
    cluster.shows()
    while not cluster.calls("sbatch"):   # a child that has no turn for 3 s has seen nothing
        cluster.tick(watching, 130.0)
    cluster.shows(line(PENDING, job="99"))
    cluster.tick(watching, 130.0, times=2)

    assert state(bloom).successor == "99"
    assert len(cluster.calls("sbatch")) == 1, "nothing is done about the run that cannot be seen"
    assert any(said.startswith("blind its folder does not answer") for said in cluster.said)
    assert stuck_children() <= 2
    fuse_mount.cont()
    monkeypatch.setattr(reading, "DEADLINE_S", 60.0)
    cluster.tick(watching, 130.0, times=8)
    assert state(far).successor == "99", cluster.said


def test_a_long_journal_says_the_same_without_its_repetitions(bloom: Made) -> None:
    for step in range(50):
        bloom.event("progress", attempt=1, step=step)
        if step % 7 == 0:
            bloom.event("checkpoint", attempt=1, step=step)
    torn = b'{"v":1,"t":5,"gen":9,"seq":1,"host":"n1","event":"progr'
    (bloom.dir / "journal" / "000009-n1-1.jsonl").write_bytes(torn)
    short = journal.read(bloom.dir, steps_kept=1)
    assert sum(event.event == "progress" for event in short.events) == 8
    assert fold(short.events) == state(bloom)
    assert short.problems == bloom.run.journal().problems == ()
    longer = journal.read(bloom.dir, steps_kept=3)
    assert [event.data["step"] for event in longer.events if event.event == "progress"][:5] == [0, 5, 6, 7, 12]


@given(st.lists(st.sampled_from([
    b'{"v":1,"seq":%d,"event":"progress","x":1}\n', b'{"v":1,"seq":%d,"event":"other","x":1}\n',
    b'{"v":1,"seq":%d,"event":"progress","x":1} \n', b"\n", b"torn %d\n"]), max_size=30),
       st.integers(1, 3), st.integers(1, 200), st.integers(0, 20), st.booleans())
def test_a_journal_is_thinned_alike_in_blocks_and_line_by_line(
    kinds: list[bytes], kept: int, block_bytes: int, torn: int, with_course: bool
) -> None:
    def thinned(steps: list[bytes]) -> list[bytes]:
        return [one for index, one in enumerate(steps) if index >= len(steps) - kept
                or (with_course and (index < 4 or index % 3 == 1))]

    content = b"".join(kind % number if b"%d" in kind else kind for number, kind in enumerate(kinds))
    content = content[:len(content) - torn]
    expected: list[bytes] = []
    steps: list[bytes] = []
    for one in filter(bytes.strip, content.split(b"\n")):   # blank lines are nothing
        is_step = one.startswith(b'{"v":1,') and b'"event":"progress",' in one and one.endswith(b"}")
        expected += [] if is_step else [*thinned(steps), one]
        steps = [*steps, one] if is_step else []
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("BLOCK_BYTES", block_bytes), ("COURSE_FIRST", 4), ("COURSE_EVERY", 3)):
            patch.setattr(journal, name, value)
        found = journal._thin(content, kept, with_course)
    assert [one for one in found.split(b"\n") if one.strip()] == [*expected, *thinned(steps)]
    assert found.endswith(b"\n") is (content.endswith(b"\n") and found != b"")


# --- what it remembers ------------------------------------------------------------------------------------------------


def test_once_twice_finds_a_vanished_job(cluster: Cluster, bloom: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("safelaunch.watch.watch.LIVES_S", 0.0)
    monkeypatch.setattr(watcher, "SOON_S", 0.0)
    monkeypatch.setattr(watcher, "FIRST_S", 0.0)
    cluster.shows()
    monkeypatch.setattr("socket.gethostname", lambda: "login.site.org")
    assert run(["watch", "--once"]) == 0 and not cluster.calls("sbatch")
    assert run(["watch", "--once"]) == 0 and len(cluster.calls("sbatch")) == 1


def test_what_it_remembers_survives_but_not_a_reboot(cluster: Cluster, bloom: Made, tmp_path: Path) -> None:
    watching = cluster.watcher()
    cluster.tick(watching)
    file = tmp_path / "memory.json"
    watching.memory.save(file)
    assert watchmemory.load(file) == watching.memory
    assert file.stat().st_mode & 0o777 == 0o600

    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "boot": "another"}))
    known = watchmemory.load(file).runs[str(bloom.dir)]
    assert known.moved_s is None and known.seen and known.absences == 0


@pytest.mark.parametrize("content", [
    "", "[]", "{}", '{"v":1,"runs":{"x":5}}', '{"v":1,"runs":{"x":{"new":1}}}', "[" * 99_999])
def test_a_torn_memory_costs_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / "watch.json").write_text(content)
    assert watchmemory.load(tmp_path / "watch.json") == Memory()


FORGETTING = """
import os, signal, sys, time
from safelaunch.watch.io.watcher import Watcher
from safelaunch.cli import main
from safelaunch.verbs.jobs import watch
class Dying:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0)   # here Python raises it, and prints that it is ignored
def tick(self):
    print("tick", flush=True)
    Dying()
    return iter(())
watch.TICK_S, Watcher.tick = 0.1, tick
main(["watch"])
"""


def test_a_ctrl_c_that_python_forgets_ends_the_watch_all_the_same(cluster: Cluster) -> None:
    process = subprocess.Popen([sys.executable, "-c", FORGETTING], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, env={**os.environ, "PYTHONPATH": str(Path(watch.__file__).parents[3])})
    try:
        said, complaints = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert "Exception ignored" in complaints and "in __del__" in complaints, "it is forgotten"
    assert (process.returncode, said) == (130, "tick\n")


def test_a_ctrl_c_that_python_has_not_handled_yet_wakes_who_waits() -> None:
    """It came between the last look at signals and the system call: a busy machine lost one in twenty."""
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        with watch.Interrupt() as interrupt, pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            interrupt.pause(20.0)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_signal_ends_the_watch_and_keeps_what_it_knows(cluster: Cluster, bloom: Made) -> None:
    process = subprocess.Popen([sys.executable, "-m", "safelaunch", "watch"], stdout=subprocess.PIPE, text=True,
                               env={**os.environ, "PYTHONPATH": str(Path(watch.__file__).parents[3])})
    try:
        assert process.stdout is not None and "is running for" in process.stdout.readline()
        process.send_signal(2)
        assert process.wait(60) == 130
    finally:
        process.kill()
        process.wait()
    assert str(bloom.dir) in watchmemory.load(watchmemory.file(socket.gethostname().split(".")[0])).runs


@pytest.mark.parametrize("reservation", [None, "mine"], ids=["without a reservation", "with one"])
def test_reservations_are_asked_about_for_a_run_that_has_one(
    cluster: Cluster, bloom: Made, reservation: str | None
) -> None:
    meta = json.loads((bloom.dir / "run.json").read_text())
    meta["config"]["slurm"] |= {"reservation": reservation} if reservation else {}
    (bloom.dir / "run.json").write_text(json.dumps(meta))
    bloom.event("node_excluded", node="n3", why="lost")
    cluster.shows(line(PENDING, reason="BadConstraints", excluded="n3"))
    cluster.tick(cluster.watcher(), times=3)
    asked = [call for call in cluster.calls("sinfo") if "--reservation" in call]
    assert cluster.calls("sinfo") and len(asked) == (len(cluster.calls("sinfo")) // 2 if reservation else 0)
