"""safelaunch why on what is no common log, and on outputs that do not take its answer."""

from __future__ import annotations

import gzip
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from safelaunch.errors import UsageError
from safelaunch.verbs.why import whysubject
from tests.odd.call import call, import_verbs

OOM = b"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a capacity of 79 GiB.\n"
STEPS = b"".join(b"step %d loss 2.5\n" % number for number in range(3000))
WHY = [sys.executable, "-m", "safelaunch", "why"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module", autouse=True)
def _imported() -> None:
    import_verbs()


def typed(*words: str, is_new: bool = False) -> subprocess.CompletedProcess[str]:
    """`safelaunch WORDS` in a fork, a tenth of a new interpreter; it must never end in a traceback.

    `is_new`: for a log that is so large that several processes read it, which forks of pytest do not do well.
    """
    said = call(words, Path.cwd(), {}, is_new=is_new)
    assert not said.faults(), said
    assert said.code is not None
    return subprocess.CompletedProcess(words, said.code, said.out.decode(), said.err.decode())


def why(*words: str, is_new: bool = False) -> subprocess.CompletedProcess[str]:
    return typed("why", *words, is_new=is_new)


def test_an_empty_log_is_no_sign_of_health(here: Path) -> None:
    (here / "a.log").touch()
    done = why("a.log")
    assert done.returncode == 0 and "verdict    unknown" in done.stdout and "the log is empty" in done.stdout


@pytest.mark.parametrize("kept", [1, 3, 20, 9000], ids=str)
def test_a_gzip_file_that_ends_too_early_is_read_as_far_as_it_goes(here: Path, kept: int) -> None:
    data = gzip.compress(STEPS + random.Random(1).randbytes(20_000).hex().encode() + OOM)
    (here / "a.log.gz").write_bytes(data[:kept])
    done = why("a.log.gz")
    assert done.returncode == 0
    assert kept == 1 or "a.log.gz: its compressed data are damaged or not complete" in done.stdout


def test_random_bytes_are_said_to_be_no_text(here: Path) -> None:
    # Of others one in 65,536 begins as a gzip file.
    (here / "a.log").write_bytes(random.Random(1).randbytes(300_000))
    done = why("a.log")
    assert done.returncode == 0 and "it is hardly text" in done.stdout


@pytest.mark.parametrize("text", [STEPS, "schöne Grüße, 你好\n".encode() * 900, b"\x1b[31mred\x1b[0m\r\n" * 900],
                         ids=["steps", "no ASCII", "colours"])
def test_text_is_not_said_to_be_none(here: Path, text: bytes) -> None:
    (here / "a.log").write_bytes(text)
    assert "hardly text" not in why("a.log").stdout


def test_lines_of_ten_megabytes_are_looked_at(here: Path) -> None:
    (here / "a.log").write_bytes(b"x" * 10_000_000 + b"\n" + OOM + b"y" * 10_000_000)
    done = why("a.log")
    assert done.returncode == 0 and "cuda_oom" in done.stdout and "a.log:2" in done.stdout


def test_a_log_that_begins_with_a_hole_is_read_from_where_it_has_data(here: Path) -> None:
    with (here / "a.log").open("wb") as stream:
        stream.truncate(20 << 30)   # cut under a writer that does not append
        stream.seek(20 << 30)
        stream.write(STEPS + OOM)
    start_s = time.monotonic()
    done = why("a.log", is_new=True)
    assert done.returncode == 0 and "cuda_oom" in done.stdout
    assert time.monotonic() - start_s < 60   # zeros are read at 0.1-1 GB/s


def test_a_log_that_grows_and_shrinks_meanwhile_does_no_harm(here: Path) -> None:
    path = here / "a.log"
    path.write_bytes(STEPS * 50)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            with path.open("ab") as stream:
                stream.write(STEPS + OOM)
            if path.stat().st_size > 8 << 20:
                os.truncate(path, 1000)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(3):
            assert why("a.log").returncode == 0
    finally:
        stop.set()
        writer.join()


def test_a_pipe_by_name_is_read_until_its_writer_closes_it(here: Path) -> None:
    os.mkfifo(here / "pipe")
    writer = subprocess.Popen(["sh", "-c", "sleep 0.2; cat > pipe"], stdin=subprocess.PIPE)
    assert writer.stdin is not None
    writer.stdin.write(STEPS + OOM)
    writer.stdin.close()
    done = why("pipe")
    assert writer.wait(60) == 0
    assert done.returncode == 0 and "cuda_oom" in done.stdout and "pipe is a pipe" in done.stderr


@pytest.mark.parametrize("word", ["/dev/zero", "/dev/null", "/dev/urandom"])
def test_a_device_is_no_log(here: Path, word: str) -> None:
    done = why(word)
    assert done.returncode == 2 and "is a device, not a log" in done.stderr


@pytest.mark.parametrize(("name", "code"), [("/dev/zero", 2), ("/dev/null", 0)])
def test_a_device_as_standard_input_must_have_an_end(here: Path, name: str, code: int) -> None:
    with Path(name).open("rb") as stream:
        done = subprocess.run([*WHY, "-"], stdin=stream, capture_output=True, text=True, timeout=120)
    assert done.returncode == code and "Traceback" not in done.stderr


def test_a_closed_standard_input_is_an_error_of_whoever_closed_it(here: Path) -> None:
    done = subprocess.run(["bash", "-c", f"{' '.join(WHY)} - <&-"], capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr and done.returncode in (0, 2)


@pytest.mark.parametrize(("word", "said"), [
    ("", "an empty name"), (" ", "no run is known as ' '"), ("dangling.log", "no such file"),
    ("loop.log", "cannot be read"), ("a.log/x", "no such file"), ("x" * 5000, "cannot be read"),
    ("no\nsuch.log", "no such file"),
], ids=["no name", "a blank", "a link to nowhere", "a link to itself", "below a file", "a long name", "two lines"])
def test_what_is_no_file_is_said_to_be_so(here: Path, word: str, said: str) -> None:
    (here / "a.log").write_bytes(OOM)
    (here / "dangling.log").symlink_to("nowhere")
    (here / "loop.log").symlink_to("loop.log")
    done = why(word)
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) <= 3


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")
def test_a_log_of_somebody_else_is_left_out_of_a_folder_and_refused_by_name(here: Path) -> None:
    here.chmod(0o755)
    (here / "logs").mkdir(0o755)
    for name, mode in (("own.log", 0o644), ("closed.log", 0o600)):
        (here / "logs" / name).write_bytes(OOM)
        (here / "logs" / name).chmod(mode)
    script = ("import os, sys; from safelaunch.cli import run\n"
              "kept, sys.stdout = sys.stdout, open(os.devnull, 'w')\n"
              "run(['why', sys.argv[-1]])   # all is imported: the interpreter may be root's own\n"
              "sys.stdout = kept; os.setgid(65534); os.setuid(65534); sys.exit(run(sys.argv[1:]))")
    env = {**os.environ, "XDG_STATE_HOME": "/nonexistent", "HOME": "/nonexistent"}

    def as_nobody(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", script, "why", *words], cwd="/", env=env, capture_output=True,
                              text=True, timeout=60)

    open_folder = Path(tempfile.mkdtemp(prefix="safelaunch-why-odd-"))
    open_folder.chmod(0o755)
    folder = open_folder / "logs"
    shutil.move(here / "logs", folder)
    try:
        both, closed = as_nobody(str(folder)), as_nobody(str(folder / "closed.log"))
        (folder / "own.log").unlink()
        none = as_nobody(str(folder))
    finally:
        shutil.rmtree(open_folder)
    assert both.returncode == 0 and "1 of the 2 logs" in both.stderr and "cuda_oom" in both.stdout, both.stderr
    assert closed.returncode == 2 and "Permission denied" in closed.stderr
    assert none.returncode == 2 and "none of its 1 logs are readable for you" in none.stderr


def test_a_folder_that_holds_much_else_is_refused_and_one_of_many_logs_is_read(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whysubject, "MOST_OTHERS", 20)
    for number in range(40):
        (here / f"rank{number}.log").write_bytes(OOM)
    found = whysubject.find_files([str(here)], None)
    assert found is not None and len(found.paths) == 40
    for number in range(7):
        (here / f"{number}" / "a" / "b").mkdir(parents=True)
    with pytest.raises(UsageError, match="not a folder of logs"):
        whysubject.find_files([str(here)], None)


@pytest.mark.parametrize("verb", ["why", "status", "logs", "events", "stop", "wait", "hold", "stacks", "policy"])
def test_the_whole_machine_is_no_run_and_no_log(here: Path, verb: str) -> None:
    done = typed(verb, "/")
    assert done.returncode == 2 and done.stderr.startswith("safelaunch: / "), done.stderr
    assert len(done.stderr.splitlines()) == 2   # the second says what to do
    assert "not searched within" not in done.stderr and "does not answer" not in done.stderr


# --- outputs --------------------------------------------------------------------------------------------------------

PRINTING = ["why a.log", "why --json a.log", "why --help", "--help", "--version", "schema", "policy"]
ENDS = ["| true", "| head -n 1", ">&-", "2>&-", "> /dev/null 2> /dev/full", ">&- 2>&- <&-"]


def shell(line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", line.replace("safelaunch", f"{sys.executable} -m safelaunch")],
                          capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("verb", PRINTING)
def test_a_full_disk_is_said_in_a_line(here: Path, verb: str) -> None:
    (here / "a.log").write_bytes(OOM)
    done = shell(f"safelaunch {verb} > /dev/full")
    assert (done.returncode, done.stderr) == (
        74, "safelaunch: the output cannot be written: No space left on device\n")


@pytest.mark.parametrize(("verb", "end"), [
    *((verb, "| true") for verb in [*PRINTING, "config", "nodes", "sandbox list"]),
    *(("why a.log", end) for end in ENDS[1:]), *(("nonsense", end) for end in ENDS[2:])])
def test_an_output_that_goes_away_or_is_closed_ends_in_no_traceback(here: Path, verb: str, end: str) -> None:
    (here / "a.log").write_bytes(OOM)
    done = shell(f"safelaunch {verb} {end}; echo \"code ${{PIPESTATUS[0]}}\" >> codes")
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr, done.stderr
    assert (here / "codes").read_text() in ("code 0\n", "code 2\n")


def test_a_narrow_encoding_is_no_reason_to_fail(here: Path) -> None:
    (here / "a.log").write_bytes(OOM)
    done = shell("PYTHONIOENCODING=ascii LC_ALL=C safelaunch why --all a.log")
    assert done.returncode == 0 and "cuda_oom" in done.stdout, done.stderr
