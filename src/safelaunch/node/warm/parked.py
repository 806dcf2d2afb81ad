"""A parked interpreter: it imports what the script will import first, waits, and then becomes a rank.

It runs as `python3 [options] -m safelaunch_parked`, with this text as `sitecustomize`. There is no such module: where
the hook does not run, Python ends. The hook gives Python's own start another `runpy`, and parks when that is asked for
the function that runs a module. That function then runs the script's code with no Python frame around it, so that the
script sees what `python3 [options] SCRIPT` shows it (the table in tests/node/test_warm.py).

Nothing of the user's own is run before. Only the text is read, for the imports at the script's top: up to the first
statement that does anything else, in their order, and only of installed packages. Whatever differs from a cold start
ends this process. Travels as text, and runs by the training's own Python: standard library, Python 3.8.
"""

from __future__ import annotations

import os
import sys

from safelaunch.node.warm.imports import (
    LATER,
    SETS,
    NotAsCold,
    OwnNames,
    Reader,
    Watch,
    installed_folders,
    is_under,
    stamp_of,
)
from safelaunch.node.warm.process import ShownWords, inherited, text_block

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple
# What travels begins here, behind the texts of imports.py and process.py.

FAILED = 97
# What differs between two attempts although nothing that an import reads does: the port, the step, the resume point.
MAY_DIFFER = ("MASTER_PORT", "_", "SLURM_STEP_ID", "SLURM_STEPID", "SLURM_TASK_PID", "SLURM_SRUN_COMM_HOST",
              "SLURM_SRUN_COMM_PORT", "SLURM_STEP_LAUNCHER_PORT", "SLURM_STEP_NODELIST", "SLURM_STEP_RESV_PORTS",
              "SAFELAUNCH_ATTEMPT", "SAFELAUNCH_MARK", "SAFELAUNCH_MASTER_PORT", "SAFELAUNCH_RESUME_PATH",
              "SAFELAUNCH_RESUME_STEP", "SAFELAUNCH_RESIZED", "SAFELAUNCH_RECORD", "SAFELAUNCH_OVERLAP",
              "SAFELAUNCH_EXIT_FILE", "TORCHELASTIC_RESTART_COUNT")
STANDARD = ("BuiltinImporter", "FrozenImporter", "PathFinder", "DistutilsMetaFinder")


class Gate:
    """Stands for `runpy` until Python's start asks it for the function that runs a module."""

    __spec__ = None

    def __init__(self, parked: Parked) -> None:
        self.parked = parked

    @property
    def _run_module_as_main(self) -> Any:
        """What runs the script, once this process has become a rank; else this process ends."""
        parked = self.parked
        try:
            parked.prepare()
            parked.wait()
            return parked.runner
        except NotAsCold as why:
            parked.say(b"-" + str(why).encode(errors="replace")[:500])
        except BaseException as error:  # noqa: BLE001 - whatever it is, the script must not run now
            parked.say(b"-" + repr(error).encode(errors="replace")[:500])
        os._exit(FAILED)


class Never:
    """Larger than nothing: for `max`, once the script has ended."""

    def __gt__(self, other: object) -> bool:
        return False


def runner_of(code: Any, names: Dict[str, Any]) -> Any:
    """A callable that runs this code once, however it is called with a text and True, and is no Python function: the
    script's own frame is the outermost. A defaultdict calls its factory without arguments.
    """
    from collections import defaultdict
    from functools import partial

    once: Any = defaultdict(partial(exec, code, names), {True: Never()})
    return partial(max, key=once.__getitem__)


