"""safelaunch why RUN: what is known from outside the log joins in, and is shown."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from safelaunch.cli import run
from safelaunch.nodehealth.io import ledger
from safelaunch.nodehealth.ledger import NodeEvidence
from safelaunch.verbs.common import talk
from safelaunch.verbs.why import whyrun
from safelaunch.verbs.why.whyverdict import judge_subject
from tests.handmade import Made, fake_command, make_run, make_running
from tests.tables import each

STEPS = b"".join(b"[n1:0]:step %d loss 2.5\n" % number for number in range(40))
TORCHRUN = """\
name: bloom
command: train.py
slurm: {nodes: 4, gpus_per_node: 8}
launch: {with: torchrun, nproc_per_node: 8}
"""
OOM = b"[n2:3]:torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has 79 GiB.\n"
HANG: dict[str, Any] = {
    "v": 1, "headline": "31 ranks: all_reduce ← step · 1 unreadable: D state in read() on /data",
    "verdict": {"category": "hang", "kind": "storage", "confidence": 0.9, "suspects": ["n2"],
                "summary": "rank 17 on n2: D state in read() on /data", "witnesses": ["asleep"], "evidence": [],
                "odd": [{"rank": 17, "node": "n2", "pid": 9, "why": "D state in read() on /data"}]}}


@pytest.fixture
def bin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of fake commands of Slurm, first on the PATH; it knows nothing."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    for name in ("scontrol", "sacct"):
        fake_command(tmp_path / "bin", name, "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return tmp_path / "bin"


@pytest.fixture
def made(bin: Path, tmp_path: Path) -> Made:
    """A run whose attempt has ended and whose log says nothing but steps."""
    made = make_run(tmp_path / "bloom")
    made.running()
    made.log(1, STEPS)
    return made


def verdict_of(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert run(["why", "bloom", "--json", *words]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)["verdict"]
    return found


def told(capsys: pytest.CaptureFixture[str]) -> str:
    assert run(["why", "bloom"]) == 0
    return capsys.readouterr().out


def write(made: Made, name: str, value: object) -> None:
    path = made.dir / "attempts" / "0001" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))


def exits(*tasks: tuple[str, int, int, int | None]) -> dict[str, Any]:
    return {"v": 1, "attempt": 1, "how": "failed", "exit_code": 1, "srun_code": 1,
            "tasks": [{"node": node, "task": task, "code": code, "signal": signal}
                      for node, task, code, signal in tasks]}


def test_a_task_s_signal_is_evidence_and_is_shown(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    made.failed()
    write(made, "exit.json", exits(("n2", 17, 139, 11), ("n1", 8, 137, 9)))
    assert verdict_of(capsys)["category"] == "native_crash"
    assert "also       task 17 on n2 ended first (SIGSEGV)" in told(capsys)


def test_a_job_whose_end_no_supervisor_saw_is_asked_for(
    made: Made, bin: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    fake_command(bin, "scontrol", "echo 'JobId=12 JobState=NODE_FAIL Reason=NodeDown ExitCode=1:0 NodeList=n[0-3]'")
    assert verdict_of(capsys)["category"] == "node_failure"
    assert "Slurm: job 12 is NODE_FAIL (reason NodeDown, exit code 1:0)" in told(capsys)


def test_a_step_that_ran_out_of_memory_is_found_in_the_accounts(
    made: Made, bin: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    fake_command(bin, "sacct", "printf '12|FAILED|1:0|n[0-3]|/x\\n12.0|OUT_OF_MEMORY|0:125|n2|\\n'")
    assert verdict_of(capsys)["category"] == "host_oom"


def test_a_job_that_its_own_supervisor_cancelled_is_no_cancel(
    made: Made, bin: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    fake_command(bin, "scontrol", "echo 'JobId=12 JobState=CANCELLED Reason=None ExitCode=0:15 NodeList=n[0-3]'")
    made.failed()
    assert verdict_of(capsys)["category"] == "unknown"


def test_a_ticket_dates_a_lost_node_by_the_journal(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    lost_t = made.event("node_lost", node="n2", why="its node guard has not answered for 10 s").t
    made.event("node_suspected", node="n2", why="its node guard has not answered for 10 s")
    made.event("attempt_ended", attempt=1, how="lost", exit_code=255)
    assert run(["why", "bloom", "--ticket"]) == 0
    assert f"Time:        {talk.moment(lost_t)} (node n2 was lost)" in capsys.readouterr().out


def test_a_look_at_the_stacks_is_evidence_and_is_shown(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    made.event("verdict", attempt=1, category="hang", summary="x", confidence=0.9, action="restart", evidence=[])
    made.failed()
    write(made, "stacks/20261121T200000/verdict.json", {**HANG, "verdict": {**HANG["verdict"], "kind": "moving"}})
    write(made, "stacks/20261121T200010/verdict.json", HANG)
    found = verdict_of(capsys)
    assert (found["category"], found["confidence"], found["suspects"]) == ("hang", 0.9, ["n2"])
    assert "31 ranks: all_reduce" in told(capsys)


def test_rank_of_a_hang_is_the_odd_one_and_not_who_was_ended_first(
    made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    made.event("verdict", attempt=1, category="hang", summary="x", confidence=0.9, action="restart", evidence=[])
    made.failed()
    made.log(1, b"srun: error: n2: task 18: Exited with exit code 143\n")
    write(made, "exit.json", exits(("n1", 8, 143, 15), ("n2", 18, 143, 15)))
    write(made, "stacks/20261121T200010/verdict.json", HANG)
    found = verdict_of(capsys)
    assert (found["host"], found["rank"]) == ("n2", HANG["verdict"]["odd"][0]["rank"])
    assert "died of SIGTERM" not in told(capsys), "the supervisor has ended them all"


def test_ranks_that_moved_are_no_hang(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    made.failed()
    write(made, "stacks/20261121T200000/verdict.json", {**HANG, "verdict": {**HANG["verdict"], "kind": "moving"}})
    assert verdict_of(capsys)["category"] == "unknown"


def test_kernel_lines_of_a_node_are_part_of_the_story(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    made.failed()
    write(made, "system/n2.log", "2026-11-21T20:00:01+00:00 n2 kernel: NVRM: Xid (PCI:0000:90:00): 79, GPU has fallen "
                                 "off the bus.\n")
    found = verdict_of(capsys)
    assert (found["category"], found["host"], found["suspects"]) == ("gpu_hardware", "n2", ["n2"])


def test_core_files_are_named_with_their_stacks(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    made.failed()
    write(made, "exit.json", exits(("n2", 17, 139, 11)))
    core = {"node": "n2", "path": "/x/core.9", "bytes": 1, "t": 1.0, "pid": 9, "program": "python", "command": "",
            "signal": 11, "by": "gdb", "backtrace": ["f (a.so)", "g (b.so)"], "why": ""}
    write(made, "system/cores.json", {"v": 1, "cores": [core], "notes": ["n2: cores go to apport"]})
    out = told(capsys)
    assert "core /x/core.9 of python (SIGSEGV) on n2: f (a.so) ← g (b.so)" in out and "n2: cores go to apport" in out


def test_who_was_on_a_node_and_should_not_have_been_is_shown(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    made.failed()
    row = {"node": "n3", "pid": 4711, "whose": "other", "user": "bob", "cmd": "python train.py", "name": "python",
           "gpus": [2], "gpu_mb": 71000, "rss_mb": 5, "ended": None, "why": ""}
    write(made, "system/leftovers.json", {"v": 1, "left": [row]})
    write(made, "system/ticket-n3.txt", "Dear administrators")
    out = told(capsys)
    assert "left over at its start on n3: pid 4711 of bob (python train.py) holds 71000 MB of GPU 2" in out
    assert "a text for the administrators: " in out and "system/ticket-n3.txt" in out


def test_an_earlier_failure_of_the_same_node_makes_it_a_suspect(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    made.failed()
    write(made, "exit.json", exits(("n2", 17, 134, 6)))
    folder = Path(os.environ["XDG_STATE_HOME"]) / "safelaunch" / "nodes"
    ledger.append(folder, [NodeEvidence("n2", "network", made.now - 4000, "its link fell", "root", "aaaabbbb", 1, "f")])
    made.log(1, b"n2:1:2 [0] NCCL WARN socketProgress: Connection closed by remote peer n5<41234>\n"
                b"torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n")
    assert "n2 was blamed once before" in told(capsys)


def test_the_ranks_of_torchrun_are_those_of_the_training(bin: Path, tmp_path: Path,
                                                          capsys: pytest.CaptureFixture[str]) -> None:
    made = make_run(tmp_path / "bloom", TORCHRUN)
    made.running()
    made.log(1, STEPS + OOM)
    made.failed()
    found = verdict_of(capsys)
    assert (found["host"], found["rank"]) == ("n2", 19)


@pytest.mark.parametrize("name", ["exit.json", "system/cores.json", "system/leftovers.json", "index.json",
                                  "stacks/1/verdict.json", "verdict.json"])
@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"v": 1}', '{"v": 1, "nodes": [1], "tasks": 3, "verdict": {}}'],
    ids=["empty", "torn", "a list", "null", "bare", "odd"])
def test_a_torn_file_is_no_obstacle(made: Made, capsys: pytest.CaptureFixture[str], name: str, text: str) -> None:
    made.failed()
    write(made, name, text)
    assert verdict_of(capsys)["category"] == "unknown"


# --- jobs that safelaunch did not start -----------------------------------------------------------------------------


def test_a_job_that_only_the_accounts_know_is_explained_by_its_state(
    bin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    fake_command(bin, "sacct", "printf '4711|NODE_FAIL|0:0|n[0-3]|/nowhere\\n'")
    assert run(["why", "4711"]) == 0
    out = capsys.readouterr().out
    assert "node_failure" in out and "Slurm: job 4711 is NODE_FAIL" in out


def test_the_output_of_an_old_job_is_looked_for_where_it_ran(
    bin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    fake_command(bin, "sacct", f"printf '4711|FAILED|1:0|n[0-3]|{tmp_path}\\n'")
    (tmp_path / "slurm-4711.out").write_bytes(OOM)
    assert run(["why", "4711", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"]["category"] == "cuda_oom"


@pytest.mark.parametrize(("shown", "code", "said"), [
    ("echo 'JobId=4711 JobState=PENDING Reason=Resources StdOut=/no/x.out'", 2, "it has not started (Resources)"),
    ("echo 'JobId=4711 JobState=RUNNING Reason=None StdOut=/no/x.out'", 2, "job 4711 is RUNNING; its output is not"),
    ("echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1", 4, "Slurm does not answer"),
    ("echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", 2, "no run and no job 4711"),
], ids=["pending", "running elsewhere", "no Slurm", "nobody's"])
def test_a_job_without_an_output_is_said_to_be_so(
    bin: Path, capsys: pytest.CaptureFixture[str], shown: str, code: int, said: str,
) -> None:
    fake_command(bin, "scontrol", shown)
    assert run(["why", "4711"]) == code
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("started", [False, True], ids=["in the queue", "started"])
def test_a_run_that_never_started_says_how_far_it_got(
    bin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], started: bool,
) -> None:
    made = make_run(tmp_path / "bloom")
    made.submitted()
    if started:
        made.started()
    assert run(["why", "bloom"]) == 2
    err = capsys.readouterr().err
    assert "bloom has no attempt yet" in err and "safelaunch status" in err
    assert ("job 12 has not started" in err) is not started


def test_an_attempt_that_has_failed_is_never_well(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    made.failed()
    found = verdict_of(capsys)
    assert (found["category"], found["summary"]) == (
        "unknown", "the attempt has failed, and the log does not say why")


def test_who_stopped_a_run_is_said_and_when(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    made.event("kill_switch", name="kill-now", who="sl-bob", touched_t=made.now)
    made.event("decision", row="kill_now", why="ending the attempt", action="end", attempt=1, log_bytes=len(STEPS))
    made.log(1, b"[n0:0]:W signal_handler Received 15 death signal, shutting down workers\n")
    made.event("attempt_ended", attempt=1, how="stopped", exit_code=143, asked="kill_now")
    made.event("stopped", exit_code=12, why="sl-bob touched kill-now")
    found = verdict_of(capsys)
    assert (found["category"], found["confidence"], found["summary"]) == ("cancelled", 1.0, "sl-bob touched kill-now")
    out = told(capsys)
    assert "ended      attempt 1 stopped, 20" in out and "action     not restarted: a person's request is final" in out


# --- the verdict by which the supervisor acted -----------------------------------------------------------------------

SAID = "task 17 on n2 ended with exit code 1, and the log does not say why"
RECORDED: dict[str, Any] = {"v": 1, "verdict": {"category": "unknown", "confidence": 0.2, "action": "restart",
                                "summary": SAID,
                                "host": "n2", "rank": 17, "suspects": [], "evidence": [], "runner_up": None},
            "symptoms": [], "fingerprint": "unknown:exit=1:"}


def record(made: Made) -> None:
    said = RECORDED["verdict"]
    made.event("verdict", attempt=1, **{key: said[key] for key in ("category", "confidence", "action", "summary")})
    write(made, "verdict.json", RECORDED)


def test_the_recorded_verdict_is_shown_where_the_log_says_the_same_now(
    made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    record(made)
    made.failed()
    write(made, "exit.json", exits(("n2", 17, 1, None)))
    assert "recorded" not in told(capsys)
    assert run(["why", "bloom", "--all"]) == 0
    assert "recorded   when the attempt ended the same was said (20% sure)" in capsys.readouterr().out
    found = whole(capsys)["recorded"]
    assert (found["category"], found["host"], found["is_same"]) == ("unknown", "n2", True)


def test_both_verdicts_are_told_where_the_log_says_more_by_now(
    made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    record(made)
    made.failed()
    made.log(1, OOM)
    out = told(capsys)
    assert f"recorded   when the attempt ended the verdict was unknown (20% sure): {SAID}" in out
    assert "today      what is known now says cuda_oom (" in out
    found = whole(capsys)
    assert (found["recorded"]["category"], found["recorded"]["is_same"]) == ("unknown", False)


def test_without_its_file_the_recorded_verdict_is_that_of_the_journal(
    made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    made.event("verdict", attempt=1, category="storage", summary="disk full", confidence=0.9, action="fix_storage")
    made.failed()
    assert "recorded   when the attempt ended the verdict was storage (90% sure): disk full" in told(capsys)


def test_a_verdict_of_another_version_is_passed_over(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    record(made)
    made.failed()
    write(made, "verdict.json", {"v": 9, "verdict": {"category": "unknown"}})
    assert whole(capsys)["recorded"]["summary"] == SAID


def test_why_and_the_policy_speak_of_a_run_in_one_language(
    bin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = make_run(tmp_path / "bloom", TORCHRUN + "restart: {policy: {cuda_oom: stop}}\n")
    made.running()
    made.log(1, STEPS + OOM)
    said = whole(capsys)
    assert (said["verdict"]["action"], said["policy"]) == ("fix_config", {"then": "stop", "follows": None})
    shown = told(capsys)
    assert "nothing yet; once the attempt has ended: never restart (restart.policy.cuda_oom: stop)" in shown


def whole(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run(["why", "bloom", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


LOST = "no job goes on with the run; to queue one: safelaunch watch --once"


@each(("attempt", "queue", "category", "follows"), [
    ({}, "", "unknown", LOST),
    ({"how": "interrupted", "ending": "preempted"}, "", "preempted", LOST),
    ({}, "12|PENDING|NAME|BeginTime|", "unknown", "job 12 is waiting to be scheduled (BeginTime: "),
    ({}, "13|PENDING|NAME|Priority|", "unknown", "the run goes on in job 13, which is waiting to be scheduled"),
    ({}, "12|RUNNING|NAME|None|n[0-3]", "none", None),
    ({}, "down", "none", None),
], ids=["no end is written", "preempted, and no watch", "requeued", "the next job waits", "it lives", "no answer"])
def test_a_run_whose_job_is_over_is_not_called_alive(
    attempt: dict[str, Any], queue: str, category: str, follows: str | None
) -> None:
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        made = make_running(Path(place), patch)
        for name in ("scontrol", "sacct"):
            fake_command(Path(place) / "bin", name, "echo 'Invalid job id specified' >&2; exit 1")
        line = queue.replace("NAME", f"root|{made.run.plan.job_name}")
        fake_command(Path(place) / "bin", "squeue", f"echo '{line}'")
        made.log(1, b"".join(b"step %d loss 0.5\n" % step for step in range(20)))
        if attempt:
            made.event("verdict", attempt=1, category="preempted", confidence=1.0)
            made.event("attempt_ended", attempt=1, **attempt)
            made.event("need_successor", exclude=[])
            made.event("handed_over", job=None)
        subject = whyrun.find("bloom", None)
        _, verdict = judge_subject(subject)
        assert verdict.category == category
        assert (subject.present is None) == (follows is not None)
        assert (follows or "") in subject.follows


def test_a_failed_attempt_is_told_beside_a_later_one_whose_job_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        made = make_running(Path(place), patch)
        made.event("attempt_ended", attempt=1, how="failed", exit_code=1)
        made.event("attempt_started", attempt=2, job="12", nodes=["n0", "n1", "n2", "n3"])
        assert run(["why", "bloom"]) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert text.startswith("now Slurm no longer knows job 12, ") and LOST in text
        assert "before attempt 1 failed" in text


def test_an_attempt_that_a_person_ended_for_the_next_one_has_not_stopped_early(
    capsys: pytest.CaptureFixture[str]
) -> None:
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        made = make_running(Path(place), patch)
        made.log(1, b"".join(b"step %d/4000 loss 0.5\n" % step for step in range(20)))
        wish = "a person wants the next attempt now"
        made.event("verdict", attempt=1, category="none", confidence=0.95, summary=wish)
        made.event("attempt_ended", attempt=1, how="interrupted", exit_code=143, ending=None)
        assert run(["why", "bloom"]) == 0
        text = capsys.readouterr().out
        assert wish in text and "stopped early" not in text and "today" not in text
