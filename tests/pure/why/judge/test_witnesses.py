"""Evidence from outside the log: it confirms, replaces or places what the log says."""

from __future__ import annotations

from dataclasses import replace

from safelaunch.base.model import Event
from safelaunch.why.evidence import checks_after
from safelaunch.why.findings import EndFacts, OutsideEvidence, TaskExit
from tests.pure.why.judged import judge_text
from tests.tables import each

STEPS = "".join(f"step {number} loss 2.{number}\n" for number in range(10, 20))
TRACE = 'Traceback (most recent call last):\n  File "/home/u/train.py", line 7, in main\n    go()\nKeyError: 8\n'
FELL = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"


@each(
    ("evidence", "category"),
    [
        (OutsideEvidence(lost=(("n4", "its guard has been silent for 10 s"),)), "node_failure"),
        (OutsideEvidence(end=EndFacts("interrupted", ending="time_limit")), "time_limit"),
        (OutsideEvidence(states=("OUT_OF_MEMORY",)), "host_oom"),
        (OutsideEvidence(states=("CANCELLED by 1000",)), "cancelled"),
        (OutsideEvidence(states=("COMPLETED",)), "unknown"),
        (OutsideEvidence(bad_nodes=(("n4", "DOWN: Not responding"),)), "node_failure"),
        (OutsideEvidence(failed_checks=(("n4", ("gpu_ecc",), "gpu_ecc: 2 errors"),)), "gpu_hardware"),
        (OutsideEvidence(failed_checks=(("n4", ("infiniband",), "infiniband: no port"),)), "network"),
        (OutsideEvidence(failed_checks=(("n4", ("rw",), "rw /scratch: it is read-only"),)), "node_failure"),
        (OutsideEvidence(exits=(TaskExit("n4", 3, 139, 11),)), "native_crash"),
        (OutsideEvidence(exits=(TaskExit("n4", 3, 137, 9),)), "unknown"),
        (OutsideEvidence(exits=(TaskExit("n4", 3, 1),)), "unknown"),
    ],
    ids=["a lost node", "Slurm's ending", "out of memory", "cancelled", "a state that says nothing",
         "a node that Slurm calls down", "broken memory of a GPU", "no port", "a dead disk", "a segmentation fault",
         "an unexplained SIGKILL", "an exit code only"],
)
def test_where_the_log_says_nothing_the_evidence_speaks(evidence: OutsideEvidence, category: str) -> None:
    assert judge_text(STEPS + FELL, evidence=evidence).category == category


def test_the_log_s_clear_cause_stands_against_weak_evidence() -> None:
    verdict = judge_text(STEPS + TRACE + FELL, evidence=OutsideEvidence(exits=(TaskExit("n4", 3, 137, 9),)))
    assert verdict.category == "user_code"


def test_sure_evidence_stands_against_the_log_and_keeps_its_reading() -> None:
    verdict = judge_text(STEPS + TRACE + FELL, evidence=OutsideEvidence(lost=(("n4", "silent for 10 s"),)))
    assert (verdict.category, verdict.suspects) == ("node_failure", ("n4",))
    assert verdict.runner_up is not None and verdict.runner_up.category == "user_code"


def test_two_witnesses_are_surer_than_one() -> None:
    text = STEPS + "slurmstepd: error: Detected 1 oom_kill event in StepId=8.0.\n"
    alone = judge_text(text).confidence
    assert judge_text(text, evidence=OutsideEvidence(states=("OUT_OF_MEMORY",))).confidence > alone


def test_the_first_exit_places_a_cause_without_a_place() -> None:
    verdict = judge_text(STEPS + TRACE + FELL,
                         evidence=OutsideEvidence(exits=(TaskExit("n4", 3, 1), TaskExit("n5", 4, 1))))
    assert verdict.host == "n4"


def test_a_node_that_was_blamed_before_is_suspected() -> None:
    hang = "n4:1:2 [0] NCCL WARN socketProgress: Connection closed by remote peer n5<41234>\n"
    known = OutsideEvidence(exits=(TaskExit("n4", 3, 1),), ledger={"n4": 2})
    verdict = judge_text(STEPS + hang + FELL, evidence=known)
    assert verdict.suspects == ("n4",)
    assert "n4 was blamed 2 times before" in verdict.notes


def test_a_live_run_without_an_error_is_healthy() -> None:
    assert judge_text("loading\n", evidence=OutsideEvidence(running=True)).category == "none"


