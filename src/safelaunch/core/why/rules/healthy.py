"""Signs of life, good ends, starts, and lines that frighten and mean nothing."""

from __future__ import annotations

from safelaunch.core.why.findings import Rule


def _sign(id: str, anchor: tuple[bytes, ...], pattern: bytes, source: str, order: int = 0) -> Rule:
    """A rule for a sign of life; its group `step` is the step, when the line names it."""
    return Rule(id, "none", anchor, pattern, "progress", "nobody", 0.5, explain="A step was made.", source=source,
                order=order)


def _noise(id: str, anchor: tuple[bytes, ...], pattern: bytes, explain: str, source: str) -> Rule:
    """A rule for lines that frighten and mean nothing."""
    return Rule(id, "none", anchor, pattern, "noise", "nobody", 1.0, explain=explain, source=source, order=8)


def _done(id: str, anchor: tuple[bytes, ...], pattern: bytes, source: str, weight: float = 0.8) -> Rule:
    """A rule for a good end. No word of wandb's is one: it prints its summary after a crash, too."""
    return Rule(id, "none", anchor, pattern, "done", "nobody", weight, explain="The program says that it has finished.",
                source=source)


PROGRESS = (
    _sign(
        "progress.megatron", (b" iteration ", b"iteration:"), rb"\biteration:? +(?P<step>\d+)(?:/ *\d+)? *[|:,]",
        "Megatron-LM, training_log",
    ),
    _sign(
        "progress.step_loss", (b"loss",),
        rb"(?i:\b(?:step|iter|iteration|global_step|batch|epoch"
        rb"|it)s?\b)[ \[:=#]*(?P<step>\d+).{0,200}?(?i:loss)\w*['\"]?[\s:=(]+-?\d", "trainers' own lines",
    ),
    _sign(
        "progress.loss_dict", (b"'loss': ", b'"loss": ', b"'train_loss': ", b"'eval_loss': ", b'"train_loss": '),
        rb"\{.{0,300}?['\"](?:train_|eval_|val_)?loss['\"]: ['\"]?-?\d", "transformers, Trainer.log",
    ),
    _sign(
        "progress.keras", (b"/step", b"s - loss: ", b"ms - loss: "),
        rb"\b\d{1,12}/\d{1,12} .{0,300}?(?:/step|- loss: -?\d)", "Keras",
    ),
    _sign(
        "progress.bar", (b"it/s", b"s/it"),
        rb"(?:^|\r|(?i:train|epoch|iter|step|eval|valid|test"
        rb"|sampl)[^|%]{0,60}):? *\d{1,3}%\|[^|]*\| *(?P<step>\d+)/[\d?]+ \[", "tqdm",
    ),
    _sign(
        "progress.epoch", (b"poch",),
        rb"\b[Ee]poch:? *\[?(?P<step>\d+)(?:\]?\[|/| of |,|:| -|\]).{0,200}?(?i:loss|acc|lr|time|val|error"
        rb"|train)\w*[\s:=/]+-?[\d(]", "trainers' own lines",
    ),
    _sign(
        "progress.epoch_alone", (b"poch",), rb"^\W{0,8}[Ee]poch:? *\[?#?(?P<step>\d+)(?: *(?:/|of) *\d+)?\W{0,8}$",
        "trainers' own lines",
    ),
    _sign(
        "progress.mlperf", (b":::MLL",),
        rb":::MLL(?:OG)?\b.{0,300}?(?:POINT_IN_TIME|INTERVAL_END|epoch_stop|block_stop|eval_accuracy|eval_error"
        rb"|tracked_stats)", "MLPerf logging",
    ),
    _sign(
        "progress.deepspeed", (b"step=",), rb"\bstep=(?P<step>\d+), skipped=", "DeepSpeed, engine",
    ),
    _sign(
        "progress.saved",
        (b"aved checkpoint", b"aving checkpoint", b"aving model checkpoint", b"heckpoint saved",
         b"successfully saved checkpoint", b"aved model"),
        b"(?i:successfully saved checkpoint|saving model checkpoint to|saved checkpoint|checkpoint saved)",
        "Megatron-LM; transformers; others",
    ),
    _sign(
        "progress.throughput", (b"amples/s", b"okens/s", b"TFLOPs", b"mages/s", b"tok/s"),
        rb"(?i:samples|tokens|images|tok)/s(?:ec(?:ond)?)?\b[^a-zA-Z]{0,20}\d|\d (?i:samples|tokens|images|tok)/s",
        "trainers' own lines",
    ),
)
DONE = (
    _done(
        "done.hf", (b"Training completed. Do not forget", b"train_runtime"),
        rb"Training completed\. Do not forget|['\"]train_runtime['\"]|^\s*train_runtime +=", "transformers",
    ),
    _done(
        "done.lightning", (b"`Trainer.fit` stopped",), rb"`Trainer\.fit` stopped: `max_\w+", "PyTorch Lightning",
    ),
    _done(
        "done.words",
        (b"raining complete", b"raining finished", b"raining done", b"inished training", b"completed successfully",
         b"inished successfully", b"Done training", b"raining has finished", b"raining is done", b"raining is complete",
         b"one with training", b"raining ended", b"TRAINING COMPLETE", b"ll done", b"successfully completed",
         b"Successfully completed"),
        b"(?i:training (?:is |has )?(?:complete|finish|done)|finished training|(?:completed|finished) "
        b"successfully|successfully completed|done (?:with )?training|^all done)", "trainers' own lines", 0.5,
    ),
    _done(
        "done.yolo", (b"epochs completed in ",), rb"\d epochs completed in [\d.]+ hours", "Ultralytics",
    ),
    _done(
        "done.megatron", (b"[after training is done]", b"exiting program at iteration", b"[exiting program"),
        rb"\[?after training is done\]?|exiting program (?:at iteration|after [\d.]+ minutes)", "Megatron-LM",
    ),
    _done(
        "done.nccl_tests", (b"Collective test concluded", b"# Avg bus bandwidth"),
        rb"Collective test concluded|^#\s*Avg bus bandwidth +: +\d", "nccl-tests; rccl-tests",
    ),
    _done(
        "done.mlperf", (b"run_stop", b"RESULT,"), rb"\"run_stop\".{0,300}?\"status\": \"success\"|^RESULT,",
        "MLPerf logging",
    ),
    _done(
        "done.slurm", (b"COMPLETED", b"exit code 0"),
        rb"\bState ?[:=]? ?\(?COMPLETED|(?:exited|finished|ended) with (?:exit )?(?:code|status) 0\b", "Slurm",
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
    ),
    Rule(
        "launch.elastic_restart", "none", (b"will restart worker group", b"restarting worker group"),
        b"will restart worker group", "launch", "nobody", 0.5, explain="torchrun starts its ranks again.",
        source="PyTorch, torch/distributed/elastic", order=9,
    ),
    Rule(
        "launch.megatron", "none",
        (b"using world size:", b"initializing torch distributed ...", b"[before the start of training step]"),
        rb"using world size: \d+|initializing torch distributed", "launch", "nobody", 0.4, explain="A training starts.",
        source="Megatron-LM",
    ),
    Rule(
        "launch.deepspeed", "none", (b"[INFO] [runner.py", b"[launch.py:", b"WORLD INFO DICT"),
        rb"WORLD INFO DICT|runner\.py:\d+:main\] cmd =", "launch", "nobody", 0.5, explain="A launcher starts.",
        source="DeepSpeed",
    ),
)
NOISE = (
    _noise(
        "noise.tensorflow",
        (b"Unable to register cu", b"Could not load dynamic library", b"failed call to cuInit", b"TF-TRT Warning",
         b"Attempting to register factory", b"libnvinfer", b"could not find a working CUDA"),
        b"Unable to register cu|Could not load dynamic library|failed call to cuInit|TF-TRT Warning|Attempting to "
        b"register factory|libnvinfer", "TensorFlow's start on any machine.", "TensorFlow",
    ),
    _noise(
        "noise.python_warning", (b"Warning: ", b"Warning("), rb"^(?:\S*:\d+: )?\w*Warning: |warnings\.warn\(",
        "A warning of Python's.", "CPython, warnings",
    ),
    _noise(
        "noise.ucx_debug",
        (b"UCX  DEBUG", b"UCX  TRACE", b"UCX  DIAG", b"UCX  INFO", b"UCX  REQ", b"UCX  DATA", b"UCX  FUNC",
         b"UCX  ASYNC"), b"UCX  (?:DEBUG|TRACE|DIAG|INFO|REQ|DATA|FUNC|ASYNC) ", "UCX tries out transports.", "UCX",
    ),
    _noise(
        "noise.nccl_info", (b"NCCL INFO",), b"NCCL INFO ", "NCCL's own report.", "NCCL",
    ),
    _noise(
        "noise.leaks",
        (b"leaked semaphore", b"leaked shared_memory", b"has NOT been destroyed",
         b"destroy_process_group() was not called", b"before we destruct ProcessGroupNCCL"),
        rb"leaked (?:semaphore|shared_memory)|has NOT been destroyed|destroy_process_group\(\) was not called",
        "Left open at exit; harmless.", "CPython; PyTorch",
    ),
    _noise(
        "noise.libs",
        (b"libibverbs: Warning", b"WARNING: No preset parameters", b"hwloc", b"OpenFabrics", b"btl_openib",
         b"mca_base_component_repository_open"),
        b"libibverbs: Warning|No preset parameters|OpenFabrics|mca_base_component_repository_open|btl_openib",
        "Open MPI tries out transports.", "Open MPI",
    ),
    _noise(
        "noise.logging", (b"--- Logging error ---",), b"--- Logging error ---", "A log line could not be written.",
        "CPython, logging",
    ),
    _noise(
        "noise.retry", (b"etrying", b"will retry", b"Will retry", b"retry in "),
        rb"(?i:retrying (?:in|after|\(|again)|will retry|retry in \d)", "Somebody tries again.", "various",
    ),
    _noise(
        "noise.error_metric",
        (b"eval_error", b"absolute_error", b"squared_error", b"error_rate", b"mean_error", b"rror: 0.", b"errors=0",
         b"0 errors"),
        rb"(?:eval|absolute|squared|mean|train|test|val|relative|percentage)_(?:\w{1,30}_)?error\b|error_rate"
        rb"|\b0 errors|errors?[=:] ?0\b", "A figure named error.", "trainers' own lines",
    ),
)
RULES = (*PROGRESS, *DONE, *LAUNCH, *NOISE)
