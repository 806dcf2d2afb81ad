"""safelaunch logs as people see it: since when, folded, on a terminal."""

from __future__ import annotations

import io
import re
from datetime import datetime
from pathlib import Path

import pytest

from safelaunch.cli import run
from safelaunch.verbs.common import talk
from safelaunch.verbs.logs.attemptlogs import AttemptLog
from safelaunch.verbs.logs.logparts import folded
from safelaunch.verbs.logs.logshow import LogWriter, colour_of
from tests.handmade import Made, make_run

HOSTILE = b"[n0:0]:\x1b]52;c;cm0=\x07\x1b[2J\x9b31m\xc2\x9b\x1b]0;title\x07\xff\x08 \x1b[31mred\n"
LOG = AttemptLog(1, Path("main.log"), None)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """A run whose first attempt runs for two hours."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    made = make_run(tmp_path / "bloom")
    made.submitted()
    made.started(ago_s=7200)
    made.attempt(ago_s=7200)
    return made


def stamp(made: Made, ago_s: float) -> bytes:
    return datetime.fromtimestamp(made.now - ago_s).strftime("[n0:0]:%Y-%m-%d %H:%M:%S").encode()


def shown(capfdbinary: pytest.CaptureFixture[bytes], *words: str) -> tuple[bytes, str]:
    assert run(["logs", *words]) == 0
    out, err = capfdbinary.readouterr()
    return out, err.decode()


def on_terminal(*parts: bytes, colour: bool = True) -> bytes:
    out = io.BytesIO()
    writer = LogWriter(out, is_terminal=True, has_colour=colour)
    for part in parts:
        writer.write(LOG, part)
    return out.getvalue()


def test_since_cuts_at_the_first_line_of_that_time(made: Made, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    late = stamp(made, 300) + b" late\n[n0:0]:its neighbour\n"
    made.log(1, b"head\n" + stamp(made, 3600) + b" early\n[n0:0]:a trace\n" + late)
    assert shown(capfdbinary, "--since", "10m")[0] == late
    assert shown(capfdbinary, "--since", datetime.fromtimestamp(made.now - 600).isoformat())[0] == late
    assert shown(capfdbinary, "--since", "10m", "-n", "1")[0] == b"[n0:0]:its neighbour\n"
    assert shown(capfdbinary, "--since", "10m", "--grep", "late")[0] == late.splitlines(keepends=True)[0]


def test_without_stamps_since_goes_by_the_journals_steps_and_says_so(
    made: Made, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    made.event("progress", attempt=1, step=3, ago_s=1200)
    made.event("progress", attempt=1, step=6, ago_s=60)
    made.log(1, b"".join(b"[n0:0]:step %d\n" % step for step in range(1, 8)))
    out, err = shown(capfdbinary, "--since", "10m")
    assert out == b"".join(b"[n0:0]:step %d\n" % step for step in range(4, 8))
    assert "attempt 1: no line has a time; shown from behind step 3" in err
    out, err = shown(capfdbinary, "--since", "1h")
    assert out.startswith(b"[n0:0]:step 1\n") and "the journal knows no earlier step; shown whole" in err


def test_since_leaves_out_attempts_that_ended_before(made: Made, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    import os

    os.utime(made.log(1, b"old\n"), (made.now - 3600, made.now - 3600))
    made.failed(1, ago_s=3600)
    made.attempt(2, ago_s=60)
    made.log(2, b"new\n")
    assert shown(capfdbinary, "--since", "10m")[0] == b"new\n"


def test_follow_since_shows_what_came_and_what_comes(made: Made, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    made.log(1, stamp(made, 3600) + b" early\n" + b"".join(stamp(made, 9) + b" %d\n" % n for n in range(20)))
    made.completed()
    assert shown(capfdbinary, "-f", "--since", "1m")[0].count(b"\n") == 20


@pytest.mark.parametrize("follow", [[], ["-f", "-n", "99"]], ids=["stored", "followed"])
def test_fold_shows_once_what_several_ranks_print(
    made: Made, capfdbinary: pytest.CaptureFixture[bytes], follow: list[str]
) -> None:
    made.log(1, b"".join(b"[n%d:%d]:start\n" % (rank // 8, rank) for rank in range(32)) + b"[n0:0]:step 1\ntorn")
    made.completed()
    assert shown(capfdbinary, *follow, "--fold")[0] == b"[n[0-3]: 32 ranks] start\n[n0:0]:step 1\ntorn"


def test_a_line_of_megabytes_is_folded_in_pieces() -> None:
    huge = [b"x" * (1 << 20)] * 10
    assert b"".join(data for _, data in folded([(LOG, part) for part in [*huge, b"\n", b"y"]], is_live=False)) == (
        b"".join(huge) + b"\ny")


@pytest.mark.parametrize("colour", [True, False])
@pytest.mark.parametrize("cut", range(len(HOSTILE)))
def test_on_a_terminal_nothing_of_a_log_acts_however_it_is_cut(colour: bool, cut: int) -> None:
    seen = on_terminal(HOSTILE[:cut], HOSTILE[cut:], colour=colour).decode()
    rest = re.sub(r"\x1b\[[0-9;]*m", "", seen)
    assert all(char.isprintable() or char in "\r\n\t" for char in rest)


def test_a_log_of_several_megabytes_in_one_line_stays_whole_on_a_terminal() -> None:
    line = b"[n0:0]:" + "é".encode() * 5_000_000 + b"\n"
    parts = [line[start:start + (1 << 20)] for start in range(0, len(line), 1 << 20)]
    assert on_terminal(*parts, colour=False) == line


def test_colours_are_of_hosts_and_end_before_the_text() -> None:
    seen = on_terminal(b"[n0:0]:a\n[n0:1]:b 10%\r", b"20%\n[n1:8]:c\n")
    lines = [line + b"\n" for line in seen.split(b"\n")[:-1]]
    assert [re.sub(rb"\x1b\[\d*m", b"", line) for line in lines] == [
        b"[n0:0]:a\n", b"[n0:1]:b 10%\r20%\n", b"[n1:8]:c\n"]
    colours = [re.findall(rb"\x1b\[(\d+)m", line) for line in lines]
    assert colours[0] == colours[1] and len(colours[0]) == 2 and colours[0][1] == b"0"
    assert colour_of(b"n0") == colour_of(b"n0") and len({colour_of(b"n%d" % number) for number in range(50)}) == 10


def test_a_job_that_leaves_a_colour_on_colours_no_later_line() -> None:
    assert on_terminal(b"\x1b[31mred\nplain\n", colour=False) == b"\x1b[31mred\x1b[0m\nplain\n"


def test_no_color_and_pipes_get_no_colours(
    made: Made, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    made.log(1, b"[n0:0]:a\n")
    assert shown(capfdbinary)[0] == b"[n0:0]:a\n"
    monkeypatch.setattr(talk, "is_for_person", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert b"\x1b[" in shown(capfdbinary)[0]
    monkeypatch.setenv("NO_COLOR", "1")
    assert shown(capfdbinary)[0] == b"[n0:0]:a\n"
