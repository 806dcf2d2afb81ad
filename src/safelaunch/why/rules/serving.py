"""Servers of language models: what vLLM, SGLang and their like say when a worker of theirs has died."""

from __future__ import annotations

from safelaunch.why.findings import Rule

_WRAPPED = "The server reports that a worker failed; the worker's own lines say why."

RULES = (
    Rule(
        "serving.wrapper", "user_code",
        (b"Engine core initialization failed", b"WorkerProc initialization failed", b"Engine process failed to start",
         b"EngineDeadError", b"EngineCore encountered", b"MQEngineDeadError", b"AsyncEngineDeadError",
         b"Background loop has errored", b"Got fatal signal from worker processes", b"Engine loop is not running",
         b"died unexpectedly", b"EngineGenerateError", b"Worker proc ", b"Engine core proc"),
        rb"Engine core initialization failed|WorkerProc initialization failed|Engine process failed to start"
        rb"|EngineDeadError|EngineCore encountered|Background loop has errored|fatal signal from worker processes"
        rb"|Engine loop is not running|(?:Engine core proc|Worker proc|Worker) \S+ died unexpectedly"
        rb"|EngineGenerateError", "symptom", "nobody", 0.3, summary="the server lost its engine", explain=_WRAPPED,
        source="vLLM", order=4,
        sample="RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
        counter_sample="the engine core is up",
    ),
    Rule(
        "serving.sglang_memory", "cuda_oom",
        (b"Not enough memory. Please try", b"KV Cache Pool leak detected", b"try to increase --mem-fraction-static",
         b"Capture cuda graph failed", b"Capture CUDA graph failed", b"out of memory happens"),
        rb"Not enough memory\. Please try|try to increase --mem-fraction-static|out of memory happens", "cause", "rank",
        0.72, summary="the card has too little memory for the server's pools",
        explain="Weights, cache and graphs together do not fit.",
        do="Lower --mem-fraction-static or the batch of CUDA graphs; more tensor parallelism.", source="SGLang",
        order=2,
        sample="RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        counter_sample="memory is enough",
    ),
    Rule(
        "serving.graph_capture", "native_crash",
        (b"apture cuda graph failed", b"apture CUDA graph failed", b"operation not permitted when stream is capturing",
         b"operation failed due to a previous error during capture"),
        b"[Cc]apture (?:cuda|CUDA) graph failed|stream is capturing|previous error during capture", "symptom", "rank",
        0.45, summary="the capture of CUDA graphs failed",
        explain="The line says which error came before; often memory.",
        do="Try without CUDA graphs (--enforce-eager, --disable-cuda-graph).", source="vLLM; SGLang", order=1,
        sample="Exception: Capture cuda graph failed: something in the kernel",
        counter_sample="Capture cuda graph begin. This can take up to several minutes.",
    ),
    Rule(
        "serving.watchdog", "hang",
        (b"Watchdog timeout", b"watchdog timeout", b"No available shared memory broadcast block",
         b"RPC call to execute_model timed out", b"execute_model timed out", b"sample_tokens timed out"),
        rb"[Ww]atchdog timeout|RPC call to \w+ timed out", "symptom", "rank", 0.66,
        summary="a worker of the server does not answer", explain="It hangs in a kernel or a collective.",
        do="py-spy dump of every worker.", source="SGLang; vLLM", order=1,
        sample="Watchdog timeout (self.watchdog_timeout=300)",
        counter_sample="Watchdog started (self.watchdog_timeout=300)",
    ),
    Rule(
        "serving.unsupported_model", "config",
        (b"are not supported for now", b"Model architectures [", b"is not supported on this",
         b"Cannot find the config file for", b"Unknown quantization method", b"does not recognize this architecture",
         b"head size"),
        rb"Model architectures? .{0,300}?(?:not supported|failed to be inspected)|Unknown quantization method"
        rb"|does not recognize this architecture|[Hh]ead size \d+ is not supported", "cause", "job", 0.72,
        action="fix_environment", summary="this version does not know the model or its format",
        explain="A newer release of the library may; or the format is wrong.",
        do="Update the library, or choose another format.", source="vLLM; SGLang; transformers", order=2,
        sample="ValueError: Model architectures ['FooForCausalLM'] are not supported for now.",
        counter_sample="Model architectures ['LlamaForCausalLM']",
    ),
    Rule(
        "serving.weights_unknown", "checkpoint",
        (b"is not in the model", b"There is no module or parameter named", b"Following weights were not initialized",
         b"weights were not initialized from checkpoint"),
        b"There is no module or parameter named '(?P<name>[^']*)'|Following weights were not initialized from "
        b"checkpoint", "cause", "job", 0.74, action="fix_environment",
        summary="the weights do not fit the model's code: {name}",
        explain="The checkpoint was saved for another version of the model's code.",
        do="Use the versions that belong together.", source="vLLM", order=2,
        sample="ValueError: There is no module or parameter named 'lm_head.qweight' in LlamaForCausalLM",
        counter_sample="there are 8 modules",
    ),
)
