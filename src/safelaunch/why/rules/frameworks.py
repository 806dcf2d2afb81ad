"""Training frameworks: DDP, FSDP, DeepSpeed, Megatron-LM, Lightning, accelerate, JAX, TensorFlow."""

from __future__ import annotations

from safelaunch.why.findings import Rule

RULES = (
    Rule(
        "ddp.unused", "user_code",
        (b"Expected to have finished reduction in the prior iteration", b"Expected to mark a variable ready only once"),
        b"Expected to have finished reduction in the prior iteration|Expected to mark a variable ready only once",
        "cause", "job", 0.84, summary="DDP: a parameter took no part in the loss, or two parts",
        explain="Branches of the model that are not used in each step.",
        do="find_unused_parameters=True, or make the graph the same in each step; static_graph with checkpointing.",
        source="PyTorch, reducer.cpp", order=2,
        sample="RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.",
        counter_sample="finished the reduction",
    ),
    Rule(
        "ddp.shapes", "user_code",
        (b"DDP expects same model across all ranks", b"appears not to match sizes of the same param",
         b"Tensors must have same number of dimensions", b"but got size "),
        b"DDP expects same model across all ranks|appears not to match sizes of the same param", "cause", "job", 0.76,
        summary="the ranks hold different models",
        explain="Sizes differ between ranks: another vocabulary, seed or code.",
        do="Make each rank build the same model.", source="PyTorch, DDP", order=2,
        sample="RuntimeError: DDP expects same model across all ranks, but Rank 0 has 80 params, while rank 1 has "
               "inconsistent 81 params.",
        counter_sample="DDP: the same model across all ranks, Rank 0 has 80 params",
    ),
    Rule(
        "torch.device_mismatch", "user_code",
        (b"to be on the same device", b"should be the same", b"but found at least two devices"),
        rb"to be on the same device|Input type \(\S+ and weight type|found at least two devices", "cause", "job", 0.84,
        summary="tensors of one operation are on different devices or of different types",
        explain="A tensor was not moved.", do="Move it to the device of the others.", source="PyTorch", order=2,
        sample="RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 "
               "and cpu!",
        counter_sample="all tensors are on the same device, cuda:0",
    ),
    Rule(
        "torch.shape", "user_code",
        (b"shapes cannot be multiplied", b"must match the size of tensor", b"is invalid for input of size",
         b"Sizes of tensors must match", b"size mismatch, ", b"The expanded size of the tensor",
         b"expected scalar type", b"must have the same dtype", b"Given groups=", b"not aligned"),
        rb"shapes cannot be multiplied|must match the size of tensor|is invalid for input of size"
        rb"|Sizes of tensors must match|The expanded size of the tensor|expected scalar type \w+ but"
        rb"|must have the same dtype|Given groups=\d+, weight of size|Expected input batch_size", "cause", "job", 0.78,
        summary="tensors of unfitting shape or type", explain="The program's own sizes do not agree.",
        do="Print the shapes at the deepest frame.", source="PyTorch", order=2,
        sample="RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x16 and 32x8)",
        counter_sample="mat1 and mat2 shapes can be multiplied (8x16 and 16x8)",
    ),
    Rule(
        "torch.autograd", "user_code",
        (b"modified by an inplace operation", b"Trying to backward through the graph a second time",
         b"does not require grad and does not have a grad_fn", b"grad can be implicitly created only for scalar"),
        b"modified by an inplace operation|backward through the graph a second time|does not require grad and does "
        b"not have a grad_fn|grad can be implicitly created only", "cause", "job", 0.84,
        summary="the backward pass is not possible as programmed", explain="Autograd refuses the graph.",
        do="torch.autograd.set_detect_anomaly(True) names the operation.", source="PyTorch, autograd", order=2,
        sample="RuntimeError: one of the variables needed for gradient computation has been modified by an inplace "
               "operation: [torch.cuda.FloatTensor [8]]",
        counter_sample="RuntimeErrors: none; variables needed for gradient computation are kept",
    ),
    Rule(
        "torch.fork", "user_code",
        (b"Cannot re-initialize CUDA in forked subprocess", b"An attempt has been made to start a new process before"),
        b"Cannot re-initialize CUDA in forked subprocess|An attempt has been made to start a new process before",
        "cause", "job", 0.84, summary="CUDA or processes are started in a forked child",
        explain="CUDA does not survive fork.", do="Use the spawn start method, under `if __name__ == '__main__'`.",
        source="PyTorch, CPython multiprocessing", order=2,
        sample="RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you "
               "must use the 'spawn' start method",
        counter_sample="CUDA is initialized in the parent, no forked subprocess uses it",
    ),
    Rule(
        "triton.compile", "environment",
        (b"triton.compiler", b"CompilationError", b"OutOfResources", b"PTXASError", b"out of resource: shared memory"),
        rb"triton\.\S{0,80}(?:CompilationError|PTXASError)|OutOfResources|out of resource: shared memory",
        "cause", "job",
        0.66, action="fix_config", summary="a Triton kernel cannot run on this card",
        explain="It does not compile, or needs more shared memory than the card has.",
        do="Other block sizes, another Triton, or another card.", source="Triton", order=2,
        sample="triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 180224, Hardware "
               "limit: 101376.",
        counter_sample="triton: shared memory, Required: 18432, Hardware limit: 101376",
    ),
    Rule(
        "deepspeed.op", "environment",
        (b"Unable to JIT load the", b"installed but not compatible", b"DeepSpeed Op Builder", b"CUDAMismatchException",
         b"Installed CUDA version"),
        rb"Unable to JIT load the (?P<name>\S+) op|CUDAMismatchException|Installed CUDA version \S+ does not match",
        "cause", "job", 0.78, summary="DeepSpeed cannot build its operator {name}",
        explain="nvcc, CUDA_HOME or the versions do not fit.",
        do="ds_report; DS_SKIP_CUDA_CHECK=1 for a minor difference.", source="DeepSpeed, op_builder", order=3,
        sample="RuntimeError: Unable to JIT load the fused_adam op due to it not being compatible due to "
               "hardware/software issue.",
        counter_sample="loaded the fused_adam op",
    ),
    Rule(
        "tokenizer.missing", "environment",
        (b"Couldn't instantiate the backend tokenizer", b"requires the SentencePiece library",
         b"requires the protobuf library", b"You need to install sentencepiece", b"requires the following packages"),
        rb"Couldn't instantiate the backend tokenizer|requires the (?:SentencePiece|protobuf|\w+) library"
        rb"|You need to install sentencepiece|requires the following packages", "cause", "job", 0.82,
        summary="a package that the tokenizer or model needs is missing", explain="It is an optional dependency.",
        do="Install it.", source="transformers", order=2,
        sample="ValueError: Couldn't instantiate the backend tokenizer from one of: a tokenizers library "
               "serialization file",
        counter_sample="instantiated the backend tokenizer from a tokenizers library serialization file",
    ),
    Rule(
        "tokenizer.pad", "config",
        (b"Asking to pad but the tokenizer does not have a padding token", b"tokenizer.chat_template is not set"),
        rb"tokenizer does not have a padding token|tokenizer\.chat_template is not set",
        "cause", "job", 0.74, action="fix_user_code",
        summary="the tokenizer lacks what the program needs: {line}",
        explain="Without a padding token batches cannot be padded, without a template chats cannot be written out.",
        do="tokenizer.pad_token = tokenizer.eos_token; or name a chat template.", source="transformers", order=2,
        sample="ValueError: Asking to pad but the tokenizer does not have a padding token.",
        counter_sample="the padding token is 0",
    ),
    Rule(
        "hf.architecture", "version_mismatch",
        (b"but Transformers does not recognize this architecture", b"does not recognize this architecture",
         b"Tokenizer class ", b"KeyError: 'llama", b"KeyError: 'qwen", b"KeyError: 'mistral", b"KeyError: 'gemma"),
        rb"Tokenizer class \S+ does not exist|Transformers does not recognize this architecture"
        rb"|^KeyError: '(?P<name>llama|qwen|mistral|gemma)\w*'", "cause", "job", 0.78,
        summary="this transformers does not know the model", explain="The model is newer than the library.",
        do="Update transformers.", source="transformers", order=3,
        sample="ValueError: The checkpoint you are trying to load has model type `foo` but Transformers does not "
               "recognize this architecture.",
        counter_sample="the architecture is llama",
    ),
    Rule(
        "lightning.devices", "config",
        (b"You requested gpu", b"but your machine only has", b"ou set `devices", b"does not match the number of"),
        rb"You requested gpu|your machine only has|You set `(?:devices|num_nodes|--ntasks"
        rb"|--nodes)\S* in (?:Lightning|SLURM)", "cause", "job", 0.84,
        summary="devices and nodes of Lightning do not fit the job",
        explain="Trainer(devices, num_nodes) must equal Slurm's tasks and nodes.",
        do="Make --ntasks-per-node equal devices.", source="PyTorch Lightning", order=2,
        sample="lightning.fabric.utilities.exceptions.ConfigError: You requested gpu: [4] But your machine only has: "
               "[0, 1]",
        counter_sample="your machine has 8 GPUs",
    ),
    Rule(
        "jax.nccl", "network", (b"NCCL operation ",), rb"NCCL operation \S+ failed: (?P<why>.{0,100})", "symptom",
        "rank", 0.5, summary="NCCL failed under XLA: {why}", explain="NCCL's own WARN lines say why.",
        do="NCCL_DEBUG=WARN.", source="XLA", order=1,
        sample="jaxlib.xla_extension.XlaRuntimeError: INTERNAL: NCCL operation ncclGroupEnd() failed: something",
        counter_sample="the NCCL operation took 8 ms",
    ),
)
