"""The script in the hands of the real sbatch: it reads back exactly what was asked, and nothing that was not.

`sbatch -vvv` prints each argument that it finds in the script, and then every option as it understood it; both before
it talks to slurmctld, so that no cluster is needed. The last tests ask a real one.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given

from safelaunch.run.plan import Plan
from safelaunch.sandbox.cluster import Sandbox
from safelaunch.script.script import directives, quote_directive, render, warn_before_s
from tests.hostile import BAITS, batches, many, printable
from tests.pure.script.test_script import GOLDEN, MINIMAL, TEMPLATE, plan_of

# A cluster that does not exist; sbatch wants a slurm.conf before it looks at its script.
CONF = "ClusterName=none\nSlurmctldHost=localhost\nSlurmctldPort=1\nNodeName=n0\nPartitionName=main Nodes=ALL\n"
# Options whose value is any text for sbatch; slurmctld alone judges what it means.
FREE_TEXT = ("comment", "account", "partition", "qos", "wckey", "reservation", "constraint", "licenses", "mail-user")

Read = Callable[[str], tuple[list[str], dict[str, str]]]


@pytest.fixture(scope="session")
def read_by_sbatch(tmp_path_factory: pytest.TempPathFactory) -> Read:
    """(arguments found in a script, option → value as understood) by the real sbatch."""
    if shutil.which("sbatch") is None:
        pytest.skip("sbatch is not installed")
    folder = tmp_path_factory.mktemp("sbatch")
    (folder / "slurm.conf").write_text(CONF)

    def read(script: str) -> tuple[list[str], dict[str, str]]:
        (folder / "job.sbatch").write_text(script, encoding="utf-8", newline="")
        process = subprocess.Popen(["sbatch", "-vvv", "--test-only", "job.sbatch"], cwd=folder, stderr=subprocess.PIPE,
                                   env={"PATH": "/usr/bin:/bin", "SLURM_CONF": str(folder / "slurm.conf")})
        assert process.stderr is not None
        lines: list[str] = []
        for line in process.stderr:
            lines.append(line.decode().removesuffix("\n").removeprefix("sbatch: "))
            if lines[-1] == "end of defined options":
                break
        process.kill()   # it would try to reach slurmctld for 18 s
        process.wait(timeout=60)
        process.stderr.close()
        arguments = (re.fullmatch('debug2: Found in script, argument "(.*)"', line) for line in lines)
        options = (re.fullmatch(r"([a-z-]+) *: (.*)", line) for line in lines[lines.index("defined options"):])
        assert lines[-1] == "end of defined options", lines
        return [match[1] for match in arguments if match], {match[1]: match[2] for match in options if match}

    return read


def rendered(plan: Plan) -> str:
    return render(TEMPLATE, plan, python="/opt/python", library=())


def asked(plan: Plan) -> list[str]:
    """The arguments as they would stand on sbatch's command line."""
    words = []
    for name, value in plan.sbatch:
        words.append(f"--{name}" if value is None else f"--{name}={value}")
    return words


@many(len(FREE_TEXT) * 10)
@given(batches(len(FREE_TEXT) * 10))
def test_hostile_options_are_found_as_they_were_asked_for(read_by_sbatch: Read, values: list[str]) -> None:
    rows = tuple((FREE_TEXT[i % len(FREE_TEXT)], printable(value)) for i, value in enumerate(values))
    plan = plan_of(MINIMAL)._replace(sbatch=rows, command=values[0], setup=values[1])
    found, _ = read_by_sbatch(rendered(plan))
    assert [word for word in found if word.startswith(tuple(f"--{name}=" for name in FREE_TEXT))] == asked(plan)
    assert len(found) == len(directives(plan)), "and no other argument"


@many(len(FREE_TEXT))
@given(batches(len(FREE_TEXT)))
def test_hostile_options_are_understood_as_they_were_asked_for(read_by_sbatch: Read, values: list[str]) -> None:
    texts = [printable(value) for value in values]
    rows = tuple(zip(FREE_TEXT, texts, strict=True))
    folder = texts[-1].replace("\\", "")[:500]
    plan = plan_of(MINIMAL)._replace(sbatch=rows, command=values[0], setup=values[1], run_dir=f"/runs/{folder}")
    _, options = read_by_sbatch(rendered(plan))
    assert {name: options.get(name, "") for name in FREE_TEXT} == dict(rows)
    assert options["output"] == f"/runs/{folder.replace('%', '%%')}/slurm-%j.out"
    assert options["job-name"] == "minimal.1a2b3c4d"


