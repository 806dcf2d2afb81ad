"""Compilers, containers' starts and packages that must be of one age."""

from __future__ import annotations

from safelaunch.why.findings import Rule

RULES = (
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
