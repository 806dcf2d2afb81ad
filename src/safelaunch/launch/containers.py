"""What runs the command in a container (`container.runtime`), one row each, and the words that start it.

The node guard stands outside and starts the runtime as it would start the training. Only pyxis, a plugin of srun, puts
the whole task into the container, its guard included. Sources: apptainer-exec(1), podman-run(1), enroot's
doc/cmd/start.md, pyxis's README and `srun --help`, podman-hpc's etc/modules.d/gpu.yaml. Measured: podman 4.3.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

# Of the host, and another one in the image: `env:` must not carry it inside. container.env may set it.
OUTSIDE_ONLY = frozenset(("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "HOME", "SHELL", "PYTHONHOME"))
CWD = "{cwd}"      # filled in on the node: where the task starts
TASK = "{task}"    # a name of its own for each task of a run


class Runtime(NamedTuple):
    """One way to run a command in a container."""

    doc: str
    start: tuple[str, ...] = ()        # the program and its first words
    bind: str = ""                     # one mount
    gpus: tuple[str, ...] = ()         # where the job has GPUs, unless container.extra says it
    gpu_words: tuple[str, ...] = ()    # ... by one of these
    folder: tuple[str, ...] = ()       # before an image that is a folder
    is_packed: bool = False            # it hands no environment on: all of it goes as one variable
    is_plugin: bool = False            # flags of srun


_APPTAINER = Runtime("each task by apptainer exec", ("apptainer", "exec"), "--bind={source}:{target}{options}",
                     ("--nv",), ("--nv", "--nvccli", "--rocm"))
_PODMAN = Runtime(
    "each task by podman run",
    ("podman", "run", "--rm", "--replace", f"--name=safelaunch-{TASK}", "--env-host", "--network=host", "--pid=host",
     "--ipc=host", "--uts=host", "--ulimit=host", "--sig-proxy=false", "--entrypoint="),
    "--volume={source}:{target}{options}", ("--device=nvidia.com/gpu=all",), ("--device", "--gpus", "--gpu"),
    ("--rootfs",))
RUNTIMES: dict[str, Runtime] = {
    "apptainer": _APPTAINER,
    "singularity": _APPTAINER._replace(doc="each task by singularity exec", start=("singularity", "exec")),
    "pyxis": Runtime("srun's plugin, which takes the guard inside, too", is_plugin=True),
    "enroot": Runtime("each task by enroot start", ("enroot", "start", "--rw", "--env", "SAFELAUNCH_PACKED"),
                      "--mount={source}:{target}:none:x-create=auto,rbind{options}", is_packed=True),
    "podman": _PODMAN,
    "podman-hpc": _PODMAN._replace(doc="each task by podman-hpc run", start=("podman-hpc", *_PODMAN.start[1:]),
                                   gpus=("--gpu",)),
}


class ContainerPlan(NamedTuple):
    """train.yaml's container:; without a runtime the command runs in none."""

    runtime: str = ""
    image: str = ""
    mounts: tuple[str, ...] = ()
    workdir: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    extra: tuple[str, ...] = ()

    @property
    def is_file(self) -> bool:
        """Whether the image lies on a filesystem: a start does not fetch it."""
        return self.image.startswith(("/", "./", "../")) or self.image.endswith((".sif", ".sqsh"))


def start_words(plan: ContainerPlan, own: Iterable[str], has_gpus: bool) -> tuple[str, ...]:
    """What stands before the command on each node; `own` are folders that the run needs inside. Empty for a plugin."""
    runtime = RUNTIMES[plan.runtime]
    if runtime.is_plugin:
        return ()
    binds = [runtime.bind.format(source=source, target=target, options=_options(options, runtime.is_packed))
             for source, target, options in _mounts(plan, [*own, CWD])]
    chosen = {word.partition("=")[0] for word in plan.extra}
    gpus = runtime.gpus if has_gpus and not chosen & set(runtime.gpu_words) else ()
    folder = runtime.folder if plan.image.startswith("/") else ()
    return (*runtime.start, *gpus, *binds, *plan.extra, *folder, plan.image)


def srun_words(plan: ContainerPlan, own: Iterable[str], names: Iterable[str]) -> tuple[str, ...]:
    """A plugin's flags of srun; `names` are variables that the image must not set otherwise."""
    if not RUNTIMES[plan.runtime].is_plugin:
        return ()
    mounts = ",".join(f"{source}:{target}{options.replace(',', '+')}" for source, target, options in _mounts(plan, own))
    return (f"--container-image={plan.image}", *([f"--container-mounts={mounts}"] if mounts else []),
            *([f"--container-workdir={plan.workdir}"] if plan.workdir else []),
            *([f"--container-env={','.join(names)}"] if names else []), *plan.extra)


def needs(plan: ContainerPlan, own: Iterable[str], made: Iterable[str]) -> tuple[str, ...]:
    """What must be there on a node before the start, as "kind path"; folders in `made` are made where they are not."""
    if RUNTIMES[plan.runtime].is_plugin:
        return ()
    image = [f"image {plan.image}"] if plan.image.startswith(("/", "./", "../")) else []
    mounts = _mounts(plan, own)
    return (*image, *(f"make {folder}" for folder in made), *(f"mount {source}" for source, _, _ in mounts),
            *(f"same {source}" for source, target, _ in mounts if source == target))


def split_mount(text: str) -> tuple[str, str, str]:
    """(source, target, options with their colon) of "/data", "/data:/in" or "/data:/in:ro"."""
    source, _, rest = text.partition(":")
    target, colon, options = rest.partition(":")
    return source, target or source, f":{options}" if colon else ""


def _mounts(plan: ContainerPlan, own: Iterable[str]) -> list[tuple[str, str, str]]:
    """The user's mounts, and those of `own` that none of them holds under its own name."""
    mounts = [split_mount(text) for text in plan.mounts]
    for folder in own:
        if not any(source == target and f"{folder}/".startswith(f"{source.rstrip('/')}/")
                   for source, target, _ in mounts):
            mounts.append((folder, folder, ""))
    return mounts


def _options(options: str, is_fstab: bool) -> str:
    return f",{options[1:]}" if options and is_fstab else options
