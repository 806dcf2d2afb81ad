"""Shapes of lines that name a step: the step, the total beside it, and what counts it for lost progress."""

from __future__ import annotations

from safelaunch.trainlog.counters import count
from safelaunch.trainlog.steps import cut_lines, last_steps, latest_of
from tests.tables import each

SHAPES: list[tuple[str, int | None, int | None]] = [
    ("step 1.2k/10k loss 0.5", 1200, 10000), ("iter 5K, loss 0.3", 5000, None), ("step: 1.25M loss 2", 1250000, None),
    ("12%|##  | 1.20k/10.0k [00:10<01:00, 120it/s]", 1200, 10000), ("step 950/10.0k loss 0.5", 950, 10000),
    ("step 5kB loss 2", None, None), ("step 1.2km loss 2", None, None), ("iteration 3m loss 2", None, None),
    ("12%|##  | 1.2M/10M [00:10<01:00, 1.2MB/s]", None, None), ("[5k/60k (8%)] Loss: 0.017", 5000, 60000),
    ("Step 1,000/10,000 | loss 0.1", 1000, 10000), ("Step 1,000 | loss 0.1", 1000, None),
    ("step 1,234,567/2,000,000", 1234567, 2000000), ("step: 12,345 loss 2", 12345, None),
    ("step=1,000 loss=2", 1000, None), ("iteration 1,000 of 10,000", 1000, 10000),
    ("iteration   1,000/  10,000 | loss", 1000, 10000), ("iter 5,100: loss 2.1", 5100, None),
    ("global_step 1,000", 1000, None), ("step 1'000/5'000", 1000, 5000), ("step 1_000/5_000", 1000, 5000),
    ("step 1_000 of 5_000", 1000, 5000), ("step 1 000/10 000 loss 2", 1000, None), ("step 900/10,000", 900, 10000),
    ("Step 1,00 loss", 1, None), ("step 1,000.5 loss", 1, None), ("step 1.000/5.000", None, None),
    ('{"step": 100,"loss": 0.5}', 100, None), ('{"step":100,"total":200}', 100, None),
    ('{"step": 1000, "lr": 1e-3}', 1000, None), ("step 1,2,3 loss", 1, None), ("step=5,lr=100", 5, None),
    ("step 7, 100 tokens", 7, None), ("steps 1,000", None, None), ("timestep 1,000", None, None),
    ("step 1.2k/10k", 1200, 10000), ("step 12k loss 2", 12000, None), ("step 1e4 loss", None, None),
    ("\x1b[32mstep\x1b[0m \x1b[1m100\x1b[0m/5000", 100, 5000), ("\x1b[1mStep 1,000\x1b[0m/5,000", 1000, 5000),
    ("\x1b[38;5;208miteration\x1b[0m: \x1b[36m12\x1b[0m", 12, None), ("\x1b[2K\rstep 12/400", 12, 400),
    ("\x1b[34mINFO\x1b[0m step\x1b[90m=\x1b[0m12 loss\x1b[90m=\x1b[0m2", 12, None),
    ("[\x1b[32m2026-01-01 10:00:00\x1b[0m] step 12/400", 12, 400),
    ("\x1b[A\x1b[2K 12%|█▏ | 12/100 [00:01<00:11,  8.10it/s]", 12, 100),
    ("[step 12] loss 2", 12, None), ("[Step 12/400] loss 2", 12, 400), ("(step=12)", 12, None),
    ("(step 12/400) loss", 12, 400), ("step (12/400)", 12, 400), ("step [12/400]", 12, 400), ("step #12", 12, None),
    ("| step           | 100      |", 100, None), ("| global_step | 1,000 | loss | 2", 1000, None),
    ("train | step: 12 | loss: 2", 12, None), ("train/step=12", None, None),
    ("2026-01-01 10:00:00 step 12/400", 12, 400),
    ("INFO:root:step 12/400", 12, 400), ("[rank0]:step 12/400", 12, 400), ("0: step 12/400", 12, 400),
    ("[n0:0]:step 1,000/5,000", 1000, 5000), ("step 0012/0400", 12, 400), ("step\t12", 12, None),
    ("step 12/400\rstep 13/400\rstep 14/400", 14, 400), ("Step 12 / 400", 12, 400), ("STEP 12 OF 400", 12, 400),
    (" 47%|████▋     | 47/100 [00:04<00:05, 10.0it/s]", 47, 100),
    (" 47%|━━━━▋     | 47/100 [00:04<00:05, 10.0it/s]", 47, 100),
    (" 47%|#### | 47/100 [1:00:04<1:10:05, 10.0s/it, loss=2]", 47, 100),
    (" 12% 12/100 [00:01<00:11,  8.10it/s]", 12, 100),
    ("Training:  47%|▍ | 47/100 [00:04<00:05]", 47, 100), ("Epoch 3:  47%|▍ | 47/100 [00:04<00:05]", 347, None),
    ("Epoch 1/3 ━━━━━━━ 47/100 0:00:04", 47, 300), ("step 12 — loss 2", 12, None), ("step 12 → 13", 12, None),
    ("*** STEP 42.0 ON n1 FAILED", None, None), ("step 12/400 (3.0%)", 12, 400), ("step 12/400, loss 2", 12, 400),
    ("06/01 10:00:00 - mmengine - INFO - Iter(train) [  100/40000]  lr: 1e-2  loss: 2.1", 100, 40000),
    ("Epoch(train)   [3][ 100/ 500]  lr: 1e-2  loss: 2.1", 1100, None),
    ("Epoch(val) [3][100/500]  mAP: 0.1", None, None),
    ("[batch=100/1000]: Train loss: 2.1", 100, 1000), ("[epoch=1/3][batch=100/1000]: Train loss: 2", 100, 3000),
    ("epoch 003:    100 / 2,000 loss=3.1, wps=1, lr=0.1", 4100, None), ("epoch 003 | num_updates 1,445", 1445, None),
    (" iteration      100/   10000 | consumed samples: 25600 | elapsed time per iteration (ms): 1", 100, 10000),
    ("completed step: 100, seconds: 1.2, TFLOP/s/device: 190.1, loss: 3.2", 100, None),
    ("[INFO] [logging.py:96:log_dist] [Rank 0] step=100, skipped=0, lr=[1e-05], mom=[(0.9, 0.99)]", 100, None),
    ("[07/21 10:00:00 d2.utils.events]:  eta: 1:00:00  iter: 100  total_loss: 2.1", 100, None),
    ("{'loss': 2.1, 'learning_rate': 1e-05, 'epoch': 0.09, 'step': 100}", 100, None),
    ("Epoch 3/10\n120/500 [=====>....] - ETA: 10s - loss: 2.1", 1120, 5000),
    ("Train: 3 [ 100/500 ( 20%)]  Loss: 2.1 (2.2)", 1600, None),
    ("Train Epoch: 3 [6400/60000 (11%)]\tLoss: 2.1", 126400, None),   # samples
    ("INFO:tensorflow:loss = 2.1, step = 100 (8.2 sec)", 100, None),
    ("INFO:tensorflow:global_step/sec: 12.1", None, None), ("it/s: 100, loss 2", None, None),
    ("Training epoch 0, iteration 7/999 | lr: 1 | global_step: 100 | reduced_train_loss: 2", 100, None),
    (" 10%|█ | 99/1000 [00:12<01:48,  8.3it/s]\r 10%|█ | 100/1000 [00:12<01:48,  8.3it/s]", 100, 1000),
    ("1|100|Loss: 2.1:  10%|█ | 100/1000 [00:12<01:48,  8.3it/s]", 100, 1000),
    ("step:100/1000 train_loss:2.1 train_time:120ms", 100, 1000),
    ("step 12/3.5", 12, None), ("step 400/12", 400, None), ("step 5 of a plan", 5, None),
]


