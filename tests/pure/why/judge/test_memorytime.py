"""An error for want of memory is told by when it came."""

from __future__ import annotations

from tests.pure.why.judged import judge_text
from tests.tables import each

CUDA = "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
HOST = "slurmstepd: error: Detected 1 oom_kill event in StepId=8.0.\n"
NAN = "RuntimeError: Function MulBackward0 returned nan values in its 0th output.\n"


def steps(first: int, last: int, every: int = 1, step_s: int = 0) -> str:
    def stamp(step: int) -> str:
        s = (step - first) * step_s
        return f"2024-05-01 {8 + s // 3600:02}:{s // 60 % 60:02}:{s % 60:02} " if step_s else ""

    return "".join(f"{stamp(step)}step {step} loss 2.1\n" for step in range(first, last + 1, every))


@each(("text", "said"), [
    (CUDA, "early, before a step was logged"),
    (steps(1, 2) + CUDA, "early, after step 2"),
    (steps(1, 5000, every=50) + CUDA, "late, after 4950 good steps"),
    (steps(1, 5000, every=50) + HOST, "late, after 4950 good steps"),
    (steps(42_000, 42_900, every=100) + HOST, "late, after 900 good steps"),
    (HOST, "early, before a step was logged"),
    (steps(7, 30, step_s=300) + "2024-05-01 10:10:00 " + CUDA, "late, after 23 good steps and 2.2 h"),
    (steps(1, 40) + CUDA, ""),
    (steps(42_000, 42_001) + CUDA, ""),
    (steps(100, 100) + CUDA, ""),
    (steps(1, 5000, every=50) + NAN, ""),
    (f"loading shard {'of the data ' * 40}\n" * 12_000 + CUDA, ""),
], ids=["cuda-at-start", "cuda-in-the-first-steps", "cuda-late", "host-late", "resumed-and-late", "host-at-start",
        "long-steps", "between", "resumed-and-early-is-open", "steps-not-logged-are-open", "another-cause",
        "long-without-a-known-step"])
def test_want_of_memory_is_early_or_late_by_the_steps_before_it(text: str, said: str) -> None:
    verdict = judge_text(text)
    assert verdict.summary.endswith(f" ({said})") if said else ("early" not in verdict.summary
                                                               and "late, " not in verdict.summary)
    assert bool(verdict.do) == bool(said)
    assert not said or ("came late" in verdict.do) == said.startswith("late"), verdict.do


def test_when_it_came_changes_no_fingerprint() -> None:
    assert judge_text(CUDA).fingerprint == judge_text(steps(1, 5000, every=50) + CUDA).fingerprint

