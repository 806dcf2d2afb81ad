"""safelaunch why: what it is asked about, what it prints, and that nothing in a log or a terminal stops it."""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from safelaunch.base.plaintext import LABEL_WIDTH
from safelaunch.cli import run
from safelaunch.verbs.common import terminal
from safelaunch.verbs.why.whysubject import Subject
from safelaunch.verbs.why.whyverdict import judge_subject
from safelaunch.why.categories import TABLE
from safelaunch.why.causes.category import ADVICE
from safelaunch.why.rulebook import BY_ID
from safelaunch.why.show.verdicttext import VerdictRow
from tests.handmade import Made, fake_command, make_run
from tests.tables import each

OOM = b"""[n1:3]:Traceback (most recent call last):
[n1:3]:  File "/home/user/train.py", line 7, in <module>
[n1:3]:    loss.backward()
[n1:3]:torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a capacity of 79 GiB.
"""
PACK = """version: 1
rules:
  - id: site.cooling
    category: node_failure
    anchor: [our cooling loop]
    pattern: our cooling loop has failed on (?P<host>[a-z0-9]+)
    weight: 0.9
    do: Call the plumber.
    sample: our cooling loop has failed on rack7
    counter_sample: our cooling loop is fine
"""
Said = Callable[..., tuple[str, str]]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def bloom(here: Path) -> Made:
    """A run whose first attempt failed; the second one runs."""
    made = make_run(here / "bloom")
    made.running()
    made.log(1, OOM)
    made.event("verdict", attempt=1, category="cuda_oom", summary="CUDA out of memory", confidence=0.9,
               action="fix_config", node="n1", task=3, evidence=[])
    made.failed(1)
    made.event("decision", row="restart", why="attempt 1 failed, 1 of 3 without progress", attempt=1, action="launch")
    made.attempt(2)
    made.log(2, b"step 1 loss 0.5\n")
    return made


@pytest.fixture
def why(capsys: pytest.CaptureFixture[str]) -> Said:
    """What `safelaunch why WORDS` writes to stdout and stderr."""

    def said(*words: str, code: int = 0) -> tuple[str, str]:
        assert run(["why", *words]) == code
        captured = capsys.readouterr()
        return captured.out, captured.err

    return said


@pytest.fixture
def log(here: Path) -> Path:
    path = here / "train.out"
    path.write_bytes(OOM)
    return path


def verdict_of(out: str) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(out)
    assert list(said) == ["v", "verdict", "candidates", "symptoms", "fingerprint", "speakers", "policy", "recorded",
                          "now"]
    assert said["v"] == 1
    found: dict[str, Any] = said["verdict"]
    return found


# --- what it is asked about -----------------------------------------------------------------------------------------


def test_a_log_is_explained_without_any_run(log: Path, why: Said) -> None:
    out, err = why("train.out")
    assert "cuda_oom" in out and "train.out:4" in out and "n1" in out and err == ""


def test_a_log_that_ends_far_before_its_total_is_told_with_its_lines(here: Path, why: Said) -> None:
    log = here / "short.log"
    log.write_text("max_steps: 400\n" + "".join(f"step {number} loss 2\n" for number in range(40, 48)) + "bye\n")
    out, _ = why(str(log), "--json")
    verdict = json.loads(out)["verdict"]
    assert (verdict["category"], verdict["confidence"]) == ("none", 0.5)
    assert "47 of 400 (11.8 %)" in verdict["summary"]
    assert [(one["line_number"], one["text"]) for one in verdict["evidence"]] == [
        (9, "step 47 loss 2"), (1, "max_steps: 400"), (10, "bye")]
    log.write_text(log.read_text() + "early stopping: no improvement\n")
    assert json.loads(why(str(log), "--json")[0])["verdict"]["confidence"] > 0.5


def test_a_run_that_completed_with_losses_that_are_no_numbers_is_not_called_well(here: Path, why: Said) -> None:
    made = make_run(here / "bloom")
    made.running()
    lines = [f"step {step}/9000 loss {'nan' if step >= 300 else 0.7} and more words\n" for step in range(9000)]
    made.log(1, "".join(lines).encode())
    made.completed()
    verdict = verdict_of(why("bloom", "--json")[0])
    assert (verdict["category"], verdict["action"]) == ("numerical", "look") and verdict["confidence"] <= 0.5
    first = verdict["evidence"][0]
    assert (first["line_number"], first["text"]) == (301, lines[300].strip())
    assert "from step 300 on" in verdict["summary"]
    out, _ = why("bloom")
    assert "nothing is wrong" not in out and "nothing to do" not in out