class Parked:
    """This process until it runs the script."""

    def __init__(self, control: int) -> None:
        self.before = set(sys.modules)
        import array, ast, json, re, resource, socket, threading, time  # noqa: E401, F401, I001 - none later: see _judge

        self.control = socket.socket(fileno=control)
        self.control.set_inheritable(False)
        job = json.loads(_receive(self.control)[0])
        self.env: Dict[str, str] = job["env"]   # of the rank that lives, when it began
        self.cwd, self.words, self.options = job["cwd"], job["words"], job["options"]
        self.script = self.words[1 + self.options]
        self.pipes: List[int] = job["pipes"]   # the read ends of its output
        self.hook_path = os.environ["PYTHONPATH"].split(":")[0]

    def say(self, text: bytes) -> None:
        """To the keeper."""
        try:  # noqa: SIM105 - contextlib is no module that a script finds imported
            self.control.sendall(text + b"\n")
        except OSError:
            pass

    def prepare(self) -> None:
        """Import, look at what came of it, and wait in `/`."""
        del sys.modules["runpy"]
        _set_env({**self.env, **self.added})
        os.chdir(self.cwd)
        self.where = _place(".")
        self.names = OwnNames(self._own_folders())
        finder = Watch(self.names)
        sys.meta_path.insert(0, finder)
        kept = [one for one in sys.meta_path if getattr(one, "__name__", type(one).__name__) not in STANDARD
                and one is not finder]
        if kept:
            raise NotAsCold("%r finds modules in a way of its own" % kept[0])
        try:
            self._import_first()
        finally:
            sys.meta_path.remove(finder)
        if finder.hit:
            raise NotAsCold("%s is looked for, and the user's own folders have one" % finder.hit)
        self._judge()
        os.chdir("/")
        self.say(b"+")

    def leave_no_trace(self) -> None:
        """The hook itself: its path, its cache, its name, and the real sitecustomize in its place."""
        self.added = _added()
        os.close(int(os.path.basename(self.hook_path)))
        sys.path[:] = [path for path in sys.path if path != self.hook_path]
        sys.path_importer_cache.pop(self.hook_path, None)
        from importlib.machinery import PathFinder
        from importlib.util import module_from_spec

        sys.modules.pop("sitecustomize", None)
        spec = PathFinder.find_spec("sitecustomize", None)
        self.real = None
        if spec is not None and spec.loader is not None:
            self.real = sys.modules["sitecustomize"] = module_from_spec(spec)
            spec.loader.exec_module(self.real)
        sys.modules["runpy"] = Gate(self)   # type: ignore[assignment]

    def _own_folders(self) -> List[str]:
        """Where Python finds modules of the user's own: beside the script, and what PYTHONPATH or a .pth adds."""
        self.path0 = os.path.dirname(os.path.realpath(self.script))
        if not getattr(sys.flags, "safe_path", False):
            sys.path.pop(0)   # the folder that -m puts there
        installed = installed_folders()
        return [self.path0] + [path for path in sys.path if not is_under(path, installed)]

    def _import_first(self) -> None:
        import re
        from importlib import import_module

        reader = Reader(self.names)
        reader.read(self.script)
        for module, name in reader.wanted:
            try:
                found = import_module(module)
                if name and name != "*" and not hasattr(found, name):
                    import_module(module + "." + name)
            except Exception:  # noqa: BLE001 - the script meets it, and perhaps catches it
                raise NotAsCold("%s cannot be imported" % module) from None
        for module, later in LATER.items():
            if module in sys.modules and reader.is_whole and not re.search(SETS, reader.text):
                import_module(later)
        if not reader.wanted:
            raise NotAsCold("no installed package is imported before something else is done")

    def _judge(self) -> None:
        """Whether there is anything that a process which has only just started could not have."""
        import threading

        if threading.active_count() > 1:
            raise NotAsCold("an import has started a thread")
        roots = installed_folders()
        self.stats: Dict[str, Any] = {}
        self.names.asked |= {name.partition(".")[0] for name in set(sys.modules) - self.before}
        for name in self.names.asked:
            if self.names.is_own(name):
                raise NotAsCold("%s is imported, and the user's own folders have one" % name)
        for name, module in list(sys.modules.items()):
            spec = getattr(module, "__spec__", None)   # torch.ops has a __file__ of its own making, and no spec
            path = spec.origin if spec is not None and spec.has_location else None
            if not path:
                continue
            if not is_under(path, roots):
                raise NotAsCold("%s is imported from %s, which is not installed" % (name, path))
            self.stats[path] = stamp_of(path)
        for name in os.listdir("/proc/self/fd"):
            try:
                target = os.readlink("/proc/self/fd/" + name)
            except OSError:
                continue   # of this listing
            if int(name) > 2 and int(name) not in (self.control.fileno(), *self.pipes):
                raise NotAsCold("an import has opened %s" % target)
        torch: Any = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            raise NotAsCold("an import has initialised CUDA")
        with open("/proc/self/maps") as maps:
            if any("/dev/nvidia" in line for line in maps):
                raise NotAsCold("an import has mapped a device")
        self.cpus = os.sched_getaffinity(0)
        if _children():
            raise NotAsCold("an import has started a process")

    def wait(self) -> None:
        """Until a rank's own shell has come to the place where it would start Python, and all is as it was."""
        import json
        import socket

        _, fds = _receive(self.control)
        caller = socket.socket(fileno=fds[0])   # node/warm/enter.py
        text, fds = _receive(caller)
        rank = json.loads(text)
        try:
            self._compare(rank)
            code = self._compile()
            memory = ShownWords(text_block(rank["words"]), text_block("%s=%s" % pair for pair in rank["env"].items()))
        except NotAsCold as why:
            caller.sendall(b"-" + str(why).encode(errors="replace")[:500] + b"\n")
            raise
        for name in os.listdir("/proc/self/task"):
            os.sched_setscheduler(int(name), rank["policy"], os.sched_param(0))
        caller.sendall(b"ready\n")
        if _receive(caller)[0] != b"go\n":
            os._exit(FAILED)
        self._become(rank, fds, memory)
        self.runner = runner_of(code, self._main())
        caller.sendall(b"started\n")
        caller.close()

    def _compile(self) -> Any:
        """The script's code, as Python itself would compile it."""
        self.place = self.script
        if sys.version_info >= (3, 9) and not os.path.isabs(self.script):
            self.place = os.getcwd() + "/" + (self.script[2:] if self.script[:2] == "./" else self.script)
        try:
            with open(self.script, "rb") as file:
                return compile(file.read(), self.place, "exec", dont_inherit=True)
        except (OSError, ValueError, SyntaxError) as error:   # for Python itself to tell of
            raise NotAsCold(repr(error)) from None

    def _main(self) -> Dict[str, Any]:
        """The names of `__main__` as the script finds them."""
        from importlib.machinery import SourceFileLoader

        names = sys.modules["__main__"].__dict__
        names["__file__"] = self.place
        if sys.version_info < (3, 15):
            names["__cached__"] = None
        names["__loader__"] = SourceFileLoader("__main__", self.place)
        if not getattr(sys.flags, "safe_path", False):
            sys.path.insert(0, self.path0)
        return names

    def _compare(self, rank: Dict[str, Any]) -> None:
        """Raise NotAsCold where an import could have read something else."""
        if rank["words"][:2 + self.options] != self.words[:2 + self.options] or rank["exe"] != sys.executable:
            raise NotAsCold("another command")
        env = rank["env"]
        for name in sorted({*env, *self.env}):
            if name not in MAY_DIFFER and env.get(name) != self.env.get(name):
                raise NotAsCold("%s is another one" % name)
        os.chdir(rank["cwd"])
        if (rank["cwd"], _place(".")) != (self.cwd, self.where):
            raise NotAsCold("another working directory")
        for what, mine in inherited().items():
            if rank["self"][what] != mine:
                raise NotAsCold("%s: another one" % what)
        for name, (soft, hard) in rank["limits"].items():
            if _limit(int(name))[1] != hard and not 0 <= hard <= (_limit(int(name))[1] & (1 << 64) - 1):
                raise NotAsCold("limit %s cannot be raised to %d" % (name, soft))
        for path, stamp in (*self.names.own_files.items(), *self.stats.items()):
            if stamp_of(path) != stamp:
                raise NotAsCold("%s has changed" % path)
        for name in self.names.asked:
            if self.names.is_own(name):
                raise NotAsCold("the user's own folders have %s now" % name)

    def _become(self, rank: Dict[str, Any], fds: List[int], memory: ShownWords) -> None:
        """All that the rank's shell has given to its Python. From here on there is no way back."""
        import resource
        import time

        said = [_drain(fd) for fd in self.pipes]
        for number, fd in zip(rank["fds"], fds):  # noqa: B905 - 3.10's
            if number != fd:
                os.dup2(fd, number, inheritable=True)
        for fd in set(fds) - set(rank["fds"]):
            os.close(fd)
        for fd in set(fds) & set(rank["fds"]):
            os.set_inheritable(fd, True)
        for fd in self.pipes:
            if fd not in rank["fds"]:
                os.close(fd)
        for name, limits in rank["limits"].items():
            if _limit(int(name)) != tuple(limits):
                resource.setrlimit(int(name), tuple(limits))
        os.umask(rank["umask"])
        _set_env({**rank["env"], **{name: value for name, value in self.added.items() if name not in rank["env"]}})
        sys.argv[:] = rank["words"][1 + self.options:]
        if hasattr(sys, "orig_argv"):
            sys.orig_argv[:] = rank["words"]
        memory.write()
        logging: Any = sys.modules.get("logging")
        if logging is not None:
            logging._startTime = time.time_ns() if isinstance(logging._startTime, int) else time.time()
        for fd, text in zip((1, 2), said):  # noqa: B905 - 3.10's
            if text:
                os.write(fd, text)
        self.say(b"started")   # to the keeper, before the rank's shell is told
        self.control.close()
        importing = getattr(sys.modules.get("linecache"), "cache", None)
        if importing is not None:
            importing.clear()