@each(("line", "step", "total"), SHAPES, called=lambda row: row[0])
def test_the_step_and_its_total(line: str, step: int | None, total: int | None) -> None:
    assert len(SHAPES) >= 60
    assert latest_of(cut_lines(line.encode()), "auto") == (step, total)


@each(("form", "first"), [
    ("Step {:,}/5,000 | loss 2", 1000), ("[step {:,}/5,000] loss 2", 1000),
    ("\x1b[32mstep\x1b[0m \x1b[1m{}\x1b[0m/5000", 1000),
    ("| step | {:,} |", 1000), ("[n0:0]:step {:_} loss 2", 1000),
])
def test_one_counter_counts_them_all(form: str, first: int) -> None:
    text = cut_lines("".join(form.format(number) + "\n" for number in range(first, first + 500, 100)).encode())
    (counter,) = count((), text, "auto", 1200)
    assert (counter.first, counter.last, counter.grown, counter.below) == (1000, 1400, 5, 2)


def test_the_users_own_pattern_may_hold_thousands() -> None:
    assert latest_of(b"batch=1,000/70,000\n", r"batch=([\d,]+)") == (1000, 70000)
    assert latest_of(b"batch=1.2k/70k\n", r"batch=([\d.]+k)") == (1200, 70000)
    assert latest_of(b"batch=1,\n", r"batch=([\d,]+)") == (None, None)


@each("form", [
    "step {} | loss: {}", "step {}/90 loss {}", "iter {}: loss {}, lr 0.1", "it {} loss {}", "step={}, loss={}",
    "[{:05}/10000] train_loss={}", "Step: {} Loss: {}", "{}/500 [====>...] - loss: {}"])
def test_a_loss_that_is_no_number_hides_no_step(form: str) -> None:
    lines = "".join(form.format(step, 2.5 if step < 28 else "nan") + "\n" for step in range(20, 32))
    assert max(named.step for named in last_steps(lines.encode(), "auto")) == 31