@each(("end", "category"), [("nan", "numerical"), ("inf", "numerical"), ("0.7", "none")])
def test_a_log_without_a_run_that_ends_in_nan_likewise(end: str, category: str) -> None:
    log = Path(tempfile.mkdtemp()) / "train.log"
    log.write_text("".join(f"step {step} loss {'nan' if step == 5 else 0.7}\n" for step in range(30))
                   + "".join(f"step {step} loss {end}\n" for step in range(30, 60)) + "Training finished.\n")
    _, verdict = judge_subject(Subject((log,)))
    assert verdict.category == category


def test_several_logs_are_one_story(log: Path, here: Path, why: Said) -> None:
    (here / "other.out").write_bytes(b"[n2:0]:RuntimeError: Connection closed by peer [10.0.0.1]:2000\n")
    assert verdict_of(why("other.out", "train.out", "--json")[0])["category"] == "cuda_oom"


def test_a_folder_of_logs_is_searched(here: Path, why: Said) -> None:
    place = here / "logs" / "attempt_0" / "1"
    place.mkdir(parents=True)
    (place / "stderr.log").write_bytes(OOM)
    (place / "weights.bin").write_bytes(OOM)
    found = verdict_of(why("logs", "--json")[0])
    assert found["evidence"][0]["file"] == "logs/attempt_0/1/stderr.log"


def test_a_compressed_log_is_read(here: Path, why: Said) -> None:
    (here / "train.out.gz").write_bytes(gzip.compress(OOM))
    assert verdict_of(why("train.out.gz", "--json")[0])["category"] == "cuda_oom"


def test_standard_input_is_read(here: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "safelaunch", "why", "-", "--json"], input=OOM, capture_output=True,
                          timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verdict"]["category"] == "cuda_oom"


