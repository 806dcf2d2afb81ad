"""What `why` says of the faults that people meet: at once, while the training stands, and afterwards.

`faults/*.log` are real logs of torchrun (PyTorch 2.13) on two nodes with two ranks each, with their paths made neutral.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from safelaunch.hangs.present import LastLook, Present, judge_living, judge_present, tell, tell_silence
from safelaunch.stacks.verdict import judge_hang
from safelaunch.status.silence import LateStep
from safelaunch.why.evidence import Stacks, know
from safelaunch.why.findings import EndFacts, OutsideEvidence, TaskExit
from safelaunch.why.show import verdicttext
from safelaunch.why.verdict import Verdict
from tests.pure.hangs.stack_values import rank, reports
from tests.pure.why.judged import judge_text, read_text
from tests.tables import each

FAULTS = Path(__file__).parent / "faults"
NODES = ("n0", "n1")
STEPS = "".join(f"[n0:0]:step {number}/400 | loss 2.{number}\n" for number in range(50, 90))
USAGE = "usage: train.py [-h] [--steps STEPS]\ntrain.py: error: unrecognized arguments: --stepz 400\n"
ERROR = "ValueError: too many values to unpack"
RAISED = ('Traceback (most recent call last):\n  File "/home/u/train.py", line 9, in <module>\n    main()\n'
          '  File "/home/u/train.py", line 7, in main\n    build(args)\n' + ERROR + "\n")
OF_LAUNCHER = ('Traceback (most recent call last):\n  File "/opt/env/bin/torchrun", line 8, in <module>\n'
               '    sys.exit(main())\n  File "/usr/lib/python3.11/subprocess.py", line 1262, in wait\n'
               "    return self._wait(timeout=timeout)\n")
BAD, BAD_TOO = TaskExit("n1", 1, 1), TaskExit("n0", 0, 1)
CLOSED = "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.1.2.3]:41234"
MONITORED = "RuntimeError: [Rank 0]: Rank 2 failed to pass monitoredBarrier in 1800000 ms\n"
REACHED = ("RuntimeError: Rank 1 successfully reached monitoredBarrier, but received errors while waiting for "
           "send/recv from rank 0. Please check rank 0 logs for faulty rank.\n")
ENDED_BY_IT = "W1128 16:14:34.0 9414 torch/elastic/multiprocessing.py:1] Sending process 11500 closing signal SIGTERM\n"
OWN_TERM = "<- here safelaunch ends the ranks ->\n"


def by(text: str, *nodes: str, ranks: int = 2) -> str:
    """The lines as each rank prints them."""
    return "".join(f"[{node}:{number}]:{line}\n" for node in nodes for number in range(ranks)
                   for line in text.splitlines())


def report(*ranks: int, per_node: int = 2) -> str:
    """torchrun's summary of one node: the rank that failed, and those that it has ended for it."""
    rows = [f"  host      : n{rank // per_node}\n  rank      : {rank} (local_rank: {rank % per_node})\n"
            f"  exitcode  : {-15 if rank > ranks[0] else 1} (pid: 11498)\n" for rank in ranks]
    return f"ChildFailedError:\nFailures:\n{''.join(rows[1:])}Root Cause (first observed failure):\n[0]:\n{rows[0]}"


@dataclass(frozen=True)
class Fault:
    """A fault as it reaches the judge, and what is to be said of it."""

    log: str                          # text, or a file's name; OWN_TERM where safelaunch has ended the ranks
    exits: tuple[TaskExit, ...]
    verdict: str                      # category, and at least so sure
    said: str
    never: str = "sound like it"
    row: str | None = "task_failed"
    layout: tuple[tuple[str, ...], int] = (NODES, 2)
    stacks: Stacks | None = None
    suspects: tuple[str, ...] = ()


