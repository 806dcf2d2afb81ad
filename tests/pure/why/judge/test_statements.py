"""What states a cause comes before what only follows from one, however it is printed."""

from __future__ import annotations

from tests.pure.why.judged import judge_text
from tests.tables import each

TERMINATE = "terminate called after throwing an instance of '{}'\n  what():  {}\n"
HANDLER = "[n6:583] *** Process received signal ***\n[n6:583] Signal: Aborted (6)\n[n6:583] Signal code:  (-6)\n"
FRAMES = 'Traceback (most recent call last):\n  File "/a/train.py", line 3, in f\n    raise NotImplementedError\n'


@each("text, category", (
    # A report of SIGABRT follows what a C++ exception has stated, by its type and its words.
    (TERMINATE.format("CUDA::error", "/a/src/pool.hpp(42): error: out of memory") + HANDLER, "cuda_oom"),
    (TERMINATE.format("pkg::DiskError", "no space left on device: quota exceeded") + HANDLER, "storage"),
    (TERMINATE.format("std::out_of_range", "vector::_M_range_check") + HANDLER, "user_code"),
    (HANDLER.replace("Aborted (6)", "Segmentation fault (11)"), "native_crash"),
    # A line that no rule knows, before an echo that a rule knows.
    ("the quota of the file system is exceeded, no space is left to write\n" + HANDLER, "storage"),
    # What was only mentioned long before has not ended the program.
    ("No module named 'x._version'\n" + "loading a shard of the data\n" * 200 + FRAMES + "NotImplementedError\n",
     "user_code"),
    # The verb, not the names around it.
    ("/var/spool/job8/slurm_script: line 31:  6521 Killed singularity exec --nv ../x.sif python t.py\n", "host_oom"),
    ("E x.cc:2] failed: NCCL operation ncclGetVersion(&v) failed: Unable to load NCCL library.\n", "environment"),
    ("jaxlib.x.XlaRuntimeError: INTERNAL: NCCL operation ncclGroupEnd() failed: unhandled system error\n", "network"),
    ("ERROR:composer.cli.launcher:Rank 2 crashed with exit code -7\n", "native_crash"),
    # Whose memory: XLA's client for CPUs, and for devices.
    ("jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 64000000000000 bytes.\n", "host_oom"),
    ("jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 64 bytes.\n", "cuda_oom"),
    ("mpi4py.MPI.Exception: MPI_ERR_RANK: invalid rank\n", "user_code"),
    ("mpi4py.MPI.Exception: MPI_ERR_PROC_FAILED: process failed\n", "network"),
    # A rank's exit code before a cancel, whoever prints it.
    ("E0102 03:04:05.123456 42 api.py:826] failed (exitcode: 1) local_rank: 0 (pid: 4242) of binary: /env/python\n"
     "slurmstepd: error: *** STEP 9.0 ON n1 CANCELLED AT 2024-06-02T11:00:00 ***\n", "unknown"),
))
def test_the_category(text: str, category: str) -> None:
    verdict = judge_text(text)
    assert verdict.category == category, verdict


@each("text, host, action", (
    ("RuntimeError: CUDA error: uncorrectable ECC error encountered\n", None, "restart"),
    ("n7: RuntimeError: CUDA error: uncorrectable ECC error encountered\nn7: rank 3 exited with code 1\n", "n7",
     "exclude_and_restart"),
    ("starting on node gpu07 with 8 cards\nRuntimeError: CUDA error: uncorrectable ECC error encountered\n", "gpu07",
     "exclude_and_restart"),
))
def test_no_node_is_left_out_that_nothing_names(text: str, host: str | None, action: str) -> None:
    verdict = judge_text(text)
    assert (verdict.host, verdict.action) == (host, action), verdict
    assert verdict.suspects == ((host,) if host else ())


def test_torchrun_s_summary_gives_the_place_where_nothing_tells_the_cause() -> None:
    verdict = judge_text(
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \ntrain.py FAILED\nRoot Cause (first "
        "observed failure):\n[0]:\n  time      : 2024-01-01_00:00:00\n  host      : ip-10-0-0-7.internal\n"
        "  rank      : 3 (local_rank: 3)\n  exitcode  : 1 (pid: 4242)\n")
    assert (verdict.category, verdict.host, verdict.rank) == ("unknown", "ip-10-0-0-7.internal", 3)
