"""What somebody else can put into a run folder is read within 5 s and 300 MB, or the verb says what it left out."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from safelaunch.errors import RunFolderError
from safelaunch.verbs.common import runs
from tests.effort import slowness
from tests.handmade import YAML, Made, make_run
from tests.io.nodehealth.test_ledger import ALICE, needs_root
from tests.verbs.test_foreign_links import give

VERBS = (("status",), ("why",), ("events",), ("report", "-o", "-"), ("checkpoints", "--json"))
MOST_S, MOST_KB = 5.0, 300 << 10   # of processor time on a quiet machine; resident
MANY = 3 << 20
HUGE = 1 << 40


def _journal(made: Made, content: bytes) -> None:
    (made.dir / "journal" / "000009-n9-1.jsonl").write_bytes(content)


def _sparse(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.truncate(HUGE)


def _many_checkpoints(made: Made) -> None:
    for number in range(20_000):
        (made.dir.parent / "ckpt" / f"step_{number}.pt").touch()


FOLDERS: dict[str, Callable[[Made], object]] = {
    "a journal of line ends": lambda made: _journal(made, b"\n" * MANY),
    "a journal of blanks": lambda made: _journal(made, b" \n" * (MANY // 2)),
    "a journal of brackets": lambda made: _journal(made, b"{\n" * (MANY // 2)),
    "a journal of lines that are nearly right": lambda made: _journal(made, b'{"v":1,"t":}\n' * (MANY // 13)),
    "a journal of attempts": lambda made: _journal(made, b"".join(
        b'{"v":1,"t":1.0,"gen":9,"seq":%d,"host":"n9","event":"attempt_started","attempt":%d}\n' % (n, n)
        for n in range(20_000))),
    "a journal of jobs": lambda made: _journal(made, b"".join(
        b'{"v":1,"t":%d.0,"gen":9,"seq":%d,"host":"n9","event":"job_started","job":"%d","nodes":["n1"]}\n' % (n, n, n)
        for n in range(20_000))),
    "a journal of lists": lambda made: _journal(made, b"".join(
        b'{"v":1,"t":1,"gen":9,"seq":%d,"host":"","event":"a","x":[%s0]}\n' % (n, b"[]," * 300_000) for n in range(9))),
    "a journal of nothing, 1 TB": lambda made: _sparse(made.dir / "journal" / "000009-n9-1.jsonl"),
    "a log of nothing, 1 TB": lambda made: _sparse(made.dir / "attempts" / "0001" / "main.log"),
    "20,000 empty checkpoints": _many_checkpoints,
}


@needs_root
@pytest.mark.parametrize("name", FOLDERS)
def test_a_verb_answers_in_time_and_in_little_memory(name: str, tmp_path: Path) -> None:
    (tmp_path / "ckpt").mkdir()
    resume = f"resume: {{dir: {tmp_path}/ckpt, by: training}}\n"
    made = make_run(tmp_path / "run", YAML + resume, "1a2b3c4d", cluster="local")
    made.running()
    made.log(1, b"step 1\nValueError: first\n")
    made.failed(category="unknown")
    FOLDERS[name](made)
    give(made.dir, ALICE)
    wrong = []
    for words in VERBS:
        code, took_s, most_kb = _typed(words[0], str(made.dir), *words[1:])
        if code not in (0, 1, 2) or took_s / slowness() > MOST_S or most_kb > MOST_KB:
            wrong.append((words, code, round(took_s / slowness(), 1), most_kb >> 10))
    assert not wrong


OWN: dict[str, Callable[[Made], object]] = {
    "a journal of nothing, 1 TB": lambda made: _sparse(made.dir / "journal" / "000009-n9-1.jsonl"),
    "a log of nothing, 256 MiB": lambda made: os.truncate(made.log(1, b"x\n"), 256 << 20),
    "a line of 128 MiB": lambda made: made.log(1, b"step 1 loss 2.0 " * (8 << 20)),
}


@pytest.mark.parametrize("name", OWN)
def test_a_hole_in_an_own_run_costs_no_memory(name: str, tmp_path: Path) -> None:
    made = make_run(tmp_path / "run", YAML, cluster="local")
    made.running()
    made.failed(category="unknown")
    OWN[name](made)
    wrong = []
    for words in (("status",), ("logs", "--grep", "(a+)+$"), ("progress",)):
        code, took_s, most_kb = _typed(words[0], str(made.dir), *words[1:])
        if code not in (0, 1, 2) or took_s / slowness() > MOST_S or most_kb > MOST_KB:
            wrong.append((words, code, round(took_s / slowness(), 1), most_kb >> 10))
    assert not wrong


def test_a_search_that_takes_too_much_ends_by_itself_whatever_it_catches() -> None:
    def search() -> None:
        while True:
            with contextlib.suppress(Exception):
                os.listdir("/")

    with pytest.raises(RunFolderError, match="/ holds too much"):
        runs.ask(search, "/", 0.05)


# The kernel counts what a process had before exec, too: here that is a small one's, not that of the tests (wait4(2)).
SMALL = """
import os, sys
nothing = os.open(os.devnull, os.O_RDWR)
pid = os.posix_spawn(sys.executable, [sys.executable, "-m", "safelaunch", *sys.argv[1:]], os.environ,
                     file_actions=[(os.POSIX_SPAWN_DUP2, nothing, stream) for stream in (0, 1, 2)])
_, status, used = os.wait4(pid, 0)
print(os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss)
"""


def _typed(*words: str) -> tuple[int, float, int]:
    """A verb's exit code, the processor time of its process and of its children, and the most KiB it had."""
    done = subprocess.run([sys.executable, "-I", "-S", "-c", SMALL, *words], capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONPATH": ""})
    code, took_s, most_kb = done.stdout.split()
    return int(code), float(took_s), int(most_kb)
