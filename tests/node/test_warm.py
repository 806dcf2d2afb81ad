"""Parked interpreters (restart.warm): a script sees in one what `python3 SCRIPT` shows it, or it starts cold."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from safelaunch.node import ranks, warm
from tests.drills.proofs import in_long

pytestmark = pytest.mark.timed   # real programs, within real deadlines

HERE = Path(warm.__file__).parent
KEEPER, ENTER, *PARTS = (
    (HERE / f"{name}.py").read_text() for name in ("keeper", "enter", "imports", "process", "parked"))
HOOK = PARTS[0] + "".join(re.split("travels begins here.*\n", part)[1] for part in PARTS[1:])   # as by node/held.sh
PYTHON = sys.executable
WAIT_S = 60.0

# Before anything of its own the script imports installed packages: those alone are imported in advance.
SCRIPT = '''"""What a script sees."""
from __future__ import annotations
import json, os, resource, signal, sys, threading
import pickle, multiprocessing, atexit, faulthandler, warnings, logging, random
import yaml

class Thing:
    value = 1

def double(x):
    return 2 * x

def main_of_child():
    return sys.modules["__main__"].__file__

def look():
    main = sys.modules["__main__"]
    status = dict(line.split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
    seen = {name: repr(getattr(main, name)) for name in sorted(vars(main)) if name.startswith("__")}
    seen["__loader__"] = seen["__loader__"].partition(" at 0x")[0]
    return {
        "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "flags": str(sys.flags), "main": seen,
        "order": list(vars(main))[:8], "xoptions": sys._xoptions, "warnoptions": sys.warnoptions,
        "executable": [sys.executable, sys.prefix, sys.exec_prefix, sys.base_prefix], "env": list(os.environ.items()),
        "cwd": os.getcwd(), "umask": [os.umask(0o27), os.umask(0o27)],
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource)
                   if name[:7] == "RLIMIT_"},
        "signals": [str(signal.getsignal(n)) for n in range(1, 32)],
        "sig": [status[name] for name in ("SigBlk", "SigIgn", "SigCgt")],
        "fds": {n: os.readlink("/proc/self/fd/" + n) for n in os.listdir("/proc/self/fd")
                if os.path.exists("/proc/self/fd/" + n)
                and not os.readlink("/proc/self/fd/" + n).startswith(("pipe:", "socket:", "/proc/"))},
        "fd_numbers": sorted(n for n in map(int, os.listdir("/proc/self/fd")) if n < 30)[:-1],
        "inheritable": [os.get_inheritable(n) for n in (0, 1, 2)],
        "frames": str(sys._getframe(1).f_back),
        "frame": [sys._getframe(1).f_code.co_filename, sys._getframe(1).f_code.co_name],
        "threads": [threading.active_count(), threading.current_thread() is threading.main_thread(),
                    len(os.listdir("/proc/self/task"))],
        "session": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
        "scheduling": [os.sched_getscheduler(0), os.nice(0), sorted(os.sched_getaffinity(0))],
        "cmdline": open("/proc/self/cmdline").read().rstrip("\\0"),
        "environ": open("/proc/self/environ").read().rstrip("\\0"),
        "stdio": [(s.encoding, s.errors, s.line_buffering, s.write_through, s is sys.stdin or s.seekable(),
                   s.name) for s in (sys.stdin, sys.stdout, sys.stderr)],
        "hooks": [sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__,
                  faulthandler.is_enabled()],
        "filters": [str(one) for one in warnings.filters], "gc": __import__("gc").get_threshold(),
        "meta_path": [getattr(one, "__name__", type(one).__name__) for one in sys.meta_path],
        "hooks_of_path": len(sys.path_hooks),
        "modules": sorted(set(sys.modules) - {"MODULES_OF_WARM"}),
        "dumpable": os.access("/proc/self/environ", os.R_OK),
        "random": random.random() != random.Random(0).random(),
        "cached": [p for p in sys.path_importer_cache if "proc" in p],
        "pickled": pickle.loads(pickle.dumps(Thing)) is Thing, "thing": Thing.__module__,
        "children": {how: multiprocessing.get_context(how).Pool(1).map(double, [21])
                     for how in ("spawn", "fork", "forkserver")},
        "main_of_child": multiprocessing.get_context("spawn").Pool(1).apply(main_of_child),
        "start": 0 <= __import__("time").time() - logging._startTime < 60, "recursion": sys.getrecursionlimit(),
        "dont_write": sys.dont_write_bytecode, "locale": __import__("locale").setlocale(__import__("locale").LC_ALL),
        "children_pids": len(open("/proc/self/task/%d/children" % os.getpid()).read().split()) > 0,
    }

if __name__ == "__main__":
    atexit.register(lambda: print("at exit", flush=True))
    if len(sys.argv) > 1:
        print(json.dumps(look()), flush=True)
        warnings.warn("here")
        raise SystemExit(int(sys.argv[1])) if sys.argv[1].isdigit() else RuntimeError("the end")
    print("alive", flush=True)
    signal.pause()
'''
# Modules that a parked process itself uses: the script may find them imported.
OWN = {"ast", "_ast", "array", "json", "json.decoder", "json.encoder", "json.scanner", "_json", "re", "socket",
       "_socket", "sysconfig", "contextlib", "MODULES_OF_WARM"}


class Trial:
    """A living rank, the keeper, and a shell that is to become the next one."""

    def __init__(self, folder: Path, script: str = SCRIPT, options: str = "", before: str = ":", **more: str) -> None:
        self.folder, self.options = folder, options
        self.name = f"test-{uuid.uuid4()}"
        self.mark = f"r{uuid.uuid4().hex[:6]}.1"
        (folder / "train.py").write_text(script)
        self.env = {"PATH": f"{Path(PYTHON).parent}:/usr/bin:/bin", "HOME": str(folder), "SLURMD_NODENAME": "n7",
                    "RANK": "0", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_PORT": "29500",
                    "OMP_NUM_THREADS": "1", **more}
        self.living = self.shell("", 1, before=before, stdout=subprocess.DEVNULL)
        self.keeper = subprocess.Popen(
            ["/usr/bin/python3", "-ISc", KEEPER, self.name, f"{self.mark}.1", str(os.getpid())],
            env={"SLURMD_NODENAME": "n7", "SAFELAUNCH_HOOK": HOOK}, stdout=subprocess.PIPE, text=True)
        self.starter = socket.socket(socket.AF_UNIX)

    def shell(self, words: str, attempt: int, warm_up: bool = False, before: str = ":",
              **how: Any) -> subprocess.Popen[str]:
        text = f"{before}; SL_KEPT=(python3 {self.options} train.py {words}); {{ :; }} 2>/dev/null; " + ranks.LAST_LINE
        env = {**self.env, "SAFELAUNCH_MARK": f"{self.mark}.{attempt}", "MASTER_PORT": str(29500 + attempt)}
        if warm_up:
            text = text[:-len(ranks.LAST_LINE)] + ranks.ENTER % ("/usr/bin/python3", self.name, 0) + ranks.LAST_LINE
            env["SAFELAUNCH_ENTER"] = ENTER
        return subprocess.Popen(["bash", "-c", text], env=env, cwd=self.folder, stdin=subprocess.DEVNULL, text=True,
                                start_new_session=True, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how})

    def parked(self) -> str:
        """What the keeper offers, once its one parked process is ready or has given up."""
        end, said = time.monotonic() + WAIT_S, ""
        while time.monotonic() < end and (said in ("", "parked\n") or "not ready" in said):
            time.sleep(0.1)
            with suppress(OSError), socket.socket(socket.AF_UNIX) as look:
                look.connect("\0" + self.name)
                look.sendall(b"look\n")
                said = ""
                while data := look.recv(1000).decode():
                    said += data
        if not said.startswith("parked 0"):
            return said
        self.starter.connect("\0" + self.name)
        self.starter.settimeout(10)
        self.starter.sendall(b"start\n")
        self.lines = self.starter.makefile()
        return self.lines.readline()

    def taken(self) -> int:
        self.starter.sendall(b"0\n")
        return int(self.lines.readline().split()[2])

    def close(self) -> None:
        self.starter.close()
        for process in (self.living, self.keeper):
            process.kill()
            process.wait()


@contextmanager
def trial(folder: Path, *args: Any, **more: Any) -> Iterator[Trial]:
    one = Trial(folder, *args, **more)
    try:
        yield one
    finally:
        one.close()


@pytest.mark.parametrize(("options", "end"), [
    ("-u", "3"), in_long("-O -W error::ImportWarning -X faulthandler", "raise"),
])
def test_a_script_sees_in_a_parked_interpreter_what_python_shows_it(tmp_path: Path, options: str, end: str) -> None:
    before = "ulimit -S -c 0; umask 027; exec 7</dev/null; export A=1"
    with trial(tmp_path, options=options, before=before) as one:
        assert one.parked() == "parked 0\n"
        cold = one.shell(end, 2, before=before)
        seen, said = cold.communicate(timeout=60)
        shell = one.shell(end, 2, warm_up=True, before=before)
        out, err = shell.communicate(timeout=60)
        assert one.taken() > 0 and shell.returncode == 0, err
        assert int(one.lines.readline().split()[2]) == cold.returncode << 8
    theirs, ours = json.loads(seen.splitlines()[0]), json.loads(out.splitlines()[0])
    more = set(ours.pop("modules")) - set(theirs.pop("modules")) - OWN
    assert {name for name in more if not name.startswith(("importlib", "_sysconfigdata"))} == set()
    assert {key: (theirs[key], ours[key]) for key in theirs if theirs[key] != ours[key]} == {}
    assert (out.splitlines()[1:], err) == (seen.splitlines()[1:], said)


SMALL = "import yaml, os, sys\nprint('ran', os.getpid() == os.getsid(0), sys.argv[1:], flush=True)\n" \
        "import signal\nif not sys.argv[1:]: signal.pause()\nsys.exit(5)\n"


def becomes(one: Trial, change: str, how: dict[str, Any]) -> tuple[str, int]:
    """("warm" or "cold", exit code) of a rank's next start, which must have run once."""
    shell = one.shell("x", 2, warm_up=True, before=change, **how)
    out, err = shell.communicate(timeout=60)
    assert out == "ran True ['x']\n", (change, out, err)
    pid = 0
    with suppress(OSError, IndexError):
        pid = one.taken()
    return ("warm", int(one.lines.readline().split()[2]) >> 8) if pid else ("cold", shell.returncode)


