"""What each release of Slurm said, parsed into what it means: the recorded files, text by text.

A row of EXPECTED holds for every release that has a text of that name. docs/slurm-releases.md says how the words of a
release without a file are known.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from safelaunch.slurm import slurmoutput, slurmtext, slurmwords
from safelaunch.why.slurmfacts import bad_nodes, parse_account, parse_job
from tests.slurmwords.texts import FOLDER, FROM_SOURCE, Text, load_all, render
from tests.tables import each

TEXTS = load_all()
RECORDED = sorted(path.stem for path in FOLDER.glob("*.txt"))


def ending(text: Text) -> object:
    """What the end of the job is called, and of its steps."""
    return slurmoutput.parse_ending(text.text, text.job), slurmoutput.parse_step_ending(text.text, text.job)


def cancelled_first(text: Text) -> object:
    """Whether the step was cancelled before srun saw a task of it end."""
    return slurmoutput.is_step_cancelled_first(text.text, text.job)


def queued(text: Text) -> object:
    """State and reason of the one job."""
    (job,) = slurmtext.parse_squeue(text.text)
    return job.id == text.job, job.state, job.reason


def why(text: Text) -> object:
    """Why it ends, and what `why` reads: state and reason."""
    facts = parse_job(text.text)
    assert facts is not None
    return slurmoutput.parse_why_it_ends(text.text), facts.state, facts.reason


def refused(text: Text) -> object:
    """Whether it failed, and whether that means no answer, a job that is over, no step."""
    return (text.rc != 0, slurmtext.is_unreachable(text.text), slurmtext.is_job_over(text.text),
            slurmtext.has_no_step(text.text))


def states(text: Text) -> object:
    """sinfo's states without their marks, by node."""
    from safelaunch.slurm import nodeset

    rows = slurmtext.parse_sinfo(text.text)
    return {node: state for state, nodes in rows for node in nodeset.expand(nodes)}


def usable(text: Text) -> object:
    """How many nodes jobs could get."""
    found = slurmtext.usable_nodes(text.text)
    return None if found is None else len(found)


YES = (False, False, False, False)
NO = (True, False, False, False)
NO_ANSWER = (True, True, False, False)
EXPECTED: dict[str, tuple[Callable[[Text], object], object]] = {
    "scancel": (ending, ("cancelled", None)),
    "scancel-by-root": (ending, ("cancelled", None)),
    "scancel-kill": (ending, ("cancelled", None)),
    "scancel-batch-term": (ending, ("cancelled", None)),
    "scancel-full-term": (ending, ("cancelled", None)),
    "scancel-step": (ending, (None, None)),
    "scancel-step-term": (ending, (None, None)),
    "script-fails-over-step": (ending, (None, None)),
    "signals-that-end-nothing": (ending, (None, None)),
    "suspended-and-resumed": (ending, (None, None)),
    "requeue": (ending, ("requeued", "requeued")),
    "preempted": (ending, ("preempted", "preempted")),
    "preempted-requeued": (ending, ("preempted", "preempted")),
    "preempted-in-grace": (ending, (None, None)),
    "time-limit": (ending, ("time_limit", "time_limit")),
    "worker-down": (ending, ("node_failure", "node_failure")),
    "worker-down-no-kill": (ending, (None, None)),
    "batch-host-dead": (ending, (None, None)),
    "squeue-cancelled": (queued, (True, "CANCELLED", "None")),
    "squeue-suspended": (queued, (True, "SUSPENDED", "None")),
    "squeue-requeued": (queued, (True, "PENDING", "BeginTime")),
    "squeue-held": (queued, (True, "PENDING", "JobHeldUser")),
    "squeue-in-grace": (queued, (True, "RUNNING", "None")),
    "squeue-preempted": (queued, (True, "PREEMPTED", "None")),
    "squeue-preempted-requeued": (queued, (True, "PENDING", "BeginTime")),
    "squeue-time-limit": (queued, (True, "TIMEOUT", "TimeLimit")),
    "squeue": (queued, (True, "RUNNING", "None")),
    "job-cancelled": (why, ("cancelled", "CANCELLED", "None")),
    "job-in-grace": (why, ("preempted", "RUNNING", "None")),
    "job-preempted": (why, ("preempted", "PREEMPTED", "None")),
    "job-preempted-requeued": (why, (None, "PENDING", "BeginTime")),
    "job-time-limit": (why, ("time_limit", "TIMEOUT", "TimeLimit")),
    "job-worker-down": (why, ("node_failure", "NODE_FAIL", "NodeDown")),
    "job-batch-host-down": (why, ("node_failure", "NODE_FAIL", "NodeDown")),
    "job-running": (why, (None, "RUNNING", "None")),
    "sbatch-bad-exclude": (refused, NO),
    "sbatch-bad-nodelist": (refused, NO),
    "sbatch-bad-partition": (refused, NO),
    "sbatch-bad-time": (refused, NO),
    "srun-in-another-users-job": (refused, (True, False, False, True)),
    "srun-busy": (refused, (True, False, False, True)),
    "srun-no-such-job": (refused, (True, False, True, True)),
    "srun-in-ended-job": (refused, (True, False, True, False)),
    "squeue-no-such-job": (refused, (True, False, True, False)),
    "job-no-such": (refused, (True, False, True, False)),
    "update-ended-job": (refused, NO),
    "update-running-exclude": (refused, NO),
    "update-bad-node": (refused, NO),
    "requeue-refused": (refused, NO),
    "hold-pending": (refused, YES),
    "release-held": (refused, YES),
    "nodes-no-such": (refused, NO),
    "sacct-without-accounting": (refused, NO),
    **{f"{verb}-{what}": (refused, NO_ANSWER) for verb in ("squeue", "scontrol", "sinfo", "scancel", "sbatch")
       for what in ("stopped-controller", "no-controller")},
    "sinfo": (usable, 4),
    "sinfo-dead-node": (usable, 3),
}
# The line about its step was lost with the end of its output.
LOST = {"23.11 preempted-requeued": ("preempted", None)}
# Under each name again, the other question. Of a whole job's end the order of the lines varies.
FIRST = {"scancel-step-term": True, "preempted-in-grace": True, "exclusive-step-killed": False,
         "task-fails-wait": False, "script-fails-over-step": False, "signals-that-end-nothing": False}


