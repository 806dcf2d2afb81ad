"""Tracebacks: frames, whose they are, whether anybody minds, and what an exception means."""

from __future__ import annotations

import pytest

from safelaunch.core.why.tracebacks import find_user_frame, is_ignored, is_of_thread, parse_frames, read_exception

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


def test_a_traceback_of_libraries_has_no_user_frame() -> None:
    assert find_user_frame(BLOCK[:2] + BLOCK[4:]) is None


@pytest.mark.parametrize(
    ("before", "expected"),
    [("Exception ignored in: <function X.__del__ at 0x7f>", True), ("--- Logging error ---", True), ("loading", False),
     ("Traceback (most recent call last):", False)],
    ids=["ignored", "logging", "an ordinary line", "nothing before"],
)
def test_whether_anybody_minds_stands_before_it(before: str, expected: bool) -> None:
    assert is_ignored((before, *BLOCK[1:])) is expected


def test_a_thread_s_exception_is_told() -> None:
    assert is_of_thread(("Exception in thread Thread-8 (pin):", *BLOCK[1:]))


@pytest.mark.parametrize(
    ("kind", "message", "path", "category"),
    [
        ("NameError", "name 'x' is not defined", "train.py", "user_code"),
        ("ModuleNotFoundError", "No module named 'x'", "train.py", "environment"),
        ("torch.cuda.OutOfMemoryError", "", "train.py", "cuda_oom"),
        ("KeyboardInterrupt", "", "train.py", "cancelled"),
        ("MemoryError", "", "train.py", "host_oom"),
        ("FileNotFoundError", "[Errno 2] x", "train.py", "config"),
        ("AssertionError", "", "megatron/arguments.py", "config"),
        ("AssertionError", "", "model.py", "user_code"),
        ("ValueError", "option --tp must be set", "train.py", "config"),
        ("ValueError", "sample 8 has no label", "my_dataset.py", "data"),
        ("RuntimeError", "x 2.0 is not installed; please install it", "train.py", "environment"),
        ("ImportError", "requires torch>=2.4", "train.py", "environment"),
        ("mypackage.Strange", "no such thing", "train.py", "user_code"),
        ("TypeError", "argument 'input' must be Tensor", "train.py", "user_code"),
    ],
    ids=["a name", "a module", "memory of the card", "Ctrl-C", "memory of the host", "a file", "an argument's check",
         "an assertion", "an option", "a sample", "a package", "an import", "a type of its own", "a type error"],
)
def test_what_an_exception_means(kind: str, message: str, path: str, category: str) -> None:
    place = f'  File "/home/u/{path}", line 7, in f'
    block = ("Traceback (most recent call last):", place, "    g()", f"{kind}: {message}")
    assert read_exception(kind, message, block).category == category