STOPPED = Stacks((("n1", "rank 3: is stopped"),), "rank 3 on n1 is stopped (by SIGSTOP or a debugger)", 0.85, 3)
FAULT_TABLE = {
    "SIGKILL of a rank": Fault(
        "killrank.log", (BAD, BAD_TOO), "unknown 0.45", "rank 3 on n1 was killed by signal 9", "memory grew"),
    "SIGTERM of a rank": Fault(
        "sigterm.log", (BAD, TaskExit("n0", 0, 255)), "unknown 0.45", "rank 2 on n1 was killed by signal 15",
        "network"),
    "SIGTERM of a node's torchrun": Fault(
        "sigtermagent.log", (BAD, TaskExit("n0", 0, 137, 9)), "unknown 0.45",
        "the launcher on n1 was killed by signal 15", "somebody ended"),
    "SIGTERM of a rank that is a task": Fault(
        STEPS + by(CLOSED, "n0"),
        (TaskExit("n1", 3, 143, 15), BAD_TOO), "unknown 0.45", "task 3 on n1 was killed by signal 15", "network"),
    "SIGUSR1 to all, which a launcher does not handle": Fault(
        STEPS + "srun: error: n1: task 1: User defined signal 1\n",
        (TaskExit("n1", 1, 138, 10), TaskExit("n0", 0, 138, 10)),
        "unknown 0.45", "task 1 on n1 was killed by signal 10 (SIGUSR1)", "somebody ended"),
    "SIGUSR1 to a rank": Fault(
        STEPS + "[n1:node]:failed (exitcode: -10) local_rank: 0 (pid: 7) of binary: bash\n" + by(CLOSED, "n0")
        + report(2), (BAD, BAD_TOO), "unknown 0.45", "rank 2 on n1 was killed by signal 10 (SIGUSR1)", "network"),
    "setup fails without a word, and the step's end is read by its words": Fault(
        "[n1:node]:safelaunch: setup failed with exit code 3 on n1\n"
        "slurmstepd-n0: error: *** STEP 44.0 ON n0 CANCELLED AT 2026-11-29T16:34:59 *** (late)\n",
        (TaskExit("n1", 1, 3), TaskExit("n0", 0, 143, 15)), "unknown 0.3", "task 1 on n1 ended with exit code 3",
        "somebody ended"),
    "a rank ends with 0": Fault(
        "exit0.log", (BAD, BAD_TOO), "user_code 0.7", "rank 3 on n1 ended with exit code 0 while others trained",
        "the link"),
    "a rank of the only node ends with 0": Fault(
        STEPS + f"[n0:0]:{CLOSED}\n" + report(0), (BAD_TOO,), "user_code 0.7", "rank 1 on n0 ended with exit code 0",
        "the link", layout=(NODES[:1], 2)),
    "two ranks of the only node end with 0": Fault(
        STEPS + f"[n0:0]:{CLOSED}\n{ENDED_BY_IT}" + report(0, 2, per_node=4), (BAD_TOO,), "user_code 0.7",
        "ranks 1, 3 on n0 ended with exit code 0", "the link", layout=(NODES[:1], 4)),
    "the only rank of a node ends with 0, and its torchrun later": Fault(
        STEPS + f"[n0:0]:{CLOSED}\n" + report(0, per_node=1), (BAD_TOO, TaskExit("n1", 1, 0)), "user_code 0.7",
        "rank 1 on n1 ended with exit code 0", "the link", layout=(NODES, 1)),
    "a rank ends with 0 before a monitored barrier": Fault(
        STEPS + f"[n0:0]:{MONITORED}[n0:1]:{REACHED}[n1:1]:{REACHED}{ENDED_BY_IT}" + report(0, 1) + report(3),
        (BAD_TOO, BAD), "user_code 0.7", "rank 2 on n1 ended with exit code 0", "monitoredBarrier in"),
    "a rank that an older torchrun has ended without a word": Fault(
        STEPS + f"[n0:0]:{CLOSED}\n{ENDED_BY_IT}" + report(0), (BAD_TOO,), "network 0.2", "gloo lost its peer",
        layout=(NODES[:1], 2)),
    "a connection that breaks, all of whose ranks are told": Fault(
        STEPS + by(CLOSED, *NODES) + report(0, 1) + report(2, 3), (BAD_TOO, BAD), "network 0.2", "gloo lost its peer"),
    "a rank that does not come to a monitored barrier, and is ended": Fault(
        STEPS + f"[n0:0]:{MONITORED}[n0:1]:{REACHED}[n1:1]:{REACHED}" + ENDED_BY_IT * 2 + report(0, 1) + report(3),
        (BAD_TOO, BAD), "hang 0.7", "did not come to the barrier"),
    "a rank that is a task ends with 0": Fault(
        STEPS + by(CLOSED, "n0"),
        (TaskExit("n1", 3, 0), BAD_TOO), "user_code 0.7", "task 3 on n1 ended with exit code 0 while others trained"),
    "kill -9 of a node's torchrun": Fault(
        "torchrun.log", (TaskExit("n1", 1, 137, 9),), "unknown 0.45", "task 1 on n1 was killed by signal 9",
        "_wait(timeout"),
    "kill -9 of a node's torchrun, whose peer is ended": Fault(
        STEPS + OWN_TERM + "[n0:node]:Received 15 death signal, shutting down workers\n"
        + "[n0:node]:" + ENDED_BY_IT + "srun: error: n1: task 1: Killed\n", (TaskExit("n1", 1, 137, 9), BAD_TOO),
        "unknown 0.45", "task 1 on n1 was killed by signal 9", "death signal"),
    "SIGSTOP of a rank under torchrun": Fault(
        STEPS + OWN_TERM + OF_LAUNCHER + "SignalException: Process 2313 got signal: 15\n", (), "hang 0.85",
        "rank 3 on n1 is stopped (by SIGSTOP or a debugger)", "_wait(timeout", "hung", stacks=STOPPED),
    "a deadlock whose ranks say that a time is over when they are ended": Fault(
        STEPS + OWN_TERM + by("[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=81)", "n0"), (),
        "hang 0.85", "rank 3 on n1 is stopped", "did not finish in time", "hung", stacks=STOPPED),
    "a collective's time is over before safelaunch ends it": Fault(
        STEPS + by("[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=81, OpType=ALLREDUCE)", "n0")
        + OWN_TERM, (), "hang 0.85", "rank 3 on n1 is stopped", row="hung", stacks=STOPPED),
    "an argument that the program does not know": Fault(
        by(USAGE, *NODES) + OF_LAUNCHER * 9, (TaskExit("n0", 0, 1), BAD), "config 0.95", "is refused: --stepz 400",
        "number of ranks"),
    "its own word on an argument": Fault(
        by("usage: train.py\ntrain.py: error: --warmup must be below --steps\n", *NODES), (BAD_TOO, BAD), "config 0.95",
        "--warmup must be below --steps"),
    "an argument that click does not know": Fault(
        by("Usage: train.py [OPTIONS]\n\nError: No such option: --stepz\n", *NODES), (BAD_TOO, BAD), "config 0.95",
        "No such option: --stepz"),
    "an argument that typer does not know": Fault(
        by("╭─ Error ──╮\n│ No such option: --stepz  │\n╰──╯\n", *NODES), (BAD_TOO, BAD), "config 0.95", "--stepz"),
    "an argument that fire does not know": Fault(
        by("ERROR: Could not consume arg: --stepz\nUsage: train.py\n", *NODES), (BAD_TOO, BAD), "config 0.95",
        "Could not consume arg: --stepz"),
    "a key that hydra does not know": Fault(
        by("Could not override 'stepz'.\nKey 'stepz' is not in struct\n", *NODES), (BAD_TOO, BAD), "config 0.95",
        "the configuration is wrong"),
    "an argument of one node alone": Fault(
        by(USAGE, "n1"), (BAD,), "config 0.88", "is refused: --stepz 400", layout=(NODES, 1)),
    "an exception of the only rank before its first step": Fault(
        RAISED, (TaskExit("n0", 0, 1),), "user_code 0.85", "ValueError: too many values", layout=(("n0",), 1)),
    "an exception of a library's type, of all ranks before the first step": Fault(
        by(RAISED.replace("ValueError", "mylib.errors.Strange"), *NODES), (BAD_TOO, BAD), "user_code 0.85", "Strange"),
    "a name that this file has lost": Fault(
        STEPS + by(RAISED.replace(ERROR, "NameError: name 'lr' is not defined"), "n1"),
        (BAD, BAD_TOO), "user_code 0.85", "NameError: name 'lr' is not defined"),
    "a cgroup's memory is over": Fault(
        STEPS + "slurmstepd-n1: error: Detected 1 oom_kill event in StepId=8.0.\n", (TaskExit("n1", 1, 137, 9),),
        "host_oom 0.95", "host memory was exhausted"),
    "a cgroup's memory is over, of a rank below torchrun": Fault(
        "oomkill.log", (TaskExit("n2", 1, 1), TaskExit("n1", 0, 137, 9)), "host_oom 0.95",
        "host memory was exhausted", "rank 1 on n2", layout=(("n1", "n2"), 2)),
    "a full disk": Fault(
        STEPS + by(RAISED.replace(ERROR, "OSError: [Errno 28] No space left on device"), "n1"), (BAD,),
        "storage 0.88", "a disk is full"),
    "a folder that is not one's own, by torch.save": Fault(
        STEPS + by(RAISED.replace(ERROR, "RuntimeError: [enforce fail at inline_container.cc:747] . open file failed "
                                  "with strerror: Permission denied"), "n0"), (BAD_TOO, BAD), "config 0.6",
        "no permission", "older one"),
    "a module is missing everywhere": Fault(
        by(RAISED.replace(ERROR, "ModuleNotFoundError: No module named 'apex'"),
           *NODES), (BAD_TOO, BAD), "environment 0.85", "apex"),
    "words on a quota beside a launcher that was killed": Fault(
        STEPS + "[n0:0]:the quota of /home is exceeded, cannot write\n", (TaskExit("n1", 1, 137, 9),), "unknown 0.45",
        "task 1 on n1 was killed by signal 9"),
}


