"""GPUs: the driver's Xid lines, ECC, NVLink, CUDA errors, memory of the card."""

from __future__ import annotations

from safelaunch.why.findings import Rule

_XID_SOURCE = "NVIDIA driver, NVRM kernel log; classes: NVIDIA Xid Errors guide"
# The device is followed by "GPU-I:05" when it is cut into MIG slices.
_XID = rb"Xid \((?:PCI:)?(?P<device>[0-9A-Fa-f:.]+)(?: GPU-I:\d+)?\): (?P<xid>%s)\b(?:, )?(?P<what>.*)"
_CUDA = "CUDA runtime, cudaGetErrorString"
_RETIRE = "Keep the node out, reset the GPU or reboot; give the line to the site's admins (`why --ticket`)."
_HELD = ("Look for left-over processes on the node (nvidia-smi; fuser -v /dev/nvidia*), and have them ended; until "
         "then keep the node out.")

RULES = (
    # 48 double-bit ECC, 64 a row remap or page retirement that failed, 74 NVLink, 79 off the bus, 92 ECC rate, 94/95
    # (un)contained ECC, 110 security fault, 119/120 GSP, 121 C2C link, 122-126 SPI and inforom, 136 link training, 140
    # ECC, 143 init, 144-150 NVLink and fabric, 154 recovery action. node/checks/witnesses.py has the same classes.
    Rule(
        "gpu.xid_hardware", "gpu_hardware", (b"Xid (",),
        _XID % rb"48|64|74|79|92|9[45]|110|119|12[0-6]|136|14[03-9]|15[0456]", "cause", "node", 0.95,
        summary="Xid {xid} on GPU {device}: {what}",
        explain="The driver reports a fault of the card, its memory or its links.", do=_RETIRE, source=_XID_SOURCE,
        sample="[81.2] NVRM: Xid (PCI:0000:4e:00): 79, pid=4242, name=python, GPU has fallen off the bus.",
        counter_sample="[81.2] NVRM: Xid (PCI:0000:4e:00): 31, pid=4242, Ch 00000008, MMU Fault",
    ),
    Rule(
        "gpu.xid_doubtful", "gpu_hardware", (b"Xid (",), _XID % rb"8|3[28]|5[67]|6[1256]|69|109|1[01]1|137", "cause",
        "node", 0.6, summary="Xid {xid} on GPU {device}: {what}",
        explain="The driver reports a fault that a sick card or a program's mistake can cause.",
        do="Run a GPU check on the node; a second one of these on the same node speaks against the node.",
        source=_XID_SOURCE,
        sample="NVRM: Xid (PCI:0000:4e:00): 62, pid=4242, 2027(2d50) 00000000 00000000",
        counter_sample="NVRM: Xid (PCI:0000:4e:00): 620",
    ),
    Rule(
        "gpu.xid_remapped", "gpu_hardware", (b"Xid (",), _XID % rb"63", "cause", "node", 0.6,
        summary="Xid {xid} on GPU {device}: {what}",
        explain="The driver has replaced bad memory of the card. That ends no program; the error before it may have.",
        do="Look for Xid 48, 94 or 95 of that GPU, and have it reset before the next training.", source=_XID_SOURCE,
        sample="NVRM: Xid (PCI:0000:4e:00): 63, pid=4242, name=python, Row Remapper: New row marked for remapping, "
               "reset gpu to activate.",
        counter_sample="NVRM: Xid (PCI:0000:4e:00): 64, pid=4242, name=python",
    ),
    Rule(
        "gpu.xid_program", "native_crash", (b"Xid (",), _XID % rb"13|31|68|80", "symptom", "rank", 0.6,
        summary="Xid {xid} on GPU {device}: {what}",
        explain="A kernel touched memory it may not touch; nearly always the program, seldom the card.",
        do="Repeat with CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer; suspect the card only if other programs fail "
           "on it.", source=_XID_SOURCE,
        sample="NVRM: Xid (PCI:0000:4e:00): 31, pid=4242, name=python, Ch 00000008, MMU Fault: ENGINE GRAPHICS",
        counter_sample="NVRM: Xid (PCI:0000:4e:00): 79",
    ),
    Rule(
        "gpu.xid_aftermath", "native_crash", (b"Xid (",), _XID % rb"4[357]|44", "teardown", "nobody", 0.3,
        summary="Xid {xid} on GPU {device}", explain="The driver ended or cleaned up a GPU context after a fault.",
        source=_XID_SOURCE,
        sample="NVRM: Xid (PCI:0000:4e:00): 45, pid=4242, name=python, Ch 00000008",
        counter_sample="NVRM: Xid (PCI:0000:4e:00): 48",
    ),
    Rule(
        "gpu.sxid_fatal", "gpu_hardware", (b"SXid (",),
        rb"SXid \((?:PCI:)?(?P<device>[0-9a-fA-F:.]+)\): (?P<xid>\d+), Fatal", "cause", "node", 0.95,
        summary="NVSwitch {device}: fatal SXid {xid}",
        explain="An NVSwitch reports a fatal fault; every GPU behind it is affected.", do=_RETIRE,
        source="nvidia-nvswitch kernel driver; NVIDIA Fabric Manager guide",
        sample="nvidia-nvswitch3: SXid (PCI:0000:85:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
        counter_sample="nvidia-nvswitch3: SXid (PCI:0000:85:00.0): 22013, Non-fatal, Link 27 DLREQ",
    ),
    Rule(
        "gpu.off_bus", "gpu_hardware", (b"fallen off the bus", b"GPU is lost", b"GPU is lost.  Reboot"),
        b"fallen off the bus|GPU is lost", "cause", "node", 0.95, summary="a GPU has fallen off the bus",
        explain="The card does not answer on PCIe any more.", do=_RETIRE, source="NVIDIA driver; nvidia-smi",
        sample="NVRM: GPU 0000:4e:00.0: GPU has fallen off the bus.",
        counter_sample="NVRM: GPU 0000:4e:00.0: GPU is on the bus again after its reset",
    ),
    Rule(
        "gpu.smi_lost", "gpu_hardware",
        (b"Critical Xid", b"Unable to determine the device handle for", b"NVIDIA-SMI has failed because",
         b"GPU requires reset", b"No devices were found"),
        b"Critical Xid Error|Unable to determine the device handle for|NVIDIA-SMI has failed because|GPU requires "
        b"reset|^(?:nvidia-smi: )?No devices were found", "cause", "node", 0.85,
        summary="nvidia-smi cannot reach a GPU", explain="The driver or a card of this node does not answer.",
        do=_RETIRE, source="nvidia-smi",
        sample="NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
        counter_sample="NVIDIA-SMI 550.54 communicates with the NVIDIA driver",
    ),
    Rule(
        "gpu.ecc", "gpu_hardware",
        (b"uncorrectable ECC error", b"cudaErrorECCUncorrectable", b"CUDA_ERROR_ECC_UNCORRECTABLE"),
        b"uncorrectable ECC error|cudaErrorECCUncorrectable|CUDA_ERROR_ECC_UNCORRECTABLE", "cause", "node", 0.95,
        summary="uncorrectable ECC error of a GPU", explain="The card's memory holds an error that it cannot correct.",
        do=_RETIRE, source=_CUDA, order=3,
        sample='Traceback (most recent call last):\n  File "t.py", line 1, in f\n    x()\nRuntimeError: CUDA error: '
               "uncorrectable ECC error encountered",
        counter_sample="Volatile ECC errors: uncorrectable 0, corrected 2",
    ),
    Rule(
        "gpu.row_remap", "gpu_hardware", (b"Row remapping failure", b"row remapping failure"),
        b"[Rr]ow remapping failure", "cause", "node", 0.9, summary="a GPU could not replace bad memory",
        explain="The card has no row left for bad memory; it has to be replaced.", do=_RETIRE, source=_XID_SOURCE,
        sample="nvidia-smi: Row remapping failure occurred on GPU 3",
        counter_sample="nvidia-smi: Row remapping: 0 rows remapped on GPU 3",
    ),
    Rule(
        "gpu.nvlink", "gpu_hardware",
        (b"uncorrectable NVLink error", b"cudaErrorNvlinkUncorrectable", b"CUDA_ERROR_NVLINK_UNCORRECTABLE"),
        b"uncorrectable NVLink error|NvlinkUncorrectable|NVLINK_UNCORRECTABLE", "cause", "node", 0.95,
        summary="uncorrectable NVLink error", explain="A link between GPUs of this node fails.", do=_RETIRE,
        source=_CUDA, order=3,
        sample="RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution",
        counter_sample="NVLink is active on 18 links: no uncorrectable errors",
    ),
    Rule(
        "gpu.unknown_error", "gpu_hardware",
        (b"CUDA error: unknown error", b"CUDA_ERROR_UNKNOWN", b"failure 999 'unknown error'"),
        rb"CUDA error: unknown error|CUDA_ERROR_UNKNOWN\b|failure 999 'unknown error'", "cause", "node", 0.72,
        summary="CUDA answers with an unknown error",
        explain="The driver lost the card in a way it has no name for; most often a dying GPU or a node in a bad "
                "state.",
        do="Look for Xid lines in the node's kernel log; keep the node out until it has passed a GPU check.",
        source=_CUDA, order=2,
        sample="RuntimeError: CUDA error: unknown error", counter_sample="CUDA error: invalid argument",
    ),
    Rule(
        "gpu.busy", "gpu_hardware",
        (b"CUDA-capable device(s) is/are busy or unavailable", b"all CUDA-capable devices are busy",
         b"cudaErrorDevicesUnavailable", b"CUDA_ERROR_DEVICE_UNAVAILABLE", b"CUDA error: device busy",
         b"exclusive-thread device already in use"),
        rb"CUDA-capable devices?(?:\(s\))? (?:is/)?are busy or unavailable|cudaErrorDevicesUnavailable"
        rb"|CUDA_ERROR_DEVICE_UNAVAILABLE|CUDA error: device busy|exclusive-thread device already in use",
        "cause", "node", 0.7,
        summary="a GPU is busy or unavailable: another process holds it",
        explain="Another process holds the card in exclusive mode, or a broken context has not been cleaned up.",
        do=_HELD, source=_CUDA, order=2,
        sample="RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        counter_sample="CUDA-capable device(s) is/are idle and available",
    ),
    Rule(
        "gpu.in_use", "gpu_hardware",
        (b"n use by another client", b"used by another client", b"in use by one or more other", b"NVML_ERROR_IN_USE",
         b"in use by another process"),
        rb"[Ii]n use by another client|used by another client|GPU\b.{0,60}in use by (?:one or more )?other"
        rb"|GPU\b.{0,60}in use by another process|NVML_ERROR_IN_USE", "cause", "node", 0.7,
        summary="a GPU is in use by another process",
        explain="NVML refuses: somebody else's process has the card open.", do=_HELD, source="NVML; nvidia-smi",
        order=2,
        sample="Unable to set the mode for GPU 00000000:4E:00.0: In use by another client",
        counter_sample="GPU 00000000:4E:00.0 is in use by this job alone",
    ),
    Rule(
        "gpu.shared_exclusively", "config", (b"xclusive_Process mode", b"XCLUSIVE_PROCESS"),
        rb"[Ee]xclusive_Process mode.{0,80}(?:one|single) (?:context|process)|EXCLUSIVE_PROCESS.{0,80}refused", "cause",
        "job", 0.7, summary="several processes of the training ask for one GPU that takes one only",
        explain="The cards are in exclusive mode, and more than one rank of a node uses the same.",
        do="Give each rank a card of its own: torch.cuda.set_device(local_rank), --gpus-per-task=1.",
        source="nvidia-smi, compute mode", order=2,
        sample="the GPU is in Exclusive_Process mode, which allows one context only",
        counter_sample="compute mode: Default, many contexts are allowed",
    ),
    Rule(
        "gpu.memory_held", "node_failure", (b"this process has ", b" already allocated"),
        rb"out of memory\..{0,300}?total capacity of (?P<all>[\d.]{1,8} GiB).{0,600}?this process has "
        rb"(?P<own>[\d.]{1,8} MiB|\d(?:\.\d{1,3})? GiB) memory|out of memory\..{0,100}?(?P<total>[\d.]{1,8} GiB) "
        rb"total capacity; (?P<part>[\d.]{1,8} MiB|\d(?:\.\d{1,3})? GiB) already allocated", "cause", "node", 0.88,
        summary="another process holds the GPU's memory: this one has {own}{part} of {all}{total}, and it is full",
        explain="The card is full, and this process has next to nothing of it. What is left of another job, or of an "
                "attempt before, holds the rest.", do=_HELD, source="PyTorch, CUDACachingAllocator", order=4,
        sample="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 3 has a total capacity of "
               "79.10 GiB of which 11.38 MiB is free. Process 2505781 has 77.98 GiB memory in use. Including "
               "non-PyTorch memory, this process has 1.08 GiB memory in use.",
        counter_sample="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
                       "capacity of 79.10 GiB of which 1.00 GiB is free. Including non-PyTorch memory, this process "
                       "has 77.98 GiB memory in use.",
    ),
    Rule(
        "gpu.held_at_start", "node_failure", (b"less than desired GPU memory utilization",),
        rb"Free memory on device \S{0,20} ?\((?P<free>[\d.]{1,8})/(?P<all>[\d.]{1,8} GiB)\) on startup is less than "
        rb"desired", "cause", "node", 0.86,
        summary="another process holds the GPU's memory: {free} of {all} were free before this one began",
        explain="vLLM looks at the card before it takes any of it. What is left of another job, or of an attempt "
                "before, holds the rest.", do=_HELD, source="vLLM, request_memory", order=4,
        sample="ValueError: Free memory on device (1.21/79.11 GiB) on startup is less than desired GPU memory "
               "utilization (0.9, 71.2 GiB). Decrease GPU memory utilization or reduce GPU memory used by other "
               "processes.",
        counter_sample="Free memory on device (78.60/79.11 GiB) on startup, desired GPU memory utilization 0.9",
    ),
    Rule(
        "gpu.fabric", "node_failure",
        (b"system not yet initialized", b"cudaErrorSystemNotReady", b"CUDA_ERROR_SYSTEM_NOT_READY"),
        b"system not yet initialized|cudaErrorSystemNotReady|CUDA_ERROR_SYSTEM_NOT_READY", "cause", "node", 0.85,
        summary="CUDA's fabric manager is not running on this node",
        explain="Error 802: NVSwitch machines need nvidia-fabricmanager, which is down or of another version.",
        do="Keep the node out and tell the admins.", source="CUDA runtime; NVIDIA Fabric Manager guide", order=3,
        sample="RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
        counter_sample="cudaGetDeviceCount(): the system is initialized, 8 devices",
    ),
    Rule(
        "gpu.launch_failure", "native_crash",
        (b"unspecified launch failure", b"CUDA_ERROR_LAUNCH_FAILED", b"cudaErrorLaunchFailure"),
        b"unspecified launch failure|CUDA_ERROR_LAUNCH_FAILED|cudaErrorLaunchFailure", "cause", "rank", 0.6,
        summary="a CUDA kernel crashed (unspecified launch failure)",
        explain="A kernel died without a more exact word; the program's mistake more often than the card's.",
        do="Repeat with CUDA_LAUNCH_BLOCKING=1; look for Xid lines.", source=_CUDA, order=2,
        sample="RuntimeError: CUDA error: unspecified launch failure",
        counter_sample="RuntimeErrors by launch failure injection are off, failures are unspecified",
    ),
    Rule(
        "gpu.illegal_access", "native_crash",
        (b"illegal memory access", b"CUDA_ERROR_ILLEGAL_ADDRESS", b"illegal instruction was encountered",
         b"misaligned address", b"Memory access fault by GPU node", b"an illegal address was encountered"),
        b"illegal memory access|ILLEGAL_ADDRESS|illegal instruction was encountered|misaligned address|Memory "
        b"access fault by GPU node", "cause", "rank", 0.75, summary="a GPU kernel touched memory it may not touch",
        explain="A kernel's wrong index or a library's bug; without an Xid of hardware there is no evidence "
                "against the card.", do="Repeat with CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer to find the kernel.",
        source=_CUDA, order=2,
        sample="RuntimeError: CUDA error: an illegal memory access was encountered",
        counter_sample="compute-sanitizer: memory access was checked, nothing illegal was encountered",
    ),
    Rule(
        "gpu.device_assert", "user_code", (b"device-side assert triggered", b"cudaErrorAssert", b"CUDA_ERROR_ASSERT"),
        b"device-side assert triggered|cudaErrorAssert|CUDA_ERROR_ASSERT", "cause", "rank", 0.7,
        summary="an assertion failed inside a GPU kernel",
        explain="Most often an index out of range: a token beyond the vocabulary, a label beyond the classes.",
        do="Read the first `Assertion ... failed` line, or repeat with CUDA_LAUNCH_BLOCKING=1.", source=_CUDA, order=2,
        sample="RuntimeError: CUDA error: device-side assert triggered",
        counter_sample="compile with TORCH_USE_CUDA_DSA to enable device-side assertions to be triggered",
    ),
    Rule(
        "gpu.device_assert_line", "user_code", (b"Assertion `",),
        rb"\.cuh?:\d+: .{0,300}?block: \[\d+,\d+,\d+\], thread: \[\d+,\d+,\d+\] Assertion `(?P<what>.{0,300}?)` failed",
        "cause", "rank", 0.75, summary="an assertion failed inside a GPU kernel: {what}",
        explain="A GPU kernel was handed an index or a value that it refuses.",
        do="Check the labels, token ids and masks that go into this kernel.", source="PyTorch, CUDA_KERNEL_ASSERT",
        sample="../aten/src/ATen/native/cuda/Loss.cu:250: nll_loss_forward_reduce_cuda_kernel_2d: block: [0,0,0], "
               "thread: [3,0,0] Assertion `t >= 0 && t < n_classes` failed.",
        counter_sample="../aten/src/ATen/native/cuda/Loss.cu:250: block: [0,0,0], thread: [3,0,0] Assertion holds",
    ),
    Rule(
        "gpu.bad_ordinal", "config", (b"invalid device ordinal", b"CUDA_ERROR_INVALID_DEVICE"),
        rb"invalid device ordinal|CUDA_ERROR_INVALID_DEVICE\b", "cause", "job", 0.7,
        summary="a process asks for a GPU number that does not exist",
        explain="More processes on a node than GPUs are visible there.",
        do="Make nproc_per_node fit the GPUs of the job; check CUDA_VISIBLE_DEVICES.", source=_CUDA, order=2,
        sample="RuntimeError: CUDA error: invalid device ordinal", counter_sample="CUDA: the device ordinal 3 is valid",
    ),
    Rule(
        "gpu.out_of_memory", "cuda_oom",
        (b"cudaMalloc failed: out of memory", b"CUDA out of memory", b"HIP out of memory", b"CUDA error: out of memory",
         b"cudaErrorMemoryAllocation", b"CUDA_ERROR_OUT_OF_MEMORY", b"failure 2 'out of memory'",
         b"hipErrorOutOfMemory", b"NPU out of memory", b"XPU out of memory"),
        b"cudaMalloc failed: out of memory|(?:CUDA|HIP|NPU|XPU) out of memory|CUDA error: out of "
        b"memory|cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY|failure 2 'out of memory'|hipErrorOutOfMemory",
        "cause", "rank", 0.88, summary="GPU memory is exhausted",
        explain="The model, its batch or its activations do not fit on the card.",
        do="Smaller micro-batch, activation checkpointing, more sharding; "
           "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True against fragmentation. If it worked before on other "
           "nodes, look for left-over processes on the card.", source="PyTorch, CUDACachingAllocator; CUDA runtime",
        order=3,
        sample="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
               "79.11 GiB",
        counter_sample="peak CUDA memory: 71 GiB",
    ),
    Rule(
        "gpu.no_peer_access", "environment", (b"peer access is not supported",), b"peer access is not supported",
        "cause", "job", 0.7, action="fix_config", summary="two cards cannot reach each other's memory",
        explain="PCIe cards under a hypervisor or behind an IOMMU often cannot.",
        do="NCCL_P2P_DISABLE=1, and NCCL_SHM_DISABLE=1 if NCCL's shm transport says it.", source="CUDA, error 217",
        order=4,
        sample="gpu-vm:47:47 [0] transport/shm.cc:590 NCCL WARN Cuda failure 217 'peer access is not supported "
               "between these two devices'",
        counter_sample="peer access is supported between these two devices",
    ),
    Rule(
        "gpu.bare_oom_error", "cuda_oom", (b"OutOfMemoryError", b"OutOfMemory:"),
        rb"(?:torch\.(?:cuda\.)?|jaxlib\.|cupy\.\S{0,60})OutOfMemoryError|cudaErrorOutOfMemory", "cause", "rank", 0.85,
        summary="GPU memory is exhausted", explain="The allocator of the card refused.",
        do="Smaller micro-batch, activation checkpointing, more sharding.", source="PyTorch, torch.OutOfMemoryError",
        order=2,
        sample="jaxlib.OutOfMemoryError: device is full",
        counter_sample="OutOfMemoryError is handled by halving the batch",
    ),
    Rule(
        "gpu.xla_oom", "cuda_oom", (b"RESOURCE_EXHAUSTED", b"Resource exhausted: ", b"OOM when allocating tensor"),
        b"(?:RESOURCE_EXHAUSTED|Resource exhausted): .{0,300}?(?:[Oo]ut of memory(?! allocating)|OOM|while trying to "
        b"allocate|memory space \\w?mem|memory space hbm|[Ff]ailed to allocate|Attempting to (?:reserve|allocate))"
        b"|OOM when allocating tensor", "cause", "rank", 0.85, summary="device memory is exhausted (XLA)",
        explain="XLA or TensorFlow cannot place a tensor on the device.",
        do="Smaller batch, more sharding, rematerialisation; XLA_PYTHON_CLIENT_PREALLOCATE=false shows true use.",
        source="XLA BFC allocator; TensorFlow", order=2,
        sample="jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate "
               "17179869184 bytes.",
        counter_sample="RESOURCE_EXHAUSTED: Quota exceeded for requests",
    ),
    Rule(
        "gpu.lib_alloc", "cuda_oom",
        (b"CUBLAS_STATUS_ALLOC_FAILED", b"CUDNN_STATUS_ALLOC_FAILED", b"CUSOLVER_STATUS_ALLOC_FAILED",
         b"Unable to find a valid cuDNN algorithm", b"CUFFT_ALLOC_FAILED"),
        b"STATUS_ALLOC_FAILED|Unable to find a valid cuDNN algorithm|CUFFT_ALLOC_FAILED", "cause", "rank", 0.7,
        summary="a CUDA library found no GPU memory for its workspace",
        explain="The card is full: the library's workspace came last.", do="As for CUDA out of memory.",
        source="cuBLAS, cuDNN", order=2,
        sample="RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        counter_sample="CUBLAS_STATUS_SUCCESS when calling `cublasCreate(handle)`",
    ),
    Rule(
        "gpu.ecc_page_context", "gpu_hardware", (b"pending page retirement", b"Remapped Rows", b"remapping pending"),
        b"[Pp]ending page retirement|[Rr]emapping pending", "context", "node", 0.4,
        summary="a GPU has memory waiting to be retired", explain="The card has asked for a reset.",
        source="nvidia-smi -q",
        sample="Pending page retirement: Yes; remapping pending",
        counter_sample="Retired pages: 0, none pending; Remapped Rows: 0",
    ),
    Rule(
        "gpu.xid_other", "gpu_hardware", (b"Xid (",), _XID % rb"\d{1,3}", "context", "node", 0.3,
        summary="Xid {xid} on GPU {device}: {what}", explain="An Xid without a class of its own here.",
        source=_XID_SOURCE, order=-1,
        sample="NVRM: Xid (PCI:0000:4e:00): 250, pid=4242, an unknown one",
        counter_sample="NVRM: loading NVIDIA UNIX x86_64 Kernel Module",
    ),
    Rule(
        "gpu.other_error", "native_crash", (b"CUDA error: ", b"HIP error: ", b"Cuda failure "),
        rb"(?:CUDA|HIP) error: (?P<what>.+)|Cuda failure \d* ?'(?P<what2>[^']+)", "cause", "rank", 0.5,
        summary="a GPU call failed: {what}{what2}", explain="An error of the GPU's runtime without a rule of its own.",
        do="Repeat with CUDA_LAUNCH_BLOCKING=1; look for Xid lines.", source="CUDA and HIP runtimes", order=1,
        sample="RuntimeError: HIP error: operation not supported",
        counter_sample="HIP error checks are on: operation supported",
    ),
    Rule(
        "gpu.rocm", "gpu_hardware", (b"amdgpu",),
        rb"amdgpu.{0,300}?(?:GPU reset begin|ring \S+ timeout|uncorrectable hardware errors|\bfatal error\b"
        rb"|RAS.{0,60}?poison)", "cause", "node", 0.8, summary="the AMD GPU driver reports a fault",
        explain="The kernel driver resets or gives up a card.", do=_RETIRE, source="Linux, drivers/gpu/drm/amd",
        sample="amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!",
        counter_sample="amdgpu 0000:c1:00.0: amdgpu: ring gfx uses VM",
    ),
    Rule(
        "gpu.thermal", "gpu_hardware", (b"hermal", b"HW Slowdown"),
        b"GPU.{0,300}?(?:[Tt]hermal (?:violation|slowdown|shutdown)|HW Slowdown)", "context", "node", 0.4,
        summary="a GPU is throttled", explain="Heat or power limits slow a card.", source="NVML; DCGM",
        sample="GPU 00000000:4E:00.0: HW Slowdown active", counter_sample="HW Slowdown: Not Active",
    ),
)
