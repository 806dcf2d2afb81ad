"""What Slurm says of a job, as evidence of its end."""

from __future__ import annotations

from datetime import datetime

from safelaunch.why.slurmfacts import JobFacts, bad_nodes, parse_account, parse_job
from tests.tables import each

# scontrol --oneliner show job, Slurm 22.05; the folder has a blank in its name.
SHOWN = ("JobId=12 JobName=my run UserId=sl-alice(1001) GroupId=sl-alice(1001) MCS_label=N/A Priority=1 "
         "JobState=NODE_FAIL Reason=NodeDown Dependency=(null) ExitCode=1:0 NodeList=n[0-3] BatchHost=n0 NumNodes=4 "
         "TRES=cpu=4,mem=8G,node=4 Socks/Node=* NtasksPerN:B:S:C=0:0:*:* Command=/home/a b/job.sh "
         "WorkDir=/home/a b StdErr=/home/a b/slurm-12.out StdIn=/dev/null StdOut=/home/a b/slurm-12.out Power= \n")
NODE = ("NodeName=n3 Arch=x86_64 State=DOWN* ThreadsPerCore=1 NodeAddr=n3 "
        "Reason=Not responding [slurm@2026-11-21T20:00:10] \n")
T = datetime(2026, 11, 21, 20, 0, 10).timestamp()


def test_values_may_hold_blanks() -> None:
    facts = parse_job(SHOWN)
    assert facts == JobFacts("NODE_FAIL", "NodeDown", "1:0", "n[0-3]", ("/home/a b/slurm-12.out",), "/home/a b")
    assert facts.states == ("NODE_FAIL",) and facts.said == "NODE_FAIL (reason NodeDown, exit code 1:0)"


@each("text", ["", "slurm_load_jobs error: Invalid job id specified\n", "JobId"])
def test_no_job_is_none(text: str) -> None:
    assert parse_job(text) is None


def test_a_living_job_is_no_evidence_of_an_end() -> None:
    facts = parse_job("JobId=12 JobState=RUNNING Reason=None NodeList=n0 ")
    assert facts is not None and facts.is_alive and facts.states == ()


def test_the_account_tells_what_became_of_the_steps() -> None:
    text = ("12|FAILED|1:0|n[0-1]|/home/a|b\n12.batch|FAILED|1:0|n0|\n12.0|OUT_OF_MEMORY|0:125|n[0-1]|\n"
            "12.1|CANCELLED by 1001|0:9|n0|\n120|COMPLETED|0:0|n0|/x\nodd\n")
    facts = parse_account(text, "12")
    assert facts is not None and facts.states == ("FAILED", "OUT_OF_MEMORY") and facts.folder == "/home/a|b"
    assert "a step ended as OUT_OF_MEMORY" in facts.said
    assert parse_account(text, "13") is None


@each(("since_t", "until_t", "count"), [(T - 60, T + 60, 1), (T + 1, T + 60, 0), (T - 60, T - 1, 0)],
                         ids=["at the time", "before the attempt", "long after it"])
def test_a_node_counts_that_failed_at_the_time(since_t: float, until_t: float, count: int) -> None:
    found = bad_nodes(NODE, since_t, until_t)
    assert len(found) == count
    assert not count or found[0] == ("n3", "Slurm: DOWN*, Not responding [slurm@2026-11-21T20:00:10]")


def test_a_node_that_somebody_drains_has_not_failed() -> None:
    assert bad_nodes(NODE.replace("DOWN*", "IDLE+DRAIN"), T - 60, T + 60) == ()