@each(
    ("evidence", "category"),
    [(OutsideEvidence(exits=(TaskExit("n2", 2, 9),)), "unknown"), (OutsideEvidence(exits=(TaskExit("n2", 2, 137, 9),)),
                                                                   "unknown"),
     (OutsideEvidence(exits=(TaskExit("n2", 2, 9),), end=EndFacts("interrupted", ending="cancelled")), "cancelled"),
     (OutsideEvidence(), "cancelled")],
    ids=["a task failed", "a task was killed", "the job was cancelled", "nothing is known"],
)
def test_a_step_that_srun_itself_ended_was_cancelled_by_nobody(evidence: OutsideEvidence, category: str) -> None:
    text = STEPS + "slurmstepd-n1: error: *** STEP 12.0 ON n0 CANCELLED AT 2026-11-21T22:48:29 ***\n"
    assert judge_text(text, evidence=evidence).category == category


CANCELLED = "slurmstepd-n0: error: *** STEP 12.0 ON n0 CANCELLED AT 2026-11-21T22:48:29 ***\n"
SAW = "srun: error: n0: task 0: Exited with exit code 143\n"


@each("text", [CANCELLED + SAW, SAW + CANCELLED, SAW], ids=["told", "told late", "not read"])
@each(
    ("exits", "row", "category"),
    [((TaskExit("n0", 0, 143, 15),), "step_cancelled", "cancelled"),
     ((TaskExit("n1", 1, 0), TaskExit("n0", 0, 143)), "step_cancelled", "cancelled"),
     ((TaskExit("n1", 1, 0), TaskExit("n0", 0, 0)), "step_cancelled", "cancelled"),
     ((TaskExit("n0", 0, 139, 11), TaskExit("n1", 1, 143, 15)), "step_cancelled", "native_crash"),
     ((TaskExit("n0", 0, 3),), "step_cancelled", "unknown"), ((TaskExit("n0", 0, 143, 15),), "task_failed", "unknown")],
    ids=["its SIGTERM", "in a shell, beside one that has saved", "all have saved", "a crash", "an exit code",
         "not cancelled"],
)
def test_tasks_that_end_since_their_step_was_cancelled_speak_against_no_node(
    text: str, exits: tuple[TaskExit, ...], row: str, category: str,
) -> None:
    verdict = judge_text(STEPS + text, evidence=OutsideEvidence(exits=exits, end=EndFacts("failed", row)))
    assert verdict.category == category
    assert category != "cancelled" or not (verdict.host or verdict.suspects)


@each("line", ["Terminated", "train.sh: line 3:   412 Terminated              python t.py"])
@each(
    ("evidence", "category"),
    [(OutsideEvidence(exits=(TaskExit("n2", 2, 9), TaskExit("n0", 0, 143, 15))), "unknown"),
     (OutsideEvidence(exits=(TaskExit("n0", 0, 143, 15),)), "cancelled"),
     (OutsideEvidence(exits=(TaskExit("n0", 0, 143),)), "cancelled")],
    ids=["after another task had failed", "of the first to end", "of the first to end, in a shell"])
def test_ranks_that_are_ended_since_another_has_failed_cancel_nothing(
    line: str, evidence: OutsideEvidence, category: str,
) -> None:
    verdict = judge_text(STEPS + line + "\n", evidence=evidence)
    assert verdict.category == category
    assert category == "cancelled" or (verdict.host, verdict.summary) == (
        "n2", "task 2 on n2 ended with exit code 9, and the log does not say why")


@each(
    ("evidence", "category", "said"),
    [(OutsideEvidence(exits=(TaskExit("n2", 2, 3),), srun_code=3), "unknown", "task 2 on n2 ended with exit code 3"),
     (OutsideEvidence(exits=(TaskExit("n2", 2, 143, 15),)), "unknown",
      "task 2 on n2 was killed by signal 15; nothing in the log says by whom"),
     (OutsideEvidence(srun_code=1), "unknown", "srun ended with exit code 1"),
     (OutsideEvidence(exits=(TaskExit("", 0, 3),)), "unknown", "the script ended with exit code 3"),
     (OutsideEvidence(states=("FAILED",)), "unknown", "Slurm: the job has failed"),
     (OutsideEvidence(states=("COMPLETED",), srun_code=1), "none", ""), (OutsideEvidence(exits=(TaskExit("n2", 2, 0),)),
                                                                         "none", "")],
    ids=["an exit code", "a signal", "srun's code", "a script's code", "Slurm's word", "it has completed",
         "all is well"])
def test_a_log_without_a_failure_is_no_health_where_something_ended_badly(
    evidence: OutsideEvidence, category: str, said: str,
) -> None:
    verdict = judge_text(STEPS, evidence=evidence)
    assert verdict.category == category and said in verdict.summary


