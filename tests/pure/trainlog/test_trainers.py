# ruff: noqa: E501 - lines of logs as they are
"""Lines of public trainers, as their sources print them: the step, and the total where it is the training's."""

from __future__ import annotations

from collections.abc import Callable

from safelaunch.trainlog import steps as steps_module
from safelaunch.trainlog.epochs import carry
from safelaunch.trainlog.lines import Talk, listen
from safelaunch.trainlog.steps import carry_on, cut_lines, latest_of
from tests.tables import each

TRAINERS: list[tuple[str, str, int | None, int | None]] = [
    # the twelve of one day
    ("an epoch and a batch", "Epoch 5 | Batch 9/10 | Loss: 0.1234", 59, None),
    ("key=value", "epoch=0 batch=59/100 loss=0.0123", 59, None),
    ("zeros before", "[00059/10000] train_loss=0.0167", 59, 10000),
    ("it", "it 59 loss 0.01", 59, None),
    ("PyTorch's MNIST", "Train Epoch: 1 [3776/60000 (6%)]\tLoss: 0.016949", 3776, None),
    ("thousands", "Step 1,059/10,000 | loss: 0.01", 1059, 10000),
    ("Lightning's rich bar", "Epoch 0/1 ━━━━━━━━━━━━━━━╺━━━━━━━━━ 59/100 0:00:05 • 0:00:04 9.91it/s v_num: 0", 59, 100),
    # image models
    ("PyTorch's ImageNet", "Epoch: [3][  10/5005]\tTime  0.325 ( 1.2)\tLoss 6.9e+00 (7.0e+00)", 15025, None),
    ("torchvision", "Epoch: [2]  [ 300/5005]  eta: 0:12:02  lr: 0.1  img/s: 41.2  loss: 6.88 (6.95)", 10310, None),
    ("MAE", "Epoch: [0]  [  20/1251]  eta: 1:41:02  lr: 0.000001  loss: 1.83 (1.98)  time: 0.42", 20, None),
    ("DETR", "Epoch: [1]  [  20/1000]  eta: 0:41:02  class_error: 91.2  loss: 25.83 (29.98)", 1020, None),
    ("timm", "Train: 2 [ 100/500 ( 20%)]  Loss: 6.912 (6.93)  Time: 0.52s,  98.5/s  LR: 1.000e-05", 1100, None),
    ("mmengine by epochs", "Epoch(train)   [3][ 100/ 500]  lr: 1.0000e-02  eta: 1:00:00  loss: 2.1", 1100, None),
    ("mmengine by iterations", "Iter(train) [  100/40000]  lr: 1.0000e-02  loss: 2.1", 100, 40000),
    ("mmcv", "2026-01-01 10:00:00,000 - mmdet - INFO - Epoch [2][50/7330]\tlr: 1.978e-03, eta: 1 day, loss: 1.2", 7380, None),
    ("detectron2", "[07/21 10:00:00 d2.utils.events]:  eta: 1:00:00  iter: 1019  total_loss: 2.1  lr: 0.02", 1019, None),
    ("Ultralytics", "      2/100      2.14G      1.213      2.845      1.321        189        640:  10%|█         | 12/118 "
     "[00:03<00:27,  3.86it/s]", 130, 11800),
    ("DCGAN", "[1/5][50/1583]\tLoss_D: 0.5443\tLoss_G: 4.2\tD(x): 0.71", 50, 7915),
    ("Keras", "Epoch 2/5\n  59/1875 [..............................] - ETA: 8s - loss: 0.3001 - accuracy: 0.91", 1934, 9375),
    ("Keras 3", "Epoch 2/5\n\x1b[1m 59/1875\x1b[0m \x1b[32m━━━━\x1b[0m\x1b[37m━━━━━\x1b[0m \x1b[1m8s\x1b[0m 5ms/step - "
     "accuracy: 0.91 - loss: 0.3", 1934, 9375),
    ("FastAI in a table", "epoch     train_loss  valid_loss  time\n3         0.3211      0.2988      00:12", None, None),
    ("YOLOv5's own", "     3/299     9.81G   0.08  0.05  0.03  71  640:   6%|▌  | 59/925 [00:31<06:54,  2.09it/s]", 1909, 276575),
    # language models
    ("Megatron-LM", " iteration      100/   10000 | consumed samples: 25600 | elapsed time per iteration (ms): 1", 100, 10000),
    ("Megatron-LM with a time", " [2026-01-01 10:00:00] iteration      100/   10000 | consumed samples:  25600 |", 100, 10000),
    ("DeepSpeed", "[INFO] [logging.py:96:log_dist] [Rank 0] step=100, skipped=0, lr=[1e-05], mom=[(0.9, 0.99)]", 100, None),
    ("DeepSpeed's timer", "[Rank 0] rank=0 time (ms) | epoch=0/micro_step=8/global_step=4, RunningAvgSamplesPerSec=3.1", 4, None),
    ("DeepSpeed's pipeline", "steps: 10 loss: 0.6934 iter time (s): 0.052 samples/sec: 153.8", 10, None),
    ("torchtitan", "[rank0]:[titan] 2026-05-18 16:04:46 - root - INFO - step: 14  loss:  3.24405  tps: 7,282", 14, None),
    ("nanoGPT", "iter 300: loss 2.1042, time 55.21ms, mfu 30.15%", 300, None),
    ("nanoGPT's evaluation", "step 250: train loss 2.1042, val loss 2.2011", 250, None),
    ("modded-nanogpt", "step:100/1750 val_loss:4.1 train_time:12000ms step_avg:133.1ms", 100, 1750),
    ("build-nanogpt", "step    59 | loss: 6.123456 | lr 6.0e-04 | norm: 0.91 | dt: 331.1ms | tok/sec: 1.5e6", 59, None),
    ("llm.c", "step   59/19560 | loss 6.123456 (+0.1z)| norm 0.91 (-0.1z)| lr 5.0e-05 | 331.11 ms | 45.0% bf16 MFU", 59, 19560),
    ("litgpt", "Epoch 1 | iter 120 step 30 | loss train: 2.101, val: n/a | iter time: 100.21 ms (step) remaining time: 0:01:10",
     30, None),
    ("torchtune", "1|25|Loss: 1.0411:   3%|▎         | 25/808 [00:44<22:13,  1.70s/it]", 25, 808),
    ("Transformers", " 12%|█▏        | 120/1000 [02:00<14:40,  1.00s/it]", 120, 1000),
    ("axolotl", "{'loss': 0.5, 'epoch': 0.12}\n 12%|█▏        | 120/1000 [02:00<14:40,  1.00s/it]", 120, 1000),
    ("accelerate", "Steps:  12%|█▏        | 120/1000 [02:00<14:40,  1.00s/it, lr=0.0001, step_loss=0.0312]", 120, 1000),
    ("Lightning", "Epoch 2:  47%|████▋     | 47/100 [00:04<00:05, 10.00it/s, v_num=0, train_loss=0.5]", 247, None),
    ("Lightning in a pipe", "Epoch 0:  34% 1020/3000 [01:04<02:05, 15.73it/s, loss=1.2, v_num=1024]", 1020, None),
    ("NeMo", "Training epoch 1, iteration 7/999 | lr: 1 | global_step: 1006 | reduced_train_loss: 2", 1006, None),
    ("NeMo's bar", "Epoch 0:   1%|   | 795/77225 [9:07:58<878:01:48, 41.36s/it, loss=3.1, global_step=794.0]", 794, None),
    ("fairseq", "epoch 002:    450 / 1891 loss=11.521, wps=52922, ups=0.5, num_updates=2336, lr=8.9e-05", 2336, None),
    ("fairseq without updates", "epoch 002:    450 / 1891 loss=11.521, wps=52922", 2341, None),
    ("metaseq", '{"epoch": 10, "loss": "3.180", "num_updates": 21497, "lr": 0.0003}', 21497, None),
    ("OpenNMT", "[2026-01-01 10:00:00,000 INFO] Step 50/10000; acc: 12.1; ppl: 812.1; xent: 6.7; lr: 0.001", 50, 10000),
    ("ESPnet", "[n0] 2026-01-01 10:00:00,000 (trainer:756) INFO: 3epoch:train:101-200batch: iter_time=0.1, loss_ctc=8", None, None),
    ("Composer", "[epoch=2/3][batch=100/1000]: Train loss/train/total: 2.1", 1100, 3000),
    ("Composer by batches", "[batch=100/1000]: Train time/batch: 99", 100, 1000),
    ("llm-foundry", "[batch=1059/10000]:\n\t Train loss/train/total: 2.1", 1059, 10000),
    ("OLMo", "[step=100/739328,epoch=0]\n    train/CrossEntropyLoss=7.1", 100, 739328),
    ("open_clip", "Train Epoch: 0 [ 51200/1000000 (5%)] Data (t): 0.1 Batch (t): 0.5, LR: 0.00001 Loss: 5.1", 51200, None),
    ("OpenFold", "Epoch 0:   2%|▏  | 59/2500 [10:00<6:10:00,  9.10s/it, loss=120]", 59, None),
    ("Whisper fine-tuning", "{'loss': 0.5, 'learning_rate': 1e-05, 'epoch': 0.09, 'step': 100}", 100, None),
    ("GPT-NeoX", " samples/sec: 91.1 | iteration      100/  320000 | elapsed time per iteration (ms): 351.1 |", 100, 320000),
    ("ColossalAI", "Epoch [1/3]:  12%|█▏        | 120/1000 [02:00<14:40,  1.00s/it, loss=2.1]", 120, 3000),
    # JAX, TensorFlow and others
    ("MaxText", "completed step: 100, seconds: 1.2, TFLOP/s/device: 190.1, loss: 3.2", 100, None),
    ("clu and Flax", "I0101 10:00:00.000000 140 logging_writer.py:48] [100] accuracy=0.91, loss=0.31", 100, None),
    ("Flax's MNIST", "epoch:  1, train_loss: 0.2131, train_accuracy: 93.71, test_loss: 0.07, test_accuracy: 97.9", 1, None),
    ("Flax's language models", "Step... (500/10000 | Loss: 3.1, Learning Rate: 0.0003)", 500, 10000),
    ("T5X", "Training: step 1000, loss 2.1", 1000, None),
    ("tf.estimator", "INFO:tensorflow:loss = 2.1, step = 100 (8.2 sec)", 100, None),
    ("XLA's examples", "| Training Device=xla:0/0 Epoch=1 Step=120 Loss=2.1 Rate=100.1 GlobalRate=90.1 Time=10:00:00", 120, None),
    ("PyTorch Geometric", "Epoch: 005, Loss: 0.6931, Train: 0.8130, Val: 0.79, Test: 0.80", 5, None),
    ("DGL", "Epoch 00005 | Loss 1.9001 | Accuracy 0.7300 |", 5, None),
    ("REINFORCE", "Episode 10\tLast reward: 26.00\tAverage reward: 16.02", 10, None),
    ("a plain loop by epochs", "Epoch [12/100], Loss: 0.1234", 12, 100),
    ("accelerate's own print", "epoch 12: train loss 0.31, lr 0.001", 12, None),
    ("progressbar2", " 47% (47 of 100) |#########           | Elapsed Time: 0:00:04 ETA:  0:00:05", 47, 100),
    ("alive-progress", "Training |██████████▍         | 47/100 [47%] in 4s (10.1/s, eta: 5s)", 47, 100),
    ("rich's own columns", "Training ━━━━━━━━━╸━━━━━━━━━━ 47/100 0:00:05", 47, 100),
    ("wandb's words", "train/step: 100, train/loss: 2.1", 100, None),
    ("loguru", "2026-01-01 10:00:00.000 | INFO     | train:loop:31 - batch 59/100, loss=0.3", 59, 100),
]
NO_STEPS = [
    "Loading checkpoint shards:  50%|█████     | 2/4 [00:10<00:10,  5.10s/it]",
    "Downloading shards: 100%|██████████| 3/3 [01:10<00:00, 23.30s/it]",
    "Downloading data:  45%|████▌     | 450/1000 [00:10<00:12, 43.00it/s]",
    "model.safetensors:  12%|█▏        | 1.2G/9.9G [00:30<03:40, 40.1MB/s]",
    "Fetching 10 files:  30%|███       | 3/10 [00:01<00:02,  2.80it/s]",
    "   ━━━━━━━━━━━━━━━━━━━━━ 12.3/45.6 MB 10.2 MB/s eta 0:00:04",
    "   ━━━━━━━━━━━━━━━━━━━━━ 12/45 MB 10.2 MB/s eta 0:00:04",
    "Downloading ━━━━━━━━━━━━━━━━━━━━━ 3/10 0:00:04",
    "Map (num_proc=8):  45%|████▌     | 45000/100000 [00:10<00:12, 4321.00 examples/s]",
    "Generating train split:  45%|████▌     | 45000/100000 [00:10<00:12, 4321.00 examples/s]",
    "Running tokenizer on train dataset:  45%|████▌     | 450/1000 [00:10<00:12, 43.00it/s]",
    "Tokenizing train data:  45%|████▌     | 450/1000 [00:10<00:12, 43.00it/s]",
    "Preparing data, epoch 1/3: 450/1000 files",
    "Epoch 1/3 of data preparation: shard 3/100",
    "Building dataset for epoch 3",
    "Packing sequences of epoch 2/3",
    "Validation DataLoader 0:  46%|████▌     | 73/157 [00:02<00:02, 37.48it/s]",
    "Sanity Checking DataLoader 0:  50%|█████     | 1/2 [00:02<00:02,  1.48it/s]",
    "Evaluating:  46%|████▌     | 73/157 [00:02<00:02, 37.48it/s]",
    "Epoch 3 validation:  46%|████▌     | 73/157 [00:02<00:02, 37.48it/s]",
    "Test: [ 10/196]\tTime  0.3 ( 1.2)\tLoss 6.9 (7.0)\tAcc@1 0.1",
    "Test: [  10/500]  eta: 0:01:01  loss: 1.1  acc1: 70.1",
    "Test set: Average loss: 0.0512, Accuracy: 9830/10000 (98%)",
    "Average loss: 0.0512, Accuracy: 9830/10000 (98%)",
    "Epoch(val) [3][100/500]  mAP: 0.1",
    "Iter(val) [100/500]  eta: 0:00:10  loss: 0.3",
    "eval step 3/50, loss 2.1",
    "[eval] step 3/50",
    "validation step 3: loss 2.1",
    "Eval epoch 3, loss 2.1",
    "{'eval_loss': 1.364, 'eval_runtime': 16.28, 'epoch': 3}",
    "2026-01-01 10:00:00,000 - INFO - starting",
    "[07/21 10:00:00 d2.data.build]: loss weights 0.5 0.5",
    "11/28 10:00:00 loss function: cross entropy, lr 0.1",
    "[2/4] Linking CXX object CMakeFiles/fused_loss.dir/loss.cpp.o",
    "Step 1: install the packages of requirements.txt",
    "Step 2: load the data",
    "Starting step 2 of the setup",
    "See step 3 of the README for how to set NCCL up",
    "In this step 2 models are compared with each other",
    "max steps 1000", "total steps: 1000", "Total optimization steps = 1,000", "num steps = 1000, lr = 0.1",
    "Steps per epoch: 500", "save every step 100", "warmup_steps=100", "warm-up step 5/500: loss 2", "timestep 7",
    "Loaded checkpoint of step 100", "resuming from step 100", "Resuming at iteration 100, loss 2.1",
    "epoch 3 of 10", "Epoch 3", "num_epochs: 10, lr: 0.1", "batch size: 32, lr: 0.1", "batch_size=32 lr=0.1",
    "gradient_accumulation_steps: 8", "Ran 3/10 tests", "GPU 3/8 is busy", "rank 3/8: loss function built",
    "[rank0]:[W CUDAGuardImpl.h:46] Warning: step 3 of the shutdown was late and left things behind",
    "*** STEP 42.0 ON n1 FAILED", "commit 12345, loss of power", "accuracy: 91/100", "learning rate 0.1, 8 GPUs, 3/8 up",
]