def judge(fault: Fault) -> tuple[Verdict, str]:
    text = (FAULTS / fault.log).read_text() if fault.log.endswith(".log") else fault.log
    mark = next((mark for mark in (OWN_TERM, "Received 15 death", "Sending process") if mark in text), None)
    known = know(EndFacts("failed", fault.row), fault.exits, stacks=fault.stacks, is_hang=fault.row == "hung",
                 layout=fault.layout, asked_bytes=len(text if mark is None else text[:text.index(mark)].encode()))
    return judge_text(text, evidence=known), text


@each("fault", FAULT_TABLE.values(), ids=FAULT_TABLE)
def test_afterwards_the_fault_itself_is_named(fault: Fault) -> None:
    verdict, text = judge(fault)
    category, _, least = fault.verdict.partition(" ")
    assert (verdict.category, verdict.suspects) == (category, fault.suspects), verdict
    assert fault.said in verdict.summary, verdict
    sure = float(least)
    assert verdict.confidence >= sure if sure > 0.8 else verdict.confidence < 0.8, verdict
    rows = [row for row in verdicttext.tell(verdict, read_text(text)) if row.label not in ("first", "then", "", "or")]
    shown = verdict.summary + "\n".join(row.text for row in rows)
    assert fault.never not in shown and "fix_user_code" not in shown, shown
    has_left = "ended with exit code 0" in verdict.summary
    assert ("left early" in shown, "raised an error" in shown) == (has_left, category == "user_code" and not has_left)
    assert not has_left or "traceback" not in shown, shown
    assert ("mostly memory" in shown) == ("killed by signal 9" in verdict.summary), shown
    assert "candidate" not in {row.label for row in rows}, rows   # what the ends of the others say is none
    told = verdicttext.tell(verdict, read_text(text), follows="it restarts", job="71")
    assert not [row for row in told if row.label in ("you", "") and re.search(r"\bJOB(ID)?\b", row.text)], shown


