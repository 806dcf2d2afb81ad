"""Arguments, sizes and settings that do not fit the job or the model."""

from __future__ import annotations

from safelaunch.why.findings import Rule

RULES = (
    Rule(
        "config.srun", "config",
        (b"srun: unrecognized option", b"srun: invalid option", b"srun: option '", b"srun: ambiguous option",
         b"srun: error: unrecognized --", b"srun: error: Invalid --", b"srun: error: Invalid numeric value",
         b"srun: error: Invalid MPI type"),
        rb"\bsrun: (?:(?P<why>(?:unrecognized|ambiguous|invalid) option .{1,150}|option '.{1,150})"
        rb"|error: (?P<why2>(?:unrecognized|Invalid) (?:--|numeric value |MPI type ).{1,150}))", "cause", "job", 0.92,
        summary="srun does not take its options: {why}{why2}",
        explain="No task was started. The option stands in srun.extra or srun of train.yaml, or in a command of its "
        "own. Options of a plugin, such as --container-image of pyxis, are known only where that is installed.",
        do="Correct srun.extra (srun --help on a login node lists what it takes here).",
        source="srun (Slurm 22.05, measured); glibc, getopt_long", order=3,
        sample="srun: unrecognized option '--container-image=pytorch.sqsh'",
        counter_sample="srun: error: Unable to create step for job 811: Invalid generic resource (gres) specification",
    ),
    Rule(
        "config.arguments", "config",
        (b"error: unrecognized arguments", b"error: the following arguments are required", b"error: argument ",
         b": error: ambiguous option"),
        rb"error: (?:unrecognized arguments: (?P<name>.{0,100})"
        rb"|the following arguments are required: (?P<name2>.{0,100})|argument (?P<name3>\S+): (?P<why>.{0,150})"
        rb"|ambiguous option)", "cause", "job", 0.88, summary="the command line is refused: {name}{name2}{name3} {why}",
        explain="argparse does not know or miss an argument.", do="Correct the command.", source="CPython, argparse",
        order=2,
        sample="train.py: error: unrecognized arguments: --batchsize 8",
        counter_sample="train.py: arguments: --batch-size 8, none unrecognized",
    ),
    Rule(
        "config.usage", "config", (b".py: error: ",), rb"^[\w./-]{1,200}\.py: error: (?P<why>\S.{0,150})", "cause",
        "job", 0.85, summary="the command line is refused: {why}", explain="argparse, by the program's own words.",
        do="Correct the command.", source="CPython, argparse; jsonargparse", order=1,
        sample="train.py: error: --warmup must be smaller than --steps", counter_sample="train.py:44: error: no type",
    ),
    Rule(
        "config.fire", "config", (b"ERROR: Could not consume arg", b"ERROR: The function received no value"),
        rb"ERROR: (?P<why>Could not consume arg.{0,150}|The function received no value.{0,150})", "cause", "job", 0.88,
        summary="the command line is refused: {why}", explain="Fire does not take an argument, or misses one.",
        do="Correct the command.", source="Python Fire", order=2, sample="ERROR: Could not consume arg: --stepz",
        counter_sample="the consumer could not consume arguments",
    ),
    Rule(
        "config.click", "config",
        (b"No such option", b"Missing option", b"Missing argument", b"Got unexpected extra argument",
         b"Invalid value for ", b"Unrecognized option"),
        "^(?:Error:|│) (?P<why>(?:No such option|Missing (?:option|argument|parameter)|Got unexpected extra|Invalid "
        "value for|Unrecognized option).{0,150})".encode(), "cause", "job", 0.85,
        summary="the command line is refused: {why}",
        explain="click, typer or tyro does not take an option.", do="Correct the command.", source="click; typer; tyro",
        order=2,
        sample="Error: No such option: --batchsize", counter_sample="option: --batch-size is set to 8",
    ),
    Rule(
        "config.hf_parser", "config",
        (b"are not used by the HfArgumentParser", b"absl.flags._exceptions", b"FATAL Flags parsing error"),
        rb"not used by the HfArgumentParser|absl\.flags\._exceptions\.\w+|FATAL Flags parsing error", "cause", "job",
        0.85, summary="the command line is refused", explain="An unknown or missing argument.",
        do="Correct the command.", source="transformers; absl", order=2,
        sample="ValueError: Some specified arguments are not used by the HfArgumentParser: ['--x']",
        counter_sample="HfArgumentParser took 8 arguments",
    ),
    Rule(
        "config.hydra", "config",
        (b"ConfigAttributeError", b"ConfigKeyError", b"MissingMandatoryValue", b"MissingConfigException",
         b"Could not override", b"ConfigCompositionException", b"InterpolationKeyError", b"Error merging override",
         b"ConfigTypeError", b"UnsupportedInterpolationType", b"Key 'x' is not in struct"),
        rb"omegaconf\.errors\.\w+|Config(?:Attribute|Key|Type)Error|MissingMandatoryValue|Missing(?:Mandatory"
        rb"|Config)\w{0,40}Exception|Could not override|ConfigCompositionException|Interpolation\w{0,40}Error"
        rb"|Error merging override", "cause", "job", 0.84, summary="the configuration is wrong",
        explain="Hydra or OmegaConf does not find a key, or it has another type.", do="Correct the key it names.",
        source="OmegaConf; Hydra", order=2,
        sample="omegaconf.errors.ConfigAttributeError: Key 'lrr' is not in struct",
        counter_sample="omegaconf: Key 'lr' is in struct",
    ),
    Rule(
        "config.yaml", "config",
        (b"yaml.scanner", b"yaml.parser", b"ScannerError", b"ParserError", b"TOMLDecodeError", b"ruamel.yaml"),
        rb"yaml\.(?:scanner|parser|constructor|composer)\.\w+Error|toml\S{0,40}DecodeError", "cause", "job",
        0.82, summary="a configuration file cannot be read",
        explain="A mistake of indentation or a forbidden character.", do="Correct the line it names.",
        source="PyYAML; tomllib", order=2,
        sample="yaml.scanner.ScannerError: mapping values are not allowed here",
        counter_sample="yaml.scanner: mapping values are read here",
    ),
    Rule(
        "config.pydantic", "config", (b"validation error for ", b"validation errors for "),
        rb"\b\d{1,6} validation errors? for (?P<name>\w+)", "cause", "job", 0.72,
        summary="the settings of {name} are not valid", explain="pydantic names the fields below.",
        do="Correct the fields.", source="pydantic", order=2,
        sample="pydantic_core._pydantic_core.ValidationError: 2 validation errors for TrainConfig",
        counter_sample="pydantic_core: 0 problems with TrainConfig, validation took 3 ms",
    ),
    Rule(
        "config.divisible", "config", (b"divisible by",),
        rb"(?:Error|Exception|assert)\b.{0,300}?(?:not |must be |should be |needs to be |to be "
        rb"|is not )(?:evenly )?divisible by", "cause", "job", 0.82, summary="sizes do not divide: {line}",
        explain="World size, heads, layers or batch do not fit the parallel layout.", do="Choose sizes that divide.",
        source="Megatron-LM, DeepSpeed, vLLM, transformers", order=2,
        sample="AssertionError: num_heads (30) must be divisible by tp_size (4)",
        counter_sample="num_heads (32) is divisible by tp_size (4)",
    ),
    Rule(
        "config.parallel_size", "config",
        (b"world_size", b"world size", b"World size", b"arallel_size", b"arallel size", b"ngpus"),
        rb"(?:Error|Exception)\b.{0,300}?(?:[Ww]orld[ _]size|parallel[ _]size)\b.{0,300}?(?:less than|smaller than"
        rb"|larger than|greater than|exceeds?|not equal|must|does not match|mismatch|not enough)", "cause", "job", 0.8,
        summary="the parallel layout does not fit the number of processes",
        explain="More parallelism is asked for than there are ranks, or it does not multiply up.",
        do="Make the product of the parallel sizes equal to the world size.",
        source="Megatron-LM, DeepSpeed, vLLM and others", order=2,
        sample="RuntimeError: world_size (4) is less than tensor_model_parallel_size 8",
        counter_sample="world_size 8, parallel_size 8",
    ),
    Rule(
        "config.deepspeed_batch", "config",
        (b"Check batch related parameters", b"DeepSpeedConfigError",
         b"Either train_batch_size or train_micro_batch_size", b"train_batch_size is not equal"),
        b"Check batch related parameters|DeepSpeedConfigError|Either train_batch_size or "
        b"train_micro_batch|train_batch_size is not equal", "cause", "job", 0.88,
        summary="DeepSpeed's batch sizes do not multiply up",
        explain="train_batch_size = micro batch × accumulation × world size must hold.",
        do="Correct ds_config for this number of GPUs.", source="DeepSpeed, runtime/config.py", order=3,
        sample="AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu "
               "* gradient_acc_step * world_size 32 != 2 * 1 * 8",
        counter_sample="train_batch_size 32",
    ),
    Rule(
        "config.lightning", "config", (b"MisconfigurationException",), b"MisconfigurationException: (?P<why>.{0,200})",
        "cause", "job", 0.82, summary="Lightning refuses the settings: {why}",
        explain="Trainer arguments do not fit each other or the machine.", do="Correct them.",
        source="PyTorch Lightning", order=2,
        sample="lightning.fabric.utilities.exceptions.MisconfigurationException: No supported gpu backend found!",
        counter_sample="lightning.fabric: supported gpu backend found, the configuration is fine",
    ),
    Rule(
        "config.hf_trainer", "config",
        (b"max_steps has to be specified", b"requires an eval_dataset", b"load_best_model_at_end requires",
         b"mixed precision training with AMP", b"FP16 Mixed precision", b"BF16 Mixed precision", b"bf16/gpu", b"fsdp"),
        b"max_steps has to be specified|requires an eval_dataset|load_best_model_at_end requires|Your setup "
        b"doesn't support bf16|(?:FP16|BF16) Mixed precision training with AMP", "cause", "job", 0.8,
        summary="the Trainer refuses its arguments",
        explain="TrainingArguments do not fit each other, the data or the card.", do="Correct them.",
        source="transformers, Trainer", order=2,
        sample="ValueError: FP16 Mixed precision training with AMP or APEX (`--fp16`) can only be used on CUDA devices",
        counter_sample="mixed precision training (`--bf16`) is used on CUDA devices",
    ),
    Rule(
        "config.vllm", "config",
        (b"model's max seq len", b"maximum number of tokens that can be stored in KV cache",
         b"is greater than the derived max_model_len", b"No available memory for the cache blocks",
         b"less than desired GPU memory utilization", b"is larger than the maximum number of tokens"),
        b"model's max seq len|is greater than the derived max_model_len|No available memory for the cache "
        b"blocks|less than desired GPU memory utilization|larger than the maximum number of tokens", "cause", "job",
        0.72, summary="the model's context does not fit the cache memory",
        explain="The KV cache that is left is smaller than one sequence.",
        do="Smaller max_model_len, larger gpu_memory_utilization, more tensor parallelism; look for other "
           "processes on the card.", source="vLLM", order=2,
        sample="ValueError: The model's max seq len (32768) is larger than the maximum number of tokens that can be "
               "stored in KV cache (8192).",
        counter_sample="KV cache: 8192 tokens",
    ),
    Rule(
        "config.megatron", "config",
        (b"AnnealingLR: ", b"OptimizerParamScheduler: ", b"--use-checkpoint-args", b"micro batch size",
         b"number of microbatches"),
        b"(?:AnnealingLR|OptimizerParamScheduler): class input value|AssertionError.{0,300}?(?:micro[ "
        b"-]?batch|microbatches)", "cause", "job", 0.82, summary="Megatron refuses its arguments",
        explain="Sizes or schedules do not fit each other or the checkpoint.", do="Correct them.", source="Megatron-LM",
        order=2,
        sample="AssertionError: number of microbatches (3) is not what pipelining needs",
        counter_sample="number of microbatches: 8",
    ),
    Rule(
        "config.dtype", "config",
        (b"is only supported on GPUs with compute", b"Bfloat16 is only supported", b"does not support bfloat16",
         b"not support bfloat16"), b"[Bb]f(?:loat)?16 is only supported on GPUs|does(?:n't| not) support bf(?:loat)?16",
        "cause", "job", 0.78, summary="the card does not know bfloat16", explain="bf16 needs compute capability 8.0.",
        do="Use fp16 or other cards.", source="vLLM; transformers", order=3,
        sample="ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0.",
        counter_sample="bfloat16 is in use",
    ),
    Rule(
        "config.script_missing", "config", (b"can't open file",), rb"can't open file '(?P<path>[^']*)': \[Errno 2\]",
        "cause", "job", 0.85, summary="the script {path} does not exist",
        explain="A wrong path, or another working folder on the node.", do="Correct the path.", source="CPython",
        order=2,
        sample="python: can't open file '/home/u/trian.py': [Errno 2] No such file or directory",
        counter_sample="opened file '/home/u/train.py'",
    ),
    Rule(
        "config.no_such_file", "config", (b"No such file or directory",),
        rb"FileNotFoundError: \[Errno 2\] No such file or directory: '(?P<path>[^']*)'", "cause", "job", 0.66,
        summary="{path} does not exist",
        explain="A wrong path, another working folder, or the file system is not mounted on that node.",
        do="Check the path on that node.", source="CPython", order=1,
        sample="FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'",
        counter_sample="/data/train.bin exists",
    ),
)
