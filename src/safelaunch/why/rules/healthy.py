"""Signs of life, good ends, starts, and lines that frighten and mean nothing."""

from __future__ import annotations

from safelaunch.why.findings import Rule


def _sign(id: str, anchor: tuple[bytes, ...], pattern: bytes, source: str, order: int = 0, *, sample: str,
          counter_sample: str) -> Rule:
    """A rule for a sign of life; its group `step` is the step, when the line names it."""
    return Rule(id, "none", anchor, pattern, "progress", "nobody", 0.5, explain="A step was made.", source=source,
                order=order, sample=sample, counter_sample=counter_sample)


def _noise(id: str, anchor: tuple[bytes, ...], pattern: bytes, explain: str, source: str, *, sample: str,
           counter_sample: str) -> Rule:
    """A rule for lines that frighten and mean nothing."""
    return Rule(id, "none", anchor, pattern, "noise", "nobody", 1.0, explain=explain, source=source, order=8,
                sample=sample, counter_sample=counter_sample)


def _done(id: str, anchor: tuple[bytes, ...], pattern: bytes, source: str, weight: float = 0.8, *, sample: str,
          counter_sample: str) -> Rule:
    """A rule for a good end. No word of wandb's is one: it prints its summary after a crash, too."""
    return Rule(id, "none", anchor, pattern, "done", "nobody", weight, explain="The program says that it has finished.",
                source=source, sample=sample, counter_sample=counter_sample)