def test_a_process_substitution_is_read(log: Path) -> None:
    words = f"{sys.executable} -m safelaunch why --json <(cat train.out)"
    done = subprocess.run(["bash", "-c", words], cwd=log.parent, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verdict"]["category"] == "cuda_oom"


def test_without_words_the_newest_run_is_explained(bloom: Made, why: Said) -> None:
    out, _ = why()
    assert "cuda_oom" in out and "attempts/0001/main.log:4" in out


def test_the_newest_attempt_that_failed_is_meant(bloom: Made, why: Said) -> None:
    assert "attempts/0001/main.log" in verdict_of(why("bloom", "--json")[0])["evidence"][0]["file"]


def test_another_attempt_can_be_named(bloom: Made, why: Said) -> None:
    assert verdict_of(why("bloom", "--attempt", "2", "--json")[0])["category"] in ("none", "unknown")


def silence(made: Made, number: int, step: int, silent_s: float) -> None:
    """The attempt's last step was so long ago, its pulse says that this is late, and a look has shown a rank in a
    barrier since.
    """
    log, step_t = made.dir / "attempts" / f"{number:04d}" / "main.log", time.time() - silent_s
    os.utime(log, times=(step_t, step_t))
    made.pulse(age_s=1, attempt=number, step=step, step_t=step_t, late_t=step_t + 20, phase="step")
    look = log.parent / "stacks" / "120000Z" / "verdict.json"
    look.parent.mkdir(parents=True)
    said = {"kind": "deadlock", "witnesses": ["asleep"], "summary": "rank 1 on n2 waits in barrier, train.py:47",
            "confidence": 0.85, "suspects": [], "odd": [{"rank": 1, "node": "n2", "why": "is in another collective"}]}
    look.write_text(json.dumps({"headline": "4 ranks", "verdict": said}))


def test_a_silent_attempt_comes_before_the_failure_of_an_earlier_one(bloom: Made, why: Said) -> None:
    silence(bloom, 2, 1, 24.0)
    rows = why("bloom")[0].splitlines()
    assert re.fullmatch(r"now        attempt 2 is silent: no step for 2\d s after step 1", rows[0]), rows
    assert rows[1].lstrip().startswith("rank 1 on n2 waits in barrier, train.py:47 (85% sure, seen at "), rows
    assert rows[3].startswith("before     attempt 1 failed, ") and rows[4].startswith("verdict    cuda_oom"), rows
    assert "next       safelaunch stacks bloom" in rows
    now = json.loads(why("bloom", "--json")[0])["now"]
    assert (now["attempt"], now["is_silent"], now["look"]["rank"]) == (2, True, 1)


def test_nothing_is_called_well_of_the_first_attempt_while_it_is_silent(here: Path, why: Said) -> None:
    made = make_run(here / "mute")
    made.running()
    made.log(1, b"step 1 loss 0.5\nstep 2 loss 0.4\n")
    assert "nothing is wrong" in why("mute")[0]
    silence(made, 1, 2, 60.0)
    out = why("mute")[0]
    assert "nothing is wrong" not in out and "nothing to do" not in out
    assert "verdict    hang: it stood still (85% sure)" in out and "where      rank 1 on n2" in out


def test_a_silence_that_may_pass_says_when_it_counts_as_a_hang_and_each_check_once(here: Path, why: Said) -> None:
    made = make_run(here / "loader")
    made.running()
    made.log(1, b"step 1 loss 0.5\nstep 2 loss 0.4\n")
    silence(made, 1, 2, 90.0)
    for at in ("12:01:00", "12:02:00"):
        made.event("decision", row="hang", attempt=1, is_work=False, why="rank 1 on n2 waits in get, train.py:47: this "
                   f"may pass; counted as a hang at 12:05:00 UTC if nothing changes, next check at {at} UTC")
    rows = [row for row in why("loader")[0].splitlines() if "counted as a hang" in row]
    assert [row.partition(" ")[0] for row in rows] == ["action", "safelaunch"] and "12:02:00" in rows[1], rows
    assert rows[0].split(None, 1)[1].startswith("counted as a hang at 12:05:00 UTC if nothing changes"), rows
    made.event("decision", row="hung", action="end", attempt=1, why="ending the attempt: it hangs", log_bytes=9)
    out = why("loader")[0]
    assert "now        attempt 1 is being ended after step 2: it hangs" in out and "action     nothing yet: " in out


def test_a_run_shows_what_safelaunch_did(bloom: Made, why: Said) -> None:
    out, _ = why("bloom")
    assert out.startswith("now        attempt 2 runs: step 1") and "before     attempt 1 failed, 20" in out
    told = [line for line in out.splitlines() if re.search(r"- \d{4}-\d\d-\d\d \d\d:", line)]
    assert len(told) == 3 and "attempt 1 has ended: failed" in told[1] and "attempt 2 starts" in told[2]


def test_the_exits_of_a_run_are_evidence(bloom: Made, why: Said) -> None:
    (bloom.dir / "attempts" / "0001" / "exit.json").write_text(json.dumps({
        "v": 1, "attempt": 1, "how": "failed", "exit_code": 1, "srun_code": 1,
        "tasks": [{"node": "n1", "task": 3, "code": 1, "signal": None}]}))
    assert verdict_of(why("bloom", "--json")[0])["category"] == "cuda_oom"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"tasks": [{}], "srun_code": 1}', '{"tasks": 7}'])
def test_a_torn_exit_json_is_no_obstacle(bloom: Made, why: Said, text: str) -> None:
    (bloom.dir / "attempts" / "0001" / "exit.json").write_text(text)
    assert verdict_of(why("bloom", "--json")[0])["category"] == "cuda_oom"


def test_an_attempt_without_a_log_is_explained_by_its_ending(bloom: Made, why: Said) -> None:
    bloom.event("verdict", attempt=2, category="time_limit", summary="", confidence=1.0, action="requeue_only")
    bloom.event("attempt_ended", attempt=2, how="interrupted", exit_code=1)
    (bloom.dir / "attempts" / "0002" / "main.log").unlink()
    assert verdict_of(why("bloom", "--json")[0])["category"] == "time_limit"


def test_a_job_that_safelaunch_did_not_start_is_found_by_slurm(
    log: Path, here: Path, monkeypatch: pytest.MonkeyPatch, why: Said,
) -> None:
    fake_command(here / "bin", "scontrol", f"echo 'JobId=4711 JobName=x JobState=FAILED StdErr={log} StdOut={log}'")
    monkeypatch.setenv("PATH", f"{here / 'bin'}:{os.environ['PATH']}")
    assert verdict_of(why("4711", "--json")[0])["category"] == "cuda_oom"


