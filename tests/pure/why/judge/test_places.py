"""The port and the file that a cause is about, on the page and in --json."""

from __future__ import annotations

from safelaunch.why.show.verdictjson import to_public
from safelaunch.why.show.verdicttext import tell
from tests.pure.why.judged import judge_text, read_text
from tests.tables import each

FRAME = 'Traceback (most recent call last):\n  File "/a/train.py", line 12, in main\n    run()\n'
TORCH = "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
DASHES = "-" * 74 + "\n"
BIND = "[W429 10:00:01 socket.cpp:764] [c10d] The server socket has failed to bind to [::]:29512 (errno: 98 - {}).\n"


@each("text, port", (
    (FRAME + TORCH + "port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n",
     29500),
    (BIND.format("Address already in use") + FRAME + TORCH + "The server socket has failed to bind to ?\n", 29512),
    (FRAME + "OSError: [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use"
     "\n", 8000),
    (FRAME + "RuntimeError: Port 8476 is already in use\n", 8476),
    (FRAME + "ConnectionError: Tried to launch distributed communication on port `29500`, but another process is "
     "utilizing it.\n", 29500),
    ("E0000 server.cc:80] Failed to bind 0.0.0.0:6379: Address already in use\n", 6379),
    (FRAME + "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to "
     "connect to (n001, 29501).\n", 29501),
    (FRAME + "ConnectionRefusedError: [Errno 111] Connect call failed ('10.0.0.1', 29500)\n", 29500),
    (FRAME + "OSError: [Errno 98] Address already in use\n", None),
    ("train.py:120: ConnectionRefusedError: [Errno 111] Connection refused\n", None),
    (FRAME + "ValueError: port 3 of the switch model is not a multiple of 4\n", None),
))
def test_the_port(text: str, port: int | None) -> None:
    verdict = judge_text(text)
    assert verdict.port == port, verdict
    assert to_public(verdict)["verdict"]["port"] == port
    where = [row.text for row in tell(verdict, read_text(text)) if row.label == "where"]
    assert (f"port {port}" in "".join(where)) is (port is not None)


@each("text, file", (
    (FRAME + "FileNotFoundError: [Errno 2] No such file or directory: '/data/merges.txt'\n", "/data/merges.txt"),
    (FRAME + "FileNotFoundError: [Errno 2] No such file or directory: 'conf/base.yaml'\n", "conf/base.yaml"),
    (FRAME + "PermissionError: [Errno 13] Permission denied: '/scratch/x/run.log'\n", "/scratch/x/run.log"),
    ("./job.sh: line 3: /opt/solver/bin/lbm: No such file or directory\n", "/opt/solver/bin/lbm"),
    ("cp: cannot stat '/data/a b.tar': No such file or directory\n", "/data/a b.tar"),
    ("/scratch/out.h5: write failed: No space left on device\n", "/scratch/out.h5"),
    (FRAME + "OSError: [Errno 122] Disk quota exceeded: '/home/u/ckpt/step_100.pt'\n", "/home/u/ckpt/step_100.pt"),
    ("python: can't open file '/a/trian.py': [Errno 2] No such file or directory\n", "/a/trian.py"),
    (FRAME + "ImportError: libcudnn.so.9: cannot open shared object file: No such file\n", "libcudnn.so.9"),
    (FRAME + "ValueError: Tried to find /scratch/none/run7/checkpoint_120 but folder does not exist\n",
     "/scratch/none/run7/checkpoint_120"),
    ("/opt/bin/python3: can't open file '/a/trian.py': [Errno 2] No such file or directory\n", "/a/trian.py"),
    (f"{DASHES}PRTE was unable to open the hostfile:\n\n   /scratch/hosts\n\nCheck that the path is right.\n{DASHES}",
     "/scratch/hosts"),
    (FRAME + "InterpolationKeyError: Interpolation key 'trainer.width' not found\n", ""),
    (FRAME + "OSError: [Errno 116] Stale file handle\n", ""),
    (FRAME + "OSError: [Errno 28] No space left on device\n", ""),
    (FRAME + "ValueError: the ratio a/b is not found\n", ""),
    (FRAME + "ModuleNotFoundError: No module named 'petsc4py.lib'\n", ""),
))
def test_the_file(text: str, file: str) -> None:
    verdict = judge_text(text)
    assert verdict.file == file, verdict
    assert to_public(verdict)["verdict"]["file"] == (file or None)
    where = [row.text for row in tell(verdict, read_text(text)) if row.label == "where"]
    assert (f"file {file}" in "".join(where)) is bool(file)


def test_who_reports_on_another_rank_is_not_blamed() -> None:
    verdict = judge_text(
        "UNAVAILABLE: Task /job:jax_worker/replica:0/task:5 heartbeat timeout. The remote task has failed.\n"
        "Fatal Python error: Aborted\nsrun: error: n3: task 3: Aborted (core dumped)\n")
    assert (verdict.category, verdict.rank, verdict.host, verdict.suspects) == ("node_failure", 5, None, ())
