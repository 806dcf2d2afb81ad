from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from safelaunch.adapters.logs import logbounds, logfiles, logindex
from safelaunch.core.why.findings import Log, Rule
from safelaunch.core.why.scan import TRACEBACK

RULES = (
    Rule("cuda", "native_crash", (b"CUDA error",), rb"CUDA error: (?P<what>\w+)"),
    Rule("step", "none", (b"iteration",), rb"iteration +(?P<step>\d+)", role="progress"),
    Rule("exception", "user_code", (TRACEBACK,), rb"^(?P<type>[\w.]+)(?:: .*)?$", order=-10),
)
TRACE = b"Traceback (most recent call last):\n  File \"x.py\", line 3, in f\n    f()\nValueError: no\n"


def said(log: Log) -> list[tuple[str, int, str]]:
    return [(one.rule, one.offset, one.text) for one in log.findings]


def grow(path: Path, text: bytes) -> None:
    with path.open("ab") as stream:
        stream.write(text)


def test_what_is_known_is_not_read_again(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    grow(log, b"iteration 1\nCUDA error: gone\n")
    index = logindex.update(None, log, RULES)
    assert index.position == log.stat().st_size
    log.write_bytes(b"x" * (index.position - logindex.WITNESS) + log.read_bytes()[-logindex.WITNESS:])
    grow(log, b"CUDA error: again\n")
    known = logfiles.read_logs([log], RULES, indexes={log: index})
    assert [one.text for one in known.findings] == ["CUDA error: gone", "CUDA error: again"]
    assert [sign.step for sign in known.progress] == [1]


@pytest.mark.parametrize("size", [7, 30, 64, 1000])
def test_a_log_read_in_bits_says_what_it_says_at_once(tmp_path: Path, size: int) -> None:
    log = tmp_path / "a.log"
    log.touch()
    text = b"[rank1]: iteration 1\nCUDA error: gone\n" + TRACE + b"iteration 2\n" + TRACE
    index = None
    for start in range(0, len(text), size):
        grow(log, text[start:start + size])
        index = logindex.update(index, log, RULES)
    assert index is not None
    whole = logfiles.read_logs([log], RULES)
    bits = logfiles.read_logs([log], RULES, indexes={log: index})
    assert said(bits) == said(whole)
    assert set(bits.progress) == set(whole.progress)


def test_a_line_that_is_being_written_is_left_for_later(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    grow(log, b"hello\nCUDA err")
    index = logindex.update(None, log, RULES)
    assert index.position == 6
    grow(log, b"or: gone\n")
    assert [one.text for one in logindex.update(index, log, RULES).part.findings] == ["CUDA error: gone"]


def test_an_index_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    grow(log, b"[gpu-1:3]:2024-05-01 12:00:00 iteration 1\n[rank1]: CUDA error: gone\n" + TRACE)
    index = logindex.update(None, log, RULES)
    logindex.save(index, tmp_path / "index.json")
    assert logindex.load(tmp_path / "index.json") == index
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("index")] == ["index.json"]


@pytest.mark.parametrize("text", [
    "", "{", "[]", '{"v": 1}', '{"v": 99}', '{"v": 1, "findings": [[1]]}', "null", "\x00",
])
def test_a_damaged_index_is_as_good_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "index.json").write_text(text)
    assert logindex.load(tmp_path / "index.json") is None


def test_a_missing_index_is_none(tmp_path: Path) -> None:
    assert logindex.load(tmp_path / "index.json") is None


def test_a_log_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    grow(log, b"CUDA error: gone\n" * 30)
    index = logindex.update(None, log, RULES)
    log.write_bytes(b"hello world\n" * 90 + b"CUDA error: other\n")
    assert [one.groups["what"] for one in logfiles.read_logs([log], RULES, indexes={log: index}).findings] == ["other"]
    assert [one.groups["what"] for one in logindex.update(index, log, RULES).part.findings] == ["other"]


def test_a_log_that_was_cut_is_read_anew(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    grow(log, b"CUDA error: gone\n" * 3)
    index = logindex.update(None, log, RULES)
    log.write_bytes(b"CUDA error: gone\n")
    assert len(logfiles.read_logs([log], RULES, indexes={log: index}).findings) == 1


def test_an_index_of_other_rules_is_not_used(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    grow(log, b"CUDA error: gone\n")
    index = logindex.update(None, log, RULES)
    changed = (replace(RULES[0], id="gpu"), *RULES[1:])
    assert [one.rule for one in logfiles.read_logs([log], changed, indexes={log: index}).findings] == ["gpu"]


def test_an_error_that_the_training_got_over_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logbounds, "MARGIN", 1000)
    monkeypatch.setattr(logbounds, "HEAD", 10)
    log = tmp_path / "a.log"
    grow(log, b"iteration 1\nCUDA error: gone\n" + b"".join(b"iteration %d\n" % step for step in range(2000)))
    index = logindex.update(None, log, RULES)
    assert (index.part.findings, index.part.counts["cuda"]) == ([], 1)