def test_a_job_that_nobody_knows_is_an_error(here: Path, monkeypatch: pytest.MonkeyPatch, why: Said) -> None:
    fake_command(here / "bin", "scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{here / 'bin'}:{os.environ['PATH']}")
    _, err = why("4711", code=2)
    assert "Invalid job id" in err and "name its log" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [(["nothing"], "no run is known as 'nothing'"), (["no.log"], "no.log: no such file, and no run"),
     (["train.out", "nothing"], "nothing: no such file"),
     (["train.out", "--attempt", "2"], "--attempt goes with a run"), (["empty"], "empty has no logs"),
     (["--explain", "cuda_omm"], "did you mean 'cuda_oom'?"), (["train.out", "--json", "--ticket"], "--ticket cannot"),
     (["bloom", "--attempt", "9"], "bloom has no attempt 9")],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None)
def test_what_cannot_be_obeyed_is_said(bloom: Made, log: Path, here: Path, why: Said, words: list[str],
                                       said: str) -> None:
    (here / "empty").mkdir()
    out, err = why(*words, code=2)
    assert said in err and out == ""


# --- what it prints -------------------------------------------------------------------------------------------------


def test_the_object_is_the_public_one(log: Path, why: Said) -> None:
    found = verdict_of(why("train.out", "--json")[0])
    assert set(found) == {"category", "confidence", "action", "summary", "host", "rank", "port", "file", "suspects",
                          "evidence", "runner_up"}
    assert found["category"] in TABLE and found["action"] in ADVICE and 0 <= found["confidence"] <= 1
    assert (found["host"], found["rank"]) == ("n1", 3)
    assert found["evidence"][0] == {
        "file": "train.out", "line_number": 4, "role": "cause", "text": OOM.decode().splitlines()[3].split(":", 2)[2]}


def test_unknown_is_an_answer(here: Path, why: Said) -> None:
    (here / "short.log").write_text("hello\n")
    out, _ = why("short.log", "--json")
    found = verdict_of(out)
    assert found["category"] in ("unknown", "none") and found["confidence"] < 0.8


@pytest.mark.parametrize("data", [b"", b"\n", b"\x00" * 5000, bytes(range(256)) * 40, b"a\r" * 9000, b"x" * 3_000_000],
                         ids=["empty", "one end of line", "zeros", "all bytes", "carriage returns", "one long line"])
def test_no_file_stops_it(here: Path, why: Said, data: bytes) -> None:
    (here / "odd.log").write_bytes(data)
    assert verdict_of(why("odd.log", "--json")[0])["category"] in ("unknown", "none")
    assert "verdict" in why("odd.log")[0]


def test_codes_of_a_log_do_not_reach_the_terminal(here: Path, why: Said) -> None:
    (here / "evil.log").write_bytes(OOM.replace(b"2.00 GiB", b"\x1b]0;owned\x07 2.00 \x1b[2J GiB"))
    for words in ((), ("--all",), ("--ticket",)):
        out, err = why("evil.log", *words)
        assert "\x1b" not in out + err and "\x07" not in out + err


def test_all_shows_the_whole_traceback(here: Path, why: Said) -> None:
    deep = b"".join(b'[n1:3]:  File "/home/user/m.py", line %d, in f\n[n1:3]:    f()\n' % n for n in range(20))
    (here / "deep.log").write_bytes(OOM.replace(b"[n1:3]:    loss", deep + b"[n1:3]:    loss"))
    assert "line 13, in f" not in why("deep.log")[0]
    assert "line 13, in f" in why("deep.log", "--all")[0]


def test_a_ticket_names_node_device_time_and_line(here: Path, why: Said) -> None:
    (here / "kern.log").write_text(
        "2024-05-01T12:30:00 n7 kernel: NVRM: Xid (PCI:0000:90:00): 79, pid=42, GPU has fallen off the bus.\n")
    out, err = why("--ticket", "kern.log")
    assert out.startswith("Subject: node n7: ") and err == ""
    assert "Device:      PCI:0000:90:00" in out and "2024-05-01 12:30:00" in out and "kern.log:1" in out


def test_a_ticket_about_ones_own_program_comes_with_a_warning(log: Path, why: Said) -> None:
    out, err = why("--ticket", "train.out")
    assert out.startswith("Subject: ") and "rarely a problem of the site" in err


