"""Slurm's words, each as a real Slurm 22.05.8 printed it on a sandbox (2026-11), unless a row says otherwise."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safelaunch.errors import ParseError
from safelaunch.slurm.slurmoutput import (
    is_ended_by_prolog,
    is_preempted,
    is_step_cancelled_first,
    parse_ending,
    parse_failed_prologs,
    parse_step_end,
    parse_step_ending,
)
from safelaunch.slurm.slurmtext import (
    FoundJob,
    JobAccount,
    KnownJob,
    QueuedJob,
    can_never_start,
    has_no_step,
    is_held,
    is_job_over,
    is_unknown_job,
    is_unknown_node,
    is_unreachable,
    parse_addresses,
    parse_cluster,
    parse_elapsed_s,
    parse_federation,
    parse_finding,
    parse_sacct,
    parse_sinfo,
    parse_squeue,
    parse_status,
    parse_steps,
    parse_submitted,
    parse_watch,
    render_elapsed,
    reserved_nodes,
    usable_nodes,
    why_no_overlap,
)
from tests.tables import each

# What stands in the job's own output after each act, as measured: a batch script on n0 with `srun -N2` inside.
AT = "2026-11-21T18:18:25"
JOB = f"slurmstepd-n0: error: *** JOB 8510401 ON n0 CANCELLED AT {AT}"
STEP = f"slurmstepd-n0: error: *** STEP 8510401.0 ON n0 CANCELLED AT {AT}"
ABORTED = "srun: Job step aborted: Waiting up to 7 seconds for job step to finish.\nsrun: got SIGCONT\n"
TERMINATED = "srun: forcing job termination\nsrun: error: n0: task 0: Terminated\nsrun: error: n1: task 1: Terminated\n"
KILLED = "srun: error: n1: task 1: Killed\nsrun: error: n0: task 0: Killed\nafter 137\n"
NODE_FAILURE = " DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***"


@each(
    ("output", "expected"),
    [
        (f"{ABORTED}{STEP} ***\n{JOB} ***\n{TERMINATED}", "cancelled"),
        (f"srun: got SIGCONT\n{JOB} ***\n{STEP} ***\n{TERMINATED}", "cancelled"),
        (f"{JOB} ***\n", "cancelled"),
        (f"{ABORTED}{STEP} DUE TO TIME LIMIT ***\n{JOB} DUE TO TIME LIMIT ***\n{TERMINATED}", "time_limit"),
        (f"{ABORTED}{STEP} DUE TO JOB REQUEUE ***\n{JOB} DUE TO JOB REQUEUE ***\n{TERMINATED}", "requeued"),
        (f"srun: error: Node failure on n1\n{STEP}{NODE_FAILURE}\n{JOB}{NODE_FAILURE}\n{ABORTED}", "node_failure"),
        (f"srun: error: Node failure on n0\n{JOB}{NODE_FAILURE}\n{ABORTED}", "node_failure"),
        (f"{JOB} DUE TO PREEMPTION ***\n", "preempted"),
        (f"{JOB} DUE TO A LATER SLURM'S REASON ***\n", "unknown"),
        (JOB.replace("slurmstepd-n0", "slurmstepd") + " ***\n", "cancelled"),
        (f"{STEP} ***\nsrun: Job step aborted: Waiting up to 7 seconds for job step to finish.\n{KILLED}", None),
        (f"{STEP} ***\nsrun: error: n0: task 0: Terminated\nsrun: Force Terminated StepId=8510401.0\n", None),
        ("srun: error: n0: task 0: Exited with exit code 3\n"
         "srun: launch/slurm: _step_signal: Terminating StepId=8510401.0\n"
         "srun: error: n1: task 1: Exited with exit code 3\nafter 3\n", None),
        (f"srun: error: Node failure on n1\n{KILLED}", None),
        (JOB.replace("8510401", "8510402") + " ***\n", None),
        (JOB.replace("8510401", "85104010") + " ***\n", None),
        (f"the docs say: {JOB} ***\n", None),
        ("", None),
        (f"{JOB} DUE TO JOB REQUEUE ***\nit runs again\n{JOB} ***\n", "cancelled"),
        (f"{JOB} DUE TO JOB REQUEUE ***\nit runs again\n{JOB} DUE TO TIME LIMIT ***\n", "time_limit"),
        (f"{STEP} DUE TO TIME LIMIT ***\n", "time_limit"), (f"{STEP} DUE TO PREEMPTION ***\n", "preempted"),
        (f"{STEP} DUE TO TIME LIMIT ***\n{JOB} ***\n", "cancelled"), (f"{STEP} DUE TO NODE FAILURE ***\n", None),
    ],
    ids=[
        "scancel by the owner", "scancel by root", "scancel -s TERM --batch, -s KILL, and of a job whose step has gone",
        "the time limit", "scontrol requeue", "a worker set down", "the batch host set down",
        "preemption (as in slurmstepd's source)", "a reason that nobody knows yet", "one node: no host in the prefix",
        "scancel of one step", "scancel -s TERM: only the step", "a failed step under -K1",
        "a worker set down under --no-kill", "another job", "a job whose number begins alike", "words in a line",
        "nothing", "requeued, then cancelled", "requeued, then the time limit",
        "the time limit, and the batch host is dead", "a preemption, and the batch host is dead", "the job's own word",
        "a step's node failed",
    ],
)
def test_why_slurm_ended_the_job(output: str, expected: str | None) -> None:
    assert parse_ending(output, "8510401") == expected


def test_an_ending_is_found_among_the_trainings_own_lines() -> None:
    noise = "".join(f"step {number} loss 0.1\r\n" for number in range(1000))
    assert parse_ending(f"{noise}{JOB} ***\n{noise}", "8510401") == "cancelled"


START = "safelaunch 2026-11-21T18:20:31+0000 n0: run 1a2b3c4d, job 8510401 on n[0-1]\n"


@each(
    ("output", "expected"),
    [
        (f"{START}{JOB} DUE TO JOB REQUEUE ***\n", "requeued"),
        (f"{START}{JOB} DUE TO JOB REQUEUE ***\n{START}", None),
        (f"{START}{JOB} DUE TO JOB REQUEUE ***\n{START}{JOB} ***\n", "cancelled"),
        (f"{START}{JOB} ***\n{START.replace('8510401', '8510402')}", "cancelled"),
        (f"{START}{STEP} DUE TO TIME LIMIT ***\n{START}", None),
    ],
    ids=["requeued", "started again", "started again and cancelled", "another job's start", "a step's end"],
)
def test_of_a_requeued_job_only_what_stands_behind_its_last_start_counts(output: str, expected: str | None) -> None:
    assert parse_ending(output, "8510401") == expected


PROLOG = "slurmstepd-n0: error: Prolog failure on node n1\n"


@each(("output", "expected", "nodes"), [
    (f"{START}{PROLOG}{JOB} ***\n", "node_failure", ("n1",)),
    (f"{START}[2026-11-22T23:48:39.470] error: Prolog failure on node n1\nsrun: got SIGCONT\n"
     "[2026-11-22T23:48:39.522] error: *** JOB 8510401 ON n0 CANCELLED AT 2026-11-22T23:48:39 DUE to SIGNAL Terminated"
     " ***\n", "node_failure", ("n1",)),
    (f"{START}{PROLOG}{PROLOG.replace('n1', 'n7')}{JOB} ***\n", "node_failure", ("n1", "n7")),
    (f"{START}{JOB} ***\n{PROLOG}", "cancelled", ("n1",)),
    (f"{START}{PROLOG}{JOB} DUE TO PREEMPTION ***\n", "preempted", ("n1",)),
    (f"{START}{PROLOG}{START}{JOB} ***\n", "cancelled", ()),
    (f"{START}print: {PROLOG}{JOB} ***\n", "cancelled", ()),
    ("Error running slurm prolog: 1\n", "node_failure", ()),
    (f"Error running slurm prolog: 1\n{JOB} ***\n", "node_failure", ()),
    (f"{START}{JOB} ***\nError running slurm prolog: 1\n", "cancelled", ()),
    (f"Error running slurm prolog: 1\n{START}{JOB} ***\n", "cancelled", ()),
], ids=["22.05 and 24.11, recorded", "26.05, recorded", "two nodes", "behind the cancel", "another reason",
        "before a requeue", "quoted", "the batch host's, recorded on 22.05", "the batch host's, before its cancel",
        "the batch host's, behind the cancel", "the batch host's, before a requeue"])
def test_a_cancel_behind_a_failed_prolog_is_a_nodes_failure(
    output: str, expected: str, nodes: tuple[str, ...]
) -> None:
    assert (parse_ending(output, "8510401"), parse_failed_prologs(output, "8510401")) == (expected, nodes)


@each(("output", "expected"), [
    ("Error running slurm prolog: 1\n", True), (f"{START}{PROLOG}{JOB} ***\n", True), (f"{START}{JOB} ***\n", False),
    (f"Error running slurm prolog: 1\n{START}{JOB} ***\n", False), ("", False),
], ids=["the batch host's", "another node's", "a person's", "before a requeue", "no output"])
def test_what_slurm_cancels_because_of_a_prolog_is_known(output: str, expected: bool) -> None:
    assert is_ended_by_prolog(output, "8510401") is expected


@given(st.text())
def test_any_output_has_an_ending_or_none(text: str) -> None:
    assert parse_ending(f"{JOB}{text}", "8510401") in (
        None, "cancelled", "time_limit", "preempted", "requeued", "node_failure", "unknown")


@each(
    ("line", "expected"),
    [
        ("8510401|RUNNING|sl-alice|owner.sh|None|n[0-1]",
         QueuedJob("8510401", "RUNNING", "sl-alice", "owner.sh", "None", "n[0-1]")),
        ("8517590|PENDING|sl-alice|nb.sh|BeginTime|",
         QueuedJob("8517590", "PENDING", "sl-alice", "nb.sh", "BeginTime", "")),
        ("8517592_[2-3%1]|PENDING|sl-alice|odd|na me|JobArrayTaskLimit|",
         QueuedJob("8517592_[2-3%1]", "PENDING", "sl-alice", "odd|na me", "JobArrayTaskLimit", "")),
        ("8517592_1|RUNNING|sl-alice|odd|na me|None|n0",
         QueuedJob("8517592_1", "RUNNING", "sl-alice", "odd|na me", "None", "n0")),
        ("7+0|PENDING|bob|het|(null)|(null)", QueuedJob("7+0", "PENDING", "bob", "het", "(null)", "(null)")),
        ("7|PENDING|bob||Nodes required for job are DOWN, DRAINED or reserved|",
         QueuedJob("7", "PENDING", "bob", "", "Nodes required for job are DOWN, DRAINED or reserved", "")),
    ],
    ids=["running", "pending", "an array's rest, and a | and a blank in the name", "an array's task",
         "a part of a heterogeneous job", "no name, and a reason in words"],
)
def test_a_line_of_squeue(line: str, expected: QueuedJob) -> None:
    assert parse_squeue(f"{line}\n") == (expected,)


@each("text", ["", "\n", " \n\n"], ids=["nothing", "an empty line", "blanks"])
def test_an_empty_queue_is_empty(text: str) -> None:
    assert parse_squeue(text) == ()


@each(
    "text",
    ["slurm_load_jobs error: Invalid job id specified", "JOBID PARTITION NAME USER", "1|RUNNING|a|b|c", "|||||"],
    ids=["an error on stdout", "a site's own format", "a field is missing", "no id"],
)
def test_lines_of_another_form_are_never_guessed_at(text: str) -> None:
    with pytest.raises(ParseError, match="squeue printed"):
        parse_squeue(text)


@each(
    "text",
    ["8517592\n", "8517592;cluster2\n", "Welcome to the machine!\nYour quota: 80 %\n8517592\n",
     "8517592\nsbatch: this project has 12 GPU hours left\n", "  8517592  \n",
     "job_submit: 3 checks passed\n8517592;c\n\n"],
    ids=["plain", "with a cluster", "a banner before", "a banner behind", "blanks", "banner, cluster, empty line"],
)
def test_the_job_id_of_sbatch_parsable(text: str) -> None:
    assert parse_submitted(text) == "8517592"


@each("text", ["", "Submitted batch job 7", "7 8", "seven", "7;a b"],
                         ids=["nothing", "not parsable", "two numbers", "a word", "a cluster with a blank"])
def test_no_job_id_is_an_error(text: str) -> None:
    with pytest.raises(ParseError, match="not a job id"):
        parse_submitted(text)


@each(
    ("stderr", "expected"),
    [
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", True),
        ("sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)", True),
        ("scancel: error: Kill job error on job id 1: Unable to contact slurm controller (connect failure)", True),
        ("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", True),
        ("sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received", True),
        ("sbatch: error: invalid partition specified: nope\n"
         "sbatch: error: Batch job submission failed: Invalid partition name specified", False),
        ("slurm_load_jobs error: Invalid job id specified", False),
        ("sbatch: error: Unable to open file job.sbatch", False),
        ("sbatch: error: DBD_GET_CLUSTERS failure: Connection refused\nsbatch: error: Problem talking to database\n"
         "sbatch: error: There is a problem talking to the database: Connection refused.  Only local cluster "
         "communication is available, remove --cluster from your command line or contact your admin to resolve the "
         "problem.", False),   # 22.05.8, its slurmdbd down: it has not asked slurmctld yet
        ("", False),
    ],
    ids=["squeue: controller down", "sbatch: controller down", "scancel: controller down", "sbatch: controller stopped",
         "sbatch: no bytes", "sbatch says no", "squeue: no such job", "sbatch: no such file",
         "sbatch --clusters: no database", "nothing said"],
)
def test_no_answer_is_told_from_no(stderr: str, expected: bool) -> None:
    assert is_unreachable(stderr) == expected


# scontrol --oneliner show node n[0-1], Slurm 22.05.8, and a node in the cloud that has no address yet.
NODES = """\
NodeName=n0 Arch=x86_64 CoresPerSocket=1  CPUAlloc=0 Gres=gpu:8 NodeAddr=127.0.0.1 NodeHostName=n0 Port=12006
NodeName=n1 Arch=x86_64 CoresPerSocket=1  CPUAlloc=0 Gres=gpu:8 NodeAddr=10.0.0.7 NodeHostName=n1 Port=12007
NodeName=cloud0 CoresPerSocket=1 CPUAlloc=0 State=IDLE+CLOUD+POWERED_DOWN
slurm_load_node error: Invalid node name specified
"""


def test_addresses_of_nodes_whose_names_do_not_resolve() -> None:
    assert parse_addresses(NODES) == {"n0": "127.0.0.1", "n1": "10.0.0.7"}
    assert parse_addresses("") == {}


# --- what the watch asks ----------------------------------------------------------------------------------------------

LIMBO = "900001|RUNNING|sl-alice|None|n[1-2]|n0||(null)|main|2026-11-21T20:51:56|0:36|run.one"
ARRAY = ("900002_[1-3%1]|PENDING|sl-alice|ReqNodeNotAvail, UnavailableNodes:n0||n/a|n3|afterany:900001(unfulfilled)|"
         "main|N/A|0:00|a|name\twith all sorts")


def test_the_watch_reads_limbo_and_arrays_in_squeue() -> None:
    limbo, array = parse_watch(f"{LIMBO}\n\n{ARRAY}\n")
    assert limbo == KnownJob("900001", "RUNNING", "sl-alice", "", "n[1-2]", "n0", "", "", "main", "2026-11-21T20:51:56",
                             36.0, "run.one")
    assert (array.number, array.nodelist, array.batch_host, array.start) == ("900002", "", "", "")
    assert (array.excluded, array.dependency) == ("n3", "afterany:900001(unfulfilled)")
    assert (array.reason, array.name) == ("ReqNodeNotAvail, UnavailableNodes:n0", "a|name\twith all sorts")


@each("line", [
    "slurm_load_jobs error: Unable to contact slurm controller", LIMBO[:40], LIMBO.replace("0:36", "soon"), "x" + LIMBO,
], ids=["an error", "cut off", "no time", "no id"])
def test_the_watch_takes_no_line_of_another_form(line: str) -> None:
    with pytest.raises(ParseError):
        parse_watch(f"{LIMBO}\n{line}\n")


@each(("text", "seconds"), [
    ("0:36", 36), ("7:27", 447), ("1:07:27", 4047), ("1-07:27:33", 113_253), ("INVALID", 0), ("", 0),
])
def test_elapsed_times_are_read(text: str, seconds: float) -> None:
    assert parse_elapsed_s(text) == seconds


@each("text", ["soon", "1:2:3:4", "9" * 400 + ":00", "9" * 5000 + "-00:00:00"],
                         ids=["a word", "four parts", "no float", "no number"])
def test_elapsed_times_of_another_form_are_none(text: str) -> None:
    with pytest.raises(ParseError):
        parse_elapsed_s(text)


@each(("seconds", "text"), [(36, "00:00:36"), (113_253, "1-07:27:33"), (-5, "00:00:00")])
def test_elapsed_times_are_written_as_slurm_does(seconds: float, text: str) -> None:
    assert render_elapsed(seconds) == text


def test_sacct_tells_who_cancelled_a_job() -> None:   # form: sacct(1), STATE; not measured, no accounts here
    text = "12|CANCELLED by 1001|0:15\n13_1|FAILED|75:0\n14|COMPLETED|0:0\n15|OUT_OF_MEMORY|0:125\n"
    assert parse_sacct(text) == {
        "12": JobAccount("CANCELLED", "1001", 0), "13_1": JobAccount("FAILED", None, 75),
        "14": JobAccount("COMPLETED", None, 0),
        "15": JobAccount("OUT_OF_MEMORY", None, 0)}


@each(
    ("text", "name"),
    [("ClusterName             = mclua\nComplete = 0\n", "mclua"), ("ClusterName=Jean-Zay # the big one\n", "jean-zay"),
     ('  clustername = "two"\n', "two"), ("#ClusterName=old\nClusterName=new\n", "new"), ("include cluster.conf\n", ""),
     ("", "")],
    ids=["scontrol show config (22.05)", "slurm.conf", "quoted", "commented out", "included", "no answer"],
)
def test_the_name_of_a_cluster(text: str, name: str) -> None:
    assert parse_cluster(text) == name


@each("said", [   # 22.05, measured
    "sbatch: error: Batch job submission failed: Invalid node name specified",
    "Invalid node name specified for job 6002",
    "srun: error: Unable to create step for job 6003: Invalid node name specified",
])
def test_a_list_with_a_name_that_slurm_does_not_know_is_told_from_other_refusals(said: str) -> None:
    assert is_unknown_node(said)
    assert not is_unknown_node(said.replace("node name", "partition name"))


def test_sinfo_gives_nodes_by_state() -> None:
    assert parse_sinfo("down*|n0\nidle|n3\nmixed|n[1-2]\ndrained$|m[1,4-5]\n") == (
        ("down*", "n0"), ("idle", "n3"), ("mixed", "n[1-2]"), ("drained$", "m[1,4-5]"))


RESERVATIONS = """\
mine         ACTIVE  2026-11-22T21:17:31  2026-11-22T21:47:31     00:30:00  n[1-3]
other        ACTIVE  2026-11-22T21:17:31  2026-11-22T21:47:31     00:30:00  n0
empty        ACTIVE  2026-11-22T21:17:31  2026-11-22T21:47:31     00:30:00
"""


@each(("names", "nodes"), [
    ("mine", ("n1", "n2", "n3")), ("other,mine", ("n0", "n1", "n2", "n3")), ("gone", None), ("empty", None),
    ("mine,gone", None)])
def test_sinfo_gives_the_nodes_of_a_reservation(names: str, nodes: tuple[str, ...] | None) -> None:
    assert reserved_nodes(RESERVATIONS, names) == nodes
    assert reserved_nodes("No reservations in the system\n", names) is None


@each(("own", "usable"), [
    (None, ("n1", "n2", "m0")), (("n0", "n1", "n3"), ("n1", "n0")), (("n4", "m5"), ("n4",)), ((), ())])
def test_of_reserved_nodes_a_run_can_get_those_of_its_own_reservation_and_no_others(
    own: tuple[str, ...] | None, usable: tuple[str, ...]
) -> None:
    text = "mixed|n[1-2]\nreserved|n0\ndown*|n3\nmaint|n4\nreserved|n5\nidle|m0\n"
    assert usable_nodes(text, own) == usable


@each("state", [
    "down", "drained*", "error", "failing", "future", "inval", "no_respond", "perfctrs", "powered_down", "unknown",
    "idle*"])
def test_no_job_gets_a_node_of_such_a_state(state: str) -> None:
    assert usable_nodes(f"{state}|n0\nmixed-|n1\nplanned|n2\n") == ("n1", "n2")


@each("parse", [parse_sacct, parse_sinfo], ids=["sacct", "sinfo"])
@each("text", ["Slurm accounting storage is disabled\n", "12|\n", "|n0\n"])
def test_other_words_are_no_answer(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(ParseError):
        parse(text)


@each(
    ("line", "expected"),
    [("slurmstepd-n1: error: *** STEP 12.1 ON n1 CANCELLED AT 2026-11-21T21:07:41 ***", True),
     ("slurmstepd: error: *** STEP 12.1 ON n1 CANCELLED AT 2026-11-21T21:07:41 DUE TO PREEMPTION ***", False),
     ("slurmstepd: error: *** STEP 13.1 ON n1 CANCELLED AT 2026-11-21T21:07:41 ***", False), ("", False)],
    ids=["no reason", "with a reason", "another job's", "nothing"],
)
def test_a_step_that_was_cancelled_without_a_reason_is_told(line: str, expected: bool) -> None:
    assert (parse_step_end(f"talk\n{line}\n", "12") == "cancelled") is expected


STEP_12 = "slurmstepd-n0: error: *** STEP 12.0 ON n0 CANCELLED AT 2026-11-22T00:19:31 ***\n"


@each(("output", "expected"), [
    (f"step 7 loss 0.1\n{STEP_12}Terminated\nsrun: error: n1: task 1: Exited with exit code 143\n", True),
    (f"{STEP_12}saving\nsaved\n", True),
    (f"srun: error: n1: task 1: Terminated\n{STEP_12}", True),
    (f"srun: error: n1: tasks 1-3: Exited with exit code 143\n{STEP_12}", True),
    (f"srun: error: n1: task 1: Exited with exit code 1\n{STEP_12}", False),
    (f"srun: launch/slurm: _step_signal: Terminating StepId=12.0\n{STEP_12}", False),
    (STEP_12.replace(" ***\n", " DUE TO PREEMPTION ***\n"), False),
    (STEP_12.replace("STEP 12.", "STEP 13."), False),
    ("", False),
], ids=["ranks died of it", "ranks left well", "srun was first to tell", "srun was first, and they handle it",
        "srun -K after a task's end", "srun -K alone", "with a reason", "another job's", "nothing"])
def test_a_step_that_was_cancelled_before_any_task_ended_is_told(output: str, expected: bool) -> None:
    assert is_step_cancelled_first(output, "12") is expected


@each(("times", "expected"), [
    ("StartTime=2026-11-22T00:19:28 EndTime=2026-11-22T00:19:39 PreemptEligibleTime=2026-11-22T00:19:28 "
     "PreemptTime=2026-11-22T00:19:31", True),
    ("StartTime=2026-11-22T00:19:28 PreemptEligibleTime=2026-11-22T00:19:28 PreemptTime=None", False),
    ("StartTime=2026-11-22T00:30:00 PreemptTime=2026-11-22T00:19:31", False),
    ("StartTime=Unknown", False),
], ids=["in its grace (22.05)", "not preempted (22.05)", "before it was requeued", "pending"])
def test_a_job_in_its_time_of_grace_is_told_by_its_preempt_time(times: str, expected: bool) -> None:
    assert is_preempted(f"JobId=12 JobName=a JobState=RUNNING Reason=None {times} SuspendTime=None") is expected


@each(("said", "expected"), [
    ("srun: error: Slurm job 12 has expired\nsrun: Check SLURM_JOB_ID environment variable. Expired or invalid job 12",
     True),
    ("srun: error: Unable to create step for job 12: Job/step already completing or completed\n", True),
    ("srun: error: Unable to confirm allocation for job 12: Unable to contact slurm controller\n", False),
    ("srun: error: Task launch for StepId=12.3 failed on node n1: Communication connection failure\n", False),
], ids=["expired", "completing", "no controller", "dead node"])
def test_step_that_is_refused_because_its_job_ends_is_told_from_others(said: str, expected: bool) -> None:
    assert is_job_over(said) is expected


@each(
    ("line", "expected"),
    [("slurmstepd-n1: error: *** STEP 12.1 ON n1 CANCELLED AT 2026-11-21T21:07:41 DUE TO PREEMPTION ***", "preempted"),
     ("slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-11-21T21:07:41 DUE TO TIME LIMIT ***", "time_limit"),
     ("slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-11-21T21:07:41 ***", None),
     ("slurmstepd: error: *** STEP 13.0 ON n1 CANCELLED AT 2026-11-21T21:07:41 DUE TO TIME LIMIT ***", None),
     ("[n1:0]:slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-11-21 DUE TO TIME LIMIT ***", None)],
    ids=["preempted", "time limit", "no reason", "another job's", "said by a rank"],
)
def test_reason_of_a_cancelled_step_is_that_of_its_job(line: str, expected: str | None) -> None:
    assert parse_step_ending(f"talk\n{line}\n", "12") == expected


@each(
    ("output", "expected"),
    [("srun: error: Unable to create step for job 12: Unable to contact slurm controller (connect failure)\n", True),
     ("step 3 loss 1\nsrun: error: n1: task 3: Exited with exit code 1\n", False)],
    ids=["never created", "a task failed"],
)
def test_a_step_that_was_never_created_is_told_from_one_that_failed(output: str, expected: bool) -> None:
    assert has_no_step(output) is expected


@each(("said", "why"), [
    ("srun: error: cli_filter plugin terminated with error", "srun itself refuses --overlap"),
    ("srun: unrecognized option '--overlap'", "srun itself refuses --overlap"),
    ("srun: Job 7 step creation temporarily disabled, retrying (Requested nodes are busy)",
     "srun waits in spite of --overlap: requested nodes are busy"),
    ("srun: error: Unable to create step for job 7: Job/step already completing or completed", None),
    ("srun: error: Task launch for StepId=7.1 failed on node n1: Communication connection failure", None),
    ("", None)])
def test_what_srun_says_of_overlap_is_told_from_what_it_says_of_nodes(said: str, why: str | None) -> None:
    assert why_no_overlap(said) == why


@each(("line", "left_s", "start"), [
    ("2:00:00|2026-11-22T10:00:00|12|RUNNING|alice|n.1|None|n[0-3]", 7200.0, ""),
    ("1-00:00:01|N/A|12|RUNNING|alice|n.1|None|n0", 86401.0, ""),
    ("UNLIMITED|2026-11-22T10:00:00|12|RUNNING|alice|n.1|None|n0", None, ""),
    ("30:00|2026-11-22T10:00:00|13|PENDING|alice|n.1|Priority|", None, "2026-11-22T10:00:00"),
    ("30:00|N/A|13|PENDING|alice|n.1|Dependency|", None, ""),
], ids=["running", "days", "no limit", "expected", "not expected"])
def test_squeue_tells_how_long_a_job_has_left_and_when_it_may_start(
    line: str, left_s: float | None, start: str
) -> None:
    (job,) = parse_status(f"{line}\n")
    assert (job.left_s, job.start, job.user) == (left_s, start, "alice")


@each("text", ["what is this", "2:00|N/A|what is this", "2:00|N/A"])
def test_times_of_another_form_are_an_error(text: str) -> None:
    with pytest.raises(ParseError):
        parse_status(text)


def test_only_jobs_with_a_run_folder_are_found() -> None:
    text = ("12|alice|RUNNING|bloom.1a2b3c4d|/data/my runs/bloom/job.sbatch\n13|bob|RUNNING|x|/home/bob/train.slurm\n"
            "14|bob|RUNNING|x|\n15|eve|PENDING|x|job.sbatch\nodd\n")
    assert parse_finding(text) == (FoundJob("12", "alice", "RUNNING", "bloom.1a2b3c4d", "/data/my runs/bloom"),)


def test_only_steps_of_srun_are_counted() -> None:
    text = "20154001.1|bash\n20154001.12|a|b\n20154001.batch|batch\n20154001.extern|extern\n20154001.interactive|x\n\n"
    assert parse_steps(text) == {1: "bash", 12: "a|b"}
    assert parse_steps("") == {}


@each(("reason", "never", "held"), [
    ("BadConstraints", True, False), ("ReqNodeNotAvail, UnavailableNodes:n0", True, False),
    ("Nodes required for job are DOWN, DRAINED or reserved", True, False),
    ("Nodes_required_for_job_are_DOWN", True, False),
    ("JobHeldUser", False, True), ("JobHeldAdmin", False, True), ("launch failed requeued held", False, True),
    ("Priority", False, False), ("Resources", False, False), ("Dependency", False, False), ("", False, False),
])
def test_a_reason_tells_whether_a_job_waits_for_ever_or_for_a_person(reason: str, never: bool, held: bool) -> None:
    assert (can_never_start(reason), is_held(reason)) == (never, held)


@each(("said", "expected"), [
    ("slurm_load_jobs error: Invalid job id specified", True), ("squeue: error: Invalid user: bob", False), ("", False),
])
def test_squeue_tells_of_a_job_that_slurm_does_not_know(said: str, expected: bool) -> None:
    assert is_unknown_job(said) is expected


# --- federations: 22.05.8, two clusters of one slurmdbd ---------------------------------------------------------------

FEDERATION = """\
Federation: f
Self:       feda:127.0.0.1:12000 ID:1 FedState:ACTIVE Features:
Sibling:    fedb:127.0.0.1:12004 ID:2 FedState:ACTIVE Features: PersistConnSend/Recv:Yes/Yes Synced:Yes
"""


@each(("text", "name"), [
    (FEDERATION, "feda"), (f"Welcome to Self:service\n{FEDERATION}", "feda"), ("", ""),
    ("Federation: f\nSibling:    fedb:127.0.0.1:12004 ID:2 FedState:ACTIVE\n", ""),
], ids=["a member", "behind a banner", "in none", "only a sibling"])
def test_the_own_name_in_a_federation(text: str, name: str) -> None:
    assert parse_federation(text) == name


def test_ids_and_states_of_a_federation_are_read() -> None:
    """An id holds the number of its cluster from bit 26 on: 67108867 is job 3 of the first, 134221729 of the second."""
    assert parse_submitted("67108867;feda\n") == "67108867"   # with --clusters; 67108869 without
    running, pending = parse_squeue("134221729|RUNNING|sl-alice|j.sh|None|n[0-1]\n"
                                    "67108869|PENDING|sl-alice|pend|Resources|\n")
    assert (running.id, running.state, pending.id, pending.state) == ("134221729", "RUNNING", "67108869", "PENDING")
    # sacct --duplicates: of a job that started on the other cluster its own cluster says REVOKED (squeue nothing).
    assert parse_sacct("67108869|REVOKED|0:0\n") == {"67108869": JobAccount("REVOKED", None, 0)}
