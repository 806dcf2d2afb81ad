"""What scontrol, squeue and sacct say of the run's own job, as under sbatch."""

from __future__ import annotations

import json

import pytest

from safelaunch.node.standin import scontroltext, squeuetext
from safelaunch.node.standin.scontroltext import ScontrolWords
from safelaunch.node.standin.squeuetext import END, MARK, Query
from tests.tables import each

HIDDEN = "train.a1b2c3d4"
RECORD = """JobId=7 JobName=train.a1b2c3d4
   UserId=alice(1001) GroupId=alice(1002) MCS_label=N/A
   Requeue=0 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0
   ReqNodeList=(null) ExcNodeList=n9
   NodeList=n[0-2]
   NumNodes=3 NumCPUs=3 NumTasks=3
   Command=/w/runs/train/job.sbatch
   WorkDir=/w
   StdErr=/w/runs/train/slurm-7.out
   StdIn=/dev/null
   StdOut=/w/runs/train/slurm-7.out
   Power=

"""
FACTS = {"JobName": "my train", "Command": "/w/job.slurm a b", "StdOut": "/w/out/x-7.out", "StdErr": "/w/out/x-7.out",
         "Restarts": "2", "Requeue": "1", "ExcNodeList": "(null)", "NodeList": "n[0-1]", "NumNodes": "2"}
OTHER = RECORD.replace("JobId=7", "JobId=71").replace(HIDDEN, "other")
NEXT = RECORD.replace("JobId=7", "JobId=8")


def one_line(record: str) -> str:
    return " ".join(record.split("\n")[:-2]).replace("    ", " ").replace("   ", " ").rstrip() + " \n"


def test_the_own_job_has_the_scripts_names_and_others_stay() -> None:
    told = scontroltext.as_sbatch_has_it(OTHER + RECORD + NEXT, "7", HIDDEN, FACTS)

    assert told.startswith(OTHER) and "JobId=8" not in told
    own = told[len(OTHER):]
    for name, value in FACTS.items():
        assert f"{name}={value}\n" in own or f"{name}={value} " in own, name
    assert own.count("\n") == RECORD.count("\n") and "runs/train" not in own and HIDDEN not in own


def test_the_form_of_one_line_is_told_alike() -> None:
    told = scontroltext.as_sbatch_has_it(one_line(OTHER) + one_line(RECORD), "7", HIDDEN, FACTS)
    assert told.startswith(one_line(OTHER)) and told.count("\n") == 2
    assert "Command=/w/job.slurm a b WorkDir=/w StdErr=/w/out/x-7.out StdIn=/dev/null StdOut=/w/out/x-7.out P" in told
    assert "ReqNodeList=(null) ExcNodeList=(null) NodeList=n[0-1] NumNodes=2" in told


def test_json_is_told_alike() -> None:
    jobs = {"jobs": [{"job_id": 7, "name": HIDDEN, "command": "x", "standard_output": "y"},
                     {"job_id": 8, "name": HIDDEN}, {"job_id": 9, "name": "z"}]}
    told = json.loads(scontroltext.json_as_sbatch_has_it(json.dumps(jobs), "7", HIDDEN, FACTS))
    assert [job["job_id"] for job in told["jobs"]] == [7, 9]
    assert told["jobs"][0]["name"] == "my train" and told["jobs"][0]["standard_output"] == "/w/out/x-7.out"


def test_a_link_waits_for_the_own_job() -> None:
    told = scontroltext.of_link(RECORD, "7", "9000000101", "WAITING")
    assert told.startswith("JobId=9000000101 JobName=") and "NodeList=(null)" in told


@each(("words", "is_jobs", "ids"), [
    ("show job 7", True, ["7"]), ("-o show job 7", True, ["7"]), ("show jobid -dd 7", True, ["7"]),
    ("sho jobs", True, []), ("show job=7", True, ["7"]), ("-d show JobId=7 -o", True, ["7"]),
    ("show job 7,8", True, ["7", "8"]),
    ("show node n0", False, ["n0"]), ("show hostnames", False, []), ("", False, []), ("-M c show job 7", True, ["7"]),
])
def test_a_question_for_jobs_is_known(words: str, is_jobs: bool, ids: list[str]) -> None:
    asked = ScontrolWords(words.split())
    assert (asked.is_jobs, asked.ids) == (is_jobs, ids)


@pytest.mark.parametrize("words", ["requeue 7", "requeue job=7", "-Q requeue incomplete 7", "requeue 7,8"])
def test_a_requeue_is_known(words: str) -> None:
    assert ScontrolWords(words.split()).is_requeue and "7" in ScontrolWords(words.split()).ids
    assert not ScontrolWords(["requeuehold", "7"]).is_requeue