PROGRESS = (
    _sign(
        "progress.megatron", (b" iteration ", b"iteration:"), rb"\biteration:? +(?P<step>\d+)(?:/ *\d+)? *[|:,]",
        "Megatron-LM, training_log",
        sample=" iteration       80/     100 | consumed samples: 640 |", counter_sample="iteration over the shards",
    ),
    _sign(
        "progress.step_loss", (b"loss",),
        rb"(?i:\b(?:step|iter|iteration|global_step|batch|epoch"
        rb"|it)s?\b)[ \[:=#]*(?P<step>\d{1,3}(?:,\d{3})+|\d+).{0,200}?(?i:loss)\w*['\"]?[\s:=(]+-?\d",
        "trainers' own lines",
        sample="step 80: loss 2.31", counter_sample="the loss is computed at each step",
    ),
    _sign(
        "progress.loss_dict", (b"'loss': ", b'"loss": ', b"'train_loss': ", b"'eval_loss': ", b'"train_loss": '),
        rb"\{.{0,300}?['\"](?:train_|eval_|val_)?loss['\"]: ['\"]?-?\d", "transformers, Trainer.log",
        sample="{'loss': 2.31, 'learning_rate': 0.0001, 'epoch': 0.8}", counter_sample="{'loss': 'cross_entropy'}",
    ),
    _sign(
        "progress.keras", (b"/step", b"s - loss: ", b"ms - loss: "),
        rb"\b\d{1,12}/\d{1,12} .{0,300}?(?:/step|- loss: -?\d)", "Keras",
        sample="80/100 [====>.....] - ETA: 3s - loss: 2.31 8ms/step",
        counter_sample="80/100 steps are warm-up, loss: not shown",
    ),
    _sign(
        "progress.bar", (b"it/s", b"s/it"),
        rb"(?:^|\r|(?i:train|epoch|iter|step|eval|valid|test"
        rb"|sampl)[^|%]{0,60}):? *\d{1,3}%\|[^|]*\| *(?P<step>\d+)/[\d?]+ \[", "tqdm",
        sample="Training:  80%|########  | 80/100 [00:08<00:02, 10.0it/s]",
        counter_sample="Loading checkpoint shards:  80%|####  | 8/10 [00:08<00:02, 1.0s/it]",
    ),
    _sign(
        "progress.epoch", (b"poch",),
        rb"\b[Ee]poch:? *\[?(?P<step>\d+)(?:\]?\[|/| of |,|:| -|\]).{0,200}?(?i:loss|acc|lr|time|val|error"
        rb"|train)\w*[\s:=/]+-?[\d(]", "trainers' own lines",
        sample="Epoch [3/10], train acc: 0.81", counter_sample="Epochs: 10, train set: imagenet, acc: top-5",
    ),
    _sign(
        "progress.epoch_alone", (b"poch",), rb"^\W{0,8}[Ee]poch:? *\[?#?(?P<step>\d+)(?: *(?:/|of) *\d+)?\W{0,8}$",
        "trainers' own lines",
        sample="Epoch 3/10", counter_sample="Epoch 3/10 is skipped",
    ),
    _sign(
        "progress.mlperf", (b":::MLL",),
        rb":::MLL(?:OG)?\b.{0,300}?(?:POINT_IN_TIME|INTERVAL_END|epoch_stop|block_stop|eval_accuracy|eval_error"
        rb"|tracked_stats)", "MLPerf logging",
        sample=':::MLLOG {"namespace": "", "event_type": "INTERVAL_END", "key": "epoch_stop", "value": null}',
        counter_sample=':::MLLOG {"key": "submission_org"}',
    ),
    _sign(
        "progress.deepspeed", (b"step=",), rb"\bstep=(?P<step>\d+), skipped=", "DeepSpeed, engine",
        sample="[Rank 0] step=80, skipped=0, lr=[0.0001], mom=[(0.9, 0.95)]",
        counter_sample="[Rank 0] step=80 is the first, lr=[0.0001]",
    ),
    _sign(
        "progress.saved",
        (b"aved checkpoint", b"aving checkpoint", b"aving model checkpoint", b"heckpoint saved",
         b"successfully saved checkpoint", b"aved model"),
        b"(?i:successfully saved checkpoint|saving model checkpoint to|saved checkpoint|checkpoint saved)",
        "Megatron-LM; transformers; others",
        sample="  successfully saved checkpoint at iteration 80 to ckpt",
        counter_sample="checkpoints are saved each 80 iterations to ckpt",
    ),
    _sign(
        "progress.throughput", (b"amples/s", b"okens/s", b"TFLOPs", b"mages/s", b"tok/s"),
        rb"(?i:samples|tokens|images|tok)/s(?:ec(?:ond)?)?\b[^a-zA-Z]{0,20}\d|\d (?i:samples|tokens|images|tok)/s",
        "trainers' own lines",
        sample="step 80 done, 1234 tokens/s", counter_sample="tokens/second are measured",
    ),
    Rule(
        "life.served", "none", (b"HTTP/1",), rb"HTTP/1\.\d\"? 2\d\d\b", "context", "nobody", 0.1,
        summary="a server has answered", explain="It is alive.", source="uvicorn; gunicorn; nginx",
        sample='10.0.0.3:51114 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
        counter_sample='10.0.0.3:51114 - "POST /v1/chat/completions HTTP/1.1" 500 Internal Server Error',
    ),
)
DONE = (
    _done(
        "done.hf", (b"Training completed. Do not forget", b"train_runtime"),
        rb"Training completed\. Do not forget|['\"]train_runtime['\"]|^\s*train_runtime +=", "transformers",
        sample="{'train_runtime': 81.2, 'train_samples_per_second': 8.1}", counter_sample="training is slow",
    ),
    _done(
        "done.lightning", (b"`Trainer.fit` stopped",), rb"`Trainer\.fit` stopped: `max_\w+", "PyTorch Lightning",
        sample="`Trainer.fit` stopped: `max_epochs=10` reached.", counter_sample="`Trainer.fit` begins",
    ),
    _done(
        "done.words",
        (b"raining complete", b"raining finished", b"raining done", b"inished training", b"completed successfully",
         b"inished successfully", b"Done training", b"raining has finished", b"raining is done", b"raining is complete",
         b"one with training", b"raining ended", b"TRAINING COMPLETE", b"ll done", b"successfully completed",
         b"Successfully completed"),
        b"(?i:training (?:is |has )?(?:complete|finish|done)|finished training|(?:completed|finished) "
        b"successfully(?!,? but)|successfully completed|done (?:with )?training|^all done)", "trainers' own lines", 0.5,
        sample="Training finished.", counter_sample="Training is going to end in 3 steps, not finished yet",
    ),
    _done(
        "done.yolo", (b"epochs completed in ",), rb"\d epochs completed in [\d.]+ hours", "Ultralytics",
        sample="10 epochs completed in 0.132 hours.", counter_sample="10 epochs are planned, 0.5 hours each",
    ),
    _done(
        "done.megatron", (b"[after training is done]", b"exiting program at iteration", b"[exiting program"),
        rb"\[?after training is done\]?|exiting program (?:at iteration|after [\d.]+ minutes)", "Megatron-LM",
        sample="[after training is done] datetime: 2025-01-02 03:04:05",
        counter_sample="[before the start of training step]",
    ),
    _done(
        "done.nccl_tests", (b"Collective test concluded", b"# Avg bus bandwidth"),
        rb"Collective test concluded|^#\s*Avg bus bandwidth +: +\d", "nccl-tests; rccl-tests",
        sample="# Collective test concluded: all_reduce_perf",
        counter_sample="# Collective test starting: all_reduce_perf",
    ),
    _done(
        "done.mlperf", (b"run_stop", b"RESULT,"), rb"\"run_stop\".{0,300}?\"status\": \"success\"|^RESULT,",
        "MLPerf logging",
        sample=':::MLLOG {"event_type": "INTERVAL_END", "key": "run_stop", "metadata": {"status": "success"}}',
        counter_sample=':::MLLOG {"key": "run_stop", "metadata": {"status": "aborted"}}',
    ),
    _done(
        "done.slurm", (b"COMPLETED", b"exit code 0"),
        rb"\bState ?[:=]? ?\(?COMPLETED|(?:exited|finished|ended) with (?:exit )?(?:code|status) 0\b", "Slurm",
        sample="Job 811 exited with exit code 0", counter_sample="Job 811 exited with exit code 1",
    ),
)
LAUNCH = (
    Rule(
        "launch.torchrun", "none",
        (b"OMP_NUM_THREADS environment variable for each process", b"[c10d] The server is",
         b"Starting elastic_operator with launch configs", b"starting workers for entrypoint",
         b"Starting worker group"),
        b"OMP_NUM_THREADS environment variable for each process|Starting elastic_operator|starting workers for "
        b"entrypoint", "launch", "nobody", 0.5, explain="A launcher starts.", source="torchrun",
        sample="Setting OMP_NUM_THREADS environment variable for each process to be 1 in default",
        counter_sample="OMP_NUM_THREADS is 8",
    ),
    Rule(
        "launch.elastic_restart", "none", (b"will restart worker group", b"restarting worker group"),
        b"will restart worker group", "launch", "nobody", 0.5, explain="torchrun starts its ranks again.",
        source="PyTorch, torch/distributed/elastic", order=9,
        sample="[default] Worker group FAILED. 2/3 attempts left; will restart worker group",
        counter_sample="worker group is healthy",
    ),
    Rule(
        "launch.megatron", "none",
        (b"using world size:", b"initializing torch distributed ...", b"[before the start of training step]"),
        rb"using world size: \d+|initializing torch distributed", "launch", "nobody", 0.4, explain="A training starts.",
        source="Megatron-LM",
        sample="using world size: 8, data-parallel-size: 8, tensor-model-parallel size: 1",
        counter_sample="the world size is known",
    ),
    Rule(
        "launch.deepspeed", "none", (b"[INFO] [runner.py", b"[launch.py:", b"WORLD INFO DICT"),
        rb"WORLD INFO DICT|runner\.py:\d+:main\] cmd =", "launch", "nobody", 0.5, explain="A launcher starts.",
        source="DeepSpeed",
        sample="[2025-01-02 03:04:05,678] [INFO] [launch.py:138:main] WORLD INFO DICT: {'n3': [0, 1]}",
        counter_sample="[INFO] [launch.py:138:main] nnodes=1",
    ),
)
NOISE = (
    _noise(
        "noise.tensorflow",
        (b"Unable to register cu", b"Could not load dynamic library", b"failed call to cuInit", b"TF-TRT Warning",
         b"Attempting to register factory", b"libnvinfer", b"could not find a working CUDA"),
        b"Unable to register cu|Could not load dynamic library|failed call to cuInit|TF-TRT Warning|Attempting to "
        b"register factory|libnvinfer", "TensorFlow's start on any machine.", "TensorFlow",
        sample="Unable to register cuDNN factory: Attempting to register factory for plugin cuDNN when one has "
               "already been registered",
        counter_sample="registered the factory",
    ),
    _noise(
        "noise.python_warning", (b"Warning: ", b"Warning(", b"warnings.warn("),
        rb"^\s*(?:\S*:\d+: )?\w*Warning: |warnings\.warn\(", "A warning of Python's.", "CPython, warnings",
        sample="/opt/env/lib/x.py:81: FutureWarning: `old` is deprecated",
        counter_sample="/opt/env/lib/x.py:81: 3 warnings in all",
    ),
    _noise(
        "noise.ucx_debug",
        (b"UCX  DEBUG", b"UCX  TRACE", b"UCX  DIAG", b"UCX  INFO", b"UCX  REQ", b"UCX  DATA", b"UCX  FUNC",
         b"UCX  ASYNC"), b"UCX  (?:DEBUG|TRACE|DIAG|INFO|REQ|DATA|FUNC|ASYNC) ", "UCX tries out transports.", "UCX",
        sample="[1735.2] [n3:4242 :0] ib_device.c:80   UCX  DEBUG failed to read /sys/class/infiniband",
        counter_sample="UCX  ERROR failed",
    ),
    _noise(
        "noise.nccl_info", (b"NCCL INFO",), b"NCCL INFO ", "NCCL's own report.", "NCCL",
        sample="n3:4242:4300 [0] NCCL INFO Channel 00/04 : 0 1", counter_sample="NCCL WARN something",
    ),
    _noise(
        "noise.leaks",
        (b"leaked semaphore", b"leaked shared_memory", b"has NOT been destroyed",
         b"destroy_process_group() was not called", b"before we destruct ProcessGroupNCCL"),
        rb"leaked (?:semaphore|shared_memory)|has NOT been destroyed|destroy_process_group\(\) was not called",
        "Left open at exit; harmless.", "CPython; PyTorch",
        sample="resource_tracker: There appear to be 8 leaked semaphore objects to clean up at shutdown",
        counter_sample="no semaphore leaked",
    ),
    _noise(
        "noise.libs",
        (b"libibverbs: Warning", b"WARNING: No preset parameters", b"hwloc", b"OpenFabrics", b"btl_openib",
         b"mca_base_component_repository_open"),
        b"libibverbs: Warning|No preset parameters|OpenFabrics|mca_base_component_repository_open|btl_openib",
        "Open MPI tries out transports.", "Open MPI",
        sample="WARNING: No preset parameters were found for the device that Open MPI",
        counter_sample="presets were found",
    ),
    _noise(
        "noise.logging", (b"--- Logging error ---",), b"--- Logging error ---", "A log line could not be written.",
        "CPython, logging",
        sample="--- Logging error ---", counter_sample="--- Logging to run.log ---",
    ),
    _noise(
        "noise.retry", (b"etrying", b"will retry", b"Will retry", b"retry in "),
        rb"(?i:retrying (?:in|after|\(|again)|will retry|retry in \d)", "Somebody tries again.", "various",
        sample="upload failed, retrying in 5 s", counter_sample="upload failed after 3 retries",
    ),
    _noise(
        "noise.error_metric",
        (b"eval_error", b"absolute_error", b"squared_error", b"error_rate", b"mean_error", b"rror: 0.", b"errors=0",
         b"0 errors"),
        rb"(?:eval|absolute|squared|mean|train|test|val|relative|percentage)_(?:\w{1,30}_)?error\b|error_rate"
        rb"|\b0 errors|errors?[=:] ?0\b", "A figure named error.", "trainers' own lines",
        sample="val mean_absolute_error: 0.31", counter_sample="an error of the mean",
    ),
)
RULES = (*PROGRESS, *DONE, *LAUNCH, *NOISE)