def _receive(sock: Any) -> Tuple[bytes, List[int]]:
    """A line, and the descriptors that have come with it. The other end's end ends this process."""
    import array
    import socket

    data, fds = b"", []
    while not data.endswith(b"\n"):
        part, ancillary, _, _ = sock.recvmsg(1 << 16, socket.CMSG_SPACE(4 * 64))
        if not part:
            os._exit(FAILED)
        data += part
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                whole = array.array("i")
                whole.frombytes(content[:len(content) - len(content) % whole.itemsize])
                fds += whole.tolist()
    return data, fds


def _added() -> Dict[str, str]:
    """What Python itself has added to the environment at its start: LC_CTYPE, to a C locale."""
    with open("/proc/self/environ", "rb") as environ:
        given = {pair.partition(b"=")[0] for pair in environ.read().split(b"\0")}
    return {name: value for name, value in os.environ.items() if os.fsencode(name) not in given}


def _set_env(env: Dict[str, str]) -> None:
    for name in [name for name in os.environ if name not in env]:
        del os.environ[name]
    pairs = dict(env)
    for name, value in pairs.items():
        os.environ[name] = value
    data = os.environ._data   # type: ignore[attr-defined]
    for name in pairs:   # in their order
        key = os.environ.encodekey(name)
        data[key] = data.pop(key)


def _place(path: str) -> List[int]:
    found = os.stat(path)
    return [found.st_dev, found.st_ino]


def _limit(number: int) -> Tuple[int, int]:
    import resource

    return resource.getrlimit(number)


def _children() -> str:
    with open("/proc/self/task/%d/children" % os.getpid()) as children:
        return children.read().strip()


def _drain(fd: int) -> bytes:
    os.set_blocking(fd, False)
    try:
        return os.read(fd, 1 << 20)
    except BlockingIOError:
        return b""


def main() -> None:
    """Prepare Python's own start; whatever fails ends this process."""
    try:
        parked = Parked(int(os.environ["SAFELAUNCH_PARKED"]))
        parked.leave_no_trace()
    except BaseException:  # noqa: BLE001
        os._exit(FAILED)
    if parked.real is None:   # as where there is none
        sys.modules["sitecustomize"] = sys.modules["sys"]   # which Python up to 3.9 removes without a look
        raise ImportError("No module named 'sitecustomize'", name="sitecustomize")


main()