def test_what_several_hosts_say_is_placed_on_no_single_one() -> None:
    for name, said in (("an argument that the program does not know", "first; the same on 2 hosts"),
                       ("a name that this file has lost", "")):
        verdict, text = judge(FAULT_TABLE[name])
        (where,) = [row.text for row in verdicttext.tell(verdict, read_text(text)) if row.label == "where"]
        assert where.endswith(said or "on n1"), where


# --- at once --------------------------------------------------------------------------------------------------------

MAIN = ("train (train.py:63)", "<module> (train.py:80)")
IN_BACKWARD = ("_engine_run_backward (torch/autograd/graph.py:824)", "backward (torch/autograd/__init__.py:5)",
               "backward (torch/_tensor.py:5)", *MAIN)
IN_BARRIER = ("barrier (torch/distributed/distributed_c10d.py:4811)", "wrapper (torch/distributed/c10d_logger.py:81)",
              "train (train.py:47)", "<module> (train.py:80)")
IN_LOADER = ("wait (threading.py:306)", "get (queue.py:179)", "_try_get_data (torch/utils/data/dataloader.py:1011)",
             "__next__ (torch/utils/data/dataloader.py:530)", "train (train.py:44)", "<module> (train.py:80)")


def looked(odd: tuple[str, ...], others: tuple[str, ...]) -> str:
    ranks = [rank(number, odd if number == 1 else others, per_node=1, ran=False, cpu=0.0) for number in range(4)]
    return judge_hang(reports(*ranks)).summary