def keras(epoch: int, batch: int) -> str:
    return f"Epoch {epoch + 1}/3\n" * (batch == 1) + f"{batch}/20 [====>.....] - ETA: 8s - loss: 0.3\n"


# Each line of three epochs of 20 batches, counted from one, and which step the first one of the second epoch is.
STREAMS: list[tuple[str, Callable[[int, int], str], int]] = [
    ("Keras, whose epochs have lines of their own", keras, 21),
    ("PyTorch's tutorials", lambda epoch, batch: f"Epoch [{epoch + 1}/3], Step [{batch}/20], Loss: 0.3\n", 21),
    ("epochs from zero beside their total", lambda epoch, batch: f"Epoch {epoch}/3 Batch {batch}/20 Loss 0.3\n", 21),
    ("epochs from zero", lambda epoch, batch: f"epoch={epoch} batch={batch}/20 loss=0.3\n", 21),
    ("epochs from one without a total", lambda epoch, batch: f"epoch={epoch + 1} batch={batch}/20 loss=0.3\n", 41),
    ("steps of an epoch", lambda epoch, batch: f"epoch {epoch} | step {batch}/20 | loss 0.3\n", 21),
    ("steps of the whole beside an epoch", lambda epoch, batch: f"epoch {epoch} | step {20 * epoch + batch}/60 | l\n", 21),
    ("the same with its total", lambda epoch, batch: f"Epoch {epoch + 1}/3 Step {20 * epoch + batch}/60 loss 1\n", 21),
    ("MNIST", lambda epoch, batch: f"Train Epoch: {epoch + 1} [{64 * batch}/1280 (6%)]\tLoss: 0.3\n", 1344),
    ("rich", lambda epoch, batch: f"Epoch {epoch}/2 ━━━━━━ {batch}/20 0:00:04 • 0:00:05 10.12it/s\n", 21),
    ("bars with a validation behind each epoch", lambda epoch, batch: (
        f"\rEpoch {epoch}:  50%|██  | {batch}/20 [00:01<00:01, 9.0it/s]" +
        "\r 50%|███  | 9/90 [00:01<00:01, 9.0it/s]\n" * (batch == 20)), 21),
    ("epochs alone", lambda epoch, batch: f"Epoch {20 * epoch + batch}/60 - loss: 0.3 - val_loss: 0.4\n", 21),
    ("steps and a line for each epoch", lambda epoch, batch: f"step {20 * epoch + batch} loss 0.3\n" + (
        f"epoch {epoch + 1}: loss 0.4\n" * (batch == 20)), 21),
]


