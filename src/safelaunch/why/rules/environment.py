"""Installations: missing modules and libraries, unfitting builds, drivers, versions of packages."""

from __future__ import annotations

from safelaunch.why.findings import Rule

_ABI = "Reinstall the extension against the installed PyTorch and CUDA (same C++ ABI), or pin the versions that fit."

RULES = (
    Rule(
        "env.no_module", "environment", (b"No module named ",),
        rb"(?:ModuleNotFoundError: |ImportError: |^)No module named '?(?P<module>[\w.]+)'?", "cause", "job", 0.9,
        summary="the module {module} is not installed",
        explain="The interpreter that ran does not have it: not installed, or another environment is active.",
        do="Check `which python` in the job, and install it there.", source="CPython, importlib", order=3,
        sample='Traceback (most recent call last):\n  File "t.py", line 1, in <module>\n    import apex\n'
               "ModuleNotFoundError: No module named 'apex'",
        counter_sample="the module apex is found",
    ),
    Rule(
        "env.no_module_main", "environment", (b": No module named ",),
        rb"^\S*python[\d.]*: No module named (?P<module>[\w.]+)", "cause", "job", 0.85,
        summary="the module {module} is not installed", explain="`python -m` did not find it in this environment.",
        do="Check `which python` in the job, and install it there.", source="CPython, runpy", order=4,
        sample="/usr/bin/python3: No module named torch.distributed.run", counter_sample="python: 3 modules named so",
    ),
    Rule(
        "env.cannot_import", "version_mismatch", (b"cannot import name ",),
        rb"ImportError: cannot import name '?(?P<name>\w+)'? from (?P<partial>partially initialized module "
        rb")?'?(?P<module>[\w.]+)'?", "cause", "job", 0.78,
        summary="{module} has no {name}: another version is installed than the code expects",
        explain="A name that another release of the package has, or a circular import.",
        do="Pin the versions that fit each other.", source="CPython, importlib", order=3,
        sample="ImportError: cannot import name 'Mapping' from 'collections' "
               "(/usr/lib/python3.10/collections/__init__.py)",
        counter_sample="import name from collections",
    ),
    Rule(
        "env.module_attribute", "version_mismatch",
        (b"AttributeError: module ", b"AttributeError: partially initialized module"),
        rb"AttributeError: (?:partially initialized )?module '(?P<module>[\w.]+)' has no attribute '(?P<name>\w+)'",
        "cause", "job", 0.68, summary="{module} has no {name}: another version is installed than the code expects",
        explain="A name that another release of the package has.", do="Pin the versions that fit each other.",
        source="CPython", order=2,
        sample="AttributeError: module 'torch' has no attribute 'compile'",
        counter_sample="AttributeError: 'Model' object has no attribute 'compile'",
    ),
    Rule(
        "env.undefined_symbol", "environment", (b"undefined symbol: ", b"symbol lookup error"),
        rb"(?:^|[\s:(\"'])(?P<library>[^\s:(\"']{1,300}\.so[\w.]{0,40}): undefined symbol: (?P<symbol>\S+)"
        rb"|symbol lookup error", "cause", "job", 0.88, summary="{library} does not fit: undefined symbol",
        explain="The extension was built against another PyTorch or CUDA, or with another C++ ABI.", do=_ABI,
        source="ld.so", order=4,
        sample="ImportError: /opt/env/lib/python3.10/site-packages/x_cuda.so: undefined symbol: "
               "_ZN3c104cuda9SetDeviceEi",
        counter_sample="the symbol is defined",
    ),
    Rule(
        "env.glibc", "environment", (b"GLIBC_2", b"GLIBCXX_", b"CXXABI_"),
        rb"version [`'](?P<version>(?:GLIBC|GLIBCXX|CXXABI)_[\d.]+)' not found", "cause", "job", 0.85,
        summary="the system's C library is too old: {version} is missing",
        explain="The binary was built on a newer system than the node's.",
        do="Use a wheel or container for this system; for GLIBCXX put conda's libstdc++ first in LD_LIBRARY_PATH.",
        source="ld.so", order=3,
        sample="/opt/tool: /lib64/libc.so.6: version `GLIBC_2.34' not found (required by /opt/tool)",
        counter_sample="/opt/tool: /lib64/libc.so.6: version `GLIBC_2.34' found (required by /opt/tool)",
    ),
    Rule(
        "env.no_library", "environment", (b".so not found", b"cannot open shared object file"),
        rb"(?:^|[\s:\"'(])(?P<library>[^\s:\"'(]{1,300})(?:: cannot open shared object file|(?<=\.so) not found)",
        "cause", "job", 0.85, summary="the library {library} is missing",
        explain="Not installed on the node, or not in LD_LIBRARY_PATH.",
        do="Load the module that brings it; compare nodes: a single node without it is a node fault.", source="ld.so",
        order=2,
        sample="ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory",
        counter_sample="shared object file libcudnn.so.9 is open",
    ),
    Rule(
        "env.no_kernel_image", "environment",
        (b"no kernel image is available", b"invalid device function",
         b"is not compatible with the current PyTorch installation", b"device kernel image is invalid",
         b"unsupported toolchain", b"cudaErrorNoKernelImageForDevice"),
        b"no kernel image is available|invalid device function|is not compatible with the current PyTorch "
        b"installation|device kernel image is invalid|unsupported toolchain|NoKernelImageForDevice", "cause", "job",
        0.85, summary="this build has no kernels for this card",
        explain="The wheel or extension was compiled for other GPU generations.",
        do="Install a build for this compute capability (TORCH_CUDA_ARCH_LIST).", source="CUDA runtime", order=3,
        sample="RuntimeError: CUDA error: no kernel image is available for execution on the device",
        counter_sample="the kernel image is 3 MB",
    ),
    Rule(
        "env.driver_old", "environment",
        (b"driver version is insufficient", b"driver on your system is too old", b"forward compatibility was attempted",
         b"Driver/library version mismatch", b"LibRmVersionMismatch", b"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
         b"CUDA_ERROR_COMPAT_NOT_SUPPORTED", b"Found no NVIDIA driver", b"libcuda.so: cannot open",
         b"CUDA driver initialization failed"),
        b"driver version is insufficient|driver on your system is too old|forward compatibility was "
        b"attempted|Driver/library version "
        b"mismatch|LibRmVersionMismatch|SYSTEM_DRIVER_MISMATCH|COMPAT_NOT_SUPPORTED|Found no NVIDIA driver|CUDA "
        b"driver initialization failed", "cause", "node", 0.78, summary="the node's NVIDIA driver does not fit",
        explain="Too old for this CUDA, missing, or half updated (library and kernel module differ).",
        do="Compare `nvidia-smi` between nodes: a single odd node is a node fault; else use a build for this driver.",
        source="CUDA runtime; NVML", order=3,
        sample="RuntimeError: The NVIDIA driver on your system is too old (found version 11040).",
        counter_sample="driver version 550.54",
    ),
    Rule(
        "env.torch_cpu", "environment",
        (b"Torch not compiled with CUDA enabled", b"not compiled with NCCL", b"Distributed package doesn't have NCCL"),
        b"Torch not compiled with CUDA enabled|not compiled with NCCL|doesn't have NCCL", "cause", "job", 0.85,
        summary="this PyTorch was built without CUDA or NCCL", explain="A CPU-only wheel is installed.",
        do="Install the CUDA build.", source="PyTorch", order=2,
        sample="AssertionError: Torch not compiled with CUDA enabled",
        counter_sample="Torch is compiled with CUDA 12.4",
    ),
    Rule(
        "env.detected_versions", "version_mismatch",
        (b"The detected CUDA version", b"cuDNN version incompatibility", b"compiled against cuDNN",
         b"CUDNN_STATUS_VERSION_MISMATCH", b"mismatches the version that was used to compile",
         b"compiled with different CUDA"),
        rb"detected CUDA version \((?P<a>[\d.]+)\) mismatches|cuDNN version incompatibility"
        rb"|mismatches the version that was used to compile|VERSION_MISMATCH|compiled with different CUDA", "cause",
        "job", 0.8, summary="two CUDA libraries of different versions",
        explain="The toolkit, cuDNN and the framework do not fit.",
        do="Load the modules that the framework was built with; remove the other cuDNN from LD_LIBRARY_PATH.",
        source="PyTorch; cuDNN", order=2,
        sample="RuntimeError: The detected CUDA version (11.8) mismatches the version that was used to compile "
               "PyTorch (12.1).",
        counter_sample="detected CUDA version 12.4",
    ),
    Rule(
        "env.distribution", "version_mismatch",
        (b"is required for a normal functioning of this module", b"VersionConflict", b"DistributionNotFound",
         b"PackageNotFoundError", b"ContextualVersionConflict"),
        b"is required for a normal functioning of this "
        b"module|VersionConflict|DistributionNotFound|PackageNotFoundError", "cause", "job", 0.75,
        summary="a package is missing or of the wrong version",
        explain="The program checks its requirements and refuses.", do="Install the versions it names.",
        source="transformers; importlib.metadata; pkg_resources", order=2,
        sample="ImportError: tokenizers>=0.14,<0.19 is required for a normal functioning of this module, but found "
               "tokenizers==0.13.3.",
        counter_sample="tokenizers==0.19 is found",
    ),
    Rule(
        "env.numpy_abi", "version_mismatch",
        (b"numpy.dtype size changed", b"numpy.ufunc size changed", b"A module that was compiled using NumPy 1.x",
         b"numpy.core.multiarray failed to import", b"_ARRAY_API not found", b"compiled against NumPy C-API"),
        rb"numpy\.(?:dtype|ufunc) size changed|compiled using NumPy 1\.x|numpy\.core\.multiarray failed to import"
        rb"|_ARRAY_API not found|compiled against NumPy C-API", "cause", "job", 0.7,
        summary="a compiled package does not fit this numpy", explain="It was built against another numpy release.",
        do="Pin numpy<2, or update the package.", source="numpy", order=2,
        sample="ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header, "
               "got 88 from PyObject",
        counter_sample="numpy.dtype is float32",
    ),
    Rule(
        "env.numpy_alias", "version_mismatch", (b"module 'numpy' has no attribute",),
        rb"module 'numpy' has no attribute '(?P<name>\w+)'", "cause", "job", 0.8,
        summary="numpy has no {name} any more", explain="The alias was removed from numpy.",
        do="Pin an older numpy, or update the package.", source="numpy", order=3,
        sample="AttributeError: module 'numpy' has no attribute 'bool'.",
        counter_sample="AttributeError: module 'torch' has no attribute 'bool8'",
    ),
    Rule(
        "env.yaml_loader", "version_mismatch", (b"load() missing 1 required positional argument: 'Loader'",),
        rb"load\(\) missing 1 required positional argument: 'Loader'", "cause", "job", 0.85,
        summary="yaml.load needs a Loader since PyYAML 6", explain="The code is written for an older PyYAML.",
        do="Pin PyYAML<6, or use yaml.safe_load.", source="PyYAML", order=3,
        sample="TypeError: load() missing 1 required positional argument: 'Loader'",
        counter_sample="TypeError: load() missing 1 required positional argument: 'path'",
    ),
    Rule(
        "env.protobuf", "version_mismatch",
        (b"Descriptors cannot not be created directly", b"Descriptors cannot be created directly"),
        b"Descriptors cannot (?:not )?be created directly", "cause", "job", 0.85,
        summary="generated protobuf code does not fit this protobuf",
        explain="protobuf 4 refuses code of an older protoc.", do="Pin protobuf<=3.20.x.", source="protobuf", order=2,
        sample="TypeError: Descriptors cannot be created directly.", counter_sample="descriptors are created",
    ),
    Rule(
        "env.command_not_found", "environment", (b"command not found", b": not found"),
        rb"(?:^|[\s:])(?P<name>[\w./+-]{1,200}): command not found"
        rb"|(?:^|[/\s])(?:ba|da)?sh: (?:line )?\d+: (?P<name2>[\w./+-]{1,200}): not found$",
        "cause", "job", 0.6, summary="{name}{name2}: command not found",
        explain="The command is not on the node's PATH: a module is not loaded or an environment not active.",
        do="Load it in `setup`; compare with the login node.", source="bash",
        sample="/var/spool/slurmd/job811/slurm_script: line 9: torchrun: command not found",
        counter_sample="the command was found",
    ),
    Rule(
        "env.unbound_variable", "environment", (b": unbound variable",),
        rb"line \d{1,9}: (?P<name>\w{1,200}): unbound variable$", "cause", "job", 0.6,
        summary="the variable {name} is not set, and the script says `set -u`",
        explain="The site or the shell of the submission usually sets it, and this job has it not.",
        do="Set it in `env`, or give it a default in the script.", source="bash(1), set -u",
        sample="/var/spool/slurmd/job811/slurm_script: line 4: SCRATCH_DIR: unbound variable",
        counter_sample="the unbound variable was set",
    ),
    Rule(
        "env.module_load", "environment",
        (b"The following module(s) are unknown", b"Unable to locate a modulefile",
         b"Lmod has detected the following error"),
        rb"module\(s\) are unknown|Unable to locate a modulefile for '(?P<name>[^']+)'"
        rb"|Lmod has detected the following error", "cause", "job", 0.4, summary="a module could not be loaded",
        explain="The name or version does not exist on this cluster, or needs another module first. Most scripts go on "
                "without it.",
        do="`module spider NAME`.", source="Lmod; Environment Modules",
        sample='Lmod has detected the following error: The following module(s) are unknown: "cuda/99"',
        counter_sample="module cuda/12.4 is loaded",
    ),
    Rule(
        "env.flash_attention", "environment",
        (b"FlashAttention only supports", b"FlashAttention2 has been toggled on", b"requires compute capability",
         b"is only supported on GPUs with compute capability"),
        b"FlashAttention only supports|FlashAttention2 has been toggled on|requires compute capability|only "
        b"supported on GPUs with compute capability", "cause", "job", 0.7,
        summary="this card or this installation cannot do what is asked",
        explain="The feature needs a newer GPU or a package that is missing.",
        do="Switch the feature off, or use other cards.", source="flash-attn; transformers; vLLM", order=1,
        sample="RuntimeError: FlashAttention only supports Ampere GPUs or newer.",
        counter_sample="FlashAttention is in use",
    ),
    Rule(
        "env.container_missing", "environment", (b"safelaunch: container: the ",),
        rb"safelaunch: container: the (?P<what>(?:runtime|image|mount|working directory) .{1,300}?) is missing "
        rb"(?:on (?P<host>[\w.-]+)|inside)", "cause", "job", 0.96, action="fix_environment",
        summary="the container cannot start: the {what} is missing",
        explain="Looked for on the node before the container was started (train.yaml, container:).",
        do="Put the image and the folders of container.mounts where every node sees them; load the runtime's module "
           "before you submit, or ask the site for it.", source="templates/slurm", order=5,
        sample="safelaunch: container: the image /images/train.sif is missing on n3",
        counter_sample="safelaunch: container images are looked for on each node",
    ),
    Rule(
        "env.container_mount", "environment",
        (b"mount source ", b"Error: statfs ", b"Error: initializing source ", b"Error: short-name "),
        rb"FATAL:.{0,200}mount source (?P<what>\S+) doesn't exist"
        rb"|Error: statfs (?P<what2>\S+): no such file or directory|Error: initializing source \S+: .{0,200}"
        rb"|Error: short-name \S+ did not resolve", "cause", "job", 0.86, action="fix_environment",
        summary="the container cannot start: its image or a folder to mount is not there: {what}{what2}",
        explain="The runtime found neither the image nor the folder on the node.",
        do="Correct container.image or container.mounts; fetch the image beforehand where nodes reach no registry.",
        source="Apptainer; Podman 4.3, measured", order=4,
        sample="Error: statfs /no/such/folder: no such file or directory",
        counter_sample="Error: statfs was called",
    ),
    Rule(
        "env.container", "environment",
        (b"unable to open image", b"could not open image", b"nvidia-container-cli", b"could not select device driver",
         b"pyxis:", b"[FATAL]   "),
        rb"(?:FATAL: +|\[FATAL\] +)(?P<what>.*)|could not open image|could not select device driver"
        rb"|nvidia-container-cli: (?P<what2>.{0,300}?error.*)|pyxis: .{0,300}?(?:failed|error)", "cause", "node", 0.6,
        summary="the container could not start: {what}{what2}",
        explain="The image, its runtime or the GPU hook of this node.", do="Start it by hand on that node.",
        source="Apptainer; enroot, pyxis; nvidia-container-toolkit",
        sample="FATAL:   could not open image /images/train.sif: failed to retrieve path",
        counter_sample="the image is open",
    ),
    Rule(
        "env.interpreter", "environment", (b"/usr/bin/env: ", b"bad interpreter"),
        b"/usr/bin/env: .{0,300}?No such file or directory|bad interpreter", "cause", "job", 0.82,
        summary="the interpreter of a script does not exist",
        explain="No module is loaded or no environment active on the node.", do="`which python` in the job.",
        source="coreutils; bash", order=2,
        sample="/usr/bin/env: 'python': No such file or directory", counter_sample="/usr/bin/env: python is there",
    ),
    Rule(
        "env.header", "environment", (b"fatal error: ", b"compilation terminated", b"'which', '"),
        rb"fatal error: \S+\.(?:h|hpp|cuh): No such file|\['which', '(?:c\+\+|g\+\+|gcc|nvcc)'\]", "cause", "job", 0.78,
        summary="a compiler or one of its headers is missing",
        explain="An extension is built on the node, which lacks the toolkit.",
        do="Load the compiler and CUDA modules, or build beforehand.", source="gcc; torch.utils.cpp_extension", order=2,
        sample="x.cu:3:10: fatal error: cublas_v2.h: No such file or directory",
        counter_sample="x.cu:3:10: note: cublas_v2.h is in /usr/local/cuda/include",
    ),
    Rule(
        "env.illegal_isa", "environment", (b"Illegal instruction", b"(SIGILL) received"),
        rb"Illegal instruction +\(core dumped\)|\(SIGILL\) received", "cause", "node", 0.7,
        summary="the processor does not know an instruction of this build",
        explain="The program was compiled for another CPU generation.", do="Build for this node's CPU.",
        source="signal(7)", order=3,
        sample="run.sh: line 3:  4242 Illegal instruction     (core dumped) ./solver",
        counter_sample="an illegal instruction is trapped",
    ),
    Rule(
        "env.unexpected_keyword", "version_mismatch", (b"got an unexpected keyword argument",),
        rb"TypeError: (?P<function>[\w.<>]+)\(\) got an unexpected keyword argument '(?P<name>\w+)'", "cause", "job",
        0.5, summary="{function}() does not know the argument {name}",
        explain="Another release of the package than the caller expects, or a mistake of the program.",
        do="Compare the installed version with the one that the code was written for.", source="CPython", order=1,
        sample="TypeError: Trainer.__init__() got an unexpected keyword argument 'tokeniser'",
        counter_sample="the keyword argument is known",
    ),
    Rule(
        "env.python_home", "environment",
        (b"Fatal Python error: init",),
        rb"Fatal Python error: init_\w+: ",
        "cause", "job", 0.84,
        summary="Python could not start",
        explain="PYTHONHOME or PYTHONPATH points to another installation, or the environment's files are gone.",
        source="CPython, initconfig", order=5,
        sample="Fatal Python error: init_fs_encoding: failed to get the Python codec",
        counter_sample="Fatal Python error: Aborted",
    ),
)
