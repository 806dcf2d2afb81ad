"""Parallel layouts and settings that need or exclude each other."""

from __future__ import annotations

from safelaunch.why.findings import Rule

RULES = (
    Rule(
        "config.multiple", "config",
        (b"must be a multiple of", b"is not a multiple of", b"must equal the product",
         b"does not match number of devices", b"should be a multiple of"),
        rb"(?:Error|Exception|assert)\b.{0,300}?(?:(?:must|should) be (?:a )?multiples? of|is not a multiple "
        rb"of|must equal the product|match (?:the )?number of devices)",
        "cause", "job", 0.78,
        summary="sizes do not fit: {line}",
        explain="World size, batch or mesh do not multiply up.",
        source="Megatron-LM; JAX", order=3,
        sample="AssertionError: batch size 100 must be a multiple of data parallel size 8",
        counter_sample="sizes should be a multiple of 8 for speed",
    ),
    Rule(
        "config.needs", "config",
        (b"AssertionError: ", b"ValueError: ", b"RuntimeError: "),
        rb"(?:AssertionError|ValueError|RuntimeError): .{0,150}?(?:(?<![\w-])--[a-z][\w-]+ (?:requires|must be"
        rb"|cannot be|is not|only works|should be|needs)|[Cc]annot use \w+ parallel|are mutually exclusive"
        rb"|mutually exclusive\b|[Uu]nrecogni[sz]ed options?|[Nn]o configurable matching|[Rr]equires a device "
        rb"mesh|[Tt]arget modules .{0,200}? not found|out of range for \d+ nodes|unscale FP16 gradients)",
        "cause", "job", 0.74,
        summary="settings do not fit each other: {line}",
        explain="One of them needs another, or excludes it.",
        source="Megatron-LM; DeepSpeed; transformers; peft", order=3,
        sample="AssertionError: --sequence-parallel requires --tensor-model-parallel-size > 1",
        counter_sample="--sequence-parallel requires care",
    ),
    Rule(
        "config.env_key", "config",
        (b"KeyError: '", b"Unrecognized options", b"Unexpected key", b"does not exist"),
        rb"KeyError: '(?P<name>LOCAL_RANK|RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|MASTER_(?:ADDR|PORT)|SLURM_\w+"
        rb"|CUDA_VISIBLE_DEVICES|OMPI_\w+|HF_\w+|WANDB_\w+|[A-Z][A-Z0-9]*_[A-Z0-9_]+)'|\bUnrecognized options: "
        rb"|error: Parser key \"|tokenizer (?:model )?path does not exist",
        "cause", "job", 0.74,
        summary="a setting of the environment or the command line is missing or unknown: {name}",
        explain="The program was not started by the launcher that it expects, or an option is misspelt.",
        do="Start it through torchrun or srun, and export what it names.",
        source="CPython, os.environ; tyro; jsonargparse", order=3,
        sample="KeyError: 'LOCAL_RANK'", counter_sample="KeyError: 'rank'",
    ),
    Rule(
        "config.choice", "config", (b"': Could not find '",),
        rb"In '[^']{1,200}': Could not find '(?P<name>[^']{1,200})'",
        "cause", "job", 0.88, summary="there is no configuration {name}",
        explain="A default or an override names a group or file that is not there.", source="Hydra",
        sample="In 'config': Could not find 'model/gpt_13b'", counter_sample="In 'config': Could find 'model/gpt_13b'",
    ),
    Rule(
        "config.struct_key", "config", (b"' is not in struct",), rb"Key '(?P<name>[^']{1,200})' is not in struct",
        "cause", "job", 0.82, summary="the configuration has no key {name}",
        explain="It is misspelt, or needs a plus sign.",
        source="OmegaConf", order=2,
        sample="Key 'lrr' is not in struct", counter_sample="Key 'lr' is in struct 'optim'",
    ),
)
