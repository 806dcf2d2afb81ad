"""What a training says of its progress, in the lines of the trainers that people use.

The samples stand in public issues and pull requests of the projects named beside them, shortened.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safelaunch.trainlog.figures import measure
from safelaunch.trainlog.lines import listen
from safelaunch.trainlog.steps import latest_step
from tests.tables import each

MEGATRON = (" iteration      182/  250000 | consumed samples:       186368 | elapsed time per iteration (ms): 126995.3 "
            "| learning rate: 1.365E-05 | global batch size:  1024 | lm loss: 2.382640E+00 | loss scale: 1.0 |")
TITAN = ("[rank0]:[titan] 2026-05-18 16:04:46,338 - root - INFO - step: 14  loss:  3.24405  grad_norm:  0.8319  "
         "memory:  9.46GiB(64.99%)  tps: 7,282  tflops: 0.52  mfu: 0.17%")
NEMO = ("Training epoch 0, iteration 120/149 | lr: 3e-05 | consumed_samples: 121 | global_batch_size: 1 | "
        "global_step: 120 | reduced_train_loss: 1.233 | train_step_timing in s: 0.03146 | val_loss: 4.106")
NEMO_BAR = ("Epoch 0:   1%|          | 795/77225 [9:07:58<878:01:48, 41.36s/it, loss=3.1, v_num=, "
            "reduced_train_loss=3.090, global_step=794.0, consumed_samples=1.63e+6]")
LIGHTNING = ("Validation DataLoader 0:  46%|██████     | 73/157 [00:02<00:02, 37.48it/s]\r"
             "Epoch 0:  92%|█████████▉   | 932/1016 [00:33<00:03, 27.70it/s, loss=0.223, v_num=77, acc=0.875]\r"
             "Epoch 0:  92%|█████████▉   | 933/1016 [00:33<00:02, 27.71it/s, loss=0.224, v_num=77, acc=0.875]")
LIGHTNING_PIPE = "Epoch 0:  34% 1020/3000 [01:04<02:05, 15.73it/s, loss=1.2, v_num=1024]"
FAIRSEQ = ("| epoch 001:    450 / 1891 loss=11.521, nll_loss=10.881, ppl=1886.05, wps=52922, ups=0.5, wpb=104928, "
           "bsz=5325, num_updates=445, lr=8.90889e-05, gnorm=1.543, clip=0%, oom=0, train_wall=756")
METASEQ = ('{"epoch": 10, "loss": "3.180", "nll_loss": "1.417", "ppl": "2.67", "wps": 1671182, "ups": "2.7", '
           '"num_updates": 21497, "lr": 0.00030195283218121974, "gnorm": "0.291"}')
MAXTEXT = ("I0811 21:55:06.119312 138304841739136 metric_logger.py:226] completed step: 2, seconds: 10.228, "
           "TFLOP/s/device: 350.869, Tokens/s/device: 19222.175, total_weights: 1572864, loss: 12.980, lm_loss: 12.980")
HF = ("{'loss': 0.5213, 'grad_norm': 1.1, 'learning_rate': 1e-05, 'epoch': 0.12}\n"
      " 12%|█▏        | 120/1000 [02:00<14:40,  1.00s/it]")
DEEPSPEED = ("[2023-05-01 10:00:00,000] [INFO] [logging.py:96:log_dist] [Rank 0] step=100, skipped=0, lr=[0.001], "
             "mom=[(0.9, 0.999)]")
PIPELINE = "steps: 10 loss: 0.6934 iter time (s): 0.052 samples/sec: 153.8"
NANOGPT = "iter 300: loss 2.1042, time 55.21ms, mfu 30.15%"
TORCHTUNE = "1|25|Loss: 1.0411:   3%|▎         | 25/808 [00:44<22:13,  1.70s/it]"


@each(
    ("line", "step", "loss", "step_s", "rate", "unit"),
    [
        (MEGATRON, 182, 2.38264, 126.9953, None, ""),
        (DEEPSPEED, 100, None, None, None, ""),
        (PIPELINE, 10, 0.6934, 0.052, 153.8, "samples/s"),
        (HF, 120, 0.5213, 1.0, None, ""),
        (LIGHTNING, 933, 0.224, 1 / 27.71, None, ""),
        (LIGHTNING_PIPE, 1020, 1.2, 1 / 15.73, None, ""),
        (NEMO, 120, 1.233, 0.03146, None, ""),
        (NEMO_BAR, 794, 3.09, 41.36, None, ""),
        (TITAN, 14, 3.24405, None, 7282.0, "tokens/s"),
        (NANOGPT, 300, 2.1042, 0.05521, None, ""),
        (FAIRSEQ, 445, 11.521, 2.0, 52922.0, "words/s"),
        (METASEQ, 21497, 3.18, None, 1671182.0, "words/s"),
        (MAXTEXT, 2, 12.98, 10.228, 19222.175, "tokens/s/device"),
        (TORCHTUNE, 25, 1.0411, 1.7, None, ""),
    ],
    ids=["Megatron-LM", "DeepSpeed", "DeepSpeed pipeline", "Transformers and axolotl", "Lightning",
         "Lightning in a pipe", "NeMo", "NeMo's bar", "torchtitan", "nanoGPT", "fairseq", "metaseq",
         "MaxText", "torchtune"],
)
def test_lines_of_real_trainers_are_read(
    line: str, step: int, loss: float | None, step_s: float | None, rate: float | None, unit: str
) -> None:
    text = line.encode() + b"\n"
    found = measure(text)
    assert latest_step(text, "auto") == listen(text).step == step
    assert (found.loss, found.rate, found.rate_unit) == (loss, rate, unit)
    assert found.step_s == (None if step_s is None else pytest.approx(step_s))


@each(
    "line",
    [
        "Loading checkpoint shards:  50%|█████     | 2/4 [00:10<00:10,  5.10s/it]",
        "Validation DataLoader 0:  46%|███████| 73/157 [00:02<00:02, 37.48it/s]",
        "Validation sanity check:  50%|█████| 1/2 [00:02<00:02, 1.48s/it]",
        "Map (num_proc=8):  45%|████▌     | 45000/100000 [00:10<00:12, 4321.00 examples/s]",
        "model.safetensors:  12%|█▏        | 1.2G/9.9G [00:30<03:40, 40.1MB/s]",
        "Steps per epoch: 500", "max_steps = 1000", "eval_steps: 7.5", "timestep 7", "warmup_steps=100",
        "epoch 3 of 10", "[2/4] Linking CXX object", "loss is nan", "{'train_runtime': 120.5}",
    ],
)
def test_other_lines_name_no_step(line: str) -> None:
    assert latest_step(line.encode(), "auto") is None
    assert listen(line.encode()).mark == ""


def test_the_longest_bar_without_words_is_the_trainings() -> None:
    evaluation = " 50%|█████     | 5/10 [00:01<00:01,  4.00it/s]"
    assert latest_step(f"\r 12%|█▏ | 120/1000 [02:00<14:40,  1.00s/it]\r{evaluation}".encode(), "auto") == 120


def test_a_loaded_checkpoints_step_is_no_progress() -> None:
    assert listen(b"  successfully loaded checkpoint from /gpfs/ckpt at iteration 1000\n").mark == ""
    assert listen(b"resumed from out/step_00000020.pt after step 20\n").mark == ""


@each(
    ("line", "signs"),
    [
        ("saving checkpoint at iteration    1000 to /gpfs/ckpt in torch format", ("checkpoint",)),
        ("  successfully saved checkpoint from iteration    1000 to /gpfs/ckpt", ("checkpoint end",)),
        ("Saving model checkpoint to out/checkpoint-500", ("checkpoint",)),
        ("Saving the checkpoint (or staging if async is enabled).", ("checkpoint",)),
        ("Finished saving the checkpoint (or staging if async is enabled) in 3.22 seconds.", ("checkpoint end",)),
        ("Preparing to save checkpoint for epoch 1 @ 500 updates", ("checkpoint",)),
        ("Saved checkpoint out/checkpoint_1_500.pt (epoch 1 @ 500 updates, score 3.2) (writing took 12.3 seconds)",
         ("checkpoint end",)),
        ("***** Running Evaluation *****", ("evaluation",)),
        ("[INFO] [axolotl.core.trainers.base.evaluate:367] [PID:65109] [RANK:0] Running evaluation step...",
         ("evaluation",)),
        ("{'eval_loss': 1.364, 'eval_runtime': 16.28, 'epoch': 0}", ("evaluation end",)),
        ('begin validation on "valid" subset', ("evaluation",)),
        ("Validation DataLoader 0:  10%|#         | 3/30", ("evaluation",)),
        (" validation loss at iteration 1000 | lm loss value: 2.3E+00 | lm loss PPL: 9.9E+00 |", ("evaluation end",)),
        ("step 2000: train loss 2.1, val loss 2.3", ("evaluation end",)),
        ("torch.compile took 42 s", ("compile", "compile end")),
        ("compiling the model... (takes a ~minute)", ("compile",)),
        ("loading shard 3 of the dataset", ("data",)),
        ("loaded 35762532 examples from: data-bin/wmt14_en_fr_share/train.en-fr.en", ("data end",)),
        (MEGATRON, ()), (TITAN, ()), (MAXTEXT, ()), (NANOGPT, ()), ("hello", ()),
    ],
)
def test_signs_of_what_takes_longer_than_a_step(line: str, signs: tuple[str, ...]) -> None:
    said = listen(line.encode() + b"\n").signs
    assert said[-1:] == signs[-1:] and (set(said) <= set(signs) or not signs)


def test_only_signs_behind_the_last_step_count() -> None:
    log = b"saving checkpoint to out\nstep 5 loss 1\nevaluating\n" \
          b"step 6 loss 1 rank 0\nsaving model\nstep 6 loss 1 rank 1\n"
    assert listen(log).signs == ("checkpoint",), "the other ranks' lines of the same step follow"


@each("text", ["loss nan", "'loss': nan,", "lm loss: NaN |", "loss=nan,"])
def test_a_loss_that_is_no_number_is_shown_as_such(text: str) -> None:
    loss = measure(f"step 4 {text} rank 0\n".encode()).loss
    assert loss is not None and math.isnan(loss)


@each("text", ["val_loss: 4.1", "val loss 2.3", "eval_loss=1.3", "nll_loss=1.4",
                                  "loss scale: 65536.0", "blossom 3", "aux_loss: 0.1",
                                  "{'train_runtime': '9.1', 'train_loss': '3.629', 'epoch': '0.5'}"])
def test_other_losses_are_not_the_trainings(text: str) -> None:
    assert measure(text.encode()).loss is None


def test_the_typical_step_is_the_median_of_what_the_log_names() -> None:
    log = "".join(f"iter {step}: loss 2.1, time {time}ms, mfu 30%\n" for step, time in enumerate((500, 50, 51, 52, 90)))
    found = measure(log.encode())
    assert found.step_s == pytest.approx(0.09)
    assert found.typical_step_s == pytest.approx(0.052)


def test_the_users_own_expressions_are_read_instead() -> None:
    log = b"batch 7 ce=1.5 took=12.5\nbatch 8 ce=1.25 took=11.5\nbatch 9 ce=oops took=?\n"
    found = measure(log, loss=r"ce=(\S+)", step_time=r"took=([\d.]+)")
    assert (found.loss, found.step_s, found.typical_step_s) == (None, 11.5, 12.0)
    assert listen(log, r"^batch (\d+)").mark == "9"


@given(st.binary(max_size=400))
def test_any_bytes_are_heard_without_harm(log: bytes) -> None:
    listen(log)
    measure(log)


@each(("line", "step_s"), [
    ("step 3 500 ms/step", 0.5), ("step_time: 500 ms", 0.5), ("iter_time: 500ms", 0.5), ("step time (ms): 40", 0.04),
    ("12.5 s/step", 12.5), ("0.7 sec/iter", 0.7), ("2 ms per iteration", 0.002),
    ("step_time=0.5", 0.5),
])
def test_a_time_a_step_is_read_in_its_own_unit(line: str, step_s: float) -> None:
    assert measure(line.encode()).step_s == step_s


@each(("line", "has_raised"), [
    (b"[n0:0]:[rank0]: Traceback (most recent call last):\n", True),
    (b"[n0:0]: Traceback (most recent call last):\n", False),
    (b"[n0:0]:[rank0]:[W915 TCPStore.cpp:106] Traceback\n", False),
    (b"[n0:0]:[rank0]: step 5 loss 2.0\n", False),
], ids=["PyTorch's own hook", "caught, perhaps", "a warning", "a step"])
def test_an_exception_that_nobody_caught_is_told_by_pytorchs_prefix(line: bytes, has_raised: bool) -> None:
    assert listen(b"step 4 loss 2.1\n" + line).has_raised is has_raised


def test_the_steps_that_a_piece_of_the_log_names_are_counted_once_each() -> None:
    ranks = b"".join(b"[rank%d]: step %d loss 0.5\n" % (rank, step) for step in range(7, 12) for rank in range(4))
    assert (listen(ranks).step, listen(ranks).named) == (11, 5)
    assert listen(b"step 7 loss 0.5\n").named == 1
