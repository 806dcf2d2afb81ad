"""Compilers, containers' starts and packages that must be of one age."""

from __future__ import annotations

from safelaunch.why.findings import Rule

RULES = (
    Rule(
        "env.cudnn", "environment",
        (b"unable to find an engine to execute", b"CUDNN_STATUS_SUBLIBRARY", b"Unable to load any of {libcudnn",
         b"Cannot load symbol cudnn", b"CUDNN_STATUS_NOT_SUPPORTED"),
        rb"unable to find an engine to execute this computation|CUDNN_STATUS_SUBLIBRARY\w+|Unable to load any "
        rb"of \{libcud\w+|Cannot load symbol cudnn\w+",
        "cause", "job", 0.68,
        summary="cuDNN does not fit or is incomplete",
        explain="Two releases of cuDNN are mixed, or one of its libraries is not found.",
        do="Remove the other cuDNN from LD_LIBRARY_PATH.",
        source="cuDNN; PyTorch", order=4,
        sample="RuntimeError: GET was unable to find an engine to execute this computation",
        counter_sample="GET was able to find an engine to execute this computation",
    ),
    Rule(
        "env.container_start", "environment",
        (b"enroot-", b"OCI runtime", b"exec format error", b"executable file not found", b"create user namespace",
         b"failed to create container"),
        rb"enroot-\w+: (?:failed|.{0,100}?(?:not permitted|No such file))|OCI runtime (?:create|exec) failed"
        rb"|exec format error|executable file not found in \$PATH|failed to create container",
        "cause", "job", 0.72,
        summary="the container or its program could not start",
        explain="The image lacks the program, is of another processor, or namespaces are not allowed.",
        source="Enroot; runc; Apptainer", order=1,
        sample="OCI runtime create failed: runc create failed: unable to start container process",
        counter_sample="OCI runtime is runc",
    ),
    Rule(
        "env.operators", "version_mismatch",
        (b"operator torchvision::", b"Failed to import transformers", b"already exists for device type",
         b"is not compatible with the installed jaxlib", b"mutable default <class",
         b"proto file into descriptor pool", b"has no attribute 'get_max_length'", b"DynamicCache", b"rope_scaling"),
        rb"operator \w+::\w+ does not exist|Failed to import \w+\.\S+ because of the following error|is not "
        rb"compatible with the installed \w+ version|mutable default <class|Couldn't build proto file into "
        rb"descriptor pool|'\w*Cache' object has no attribute|`?rope_scaling`? must be a dictionary",
        "cause", "job", 0.76,
        summary="two packages are of different age",
        explain="One calls what the other does not have, or has no more.",
        do="Install releases that belong together.",
        source="torchvision; transformers; JAX; protobuf", order=3,
        sample="RuntimeError: operator torchvision::nms does not exist",
        counter_sample="operator torchvision::nms exists",
    ),
    Rule(
        "env.squashfs", "environment", (b"mksquashfs", b"unsquashfs", b"pyxis: couldn't start container"),
        rb"Command not found: (?:mk|un)squashfs|(?:mk|un)squashfs: (?:command )?not found"
        rb"|pyxis: couldn't start container", "cause", "node", 0.84,
        summary="the container cannot be made on the node",
        explain="A tool of enroot is missing there, or its image failed.",
        source="enroot, pyxis", order=2,
        sample="[ERROR] Command not found: mksquashfs", counter_sample="[INFO] Creating squashfs by mksquashfs ...",
    ),
    Rule(
        "env.preload", "environment", (b"from LD_PRELOAD cannot be preloaded",), b"from LD_PRELOAD cannot be preloaded",
        "context", "nobody", 0.2, summary="a preloaded library is missing", explain="The loader goes on without it.",
        source="glibc, ld.so",
        sample="ERROR: ld.so: object 'libtcmalloc.so' from LD_PRELOAD cannot be preloaded (cannot open shared object "
               "file): ignored.",
        counter_sample="ld.so: object 'libtcmalloc.so' from LD_PRELOAD is preloaded",
    ),
)