@each("category", TABLE)
def test_every_category_has_a_page(here: Path, why: Said, category: str) -> None:
    out, _ = why("--explain", category)
    assert TABLE[category].page.title in out and all(line in out for line in TABLE[category].page.check)


@each("rule", sorted(BY_ID))
def test_every_rule_explains_itself(here: Path, why: Said, rule: str) -> None:
    out, _ = why("--explain", rule)
    assert out.startswith("rule ") and BY_ID[rule].explain in out


def test_a_rule_of_a_pack_is_used_and_explains_itself(
    here: Path, monkeypatch: pytest.MonkeyPatch, why: Said,
) -> None:
    (here / "pack.yaml").write_text(PACK)
    monkeypatch.setenv("SAFELAUNCH_RULES", str(here / "pack.yaml"))
    (here / "odd.log").write_text("step 1 loss 2\nour cooling loop has failed on rack7\n")
    assert verdict_of(why("odd.log", "--json")[0])["category"] == "node_failure"
    assert "Call the plumber." in why("odd.log")[0]
    assert "our cooling loop" in why("--explain", "site.cooling")[0]


def test_every_category_of_a_rule_has_a_page() -> None:
    assert {rule.category for rule in BY_ID.values()} <= {*TABLE, ""}
    assert {rule.action for rule in BY_ID.values()} <= {*ADVICE, ""}


# --- the documents --------------------------------------------------------------------------------------------------

DOCS = (Path(__file__).parent.parent.parent / "docs" / "why.md").read_text()


def test_the_documents_list_every_category_with_its_meaning() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| (?:`\w+`(?:, )?)+ \|$", DOCS, re.MULTILINE)
    assert dict(rows) == {category: row.page.title for category, row in TABLE.items()}


def test_the_documents_list_every_key_of_the_object(log: Path, why: Said) -> None:
    section = DOCS.partition("### The object")[2].partition("\n## ")[0]
    keys = {key for row in re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", section, re.MULTILINE)
            for key in re.findall(r"`(\w+)`", row)}
    said = json.loads(why("train.out", "--json")[0])
    assert keys == {*said["verdict"], *said, *said["policy"]} - {"v", "verdict", "policy"}


def test_the_documents_list_every_row_that_is_printed(bloom: Made, why: Said) -> None:
    printed = {line[:LABEL_WIDTH].strip() for line in why("--all")[0].splitlines() if line[:1].isalpha()}
    table = DOCS.partition("## What it prints")[2].partition("### ")[0]
    assert printed <= set(re.findall(r"`([\w ]+)`", table))


# --- the screen -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("row", [
    VerdictRow("first", "word " * 60), VerdictRow("", "  " + "x" * 500), VerdictRow("", " " * 60 + "code()"),
    VerdictRow("verdict", "ä" * 300), VerdictRow("", ""),
], ids=["words", "one long word", "deep code", "no ASCII", "blank"])
def test_no_line_is_wider_than_the_terminal(row: VerdictRow, width: int) -> None:
    assert max(map(len, terminal.lines([row], width))) <= width


def test_a_pipe_gets_whole_lines(log: Path, why: Said) -> None:
    assert OOM.decode().splitlines()[3].split(":", 2)[2] in why("train.out")[0]


@pytest.mark.parametrize("no_color", [False, True], ids=["colours", "NO_COLOR"])
def test_a_terminal_gets_lines_of_its_width(log: Path, no_color: bool) -> None:
    env = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
    shown = in_terminal(["why", "train.out"], log.parent, {**env, **({"NO_COLOR": "1"} if no_color else {})}, 60)
    assert ("\x1b[" in shown) is not no_color
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert max(map(len, plain.splitlines())) <= 60 and "cuda_oom" in plain


def in_terminal(words: list[str], folder: Path, env: dict[str, str], columns: int) -> str:
    """What a command writes to a terminal of that width."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = subprocess.Popen([sys.executable, "-m", "safelaunch", *words], cwd=folder, env=env, stdin=slave,
                               stdout=slave, stderr=slave)
    os.close(slave)
    parts = []
    try:
        while part := os.read(master, 65536):
            parts.append(part)
    except OSError:   # EIO: the other end is closed, which is how a terminal says so
        pass
    finally:
        os.close(master)
    assert process.wait(60) == 0
    return b"".join(parts).decode().replace("\r\n", "\n")