def shown(words: str, *rows: tuple[str, str, str], **env: str) -> list[str]:
    """squeue's lines for jobs (id, name, state), as the stand-in prints them; squeue itself knows %i, %j, %o and %t."""
    query = Query(words.split(";") if words else [], env)
    form = query.ask("train", HIDDEN, ["9000000101"])[-1].partition("=")[2]
    heads = () if query.is_headless else (("JOBID", "NAME", "ST"),)
    lines = []
    for id, name, state in (*heads, *rows):
        line = form.replace("%A", id).replace("%j", name).replace("%o", "COMMAND" if id == "JOBID" else "/r/job.sbatch")
        lines.append(line.replace("%.18i", id.rjust(18)).replace("%i", id).replace("%t", state) + "\n")
    told = squeuetext.as_sbatch_has_it("".join(lines), "7", HIDDEN, {"j": "train", "o": "/w/job.slurm a"}, query)
    return told.splitlines()


OWN, NEXT_JOB, OTHERS = ("7", HIDDEN, "R"), ("8", HIDDEN, "PD"), ("9", "somebody-elses", "R")


def test_the_name_is_cut_and_justified_as_squeue_does() -> None:
    assert shown("-o;%.18i %.8j|%-", OWN, OTHERS)[0].endswith(f"{'JOBID':>18} {'NAME':>8}|%-")
    assert shown("-h;-o;%i %.8j|", OWN, OTHERS) == ["7    train|", "9 somebody|"]
    assert shown("-h;-o;%i %8j|%o", OWN) == ["7 train   |/w/job.slurm a"]
    assert shown("-h;--format=%j", OWN, OTHERS) == ["train", "somebody-elses"]
    assert shown("-h", OWN, SQUEUE_FORMAT="%t %j") == ["R train"]


def test_the_runs_next_job_is_shown_only_by_its_id() -> None:
    assert shown("-h;-o;%i", OWN, NEXT_JOB) == ["7"]
    assert shown("-h;-j;7,8;-o;%i", OWN, NEXT_JOB) == ["7", "8"]


@each(("words", "asked"), [
    ("-n;train;-h", ["--name=train," + HIDDEN, "-h"]),
    ("--name;a,train", ["--name=a,train," + HIDDEN]),
    ("--name=other", ["--name=other"]),
    ("-hu;alice;-t;R", ["-h", "-ualice", "-tR"]),
    ("-j;7", ["-j", "7"]),
    ("-j9000000101,7", ["-j7"]),
    ("--jobs=9000000101", ["--jobs=4294967293"]),
    ("--me", ["--me"]),
])
def test_squeue_is_asked_for_the_own_name_too(words: str, asked: list[str]) -> None:
    assert Query(words.split(";"), {}).ask("train", HIDDEN, ["9000000101"])[:-1] == asked


def test_columns_keep_their_width_with_the_own_name_in_them() -> None:
    query = Query(["-O", "Name,State"], {})
    assert query.ask("train", HIDDEN, [])[-1].endswith(f"Name:300{END},Name,State")
    def row(id: str, name: str, width: int) -> str:
        return f"{id:20}{MARK}{name:300}{END}{name[:width]:{width}}RUNNING   \n"

    told = squeuetext.columns_as_sbatch_has_them(
        row("JOBID", "NAME", 20) + row("7", HIDDEN, 20) + row("8", HIDDEN, 20) + row("9", "other", 20), "7", HIDDEN,
        {HIDDEN: "train", "/r/job.sbatch": "/w/job.slurm"}, query)
    assert told == "".join(f"{name:20}{'RUNNING   '}\n" for name in ("NAME", "train", "other"))
    for width in (6, 7, len(HIDDEN)):   # too narrow for the name with the run's id
        told = squeuetext.columns_as_sbatch_has_them(row("7", HIDDEN, width).replace("RUN", " RUN"), "7", HIDDEN,
                                                     {HIDDEN: "train"}, query)
        assert told == f"{'train':{width}} RUNNING   \n"


@each("words", ["--yaml", "-i;5", "-s", "--steps"])
def test_other_forms_are_left_to_squeue(words: str) -> None:
    assert Query(words.split(";"), {}).is_other


def test_sacct_says_the_scripts_own_name_in_the_same_columns() -> None:
    text = f"7            train.a1b+   main\n7|{HIDDEN}|main\n8            trainer\n"
    told = squeuetext.names_as_sbatch_has_them(text, HIDDEN, "train")
    assert told == "7                 train   main\n7|train|main\n8            trainer\n"
    assert squeuetext.with_hidden_name(["--name=train", "-X"], "train", HIDDEN) == [f"--name=train,{HIDDEN}", "-X"]
    assert MARK not in told and END not in told


@each(("words", "ids", "name", "left"), [
    ("update jobid=7 name=b", ["7"], "b", []), ("update job 7 JobName=b comment=c", ["7"], "b", ["comment=c"]),
    ("-v upd JobId=7,8 Name=a=b", ["7", "8"], "a=b", []), ("update JobId=7 TimeLimit=9", ["7"], None, ["TimeLimit=9"]),
    ("update NodeName=n1 name=x", [], "x", ["NodeName=n1"]), ("show job 7", ["7"], None, []),
])
def test_a_new_name_is_taken_out_of_an_update(words: str, ids: list[str], name: str | None, left: list[str]) -> None:
    asked = ScontrolWords(words.split())
    assert (asked.ids, asked.new_name, asked.left) == (ids, name, left)