# --- a kill that nobody explains ------------------------------------------------------------------------------------

KILLED = "task 3 on n4 was killed by signal 9; nothing in the log says by whom"


@each("line", ["", FELL, "Killed\n", "[n4:3]:  traceback : Signal 9 (SIGKILL) received by PID 9\n"])
def test_an_unexplained_kill_is_called_that_and_no_lack_of_memory(line: str) -> None:
    verdict = judge_text(STEPS + line, evidence=OutsideEvidence(exits=(TaskExit("n4", 3, 137, 9),)))
    assert (verdict.category, verdict.action) == ("unknown", "restart") and verdict.confidence < 0.5
    assert verdict.summary.endswith("was killed by signal 9; nothing in the log says by whom")


def test_what_another_rank_says_after_an_unexplained_kill_is_not_taken_for_its_place() -> None:
    trace = TRACE.replace("KeyError: 8", "ConnectionResetError: another rank has closed its connection")
    said = "".join(f"[n4:1]:{line}\n" for line in trace.splitlines())
    verdict = judge_text(STEPS + said, evidence=OutsideEvidence(exits=(TaskExit("n4", 0, 137, 9),)))
    assert verdict.summary == "task 0 on n4 was killed by signal 9; nothing in the log says by whom"
    assert (verdict.host, verdict.rank) == ("n4", None)


def test_a_kill_that_the_kernel_explains_is_a_lack_of_memory() -> None:
    text = STEPS + "n4 kernel: Out of memory: Killed process 4242 (python) total-vm:190123456kB\n"
    assert judge_text(text, evidence=OutsideEvidence(exits=(TaskExit("n4", 3, 137, 9),))).category == "host_oom"


# --- exceptions that nothing caught ---------------------------------------------------------------------------------

HERE, THERE = TaskExit("n4", 3, 1), TaskExit("n5", 4, 1)
OS = TRACE.replace("/home/u/train.py", "/usr/lib/python3.11/os.py")


def by(host: str, text: str) -> str:
    return "".join(f"[{host}:0]:{line}\n" for line in text.splitlines())


@each(
    ("text", "exits", "is_certain"),
    [(TRACE, (HERE,), True), (TRACE, (), False), (TRACE, (TaskExit("n4", 3, 137, 9),), False), (OS, (HERE,), False),
     (TRACE.replace("KeyError: 8", "AssertionError: 7 GPUs"), (HERE, THERE), False),
     (TRACE.replace("KeyError: 8", "ValueError: 8"), (HERE, THERE), False),
     (by("n4", TRACE.replace("KeyError: 8", "ValueError: 8")) + by("n5", TRACE.replace("KeyError: 8", "ValueError: 8")),
      (HERE, THERE), True),
     (TRACE.replace("KeyError: 8", "TokenServerError: no answer"), (HERE, THERE), False)],
    ids=["in the user's code", "nothing says that it ended a task", "the task was killed", "in a library",
         "what a node may lack, on one node", "another one, on one node", "the same on two nodes",
         "of an unknown type"])
def test_an_exception_is_the_program_s_own_where_no_node_can_have_caused_it(
    text: str, exits: tuple[TaskExit, ...], is_certain: bool,
) -> None:
    assert (judge_text(STEPS + text, evidence=OutsideEvidence(exits=exits)).confidence >= 0.8) is is_certain


@each("codes", [(127, 127), (127, 143)], ids=["on both nodes", "on one of two"])
def test_a_command_that_is_missing_everywhere_is_certain(codes: tuple[int, int]) -> None:
    exits = (TaskExit("n4", 3, codes[0]), TaskExit("n5", 4, codes[1]))
    verdict = judge_text("bash: line 1: torchrun: command not found\n", evidence=OutsideEvidence(exits=exits))
    assert verdict.category == "environment" and (verdict.confidence >= 0.8) is (codes == (127, 127))


# --- safelaunch's own signals ---------------------------------------------------------------------------------------

SAID = ["[n0:0]: W Received 15 death signal, shutting down workers\n", "[n0:0]:Terminated\n",
        "[n0:0]:[rank: 0] Received SIGTERM: 15\n",
        "slurmstepd-n1: error: *** STEP 12.0 ON n0 CANCELLED AT 2026-11-21T22:48:29 ***\n",
        "srun: forcing job termination\n"]