@each(("odd", "others", "said"), [
    (IN_BARRIER, IN_BACKWARD, "rank 1 on n1 waits in barrier, train.py:47 (train), while 3 ranks (0,2-3) wait in "
     "backward's all-reduce, train.py:63 (train)"),
    (IN_LOADER, IN_BACKWARD, "rank 1 on n1 waits for its data loader, train.py:44 (train), while 3 wait for it in a "
     "collective"),
    (("evaluate (train.py:89)", *MAIN), IN_BARRIER, "rank 1 on n1 is in evaluate, train.py:89, while 3 ranks (0,2-3) "
     "wait in barrier, train.py:47 (train)"),
], ids=["one in a barrier", "one at its loader", "one in an evaluation"])
def test_a_look_names_the_few_by_what_they_wait_for_and_by_their_own_line(
    odd: tuple[str, ...], others: tuple[str, ...], said: str,
) -> None:
    assert looked(odd, others) == said


def span(seconds: float) -> str:
    return f"{seconds:.0f} s"


def at(t: float) -> str:
    return f"12:00:{t:02.0f}"


SEEN = LastLook(50.0, "rank 1 on n1 waits in barrier, train.py:47", 0.85, True, 1, "n1")
LATE = Present(2, 89, 24.0, 0.212, LateStep(0.0, 20.0, 89, 0.212, "step"), look_t=55.0)


def test_a_silent_attempt_is_told_by_how_long_and_what_the_last_look_saw() -> None:
    lines = tell(LATE._replace(look=SEEN), span, at)
    assert lines == ["attempt 2 is silent: no step for 24 s (usually 0.21 s) after step 89",
                     "rank 1 on n1 waits in barrier, train.py:47 (85% sure, seen at 12:00:50)",
                     "its supervisor looks at all ranks at 12:00:55, unless a step is logged by then"]
    assert tell(LATE._replace(is_looking=True), span, at)[1:] == ["its supervisor looks at all ranks since 12:00:55"]
    verdict = judge_present(LATE._replace(look=SEEN), span, at)
    assert verdict is not None and (verdict.category, verdict.confidence, verdict.rank) == ("hang", 0.85, 1)


