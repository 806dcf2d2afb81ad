from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safelaunch.why.findings import Finding, Rule
from safelaunch.why.read.parts import KEEP_ALL, Part, merge_parts
from safelaunch.why.read.prefilter import Shapes
from safelaunch.why.read.scan import TRACEBACK, Compiled, Scanner
from tests.tables import each


def rule(name: str, anchor: bytes, pattern: bytes, role: str = "cause", order: int = 0, weight: float = 0.5) -> Rule:
    return Rule(name, "user_code", (anchor,), pattern, role=role, order=order, weight=weight)  # type: ignore[arg-type]


RULES = (
    rule("cuda", b"CUDA error", rb"CUDA error: (?P<what>[a-z ]+)"),
    rule("ecc", b"uncorrectable ECC", rb"uncorrectable ECC", order=5),
    rule("step", b"iteration", rb"iteration +(?P<step>\d+)", "progress"),
    rule("scare", b"CUDA error: harmless", rb"CUDA error: harmless", "noise", order=9),
    rule("exception", TRACEBACK, rb"^(?P<type>[\w.]+)(?:: (?P<message>.*))?$", order=-10),
)
COMPILED = Compiled(RULES)


def scan(text: bytes, block: int = 1 << 20, **names: object) -> Part:
    scanner = Scanner(COMPILED, 0, Shapes(COMPILED.literals, words=COMPILED.words), **names)  # type: ignore[arg-type]
    number = 1
    lines = text.splitlines(keepends=True) if b"\n" in text else [text]
    at = start = 0
    held = b""
    for line in lines:
        held += line
        at += len(line)
        if len(held) >= block:
            number += scanner.feed(held, start, number)
            held, start = b"", at
    scanner.feed(held, start, number)
    return scanner.finish()


def found(part: Part) -> list[tuple[str, int | None, str]]:
    return [(one.rule, one.line_number, one.text) for one in part.findings]


def test_a_finding_says_where_who_and_what() -> None:
    part = scan(b"hello\n[gpu-7:3]:CUDA error: device gone\nbye\n")
    assert part.findings == [Finding("cuda", 0, 6, 2, "CUDA error: device gone", "gpu-7", 3, None,
                                     {"what": "device gone"})]


def test_of_two_rules_the_one_of_higher_order_has_the_line() -> None:
    assert found(scan(b"CUDA error: uncorrectable ECC error\n")) == [("ecc", 1, "CUDA error: uncorrectable ECC error")]


def test_noise_is_counted_and_not_kept() -> None:
    part = scan(b"CUDA error: harmless\n")
    assert (part.findings, part.counts) == ([], {"scare": 1})


def test_a_line_without_a_stamp_takes_that_of_the_line_before() -> None:
    part = scan(b"2024-05-01 12:00:00 start\nCUDA error: x\n")
    assert part.findings[0].t == 1714564800.0


def test_the_name_of_a_file_tells_who_prints_where_lines_do_not() -> None:
    part = scan(b"CUDA error: x\n[gpu-7:3]:CUDA error: y\n", host="gpu-1", rank=9)
    assert [(one.host, one.rank) for one in part.findings] == [("gpu-1", 9), ("gpu-7", 3)]


def test_a_step_before_a_carriage_return_is_read() -> None:
    part = scan(b"iteration 1\riteration 2\riteration 3\n")
    assert [sign.step for sign in part.progress[None, None]] == [1, 3, 3]


def test_the_first_the_last_and_the_highest_step_of_each_rank_are_kept() -> None:
    part = scan(b"[rank1]: iteration 5\n[rank2]: iteration 9\n[rank1]: iteration 7\n[rank1]: iteration 6\n")
    assert [sign.step for sign in part.progress[None, 1]] == [5, 6, 7]
    assert [sign.step for sign in part.progress[None, 2]] == [9, 9, 9]


TRACE = """Traceback (most recent call last):
  File "train.py", line 7, in <module>
    main()
  File "train.py", line 3, in main
    raise ValueError("no")
{exception}
"""


@each("exception", [
    "ValueError: no", "KeyError: 'x'", "AssertionError", "torch.cuda.OutOfMemoryError: CUDA out of memory",
    "subprocess.CalledProcessError: Command failed", "socket.timeout", "MyOwnProblem: it broke",
    "json.decoder.JSONDecodeError: Expecting value: line 1", "KeyboardInterrupt",
])
def test_the_line_of_an_exception_ends_its_traceback(exception: str) -> None:
    part = scan(TRACE.format(exception=exception).encode() + b"more text: here\n")
    (one,) = part.findings
    assert (one.rule, one.line_number, one.text) == ("exception", 6, exception)
    assert one.block[0].startswith("Traceback") and one.block[-1] == exception and len(one.block) == 6


def test_tracebacks_of_ranks_whose_lines_are_mixed_are_taken_apart() -> None:
    first, second = (TRACE.format(exception=f"ValueError: rank {rank}").splitlines() for rank in (1, 2))
    mixed = [line for one, two in zip(first, second, strict=True) for line in (f"[rank1]: {one}", f"[rank2]: {two}")]
    part = scan("\n".join(mixed).encode())
    assert [(one.rank, one.text, len(one.block)) for one in part.findings] == [
        (1, "ValueError: rank 1", 6), (2, "ValueError: rank 2", 6)]


