"""Checkpoints and weights: missing, damaged, unfitting."""

from __future__ import annotations

from safelaunch.why.findings import Rule

_BACK = "Go back to the previous good checkpoint; a half-written one is left by a crash or a full disk while saving."
_FIT = "Load with the code, sizes and parallel layout that saved it."

RULES = (
    Rule(
        "checkpoint.size_mismatch", "checkpoint", (b"size mismatch for ",),
        rb"size mismatch for (?P<name>[\w.]+): copying a param with shape", "cause", "job", 0.86,
        action="fix_user_code", summary="checkpoint and model disagree on {name}",
        explain="The model that loads has other sizes than the one that saved.", do=_FIT,
        source="torch.nn.Module.load_state_dict", order=2,
        sample="\tsize mismatch for head.weight: copying a param with shape torch.Size([10, 8]) from checkpoint, the "
               "shape in current model is torch.Size([12, 8]).",
        counter_sample="the sizes match for head.weight",
    ),
    Rule(
        "checkpoint.state_dict", "checkpoint",
        (b"in loading state_dict for", b"Missing key(s) in state_dict", b"Unexpected key(s) in state_dict",
         b"Missing key in checkpoint state_dict"),
        rb"Error\(s\) in loading state_dict for (?P<model>\w+)|(?:Missing|Unexpected) key\(s\) in state_dict"
        rb"|Missing key in checkpoint state_dict", "cause", "job", 0.84, action="fix_user_code",
        summary="the checkpoint does not fit the model {model}",
        explain="Names or sizes differ: another model, another version of its code, a wrapper's prefix.", do=_FIT,
        source="torch.nn.Module.load_state_dict; torch DCP", order=2,
        sample="RuntimeError: Error(s) in loading state_dict for GPT:", counter_sample="loading state_dict for GPT",
    ),
    Rule(
        "checkpoint.damaged", "checkpoint",
        (b"Invalid magic number", b"PytorchStreamReader", b"PytorchStreamWriter",
         b"invalid header or archive is corrupted", b"unexpected EOF, expected", b"failed finding central directory",
         b"SafetensorError", b"MetadataIncompleteBuffer", b"HeaderTooLarge", b"InvalidHeaderDeserialization",
         b"file might be corrupted", b"pickle data was truncated", b"CheckpointCorruptedError", b"HeaderTooSmall"),
        rb"Invalid magic number|PytorchStreamReader failed|invalid header or archive is corrupted"
        rb"|unexpected EOF, expected \d+ more bytes|failed finding central directory|SafetensorError"
        rb"|MetadataIncompleteBuffer|HeaderToo(?:Large|Small)|InvalidHeaderDeserialization|file might be corrupted"
        rb"|pickle data was truncated|CheckpointCorruptedError", "cause", "job", 0.84, action="restart",
        summary="a checkpoint file is damaged or cut off",
        explain="It was not written to its end, or is a pointer file of git-lfs.", do=_BACK,
        source="PyTorch, caffe2/serialize; safetensors; CPython, pickle", order=2,
        sample="RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
        counter_sample="PytorchStreamReader has read 3 records",
    ),
    Rule(
        "checkpoint.write_failed", "storage", (b"PytorchStreamWriter", b"unexpected pos "),
        rb"PytorchStreamWriter failed|inline_container\S{0,60}: .{0,300}?unexpected pos|unexpected pos \d+ vs \d+",
        "cause",
        "node", 0.75, summary="a checkpoint could not be written", explain="Most often the disk or the quota is full.",
        do="Check space and quota of the checkpoint folder.", source="PyTorch, caffe2/serialize", order=3,
        sample="RuntimeError: [enforce fail at inline_container.cc:595] . unexpected pos 8064 vs 7958",
        counter_sample="RuntimeError: [enforce succeeded at inline_container.cc:595] . position 8064",
    ),
    Rule(
        "checkpoint.weights_only", "checkpoint", (b"Weights only load failed",), b"Weights only load failed", "cause",
        "job", 0.7, action="fix_user_code", summary="torch.load refuses the file (weights_only)",
        explain="Since PyTorch 2.6 torch.load takes tensors only by default; the file holds other objects.",
        do="weights_only=False for files you trust, or add_safe_globals.", source="torch.load", order=3,
        sample="_pickle.UnpicklingError: Weights only load failed. This file can still be loaded",
        counter_sample="weights only: True",
    ),
    Rule(
        "checkpoint.no_weights", "checkpoint",
        (b"Error no file named ", b"does not appear to have a file named",
         b"Unable to load weights from pytorch checkpoint", b"no checkpoint found", b"No checkpoint found",
         b"Checkpoint not found", b"No valid checkpoint", b"Can't find a valid checkpoint",
         b"is not a checkpoint or a directory", b"Cannot find any model weights", b"could not find a checkpoint"),
        rb"Error no file named (?P<name>\S+?),? |does not appear to have (?:a file|files) named (?P<name2>[\w./-]+)"
        rb"|Unable to load weights from pytorch checkpoint|Can't find a valid checkpoint"
        rb"|is not a checkpoint or a directory|Cannot find any model weights|(?:Error|Exception): .{0,300}?(?:no"
        rb"|No) (?:valid )?checkpoint found|(?:Error|Exception): .{0,300}?Checkpoint (?:file )?not found", "cause",
        "job", 0.8, action="fix_config", summary="the weights are not there: {name}{name2}",
        explain="The model folder has no such file: an incomplete download or a wrong path.",
        do="Look into the folder; download again.", source="transformers; vLLM", order=2,
        sample="OSError: Error no file named pytorch_model.bin, model.safetensors found in directory /models/x.",
        counter_sample="found model.safetensors in directory /models/x",
    ),
    Rule(
        "checkpoint.megatron_args", "config", (b"value from checkpoint", b"checkpointvalue", b"checkpoint value"),
        rb"(?:value from checkpoint|checkpoint ?value) ?\(?(?P<saved>[^)\s]+)\)? .{0,300}?(?:is not equal to"
        rb"|do not match|for )", "cause", "job", 0.8, summary="an argument differs from the one in the checkpoint",
        explain="Megatron compares the arguments with those that were saved.",
        do="Use the saved value, or override (--override-opt_param-scheduler, --use-checkpoint-args).",
        source="Megatron-LM, check_checkpoint_args and OptimizerParamScheduler", order=2,
        sample="AssertionError: num_layers value from checkpoint (24) is not equal to the input argument value (32).",
        counter_sample="num_layers value from checkpoint: 24",
    ),
    Rule(
        "checkpoint.from_scratch", "checkpoint",
        (b"will not load any checkpoints", b"could not find the metadata file"),
        b"will not load any checkpoints and will start from random|could not find the metadata file", "context",
        "nobody", 0.3, summary="no checkpoint was loaded: the training starts from random",
        explain="The load folder has no tracker file.", source="Megatron-LM, checkpointing.py",
        sample="    will not load any checkpoints and will start from random",
        counter_sample="loading checkpoint from ckpt",
    ),
    Rule(
        "ckpt.dcp", "checkpoint",
        (b"CheckpointException", b"Size mismatch between saved", b"do not match",
         b"is not compatible with the stored shape"),
        rb"CheckpointException(?:: | ranks)|Size mismatch between saved|on-disk value metadata tree structures "
        rb"do not match|is not compatible with the stored shape",
        "cause", "job", 0.78,
        summary="the checkpoint does not fit the model",
        explain="Names or sizes differ between what is saved and what is asked for.",
        do=_FIT,
        source="torch.distributed.checkpoint; Orbax", order=4,
        sample="ValueError: Size mismatch between saved torch.Size([32000]) and current: torch.Size([32064]) for embed",
        counter_sample="sizes saved and current match",
    ),
    Rule(
        "ckpt.optimizer_key", "checkpoint",
        (b"KeyError: 'optim", b"KeyError: 'state_dict", b"KeyError: 'model_state", b"KeyError: 'lr_sched",
         b"of *_optim_states.pt", b"_optim_states.pt but"),
        rb"KeyError: '(?P<name>optimizer\w*|optim_state\w*|state_dict|model_state\w*|lr_scheduler\w*)'"
        rb"|expected \d+ of \*?_?optim_states",
        "cause", "job", 0.68,
        summary="the checkpoint lacks a part: {name}",
        explain="It was saved by other code, or only in part.",
        do=_FIT,
        source="PyTorch, Lightning, DeepSpeed", order=3,
        sample="KeyError: 'optimizer_states'", counter_sample="KeyError: 'name'",
    ),
    Rule(
        "ckpt.args", "checkpoint",
        (b"from the checkpoint", b"from checkpoint", b"checkpoint args"),
        rb"(?:Error|Exception): .{0,100}?checkpoint arg.{0,100}?\bgot\b|(?:Error|Exception): .{0,200}?\bgot "
        rb".{0,40}? from (?:the )?checkpoint",
        "cause", "job", 0.74,
        summary="the checkpoint was made with other arguments",
        explain="Layers, sizes or the layout differ.",
        do=_FIT,
        source="Megatron-LM", order=3,
        sample="AssertionError: expected checkpoint args num_layers = 24, got 32 from the checkpoint",
        counter_sample="using args from the checkpoint",
    ),
    Rule(
        "checkpoint.checksum", "checkpoint", (b"ecksum mismatch", b"hash mismatch", b"igest mismatch", b"ecksum error"),
        rb"(?:[Cc]hecksum|[Hh]ash|[Dd]igest) (?:mismatch|error).{0,200}?(?:ckpt|checkpoint|safetensors|\.pth?\b|shard)",
        "cause", "job", 0.82, summary="a file of the checkpoint is damaged: {line}",
        explain="Its content is not what was written.", do="Go back to an older checkpoint.", source="various trainers",
        sample="checksum mismatch for /ckpt/step_900/model-00003.safetensors: expected 9f1c, got 00b1",
        counter_sample="checksum matches for /ckpt/step_900/model-00003.safetensors",
    ),
    Rule(
        "checkpoint.shard_missing", "checkpoint", (b"hard file", b"missing shards", b"hards are missing"),
        rb"[Ss]hard file \S{1,200} (?:is missing|not found|does not exist)|missing shards|[Ss]hards are missing",
        "cause", "job", 0.78, summary="a part of the checkpoint is missing: {line}",
        explain="It was not written, or not copied.",
        do="Go back to an older checkpoint.", source="transformers; torch.distributed.checkpoint",
        sample="OSError: Shard file model-00003-of-00008.safetensors is missing",
        counter_sample="Shard file model-00003-of-00008 is there",
    ),
)