@each("said", SAID)
def test_words_of_a_signal_behind_safelaunch_s_own_end_cancel_nothing(said: str) -> None:
    evidence = OutsideEvidence(exits=(TaskExit("n4", 3, 1),), own_term_bytes=len(STEPS))
    assert judge_text(STEPS + said, evidence=evidence).category == "unknown"


def test_a_signal_that_came_before_safelaunch_s_own_is_somebody_else_s() -> None:
    evidence = OutsideEvidence(exits=(TaskExit("n4", 3, 1),), own_term_bytes=len(STEPS + SAID[0]))
    assert judge_text(STEPS + SAID[0], evidence=evidence).category == "cancelled"


def test_a_rank_of_a_hang_that_safelaunch_killed_lacked_no_memory() -> None:
    killed = STEPS + "srun: error: n1: task 1: Killed\n"
    hang = OutsideEvidence(stacks=(("n1", "rank 1: is stopped"),), stacks_rank=1, stacks_sure=0.85, is_hang=True)
    assert judge_text(killed, evidence=replace(hang, own_term_bytes=len(STEPS))).category == "hang"
    assert judge_text(killed, evidence=replace(hang, own_term_bytes=len(killed))).category == "host_oom"


BROKEN = ("n4", ("gpu_count",), "gpu_count: 7 GPUs, 8 asked")
XID = "n4: NVRM: Xid (PCI:0000:90:00): 79, pid=4242, name=python, GPU has fallen off the bus.\n"


def test_a_suspect_whose_full_check_failed_is_named_with_the_checks_words() -> None:
    verdict = judge_text(STEPS + FELL, evidence=OutsideEvidence(failed_checks=(BROKEN,)))
    assert (verdict.suspects, verdict.host) == (("n4",), "n4") and "7 GPUs, 8 asked" in verdict.summary
    alone = judge_text(STEPS + XID + FELL)
    both = judge_text(STEPS + XID + FELL, evidence=OutsideEvidence(failed_checks=(BROKEN,)))
    assert both.category == alone.category == "gpu_hardware" and both.confidence > alone.confidence


def test_a_failed_check_explains_no_error_of_the_program() -> None:
    verdict = judge_text(STEPS + TRACE + FELL, evidence=OutsideEvidence(failed_checks=(BROKEN,)))
    assert verdict == judge_text(STEPS + TRACE + FELL)


def test_only_full_checks_after_that_attempt_that_failed_are_a_witness() -> None:
    def told(name: str, after: int | None, level: str, **more: object) -> Event:
        return Event(1.0, 1, 1, "n0", name, {"nodes": ["n4"], "after": after, "level": level, **more})

    failed = {"checks": ["gpu_count", "rw /scratch"], "why": "gpu_count: 7 GPUs"}
    journal = [told("checks_failed", None, "light", **failed), told("checks_failed", 2, "full", **failed),
               told("checks_failed", 1, "light", **failed), told("checks_passed", 1, "full", unknown=["n5"])]
    found = checks_after(journal, 1)
    assert found.failed == () and found.lines == (
        "n4: light checks after it have failed: gpu_count: 7 GPUs",
        "n4: full checks after it have passed, which clears no suspect", "n5: could not be checked after it")
    assert checks_after(journal, 2).failed == (("n4", ("gpu_count", "rw"), "gpu_count: 7 GPUs"),)
    assert checks_after([told("checks_failed", 3, "full", checks=None)], 3).failed == (("n4", (), ""),)


def test_a_kill_that_a_script_reports_is_no_lack_of_memory_and_has_no_node() -> None:
    verdict = judge_text(f"{STEPS}job.slurm: line 7: 17 Killed   deepspeed train.py\n",
                         evidence=OutsideEvidence(exits=(TaskExit("", 0, 137),)))
    assert (verdict.category, verdict.host) == ("unknown", None)
    assert verdict.summary == "a process was killed by signal 9; nothing in the log says by whom"


@each(("rank", "category"), [(3, "user_code"), (0, "hang"), (None, "hang")],
      ids=["of the rank that had raised", "of another one", "of nobody in particular"])
def test_a_hang_of_the_rank_that_raised_and_stayed_is_of_its_exception(rank: int | None, category: str) -> None:
    raised = "".join(f"[n4:1]:[rank3]: {line}\n" for line in TRACE.splitlines())
    looked = OutsideEvidence(is_hang=True, stacks=(("n4", f"rank {rank}: _shutdown"),), stacks_rank=rank,
                             stacks_said=f"rank {rank} on n4 is in _shutdown while 2 wait in all_reduce")
    verdict = judge_text(STEPS + raised, evidence=looked)
    assert (verdict.category, verdict.rank) == (category, rank)