def test_a_traceback_is_whole_where_lines_of_others_come_between() -> None:
    lines = TRACE.format(exception="ValueError: no").splitlines()
    text = "\n".join(f"[gpu-1:0]:{line}\n[gpu-2:5]:some text: here" for line in lines)
    (one,) = scan(text.encode()).findings
    assert (one.text, len(one.block)) == ("ValueError: no", 6)


def test_a_traceback_behind_a_progress_bar_is_read() -> None:
    (one,) = scan(b" 3%|#  | 3/100 [00:01<00:30]" + TRACE.format(exception="ValueError: no").encode()).findings
    assert one.text == "ValueError: no"


def test_chained_exceptions_are_numbered_from_the_first_raised() -> None:
    text = TRACE.format(exception="KeyError: 1") + (
        "\nDuring handling of the above exception, another exception occurred:\n\n") + (
        TRACE.format(exception="ValueError: 2")) + TRACE.format(exception="TypeError: not chained")
    assert [(one.text, one.chain) for one in scan(text.encode()).findings] == [
        ("KeyError: 1", 0), ("ValueError: 2", 1), ("TypeError: not chained", 0)]


def test_a_workers_own_traceback_comes_before_the_one_that_passes_it_on() -> None:
    text = TRACE.format(exception="ValueError: Caught ValueError in DataLoader worker process 0.") + "Original " + (
        TRACE.format(exception="ValueError: the sample is torn"))
    assert [(one.chain, "torn" in one.text) for one in scan(text.encode()).findings] == [(1, False), (0, True)]


def test_a_rule_of_its_own_has_the_exceptions_line() -> None:
    (one,) = scan(TRACE.format(exception="RuntimeError: CUDA error: device gone").encode()).findings
    assert one.rule == "cuda" and one.block[-1].startswith("RuntimeError")


def test_a_torn_traceback_swallows_nothing() -> None:
    text = "Traceback (most recent call last):\n" + "ordinary text here\n" * 500 + "CUDA error: x\n"
    assert found(scan(text.encode())) == [("cuda", 502, "CUDA error: x")]


def test_a_deep_traceback_keeps_its_ends() -> None:
    frames = "".join(f'  File "train.py", line {number}, in f\n    f()\n' for number in range(500))
    (one,) = scan(f"Traceback (most recent call last):\n{frames}RecursionError: too deep\n".encode()).findings
    assert len(one.block) <= 61 and "line 0," in one.block[1] and one.block[-1] == "RecursionError: too deep"


def test_a_traceback_over_two_blocks_is_one() -> None:
    text = TRACE.format(exception="ValueError: no").encode()
    assert found(scan(text, block=60)) == found(scan(text))


@given(st.integers(20, 400))
def test_blocks_make_no_difference(block: int) -> None:
    text = b"".join([b"[rank%d]: iteration %d\n[gpu-7:%d]:CUDA error: gone\n" % (rank, rank, rank) for rank in range(9)]
                    + [b"  %d: %s" % (rank, line) for rank in range(3)
                       for line in TRACE.format(exception="ValueError: no").encode().splitlines(keepends=True)])
    assert scan(text, block) == scan(text)


def test_of_a_rule_with_many_hits_the_first_of_each_rank_and_the_last_are_kept() -> None:
    text = b"".join(b"[rank%d]: CUDA error: gone\n" % (number % 400) for number in range(2000))
    part = scan(text, block=4000)
    assert part.counts["cuda"] == pytest.approx(2000, rel=0.8)
    assert {one.rank for one in part.findings} >= set(range(390))
    assert len(part.findings) < 2 * KEEP_ALL + 400


def test_a_long_line_is_looked_at_around_what_it_holds() -> None:
    text = b"[rank3]: " + b"x" * 300_000 + b" CUDA error: gone " + b"y" * 300_000 + b"\n"
    (one,) = scan(text).findings
    assert one.rank == 3 and " CUDA error: gone " in one.text and len(one.text) <= 2000


def test_the_text_of_a_finding_shows_what_was_found() -> None:
    (one,) = scan(b"x" * 5000 + b" CUDA error: gone\n").findings
    assert "CUDA error: gone" in one.text


def test_parts_are_joined_as_if_read_at_once() -> None:
    text = b"".join(b"[rank%d]: CUDA error: gone\n[rank%d]: iteration %d\n" % (number % 7, number % 7, number)
                    for number in range(40))
    half = len(text) // 2
    half = text.index(b"\n", half) + 1
    shapes = Shapes(COMPILED.literals, words=COMPILED.words)
    parts = []
    for start, piece in ((0, text[:half]), (half, text[half:])):
        scanner = Scanner(COMPILED, 0, shapes)
        scanner.feed(piece, start)
        parts.append(scanner.finish())
    whole = merge_parts(parts)
    assert whole.progress == scan(text).progress
    assert [one.offset for one in whole.findings] == [one.offset for one in scan(text).findings]


@given(st.lists(st.sampled_from([
    b"Traceback (most recent call last):\n", b"  File \"x\"\n", b"ValueError: x\n", b"[rank1]: ", b"CUDA error: ",
    b"\r", b"\n", b"\x00", b"\xff", b"iteration 3", b"During handling of the above exception", b"Original ",
    b"\x1b[", b"3: ",
]), max_size=60).map(b"".join))
def test_any_heap_of_pieces_can_be_scanned(text: bytes) -> None:
    part = scan(text, block=50)
    assert all(0 <= one.offset <= len(text) for one in part.findings)