@pytest.mark.parametrize(("change", "path"), [
    (":", "warm"),
    ("export OMP_NUM_THREADS=2", "cold"),
    ("echo >>train.py", "cold"),
    ("kill -9 $PARKED", "cold"),
    in_long("umask 077; ulimit -S -n 500; exec 8</dev/null", "warm"),
    in_long("export SAFELAUNCH_RESUME_STEP=7", "warm"),
    in_long("export CUDA_VISIBLE_DEVICES=0", "cold"),
    in_long("export PYTHONHASHSEED=1", "cold"),
    in_long("export LD_PRELOAD=", "cold"),
    in_long("unset RANK", "cold"),
    in_long("export LOCAL_WORLD_SIZE=2", "cold"),
    in_long("mkdir -p sub; cp train.py sub; cd sub", "cold"),
    in_long("trap '' USR1", "cold"),
    in_long("touch yaml.py; rm train.py; mv yaml.py later.py; cp other.py train.py", "cold"),
    in_long("mkdir -p yaml; touch yaml/__init__.py; rm -r yaml", "warm"),
    in_long("taskset -p -c 0 $$ >/dev/null", "cold"),
    in_long("kill -9 $KEEPER", "cold"),
    in_long("kill -STOP $PARKED", "cold"),
    in_long("renice -n 5 $$ >/dev/null", "cold"),
], ids=str)
def test_whatever_differs_ends_in_a_cold_start_that_runs_once(tmp_path: Path, change: str, path: str) -> None:
    (tmp_path / "other.py").write_text(SMALL)
    with trial(tmp_path, SMALL) as one:
        assert one.parked() == "parked 0\n"
        parked = Path(f"/proc/{one.keeper.pid}/task/{one.keeper.pid}/children").read_text().strip()
        one_change = change.replace("$KEEPER", str(one.keeper.pid)).replace("$PARKED", parked)
        assert becomes(one, one_change, {}) == (path, 5)
        one.keeper.kill()
        end = time.monotonic() + 5
        while os.path.exists(f"/proc/{parked}") and time.monotonic() < end:
            time.sleep(0.02)
        assert not os.path.exists(f"/proc/{parked}")


@pytest.mark.parametrize(("top", "why"), [
    in_long("import os\nos.environ['A'] = '1'\nimport yaml", "not ready"),
    ("import sys\nsys.path.insert(0, 'x')\nimport own", "own"),
], ids=str)
def test_an_import_behind_anything_else_is_left_to_the_script(tmp_path: Path, top: str, why: str) -> None:
    (tmp_path / "own.py").write_text("import os\nprint('own code')\nimport yaml\n")
    with trial(tmp_path, top + "\nimport signal\nsignal.pause()\n") as one:
        one.parked()
        pids = Path(f"/proc/{one.keeper.pid}/task/{one.keeper.pid}/children").read_text().split()
        assert all("yaml" not in Path(f"/proc/{pid}/maps").read_text() for pid in pids)
