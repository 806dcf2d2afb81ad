"""The suite itself, without a Slurm: what it reads, draws, compares and shows."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.case import CASES, FAULT, Case, read_all
from tests.conformance.compare import compare, is_said
from tests.conformance.differences import ALLOWED, expand, normal
from tests.conformance.grammar import script_of
from tests.conformance.observe import Observed, Probe, parse_records
from tests.conformance.oracles import TABLE, judge
from tests.conformance.page import PAGE, allowed, counted, shapes
from tests.conformance.place import PLAIN, SAFE, Side

SCRIPTS = read_all()


def seen(tmp_path: Path, name: str, case: Case | None = None, **what: object) -> Observed:
    """A side that was submitted well, in a folder of its own."""
    room = tmp_path / name
    room.mkdir(exist_ok=True)
    for file, text in (("said.out", "Submitted batch job 20000001"), ("said.err", ""), ("said.code", "0")):
        (room / file).write_text(text)
    side = Side(case or Case("one", "group", "#!/bin/bash\n"), name, room)
    return replace(Observed(side, end="completed"), **what)   # type: ignore[arg-type]


def test_there_are_more_than_150_scripts_with_names_of_their_own() -> None:
    names = [case.name for case in SCRIPTS]
    assert len(set(names)) == len(names)
    assert len([case for case in SCRIPTS if not case.has_oracle]) > 150
    assert 20 <= len([case for case in SCRIPTS if case.is_short]) <= 45


def test_every_script_has_a_shape_and_knows_its_words() -> None:
    assert [case.name for case in SCRIPTS if not case.shape] == []
    for case in SCRIPTS:
        re.compile(case.says)
        for phrase in case.end:
            assert any(phrase == word or phrase.startswith(f"{word} ") for word in TABLE), (case.name, phrase)
        assert all((CASES / (source or name)).exists() for name, source in case.also), case.name


def test_a_seed_is_one_script_and_other_seeds_are_others() -> None:
    assert script_of(7) == script_of(7)
    assert len({script_of(seed).text for seed in range(30)}) > 25


def test_generated_scripts_can_be_read_by_bash() -> None:
    for seed in range(40):
        case = script_of(seed)
        done = subprocess.run(["bash", "-n"], input=case.text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{seed}: {done.stderr}\n{case.text}"


def test_equal_sides_have_no_difference_although_jobs_hosts_and_folders_differ(tmp_path: Path) -> None:
    sides = []
    for name, job, nodes in ((PLAIN, "20000001", "n[0-1]"), (SAFE, "20000007", "n[2,4]")):
        record = {"JobId": job, "NodeList": nodes, "WorkDir": str(tmp_path / name / "work"), "TimeLimit": "5"}
        host = f"n{expand(nodes[2:-1])[1]}"
        sides.append(seen(tmp_path, name, jobs=[record], output=[f"job {job} on {host} in {tmp_path / name}/work"],
                          files={f"slurm-{job}.out": job},
                          scripts=[Probe([f"folder {tmp_path / name}/work"], {"SLURM_JOB_ID": job})]))
    assert compare(*sides) == []


@pytest.mark.parametrize(("what", "kind", "name"), [
    ({"end": "failed 3"}, "end", "code"),
    ({"output": ["another line"]}, "output", "lines"),
    ({"files": {"made": ""}}, "files", "made"),
    ({"modes": {"kept": "600"}}, "mode", "kept"),
    ({"scripts": [Probe([], {"SLURM_WAIT": "60"})]}, "environment", "SLURM_WAIT"),
    ({"scripts": [Probe(["umask 0077"], {})]}, "umask", "script"),
    ({"tasks": [Probe(["node n0 0 0 0"], {})]}, "tasks", "places"),
    ({"jobs": [{"JobId": "20000002", "TimeLimit": "5"}]}, "option", "TimeLimit"),
    ({"is_late": True}, "late", "end"),
])
def test_each_kind_of_difference_is_seen(tmp_path: Path, what: dict[str, object], kind: str, name: str) -> None:
    same: dict[str, object] = {"scripts": [Probe([], {})], "modes": {"kept": "644"}}
    plain = seen(tmp_path, PLAIN, None, **same, jobs=[{"JobId": "20000001", "TimeLimit": "9"}])
    same["jobs"] = [{"JobId": "20000002", "TimeLimit": "9"}]
    safe = seen(tmp_path, SAFE, None, **{**same, **what})
    assert [(one.kind, one.name) for one in compare(plain, safe)] == [(kind, name)]


def test_what_the_list_allows_is_no_difference_and_what_submit_says_is_said(tmp_path: Path) -> None:
    plain, safe = seen(tmp_path, PLAIN), seen(tmp_path, SAFE)
    plain.scripts, safe.scripts = [Probe([], {})], [Probe([], {"SAFELAUNCH_RUN_ID": "x", "SHLVL": "2"})]
    plain.modes, safe.modes, safe.logs = {"slurm-1.out": "644"}, {"slurm-1.out": "600"}, frozenset(("slurm-1.out",))
    assert compare(plain, safe) == []

    (safe.side.room / "said.code").write_text("2")
    (safe.side.room / "said.err").write_text("job.slurm:3: hetjob: heterogeneous jobs are not taken\n")
    (refused,) = compare(plain, safe)
    assert refused.kind == "refused"
    assert is_said(refused, safe.side.case, safe.said) and not is_said(refused, safe.side.case, "a bug")


def test_a_second_writer_and_missing_steps_are_judged(tmp_path: Path) -> None:
    case = Case("one", "group", "", end=("steps 2", "no line Traceback"), is_faulted=True)
    good = seen(tmp_path, SAFE, case, files={"ckpt/step_2.json": ""},
                output=["iteration 1/2 loss", "iteration 2/2 loss"])
    assert judge(good) == []
    assert judge(replace(good, output=["iteration 2/2 loss", "SECOND WRITER"])) == [
        "steps that nobody made: [1]", "two trainings wrote at once"]


def test_fields_of_scontrol_are_read_with_blanks_in_their_values() -> None:
    (record,) = parse_records("JobId=1 JobName=two words ReqB:S:C:T=0:0:*:* Comment=a=b Command=/x/job.slurm a b")
    assert record["JobName"] == "two words" and record["ReqB:S:C:T"] == "0:0:*:*"
    assert record["Command"] == "/x/job.slurm a b"


def test_tasks_that_srun_saw_end_at_once_are_as_those_that_it_saw_one_by_one(tmp_path: Path) -> None:
    plain = seen(tmp_path, PLAIN, output=["srun: error: n0: tasks 0-1: Exited with exit code 4"])
    safe = seen(tmp_path, SAFE, output=[f"srun: error: n3: task {task}: Exited with exit code 4" for task in (0, 1)])
    assert compare(plain, safe) == []
    assert compare(plain, replace(safe, output=safe.output[:1])) != []


def test_job_ids_and_spool_folders_are_one_word_each() -> None:
    assert normal("train_20026267.log") == "train_JOB.log"
    assert normal("/s/spool/n0/job20026267/slurm_script") == normal("/tmp/safelaunch-7/ab12-20026268-n0/slurm_script")
    assert normal("PATH=/tmp/safelaunch-7/ab12-20026268-n0/bin:/usr/bin") == "PATH=/usr/bin"


def test_the_page_shows_the_list_of_allowed_differences_and_counts_each_script() -> None:
    page = PAGE.read_text()
    assert allowed() in page
    assert len(ALLOWED) == len({(one.kind, one.name) for one in ALLOWED})
    scripts = {case.name.removesuffix(f"-{FAULT}") for case in SCRIPTS}
    assert f"\n{len(scripts)} scripts: " in page, "python -m tests.conformance --page RESULTS"


def test_the_page_counts_both_verdicts_and_has_a_row_for_each_script_that_differs() -> None:
    rows = [{"name": "a", "group": "g", "shape": "s", "verdict": "equal"},
            {"name": "a-faulted", "group": "g", "shape": "s", "verdict": "right"},
            {"name": "b", "group": "g", "shape": "t", "verdict": "said"}]
    assert shapes(rows).splitlines()[0] == counted(2, 1, 1)
    assert shapes(rows).splitlines()[4:] == ["| t | no | yes |"]
    wrong = {"name": "c-faulted", "group": "g", "shape": "u", "verdict": "wrong"}
    assert shapes([*rows, wrong]).splitlines()[5:] == ["| u | **ends wrong after a fault** | – |"]
