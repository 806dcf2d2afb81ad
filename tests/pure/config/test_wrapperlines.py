"""#PBS and #BSUB lines: what sbatch 22.05.8 makes of each, as `scontrol show job` said of a job with this line."""

from __future__ import annotations

import pytest

from safelaunch.config.resolve import ConfigLayer, Resolved, resolve
from safelaunch.errors import ConfigError
from tests.tables import each


def read(text: str, *flags: str, **environ: str) -> Resolved:
    return resolve([ConfigLayer("file", "/work/job.slurm", f"#!/bin/bash\n{text}\nsleep 1\n")], ["cluster=slurm"],
                   {"HOME": "/home/a", **environ}, flags, "/work")


@each(("line", "slurm"), [
    ("#PBS -l walltime=90", {"time": 90}),
    ("#PBS -l walltime=01:30:00,nodes=2", {"time": "01:30:00", "nodes": 2}),
    ("#PBS -l nodes=2:ppn=4", {"nodes": 2, "ntasks": 8}),
    ("#PBS -l nodes=n0+n1", {"nodes": 2, "nodelist": "n0,n1"}),
    ("#PBS -l nodes=n0:ppn=2+n1:ppn=2", {"nodes": 2, "nodelist": "n0,n1", "ntasks": 4}),
    ("#PBS -l nodes=1:ppn=4:gpus=2", {"nodes": 1, "ntasks": 4, "gpus-per-node": 2}),
    ("#PBS -lnodes=2 -l walltime=5:00", {"nodes": 2, "time": "5:00"}),
    ("#PBS -l nodes=2:ppn=2 # shared", {"nodes": 2, "ntasks": 4}),
    ("#PBS -l mem=2gb", {"mem": "2G"}), ("#PBS -l mem=100000kb", {"mem": "100000K"}),
    ("#PBS -l mem=100", {"mem": 100}),
    ("#PBS -l file=10mb", {"tmp": "10M"}), ("#PBS -l nice=5", {"nice": 5}), ("#PBS -p 5", {"nice": 5}),
    ("#PBS -l select=2:ncpus=4:mpiprocs=2:mem=100mb",
     {"nodes": 2, "ntasks-per-node": 2, "cpus-per-task": 2, "mem": "100M"}),
    ("#PBS -l select=2:ncpus=4", {"nodes": 2, "mincpus": 4}), ("#PBS -l ncpus=4", {"mincpus": 4}),
    ("#PBS -l naccelerators=2", {"gpus-per-node": 2}),
    ("#PBS -q high -A acc -M me@x -m abe", {"partition": "high", "account": "acc", "mail-user": "me@x",
                                             "mail-type": "BEGIN,END,FAIL"}),
    ("#PBS -W depend=afterok:1", {"dependency": "afterok:1"}),
    ("#PBS\t-q\tx", {"partition": "x"}),
    ("#SBATCH -p one\n#PBS -q two", {"partition": "two"}),
    ("#SBATCH --ignore-pbs -p one\n#PBS -q two", {"partition": "one"}),
    ("sleep 1\n#PBS -q late", {"partition": "late"}),
    (" #PBS -q x", {}), ("##PBS -q x", {}), ("#pbs -q x", {}),
    ("#PBS -l procs=4,pmem=1gb -j oe -V -k oe -r n -S /bin/bash -v A=1", {}),
    ("#BSUB -W 1:30 -n 2,4 -m 'n0 n1' -q main",
     {"time": "1:30", "ntasks": 4, "nodelist": "n0,n1", "partition": "main"}),
    ("#BSUB -M 100 -x -cwd /tmp", {"mem-per-cpu": 1, "exclusive": True, "chdir": "/tmp"}),
    ("#PBS -q pbs\n#BSUB -q lsf", {"partition": "lsf"}),
], ids=lambda value: value if isinstance(value, str) else "")
def test_a_line_asks_for_what_sbatch_asks_for(line: str, slurm: dict[str, object]) -> None:
    text = line if "nodes" in slurm or "-n " not in line else f"#SBATCH -N 2\n{line}"
    assert read(text).config["slurm"] == {"nodes": 2 if text != line else 1, **slurm}


def test_names_outputs_and_arrays_are_taken_as_those_of_sbatch_lines() -> None:
    found = read("#PBS -N fromtorque -o out -e err -t 0-3\necho $SLURM_ARRAY_TASK_ID")
    assert found.config["own"] == {"path": "/work/job.slurm", "job_name": "fromtorque", "output": "out", "error": "err"}
    assert found.point is not None and found.point.of == 4
    assert any(":2: --error=err: that file and the one of --output are links to one log" in note
               for note in found.notes), found.notes


@each(("line", "said"), [
    ("#PBS -d /tmp", "does not know -d in a #PBS line"), ("#PBS -P x", "does not know -P"),
    ("#PBS --job-name=x", "does not know --job-name=x"), ("#PBS -N a b", "does not know b"),
    ("#PBS -l nodes=2:gpu", "does not know -l nodes=2:gpu"), ("#PBS -l select=1:ncpus=4+1:ncpus=2", "does not know -l"),
    ("#PBS -q", "needs a value"), ("#PBS -N 'a", "has no end"),
    ("#BSUB -R span[ptile=2]", "does not know -R"), ("#BSUB -gpu num=1", "does not know -gpu"),
    ("#BSUB -P x", "does not know -P"),
])
def test_what_sbatch_refuses_is_refused_with_its_line(line: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(line)
    first = refused.value.problems[0]
    assert (first.line, said in first.text) == (2, True), first


def test_what_sbatch_reads_without_effect_is_said_once() -> None:
    notes = read("#PBS -l pmem=1gb\n#PBS -j oe\n#PBS -j oe").notes
    assert [note.split(",")[0] for note in notes if "does nothing with it" in note] == [
        "/work/job.slurm:2: sbatch reads -l pmem=1gb in #PBS lines",
        "/work/job.slurm:3: sbatch reads -j oe in #PBS lines"]


@each(("flags", "environ"), [(("--ignore-pbs",), {}), ((), {"SBATCH_IGNORE_PBS": ""})], ids=["flag", "variable"])
def test_ignored_lines_ask_for_nothing(flags: tuple[str, ...], environ: dict[str, str]) -> None:
    assert read("#PBS -q x", *flags, **environ).config["slurm"] == {"nodes": 1}
