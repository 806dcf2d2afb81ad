"""How far a training came by its own words: logs of twenty trainers, as far as they tell it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from safelaunch.run.fold.state import TrainingReach
from safelaunch.run.reach import read_reach
from safelaunch.trainlog.steps import cut_lines
from tests.tables import each


def lines(form: str, *numbers: int) -> str:
    return "".join(form.format(n=number) + "\n" for number in numbers)


def bar(number: int, total: int, what: str = "") -> str:
    return f"\r{what}{100 * number // total:3d}%|#### | {number}/{total} [00:10<01:20,  4.40it/s]"


PLAIN = lines("iteration {n}/400 loss: 2.31", *range(40, 48))
EPOCHS = lines("Epoch [{n}/90], train acc: 0.31", 1, 2, 3)
HF_EVAL = "".join(bar(number, 25) for number in (1, 9, 25))
HF = "".join(bar(number, 400) + "{'loss': 0.5, 'epoch': 0.12}" for number in (10, 20, 30, 47))
TUTORIAL = lines("Epoch [{n}/5], Step [100/600], Loss: 2.2\nEpoch [{n}/5], Step [600/600], Loss: 2.1", 1, 2)
HF_HEAD = "***** Running training *****\n  Num examples = {}\n  Num Epochs = {}\n  Total optimization steps = 1,000\n"
HF_LINES = lines("{{'loss': 0.5, 'grad_norm': 0.1, 'learning_rate': 1e-05, 'epoch': 0.{n:02d}}}", 3, 6, 9)
HF_BATCH = "  Total train batch size (w. parallel, distributed & accumulation) = {}\n"
MEGATRON_ARGS = "  train_iters ..................................... 500000\n  lr ............. 0.1\n"
FITTED = "`Trainer.fit` stopped: `max_epochs=10` reached.\n"

EARLY = {
    "a plain loop": (PLAIN, ("step", 47, 400)),
    "thousands": (lines("Step {n:,}/10,000 | loss 1.0", 800, 900, 1000), ("step", 1000, 10000)),
    "coloured": (lines("\x1b[32mstep\x1b[0m \x1b[1m{n}\x1b[0m/5000", 99, 100), ("step", 100, 5000)),
    "Megatron-LM": (lines(" iteration     {n}/   95367 | consumed samples: 26 |", 510, 520), ("step", 520, 95367)),
    "Megatron-LM's arguments": (MEGATRON_ARGS + lines("iteration {n} | lm loss: 2", 100, 200), ("step", 200, 500000)),
    "mmcv": (lines("Iter [{n}/40000]\tlr: 1e-2, loss: 2.1", 50, 100), ("step", 100, 40000)),
    "mmengine by iterations": (lines("Iter(train) [ {n}/40000]  lr: 1e-2", 50, 100), ("step", 100, 40000)),
    "Transformers": (HF, ("step", 47, 400)),
    "Transformers with an evaluation": (HF + HF_EVAL + bar(48, 400), ("step", 48, 400)),
    "Transformers' plan": ("  Total optimization steps = 1,200\n" + lines("step {n} loss 2.1", 10, 20),
                           ("step", 20, 1200)),
    "accelerate": ("".join(bar(number, 1000, "Steps: ") for number in (10, 11, 12)), ("step", 12, 1000)),
    "nanoGPT": ("Overriding: max_iters = 600\n" + lines("iter {n}: loss 2.1, time 55.2ms", 10, 20), ("step", 20, 600)),
    "epochs in brackets": (EPOCHS, ("epoch", 3, 90)),
    "Keras": (lines("Epoch {n}/50\n1875/1875 [====] - 8s 4ms/step - loss: 0.3", 1, 2, 3, 4), ("epoch", 4, 50)),
    "PyTorch's tutorials": (TUTORIAL, ("epoch", 2, 5)),
    "PyTorch's ImageNet": ("Namespace(arch='resnet50', epochs=90, lr=0.1)\n" + lines(
        "Epoch: [{n}][  10/5005]\tLoss 6.9", 0, 1, 2), ("epoch", 2, 90)),
    "a bar of epochs": ("".join(bar(number, 90, "Epochs: ") for number in (1, 2, 3)), ("epoch", 3, 90)),
    "rich": (lines("Epoch {n}/99 ━━━━━ 10/100 0:00:01 • 0:00:09 9.9it/s", 1, 2, 3), ("epoch", 3, 99)),
    "four ranks": ("".join(f"{rank}: step {n}/400 loss 2\n" for n in (45, 46, 47) for rank in range(4)),
                   ("step", 47, 400)),
    "the word behind": (lines("done 47/400 steps, loss 2", 1) + "trained 48/400 steps\n", ("step", 48, 400)),
    "JSON with its total": (lines('{{"step": {n}, "lr": 0.001, "loss": 2.0, "total_steps": 400}}', 46, 47),
                            ("step", 47, 400)),
    "a bar without its percent": (
        "".join(f"[n0:0]:\r {n}/400 [00:0{n}<06:32, 1.0s/it, loss=2.1]\n" for n in (7, 8)), ("step", 8, 400)),
    "a bare pair": (lines("[n0:0]:[{n}/400] loss 2.1", 7, 8), ("step", 8, 400)),
    "one line only": ("step 12 of 400\n", ("step", 12, 400)),
    "it says done": (PLAIN + "training done\n", ("step", 47, 400)),
    "the time of a shell loop is over": (PLAIN + "srun: forcing job termination\ntime is over, again\n",
                                         ("step", 47, 400)),
    "Transformers without a bar": (HF_HEAD.format("1,000", 3) + HF_LINES, ("epoch", 0.09, 3)),
    "Transformers, in its one epoch": (HF_HEAD.format("8,000", 1) + HF_BATCH.format(8) + HF_LINES, ("epoch", 0.09, 1)),
    "MaxText's words": ("max_steps: 5000\n" + lines("step: {n}, seconds: 1.2, loss: 3", 7, 8, 9), ("step", 9, 5000)),
}
NOT_EARLY = {
    "all steps": lines("iteration {n}/400 loss: 2.31", 398, 399, 400),
    "from zero": lines("iteration {n}/400 loss: 2.31", 397, 398, 399),
    "the log's interval": lines("step {n}/400 loss 2", 100, 200, 300),
    "nearly": lines("step {n}/1000 loss 2", 949, 950, 951),
    "early stopping": PLAIN + "Early stopping: val_loss did not improve for 3 checks\n",
    "Keras' EarlyStopping": EPOCHS + "Epoch 3: early stopping\n",
    "Lightning's EarlyStopping": PLAIN + "Monitored metric val_loss did not improve. EarlyStopping signals a stop.\n",
    "converged": PLAIN + "converged after 47 iterations\n",
    "max_time": PLAIN + "`Trainer.fit` stopped: `max_time=00:00:05` reached.\n",
    "max_steps": PLAIN + "`Trainer.fit` stopped: `max_steps=47` reached.\n",
    "patience": EPOCHS + "patience exhausted, best epoch was 1\n",
    "target": PLAIN + "target accuracy reached: 0.91\n",
    "no improvement": EPOCHS + "no improvement in 10 epochs, stopping\n",
    "files": lines("reading 37/1000 files of the data set", 1),
    "shards": bar(3, 30, "Loading checkpoint shards: "),
    "an evaluation": lines("step {n} loss 2.0", 10, 20) + "eval step 3/50\n",
    "an evaluation's bar": bar(400, 400) + bar(30, 100, "Evaluating: "),
    "an evaluation's bar without words": bar(400, 400) + bar(30, 100),
    "bars of epochs": "".join(bar(number, 100, "Epoch 0: ") for number in (10, 20)),
    "wordless bars of epochs": bar(47, 100) + bar(100, 100) + bar(10, 100),
    "steps of an epoch": lines("Epoch 3\nstep {n}/600 loss 2", 10, 20),
    "steps of an epoch in one line": lines("epoch 1 | step {n}/600 | loss 2", 10, 20),
    "fairseq": "epoch 010:   2000 / 8223 loss=3.1, num_updates=445\n",
    "NeMo": "Training epoch 0, iteration 7/900 | lr: 1 | global_step: 7\n",
    "mmengine": "Epoch(train)  [1][  50/5005]  lr: 1.0e-02  loss: 2.1\n",
    "ImageNet without a plan": lines("Epoch: [{n}][  10/5005]\tLoss 6.9", 0, 1),
    "all epochs": lines("Epoch {n}/3\n1875/1875 [====] - loss: 0.3", 1, 2, 3),
    "the last epoch but one": lines("Epoch {n}/4", 1, 2, 3),
    "a total that changes": PLAIN + lines("iteration {n}/900 loss 2", 48, 49),
    "two stages": lines("step {n}/100 loss 2", 99, 100) + lines("step {n}/400 loss 2", 46, 47),
    "a second stage without a total": PLAIN + lines("step {n} loss 2", 1, 2, 3),
    "a counter that began anew": PLAIN + lines("iteration {n}/400 loss 2", 1, 2, 3),
    "no total": lines("step {n} loss 2", 10, 20),
    "two plans": "max_steps = 400\nmax_iters = 900\n" + lines("step {n} loss 2", 10, 20),
    "no limit": "max_steps=-1, num_train_epochs=3\n" + lines("step {n} loss 2", 10, 20),
    "a plan of both": "max_steps=1000\nnum_epochs: 3\n" + lines("step {n} loss 2", 10, 20),
    "a plan that is done": "max_iters = 600\n" + lines("iter {n}: loss 2.1", 598, 599, 600),
    "a warm-up": lines("warmup step {n}/500", 1, 2),
    "stages of a start": "step 2/5: building the model\n",
    "a batch": lines("batch {n}/400 loss 2", 46, 47),
    "a batch of a rank": lines("[n0:0]:batch {n}/400 loss 2", 46, 47),
    "files and steps": lines("read 37/1000 files in 3 steps", 1),
    "a plan of what comes later": lines("step {n} loss 2", 10, 20) + "total_steps: 400\n",
    "Transformers whose max_steps end it within an epoch": HF_HEAD.format("80,000", 1) + HF_LINES,
    "Transformers whose max_steps were reached": HF_HEAD.format("88,000", 1) + HF_BATCH.format(8) + HF_LINES,
    "Transformers in its last epoch": HF_HEAD.format("1,000", 3) + HF_LINES.replace(": 0.0", ": 2.0"),
    "Transformers without a plan": HF_LINES,
    "pages": "see page 3 of 90\n3/90 tests passed\n",
    "nothing": "",
}


@each(("log", "said"), list(EARLY.values()), ids=list(EARLY))
def test_an_end_far_before_the_total_is_told(log: str, said: tuple[str, float, int]) -> None:
    found = read_reach(cut_lines(log.encode()))
    assert found is not None and found.is_early and not found.is_all
    assert (found.unit, found.step, found.total) == said and found.lines[0]


@each("log", list(NOT_EARLY.values()), ids=list(NOT_EARLY))
def test_no_other_end_is_called_early(log: str) -> None:
    found = read_reach(cut_lines(log.encode()))
    assert found is None or not found.is_early


@each(("log", "is_all"), [
    (lines("iteration {n}/20 loss 2", 18, 19, 20) + "Segmentation fault\n", True),
    (lines("iteration {n}/20 loss 2", 0, 1) + lines("iteration {n}/20 loss 2", 18, 19), True),
    (lines("iteration {n}/20 loss 2", 17, 18, 19), False),
    (lines("iteration {n}/20 loss 2", 17, 18, 19) + "training done\n", True),
    (lines("iteration {n}/400 loss 2", 370, 380, 390) + "[after training is done] datetime: 2026-01-01\n", True),
    (lines("step {n}/20 loss 2", 19, 20) + "eval step 3/50\nRuntimeError: x\n", True),
    (lines("step {n}/20 loss 2", 19, 20) + "uploading 3/50 files\nHTTPError: 503\n", True),
    (bar(399, 400) + bar(400, 400), False),
    (bar(399, 400) + bar(400, 400) + "\n{'train_runtime': 81.2}\n", True),
    (HF_HEAD.format("1,000", 3) + HF_LINES.replace(": 0.0", ": 2.9")
     + "{'train_runtime': 81.2, 'train_loss': 0.1, 'epoch': 3.0}\n", True),
    (bar(47, 400) + "\n{'train_runtime': 81.2}\n", False),
    (lines("step {n} loss 2", 1, 2, 3) + "Training finished.\nAborted\n", True),
    (lines("step {n} loss 2", 1, 2, 3) + FITTED, True),
    (lines("step {n} loss 2", 1, 2, 3) + "fold 1 training done\n", False),
    ("Training finished.\n" + lines("step {n} loss 2", 1, 2, 3), False),
    (lines("step {n} loss 2", 1, 2, 3) + "Training is going to end soon\n", False),
    (lines("Epoch {n}/3", 1, 2, 3), False),
    (lines("Epoch {n}/3", 1, 2, 3) + "Training complete in 3m 2s\n", True),
    (TUTORIAL.replace("/5]", "/2]"), True),
    (TUTORIAL, False),
    (PLAIN + "training done\n", False),
    (lines("step {n}/100 loss 2", 99, 100) + lines("step {n}/400 loss 2", 46, 47), False),
    (lines("step {n}/100 loss 2", 99, 100) + lines("step {n} of the second stage: loss 2", 1, 2), False),
    (lines("Epoch 1\nstep {n}/600 loss 2", 599, 600), False),
    ("max_iters = 600\n" + lines("iter {n}: loss 2.1", 598, 599, 600), True),
    (lines("Epoch: [{n}/5]  [1/5]  eta: 0:00:01  loss: 2\nEpoch: [{n}/5]  [5/5]  eta: 0:00:00  loss: 1", 4, 5), True),
    (lines("Epoch: [{n}/5]  [1/5]  eta: 0:00:01  loss: 2\nEpoch: [{n}/5]  [5/5]  eta: 0:00:00  loss: 1", 3, 4), False),
    (lines("Epoch [{n}/5] batch 4/5 loss 1", 4, 5), False),
    (lines("Epoch [{n}/5] batch 5/5 loss 1", 4, 5) + "RuntimeError: x\n", True),
    (lines("Epoch [{n}/5] batch 0/5 loss 1\nEpoch [{n}/5] batch 4/5 loss 1", *range(5)), True),
    (lines("Epoch {n}/5\n1875/1875 [====] - loss: 0.3", 4, 5), True),
    (lines("Epoch {n}/5\n 900/1875 [==>.] - loss: 0.3", 4, 5), False),
    ("Namespace(batch_size=256, epochs=5, lr=0.1)\n" + lines("Epoch: [{n}]  [1249/1250]  eta: 0:00:00", 3, 4)
     + "Training time 0:05:00\n", True),
    (lines("Epoch [{n}/5] loss 1", 4, 5) + "all epochs done; closing\n", True),
    ("training done\n", False), ("", False),
], ids=["all", "from zero", "one is missing", "and done", "an interval, and done", "an evaluation", "an upload",
        "a bar", "a bar, and done", "Transformers without a bar",
        "a bar that contradicts", "by words", "Lightning", "a fold", "words before steps",
        "other words", "the last epoch has begun", "epochs, and done", "the last step of the last epoch", "an epoch",
        "done too early", "two stages", "a stage without total", "one epoch", "a plan",
        "MAE", "MAE's last epoch but one", "a batch is left", "the last batch", "batches from zero", "Keras",
        "Keras in its last epoch", "torchvision's words", "all epochs done", "words alone", "nothing"])
def test_whether_nothing_was_left_to_train(log: str, is_all: bool) -> None:
    found = read_reach(cut_lines(log.encode()))
    assert (found is not None and found.is_all) == is_all


def test_the_plan_stands_in_the_head_of_a_long_log() -> None:
    found = read_reach(b"max_steps = 400\nstep 1 loss 9\n" b"step 46 loss 2\nstep 47 loss 2\n")
    assert found == TrainingReach("step", 47, 400, False, True, ("step 47 loss 2", "max_steps = 400"))
    assert found.told_early == "completed at step 47 of 400 (11.8 %): the log names 400 steps"


def test_steps_of_the_users_own_pattern_have_totals_too() -> None:
    found = read_reach(b"batch=46/400\nbatch=47/400\n", r"batch=(\d+)")
    assert found is not None and found.is_early and (found.step, found.total) == (47, 400)


@given(st.binary(max_size=300))
def test_any_bytes_have_a_reach_or_none(log: bytes) -> None:
    found = read_reach(log)
    assert found is None or not (found.is_all and found.is_early)
