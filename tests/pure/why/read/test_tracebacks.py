"""Tracebacks: frames, whose they are, and whether anybody minds."""

from __future__ import annotations

from safelaunch.why.read.tracebacks import find_user_frame, is_ignored, is_of_thread, parse_frames
from tests.tables import each

BLOCK = (
    "loading", "Traceback (most recent call last):", '  File "/home/u/train.py", line 7, in main', "    go(x)",
    '  File "/opt/env/lib/python3.11/site-packages/torch/x.py", line 80, in forward', "    ~~^~~", "TypeError: no",
)


def test_frames_are_read_outermost_first() -> None:
    assert [(frame.line, frame.function, frame.code) for frame in parse_frames(BLOCK)] == [
        (7, "main", "go(x)"), (80, "forward", "~~^~~")]


def test_the_deepest_frame_of_the_user_is_not_a_library_s() -> None:
    frame = find_user_frame(BLOCK)
    assert frame is not None and frame.path == "/home/u/train.py"


def test_the_compiled_modules_of_libraries_are_no_users_code() -> None:
    block = ["Traceback (most recent call last):", '  File "/home/ada/train.py", line 15, in launch',
             "    kernel((1,), (32,), (out,))", '  File "cupy/_core/raw.pyx", line 101, in cupy._core.raw.RawKernel',
             "cupy_backends.cuda.api.driver.CUDADriverError: CUDA_ERROR_ILLEGAL_ADDRESS"]
    found = find_user_frame(block)
    assert found is not None and (found.path, found.line) == ("/home/ada/train.py", 15)


def test_a_traceback_of_libraries_has_no_user_frame() -> None:
    assert find_user_frame(BLOCK[:2] + BLOCK[4:]) is None


@each(
    ("before", "expected"),
    [("Exception ignored in: <function X.__del__ at 0x7f>", True), ("--- Logging error ---", True), ("loading", False),
     ("Traceback (most recent call last):", False)],
    ids=["ignored", "logging", "an ordinary line", "nothing before"],
)
def test_whether_anybody_minds_stands_before_it(before: str, expected: bool) -> None:
    assert is_ignored((before, *BLOCK[1:])) is expected


def test_a_thread_s_exception_is_told() -> None:
    assert is_of_thread(("Exception in thread Thread-8 (pin):", *BLOCK[1:]))
