"""No text, whoever wrote it, takes a regular expression of the package long. Those of the rules: test_rule_costs.py."""

from __future__ import annotations

from functools import cache, partial

import pytest

from safelaunch.config.shell.shelllines import MOST_SEARCHED
from safelaunch.trainlog.counters import count
from safelaunch.trainlog.figures import measure
from safelaunch.trainlog.lines import listen
from safelaunch.trainlog.steps import MOST_LINE_BYTES, cut_lines, latest_of
from safelaunch.why import loglines
from tests.effort import at_rest_s, seconds_of
from tests.pure.pumps import Pump, pumps_of
from tests.pure.why.patterns_of_package import ANCHORED, Use, all_patterns

NAME_MAX = 255         # bytes of a file name (Linux, limits.h)
CHUNK = 64 << 10       # what the leader reads of a log at once
MOST_S = 0.8           # of processor time for a chunk; worst here: 0.16 s, and a bad one takes 1.4 s and more
# A pattern that takes one of these in that time takes the chunk in 0.7 s, were it quadratic.
SHORT = ((2 << 10, 0.0007), (16 << 10, 0.04))
TINY = 512             # a pattern that takes this in 10 ms is worse than quadratic: more of it might take hours
TINY_S = 0.01
LEADER_S = 0.2         # for all that the leader asks of a chunk
# What has held a leader, or a verb, for seconds.
CASES = (
    b" step" + b" " * CHUNK, b" step" + b"\n" * CHUNK, b"step:" + b"\t" * CHUNK, b" step= " * (CHUNK // 7),
    b"step%40000s!" % b"", b"epoch 1 1 / 1 " * (CHUNK // 14), b"epoch 1 1 / 1" + b" " * CHUNK, b"1" * CHUNK,
    b"1," * (CHUNK // 2), b"loss: " + b"1," * (CHUNK // 2), b"loss" + b" " * CHUNK, b"0." * (CHUNK // 2),
    b"1e" * (CHUNK // 2), b"start" * (CHUNK // 5), b"saving " * (CHUNK // 7), b"10%" * (CHUNK // 3),
    b"\r  5%" * (CHUNK // 5), b"5%| 1/1 [" * (CHUNK // 9), b"[" * CHUNK, b"[a]: " * (CHUNK // 5), b"{" * CHUNK,
    b"'" * CHUNK, b"/" * CHUNK, b"a-" * (CHUNK // 2), b"load" * (CHUNK // 4), b"evaluating" * (CHUNK // 10),
    b"step 1 " * (CHUNK // 7), b"step 1\n" * (CHUNK // 7), b"0" * 40 + b" step 5 " * (CHUNK // 8), b"\n" * CHUNK,
)
SHARES = 16            # of the patterns, each a test: workers take them side by side
# Searched in texts that are cut, or in the name of a file.
CUT = {
    "safelaunch.why.loglines._WHO": loglines.MAX_PREFIX,
    "safelaunch.why.loglines._HOW": loglines.MAX_PREFIX,
    "safelaunch.checkpoints.formats.lightning._ITS_NAME": NAME_MAX,
    "safelaunch.config.scripts.scripthints.HINTS": MOST_SEARCHED,
    **{f"safelaunch.config.scripts.scriptfolders.{name}": MOST_SEARCHED for name in (
        "_OPTION", "_CALL", "_ASSIGNED", "_FRESH")},
    **{f"safelaunch.config.guessfolder.{name}": MOST_SEARCHED for name in (
        "_FIND", "_LIST", "_NAMED", "_OPTIONS", "_ASSIGNED", "_RESUMES")},
}


@cache
def every_use() -> list[Use]:
    """All but those of the rules; found when a test asks, not in each worker that collects the tests."""
    return [use for use in all_patterns() if ".why.rules" not in use.where]


def complaint_about(use: Use) -> str:
    """The text that takes it too long; "" = there is none among the cases and those that are made for it."""
    raw = use.pattern.pattern
    is_text = isinstance(raw, str)
    method = "search" if use.methods - ANCHORED else "match" if "match" in use.methods else "fullmatch"
    search = getattr(use.pattern, method)
    made = pumps_of(raw.encode(errors="replace") if isinstance(raw, str) else raw)
    most = CUT.get(use.where, CHUNK)

    def made_of(make: Pump, size: int) -> str | bytes:
        return make(size).decode("latin-1") if is_text else make(size)
    for make in (*map(_as_pump, CASES), *made):
        tiny = made_of(make, TINY)
        if seconds_of(partial(search, tiny)) < TINY_S and any(
                seconds_of(partial(search, made_of(make, min(most, size)))) < most_s for size, most_s in SHORT):
            continue
        if (tiny_s := at_rest_s(partial(search, tiny), TINY_S)) > TINY_S:
            return f"{use.where}: {tiny_s:.2f} s for {TINY} bytes of {make(60)!r}…"
        if (took_s := at_rest_s(partial(search, made_of(make, most)), MOST_S)) > MOST_S:
            return f"{use.where}: {took_s:.2f} s for {make(60)!r}…"
    return ""


def _as_pump(case: bytes) -> Pump:
    return lambda size: case[:size]


@pytest.mark.parametrize("share", range(SHARES))
def test_no_chunk_of_a_log_takes_a_pattern_long(share: int) -> None:
    assert [said for use in every_use()[share::SHARES] if (said := complaint_about(use))] == []


def test_all_patterns_are_found() -> None:
    found = {use.where.rpartition(".")[2] for use in every_use()}
    assert len(every_use()) > 200 and {"STEP_LINE", "_signs", "_RATE", "_STEP_TIME", "HEADS", "SRUN_SAW"} <= found


@pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case[:14]))
def test_what_the_leader_asks_of_a_chunk_takes_no_time(case: bytes) -> None:
    cut = cut_lines(case)
    asked_s = at_rest_s(lambda: (listen(cut), count((), cut, "auto", 5)), LEADER_S)
    shown_s = at_rest_s(lambda: (measure(cut), latest_of(cut, "auto")), 2.5 * LEADER_S)
    assert asked_s <= LEADER_S and shown_s <= 2.5 * LEADER_S


def test_lines_are_cut_and_bars_in_one_line_are_lines_of_their_own() -> None:
    bars = b"\r".join(b"%d%%|#| %d/100 [00:01<00:02]" % (number, number) for number in range(1000))
    assert cut_lines(b"step 1\n" + b"x" * 9000 + b"\n" + bars) == b"step 1\n" + b"x" * MOST_LINE_BYTES + b"\n" + bars
