"""A message that lists several causes names none: the answer is unknown, with all of them as candidates."""

from __future__ import annotations

from safelaunch.why.read.messages import list_causes
from safelaunch.why.show.verdictjson import to_public
from tests.pure.why.judged import judge_text
from tests.tables import each

RAY = ("Worker unexpectedly exits with a connection error code 2. End of file. There are some potential root causes. "
       "(1) The process is killed by SIGKILL by OOM killer due to high memory usage. (2) ray stop --force is called. "
       "(3) The worker is crashed unexpectedly due to SIGSEGV or other unexpected errors.")
DASHES = "-" * 74 + "\n"
ORTE = """ORTE was unable to reliably start one or more daemons.
This usually is caused by:

* not finding the required libraries and/or binaries on
  one or more nodes. Please check your PATH and LD_LIBRARY_PATH
  settings, or configure OMPI with --enable-orterun-prefix-by-default

* lack of authority to execute on one or more specified nodes.
  Please verify your allocation and authorities.

* an inability to create a connection back to mpirun due to a
  lack of common network interfaces and/or no route found between
  them. Please check network connectivity (including firewalls
  and network routing requirements).
"""
PRTE = """A PRTE daemon has unexpectedly failed after launch and before
communicating back to mpirun. This could be caused by a number
of factors, including an inability to create a connection back
to mpirun due to a lack of common network interfaces and/or no
route found between them. Please check network connectivity
(including firewalls and network routing requirements).
"""
FRAME = 'Traceback (most recent call last):\n  File "/a/t.py", line 3, in f\n    run()\n'


@each("text, causes", (
    (RAY, ("The process is killed by SIGKILL by OOM killer due to high memory usage", "ray stop --force is called",
           "The worker is crashed unexpectedly due to SIGSEGV or other unexpected errors")),
    ("End of file. Some common causes include: (1) the process was killed by the OOM killer due to high memory usage, "
     "(2) ray stop --force was called, or (3) the worker crashed unexpectedly. If the process was killed, see x.",
     ("the process was killed by the OOM killer due to high memory usage", "ray stop --force was called",
      "the worker crashed unexpectedly")),
    ("A call failed possibly due to a network error or a remote process exiting prematurely.",
     ("a network error", "a remote process exiting prematurely")),
    ("This is usually due to either a failure of the TCP connection, or possibly an internal failure of the daemon.",
     ("a failure of the TCP connection", "an internal failure of the daemon")),
    ("Gave up. Possible causes: - the disk is full - the node was preempted", ("the disk is full",
                                                                            "the node was preempted")),
    ("Either the leader was preempted or this task has network issues. Check 1) this, 2) that",
     ("the leader was preempted", "this task has network issues")),
    ("This can happen when a \t(1) raylet crashes (OOM, etc.) \n\t(2) raylet has lagging heartbeats.",
     ("raylet crashes (OOM, etc.)", "raylet has lagging heartbeats")),
    ("It is possible that (1) the server is gone, (2) the address is wrong, or (3) there is a firewall.",
     ("the server is gone", "the address is wrong", "there is a firewall")),
    ("This could be due to several factors, including inability to find the daemon executable, or a lost link.",
     ("inability to find the daemon executable", "a lost link")),
    ("failed possibly due to a network error or a remote process exiting. Last error: NET/IB : error 12", ()),
    ("You have to specify either a config file or a model path", ()),
    ("the request was refused due to a missing or invalid token", ()),
    ("This might be caused by insufficient shared memory (shm).", ()),
    ("step 4: heads or width is zero", ()),
    ("", ()),
))
def test_the_causes_that_a_message_lists(text: str, causes: tuple[str, ...]) -> None:
    assert list_causes(text)[1] == causes


@each("text, candidates", (
    (FRAME + f"ray.exceptions.RayActorError: The actor died.\n{RAY}\n", {"host_oom", "native_crash"}),
    (FRAME + "RuntimeError: Worker 2 exited. Either it ran out of memory (host OOM), or the node was preempted.\n",
     {"host_oom", "preempted"}),
    ("RuntimeError: Worker 2 exited. Either it ran out of memory (host OOM), or the node was preempted.\n",
     {"host_oom", "preempted"}),
    (DASHES + ORTE + DASHES, {"network", "config"}),
    ("step 3 loss 1.0\nERROR: the solver gave up at step 4. Possible causes:\n  1. corrupted input data\n"
     "  2. a crash of the process\n", {"data", "native_crash"}),
    (FRAME + "horovod.common.exceptions.HorovodInternalError: Horovod has been shut down. This was caused by an "
     "exception on one of the ranks or an attempt to allreduce, allgather or broadcast a tensor after one of the ranks "
     "finished execution. If the shutdown was caused by an exception, you should see the exception in the log before "
     "the first shutdown message.\n", {"user_code"}),
    ("E0503 10:25:11.402123 2231 agent.cc:332] Failed with status: UNAVAILABLE: Failed to send RPC. Either the leader "
     "task was preempted/died/restarted unexpectedly or this task is experiencing network issues. Check earlier logs "
     "from 1) this task, 2) the leader, and 3) cluster scheduler to debug further.\n", {"network"}),
    ("ExecutorLostFailure (executor 3 exited caused by one of the running tasks) Reason: disassociated. Likely due to "
     "containers exceeding their memory limit, or network issues. Check the logs.\n", {"network"}),
))
def test_a_message_that_lists_several_causes_is_unknown_with_candidates(text: str, candidates: set[str]) -> None:
    verdict = judge_text(text)
    assert verdict.category == "unknown" and verdict.confidence < 0.5, verdict
    assert candidates <= {cited.category for cited in verdict.candidates}, verdict.candidates
    told = to_public(verdict)["candidates"]
    assert [one["text"] for one in told] == [cited.text for cited in verdict.candidates]
    assert candidates <= {one["category"] for one in told}


@each("text, category", (
    # A statement beside the list is taken at its word.
    ("E x.cc:2] /a/b: write failed: No space left on device\n" + FRAME +
     f"ray.exceptions.RayActorError: died.\n{RAY}\n", "storage"),
    # All of the listed are of one kind.
    (DASHES + PRTE + DASHES, "network"),
    (FRAME + "RuntimeError: gave up, possibly due to a network failure or a refused connection to the peer.\n",
     "network"),
    # A rule that stands outside of the list names its cause.
    ("(raylet, ip=10.0.0.9) The node with node id: 7f and address: 10.0.0.9 has been marked dead because the detector "
     "has missed too many heartbeats from it. This can happen when a (1) raylet crashes unexpectedly (OOM, etc.) "
     "(2) raylet has lagging heartbeats due to slow network or busy workload.\n", "node_failure"),
))
def test_what_is_stated_is_no_guess(text: str, category: str) -> None:
    verdict = judge_text(text)
    assert verdict.category == category, verdict


def test_causes_that_a_known_symptom_lists_are_shown_beside_it() -> None:
    verdict = judge_text(FRAME + "torch.distributed.DistBackendError: NCCL error in: x.cpp:1970, remote process exited "
                         "or there was a network error\nncclRemoteError: A call failed possibly due to a network error "
                         "or a remote process exiting prematurely.\n")
    assert {"a remote process exiting prematurely", "a network error"} <= {one.text for one in verdict.candidates}