@each(("now", "category"), [
    (LATE, "unknown"), (LATE._replace(look=SEEN), "hang"), (LATE._replace(look=SEEN._replace(is_still=False)), "none"),
    (LATE._replace(late=None), None), (LATE._replace(late=None, look=SEEN), None),
], ids=["nobody has looked", "it stands", "its ranks moved", "in time", "in time after a look"])
def test_nothing_is_called_well_of_a_silent_attempt_before_a_look_has_seen_it_move(
    now: Present, category: str | None,
) -> None:
    verdict = judge_present(now, span, at)
    assert (None if verdict is None else verdict.category) == category
    assert verdict is None or verdict.summary.startswith("no step for 24 s (usually 0.21 s)")


@each("ended", ["", "attempt 1 failed"])
def test_what_only_a_living_hang_shows_is_not_advised_of_one_that_has_ended(ended: str) -> None:
    hung, text = judge(FAULT_TABLE["SIGSTOP of a rank under torchrun"])
    shown = "\n".join(row.text for row in verdicttext.tell(hung, read_text(text), ended=ended))
    assert ("while it hangs" in shown) == (not ended) and ("attempts/N/stacks" in shown) == bool(ended), shown


# --- between the first error and the attempt's end ------------------------------------------------------------------

ALIVE = Present(2, 89, 3.0, 0.212)
OF_DISK = by(RAISED.replace(ERROR, "OSError: [Errno 5] Input/output error: '/local/data/42.tar'"), "n1")


@each(("log", "now", "category", "said"), [
    (by(CLOSED, "n0"), ALIVE, "unknown", "gloo lost its peer: another rank has gone"),
    (MONITORED, ALIVE, "unknown", "is judged when the attempt has ended"),
    ("[n1:node]:Received 15 death signal, shutting down workers\n" + by(CLOSED, "n0"), ALIVE, "unknown",
     "the launcher on n1 was killed by signal 15"),
    (OF_DISK + by(CLOSED, "n0"), ALIVE, "storage", "answers with an I/O error"),
    (by(CLOSED, "n0"), LATE._replace(look=SEEN), "hang", "rank 1 on n1 waits in barrier"),
    (by(CLOSED, "n0"), LATE, "unknown", "gloo lost its peer: another rank has gone"),
    ("", ALIVE, "none", "the run is alive"),
], ids=["a lost peer", "a late peer", "SIGTERM of a launcher", "a cause beside it", "a lost peer beside a look",
        "a lost peer in silence", "well"])
def test_while_the_attempt_lives_who_has_lost_a_peer_blames_nobody(
    log: str, now: Present, category: str, said: str,
) -> None:
    text = STEPS + log
    verdict = judge_living(judge_text(text, evidence=OutsideEvidence(running=True, layout=(NODES, 2))), now, span, at)
    assert verdict.category == category and said in verdict.summary, verdict
    if category == "unknown" and "killed" not in said:
        assert (verdict.action, verdict.suspects, verdict.do, verdict.host) == ("none", (), "", None)
        rows = [*verdicttext.tell(verdict, read_text(text), follows="nothing yet")]
        assert not {"first", "you", "where", "candidate"} & {row.label for row in rows}, rows
        assert "then" in {row.label for row in rows}


def test_an_attempt_with_an_error_or_one_that_is_being_ended_is_not_told_to_run() -> None:
    assert tell(ALIVE, span, at) == ["attempt 2 runs: step 89"]
    assert tell(ALIVE, span, at, True) == [
        "attempt 2 has not ended (step 89), but its log tells of a failure"]
    assert tell(ALIVE._replace(slower="slow"), span, at)[1:] == ["slow"]
    assert tell(LATE._replace(ends="a task of it has failed"), span, at, True) == [
        "attempt 2 is being ended after step 89: a task of it has failed"]


def test_a_silence_is_told_by_its_phase_where_that_takes_longer_than_a_step() -> None:
    assert tell_silence(55.0, None, span, "warm-up") == "no step for 55 s"
    assert tell_silence(90.0, 45.0, span, "checkpoint") == "no step for 90 s (usually 45 s), at a time of checkpoint"
    assert tell_silence(3600.0, None, span, "start") == "no first step for 3600 s"
