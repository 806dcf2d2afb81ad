"""The last step that a log names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from safelaunch.trainlog.steps import end_of_number, last_steps, latest_of, latest_step, named_steps
from tests.tables import each


@each(
    ("log", "expected"),
    [
        (" iteration     5120/   95367 | consumed samples:   2621440 | elapsed time per iteration (ms): 104.7 |", 5120),
        ("[2026-11-01 10:00:00] iteration 7/ 10 | lm loss: 6.2E+00 |", 7),
        ("[INFO] [logging.py:96:log_dist] [Rank 0] step=100, skipped=0, lr=[0.001], mom=[(0.9, 0.999)]", 100),
        ("step: 20  loss:  5.1  memory: 30.1GiB(31%)  tps: 7,000", 20),
        ("iter 300: loss 2.1, time 55.2ms, mfu 30.1%", 300),
        ("step 12 loss 0.5", 12),
        ("{'loss': 0.5, 'global_step': 40}", 40),
        ('{"step": 41, "loss": 0.5}', 41),
        ("[n0:0]:step 9 loss 0.5", 9),
        ("step 1\nstep 2\nstep 3\n", 3),
        ("step 1\r step 2\r step 3\r", 3),
        ("Step 4 of 10", 4),
        ("Epoch [1/5], Step [100/600], Loss: 2.2", 100),
        ("Epoch: [0][  10/5005]\tTime  0.325 ( 1.2)\tLoss 6.9e+00 (7.0e+00)", 10),
        ("Epoch(train)  [1][  50/5005]  lr: 1.0e-02  loss: 2.1", 50),
        ("Epoch(val)  [1][  50/196]", None),
        ("Test: [ 10/196]\tTime  0.3 ( 1.2)", None),
        ("loading 16 files", None),
        ("timestep 7", None),
        ("steps 7", None),
        ("step 1.5", None),
        ("learning_rate_step_size 7", None),
        ("", None),
    ],
    ids=["Megatron-LM", "Megatron-LM with a time", "DeepSpeed", "torchtitan", "nanoGPT", "plain", "a dict",
         "JSON", "torchrun's prefix", "the last of many", "a progress bar", "a capital", "PyTorch's tutorials",
         "PyTorch's ImageNet", "mmengine", "its validation", "ImageNet's test", "no step", "timestep", "steps",
         "a fraction", "another word", "nothing"],
)
def test_the_lines_of_common_trainers(log: str, expected: int | None) -> None:
    assert latest_step(log.encode(), "auto") == expected


@each(
    ("pattern", "log", "expected"),
    [
        (r"batch=(\d+)", "batch=1\nbatch=22\n", 22),
        (r"^done (\d+)$", "done 1\nhalf done 2\n", 1),
        (r"a(\d+)|b(\d+)", "a1 b2", 1),
        (r"batch=(\S+)", "batch=many", None),
        (r"nothing (\d+)", "batch=1", None),
    ],
    ids=["a group", "whole lines", "a match without the group", "the group is no number", "no match"],
)
def test_a_pattern_of_the_users_own(pattern: str, log: str, expected: int | None) -> None:
    assert latest_step(log.encode(), pattern) == expected


@given(st.binary(max_size=300))
def test_any_bytes_have_a_step_or_none(log: bytes) -> None:
    step = latest_step(log, "auto")
    assert step is None or step >= 0


LINES = st.sampled_from(["step {} loss 1.5", "iteration {}/ 9000 |", "loading shard {}", "hello " * 40, "",
                         "safelaunch: step {}"])


@given(st.lists(st.tuples(LINES, st.integers(0, 9000)), min_size=100, max_size=400), st.sampled_from([1, 8, 64]))
def test_the_last_steps_are_the_end_of_all_steps_however_little_is_read(
    lines: list[tuple[str, int]], most: int
) -> None:
    log = "\n".join(line.format(step) for line, step in lines).encode()
    for pattern in ("auto", r"step (\d+) loss"):
        numbers = [named.step for named in named_steps(log, pattern)]
        assert [named.step for named in last_steps(log, pattern, most)] == numbers[-most:]


def test_unwanted_steps_at_the_end_hide_no_wanted_one_before_them() -> None:
    log = b"step 5 loss 1\n" + b"step 3 of the checkpoint is loaded\n" * 2000
    assert [one.step for one in last_steps(log, most=8, is_wanted=lambda named: named.step != 3)] == [5]


@each("line", [
    b"slurmstepd-n1: error: *** STEP 20492021.0 ON n1 FAILED (non-zero exit code or other failure mode) ***",
    b"0: slurmstepd: error: *** STEP 1044.0 ON n0 CANCELLED AT 2026-11-22T10:30:35 DUE TO TIME LIMIT ***",
])
def test_slurms_own_word_for_a_step_is_no_step_of_the_training(line: bytes) -> None:
    assert [named.step for named in last_steps(b"step 12 loss 1.0\n" + line + b"\n")] == [12]
    assert named_steps(line + b"\n") == []


@each(("log", "total"), [
    ("step 205/4000 loss 2.5", 4000), (" iteration     5120/   95367 | consumed samples: 26", 95367),
    ("Step 4 of 10", 10), ("step 0004 of 0010", 10), ("[n0:0]:step 9/20 loss 1", 20),
    ("10%|#   | 10/100 [00:01<00:11,  8.10it/s]", 100),
    ("\r 5%|  | 3/60 [00:01<00:11]\r 6%|  | 4/60 [00:01<00:11,", 60),
    ("Epoch 0:  10%|#   | 10/100 [00:01<00:11,  8.10it/s", None), ("epoch 010:  2000 / 8223 loss", None),
    ("Epoch [1/5], Step [100/600], Loss", None), ("Epoch: [0][  10/5005]\tTime", None), ("Step [100/600] loss", 600),
    ("Training epoch 0, iteration 7/9 | lr: 1 | global_step: 7", None), ("step 12 loss 0.5", None),
    ("step 12/5 loss", None), ("step 12 of batch", None), ("step 12/3.5", None), ("", None),
], ids=["a slash", "Megatron-LM", "of", "zeros", "torchrun's prefix", "a bar", "the last bar", "a bar of an epoch",
        "fairseq", "PyTorch's tutorials", "PyTorch's ImageNet", "brackets", "NeMo", "no total",
        "less than the step", "a word", "a fraction", "nothing"])
def test_the_total_stands_beside_the_last_step_unless_it_is_an_epochs(log: str, total: int | None) -> None:
    assert latest_of(log.encode(), "auto")[1] == total


def test_the_total_stands_beside_a_step_of_the_users_own_pattern() -> None:
    assert latest_of(b"batch=3/70\nbatch=4/70\n", r"batch=(\d+)") == (4, 70)


@each(("text", "number", "start", "end"), [
    (b"12 of 12", 12, 1, 8), (b"7/007", 7, 1, 5), (b"000", 0, 0, 3), (b"120 112", 12, 0, None),
    (b"9" * 5000, 9, 0, None),
], ids=["from a place on", "zeros", "nothing but zeros", "within others", "longer than an int may be read"])
def test_a_number_is_found_whole(text: bytes, number: int, start: int, end: int | None) -> None:
    assert end_of_number(text, number, start) == end


@given(st.binary(max_size=300))
def test_any_bytes_have_a_total_or_none(log: bytes) -> None:
    total = latest_of(log, "auto")[1]
    assert total is None or total >= 0