def texts(*names: str) -> list[Text]:
    """All texts of these names."""
    return [text for text in TEXTS if text.name in names]


def name_of(text: Text) -> str:
    return f"{text.release} {text.name}"


def test_every_release_that_can_be_had_is_recorded() -> None:
    assert {"22.05", "23.11", "24.11", "25.11", "26.05"} <= set(RECORDED)
    assert all(release in slurmwords.RELEASES for release in RECORDED)


def test_what_is_from_source_is_not_recorded_too_and_says_so() -> None:
    for path in FROM_SOURCE.glob("*.txt"):
        head = path.read_text().partition("\n### ")[0]
        assert path.stem in slurmwords.RELEASES and path.stem not in RECORDED
        assert head.startswith(f"Slurm {path.stem}") and "not recorded" in head and re.search("[0-9a-f]{40}", head)


@each("text", texts(*EXPECTED), called=name_of)
def test_what_a_release_said_is_read_as_what_it_means(text: Text) -> None:
    read, expected = EXPECTED[text.name]
    expected = LOST.get(name_of(text), expected)
    assert read(text) == expected, text.text


@each("text", texts(*FIRST), called=name_of)
def test_who_ended_a_step_is_told_from_what_srun_did(text: Text) -> None:
    assert cancelled_first(text) is FIRST[text.name], text.text


@each("release", RECORDED)
def test_a_release_has_a_text_for_every_row(release: str) -> None:
    assert set(EXPECTED) <= {text.name for text in TEXTS if text.release == release}


@each("text", TEXTS, called=name_of)
def test_no_line_about_an_end_is_unread(text: Text) -> None:
    found = (*slurmwords.job_ends(text.text, text.job), *slurmwords.step_ends(text.text, text.job))
    assert len(found) == len(re.findall(r"\*\*\* (?:JOB|STEP) .* CANCELLED AT ", text.text))
    assert slurmwords.UNKNOWN not in {end.word for end in found}


@each("text", texts("sbatch-bad-exclude", "sbatch-bad-nodelist", "update-bad-node"), called=name_of)
def test_a_node_that_slurm_does_not_know_is_told(text: Text) -> None:
    assert slurmtext.is_unknown_node(text.text)


@each("text", texts("version-sbatch", "version-srun", "version-scontrol"), called=name_of)
def test_every_command_tells_a_version_that_is_known(text: Text) -> None:
    version = slurmwords.parse_version(text.text)
    assert version is not None and version.startswith(text.release) and slurmwords.is_known(version)


@each("text", texts("sbatch"), called=name_of)
def test_the_job_id_is_read(text: Text) -> None:
    assert slurmtext.parse_submitted(text.text).isdecimal()


@each("text", texts("squeue-watch"), called=name_of)
def test_the_watchs_lines_are_read(text: Text) -> None:
    job = next(job for job in slurmtext.parse_watch(text.text) if job.id == text.job)
    assert (job.state, job.user, job.batch_host, job.partition) == ("RUNNING", "sl-alice", job.nodelist, "main")
    assert job.elapsed_s >= 0 and job.start.startswith("20")


@each("text", texts("squeue-time-left"), called=name_of)
def test_the_time_left_is_read(text: Text) -> None:
    assert (slurmtext.parse_time_left_s(text.text) or 0.0) > 3600


@each("text", texts("nodes"), called=name_of)
def test_the_addresses_of_nodes_are_read(text: Text) -> None:
    assert slurmtext.parse_addresses(text.text) == {f"n{i}": "127.0.0.1" for i in range(4)}


@each("text", texts("nodes-dead-node"), called=name_of)
def test_nodes_that_failed_are_named_with_their_reason(text: Text) -> None:
    (node, said), = bad_nodes(text.text, 0.0, float("inf"))
    assert node == "n1" and "DOWN" in said and "ot responding" in said


@each("text", texts("sacct"), called=name_of)
def test_sacct_tells_how_jobs_ended(text: Text) -> None:
    found = sorted((account.state, account.exit_code) for account in slurmtext.parse_sacct(text.text).values())
    assert found == [("CANCELLED", 0), ("COMPLETED", 0), ("FAILED", 3)]
    assert slurmtext.parse_sacct(text.text)[text.job].cancelled_by is not None


@each("text", texts("sacct-why"), called=name_of)
def test_why_reads_sacct(text: Text) -> None:
    facts = parse_account(text.text, text.job)
    assert facts is not None and facts.state == "CANCELLED" and facts.nodes == "n[0-1]"


@each("text", texts("sacct-without-database"), called=name_of)
def test_a_database_that_is_away_is_told(text: Text) -> None:
    assert text.rc == 1 and slurmtext.is_database_away(text.text)


def test_a_file_is_read_back_as_it_was_written() -> None:
    assert render("scancel", "12", None, "a line") == "### scancel job=12\na line\n"
    assert render("squeue", "", 0, "") == "### squeue job= rc=0\n"