@pytest.mark.parametrize("name", GOLDEN)
def test_it_understands_the_golden_scripts(read_by_sbatch: Read, name: str) -> None:
    plan = plan_of(GOLDEN[name])
    found, options = read_by_sbatch(rendered(plan))
    assert len(found) == len(directives(plan))
    assert set(asked(plan)) - set(found) <= {"--begin=now+1hour"}
    assert options["job-name"] == plan.job_name
    assert (options["nodes"], options["ntasks-per-node"]) == (str(plan.nodes), str(plan.ntasks_per_node))
    assert (options["open-mode"], options["no-requeue"], options["no-kill"]) == ("a", "no-requeue", "set")
    assert options["signal"] == f"B:USR2@{warn_before_s(plan)}"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('"two  words"', "two  words"), ('"a#b"', "a#b"), ("a#b", "a"), ('"a\\"b"', 'a"b'), ('"a\\\\b"', "a\\b"),
        ("'a\\nb'", "anb"), ('"%j $HOME `id`"', "%j $HOME `id`"), ('""', ""), ('" a "', " a "), ('"-x"', "-x"),
    ],
)  # fmt: skip
def test_sbatch_reads_a_directive_as_the_quoting_assumes(read_by_sbatch: Read, written: str, read: str) -> None:
    assert read_by_sbatch(f"#!/bin/bash\n#SBATCH --comment={written}\ntrue\n")[0] == [f"--comment={read}"]


@pytest.mark.parametrize("word", ["#PBS -N bait", "#BSUB -J bait"])
def test_sbatch_obeys_foreign_directives_inside_of_quotes_and_ours_are_broken_up(
    read_by_sbatch: Read, word: str
) -> None:
    assert read_by_sbatch(f"#!/bin/bash\n#SBATCH -J own\nX='\n{word}\n'\n")[1]["job-name"] == "bait"
    plan = plan_of(MINIMAL)._replace(command=f"true\n{word}\n", env=(("V", f"\n{word}"),))
    assert read_by_sbatch(rendered(plan))[1]["job-name"] == plan.job_name


def test_slurmctld_holds_the_comment_that_was_asked_for(sandbox: Sandbox, workdir: Path) -> None:
    baits = sorted({text for bait in BAITS if (text := printable(bait).strip())})
    comments = ["|".join(baits[:25]), "|".join(baits[25:]), "é" * 400]
    jobs = []
    for number, comment in enumerate(comments):
        script = workdir / f"job{number}.sbatch"
        script.write_text(f"#!/bin/bash\n#SBATCH --hold\n#SBATCH --comment={quote_directive(comment)}\n"
                          f"#SBATCH --exclude={quote_directive('n[0,3]')}\ntrue\n")
        said = sandbox.run(["sbatch", "--parsable", str(script)], cwd=workdir)
        assert said.returncode == 0, said.stderr
        jobs.append(said.stdout.strip())
    shown = {job: sandbox.slurm(["squeue", "-h", "-j", job, "-O", "comment:1024"]) for job in jobs}
    assert [shown[job].rstrip(" \n") for job in jobs] == comments
    assert "ExcNodeList=n[0,3]" in sandbox.slurm(["scontrol", "show", "job", jobs[0]])
    assert not (workdir / "canary").exists()


def test_slurmctld_takes_a_script_whose_values_hold_dos_line_ends(sandbox: Sandbox, workdir: Path) -> None:
    plain = workdir / "plain.sbatch"
    plain.write_text("#!/bin/bash\nX='a\r\nb'\n", newline="")
    assert "DOS line breaks" in sandbox.run(["sbatch", "--test-only", str(plain)]).stderr
    ours = workdir / "ours.sbatch"
    plan = plan_of(MINIMAL)._replace(command="echo a\r\necho b\r\n", run_dir=str(workdir))
    ours.write_text(rendered(plan), newline="")
    assert sandbox.run(["sbatch", "--test-only", str(ours)]).returncode == 0