@each(("name", "line", "second"), STREAMS, called=lambda row: row[0])
def test_a_log_that_is_read_piece_by_piece_counts_on(name: str, line: Callable[[int, int], str], second: int) -> None:
    lines = [line(epoch, batch) for epoch in range(3) for batch in range(1, 21)]
    for size in (1, 3, 7):
        known, steps = b"", []
        for at in range(0, len(lines), size):
            text = cut_lines(known + "".join(lines[at:at + size]).encode())
            steps.append(listen(text, "auto", len(known)).step)
            known = carry_on(text, "auto")
        assert None not in steps
        assert steps == sorted(set(steps)), f"in pieces of {size}"   # type: ignore[type-var]
        if size == 1:
            assert steps[20] == second


def test_of_a_long_piece_without_epochs_the_same_lines_are_carried_on_as_of_all_its_text() -> None:
    said = [b"[n%d:0]: saving files 3/7\n" % rank for rank in range(8)]
    steps = [b"[n%d:0]:step %d loss 2.31 lr 3.0e-04\n" % (number % 8, number) for number in range(2000)]
    for lines in (steps, [*steps, *said * 200], [*said * 200, *steps[:3]], [steps[0], *said * 800], said * 800,
                  [*steps, b"Epoch 2/5, step 7/100\n", *steps], [*steps, b"train: 3 [ 100/500 ( 20%)] loss: 1\n", *steps]):
        text = b"".join(lines)
        assert carry_on(text, "auto") == carry(text, steps_module._counted(text)), text[:80]


def test_a_piece_that_names_nothing_repeats_nothing() -> None:
    known = carry_on(b"Epoch 2/5\n59/1875 [=>...] - loss: 0.3\n", "auto")
    assert listen(known + b"saving checkpoint\n", "auto", len(known)) == Talk(None, ("checkpoint",))
    assert carry_on(known + b"saving checkpoint\n", "auto") == known


@each(("name", "line", "step", "total"), TRAINERS, called=lambda row: row[0])
def test_the_lines_of_public_trainers_name_their_step(name: str, line: str, step: int | None, total: int | None) -> None:
    assert len(TRAINERS) >= 60
    for prefix in ("", "[n0:0]:", "[n0:0]: [rank0]:", "3: "):   # safelaunch's, torchrun's, srun --label's
        text = "\n".join(prefix + one for one in line.split("\n"))
        assert latest_of(cut_lines(text.encode()), "auto") == (step, total), prefix


@each("line", NO_STEPS)
def test_lines_that_count_something_else_name_none(line: str) -> None:
    assert len(NO_STEPS) >= 60
    for prefix in ("", "[n0:0]:", "[n0:0]: [rank0]:", "3: "):
        assert latest_of(cut_lines((prefix + line).encode()), "auto")[0] is None, prefix
        assert listen(cut_lines((prefix + line).encode())).step is None
