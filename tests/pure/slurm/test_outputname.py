"""The name of a script's output, against what slurmd 22.05 made of the same patterns (job 24004, node n0, sl-alice)."""

from __future__ import annotations

from safelaunch.slurm.outputname import JobNames, default_pattern, expand, lines_that_name, what_a_link_meets
from tests.tables import each

ALONE = JobNames("24004", "na me.x", "sl-alice", "n0")
TASK = JobNames("24031", "wrap", "sl-alice", "n0", "24030", "2")


@each(("pattern", "name"), [
    ("a-%j.out", "a-24004.out"),
    ("a-%A_%a.out", "a-24004_4294967294.out"),
    ("a-%6j-%3a.out", "a-024004-4294967294.out"),
    ("a-%J.out", "a-24004.out"),
    ("a-%x.out", "a-na me.x.out"),
    ("a-%u.%N.%n.%t.%s", "a-sl-alice.n0.0.0.batch"),
    ("a-%b-%q-%i-%r-%W.out", "a-%b-%q-%i-%r-%W.out"),
    ("a-%3b.out", "a-3b.out"),
    ("a-%%j.out", "a-%j.out"),
    ("a\\%j.out", "a%j.out"),
    ("a-%12j.out", "a-0000024004.out"),
    ("a-%0j.out", "a-24004.out"),
    ("a-%010t.out", "a-0000000000.out"),
    ("a-%10x-%5N", "a-na me.x-n0"),
    ("a-%", "a-%"),
    ("a-%5", "a-5"),
    ("/dev/null", "/dev/null"),
])
def test_the_name_is_the_one_that_slurmd_makes(pattern: str, name: str) -> None:
    assert expand(pattern, ALONE) == name


def test_a_task_of_an_array_has_both_numbers() -> None:
    assert expand("x-%A_%a-%3a-%j-%J-%5A.out", TASK) == "x-24030_2-002-24031-24031-24030.out"
    assert expand(default_pattern(True), TASK) == "slurm-24030_2.out"
    assert expand(default_pattern(False), ALONE) == "slurm-24004.out"


@each(("code", "pattern", "is_named"), [
    ("mv slurm-${SLURM_JOB_ID}.out results/", "slurm-%j.out", True),
    ("LOG=$(scontrol show job $ID | grep -oP 'StdOut=\\K\\S+')", "x-%j", True),
    ("grep -q done logs/train-$SLURM_JOB_ID.log", "logs/train-%j.log", True),
    ("#SBATCH -o logs/train-%j.log\nsrun python train.py", "logs/train-%j.log", False),
    ("srun python a.py", "%j", False),
])
def test_a_script_that_reads_its_own_output_is_known(code: str, pattern: str, is_named: bool) -> None:
    assert bool(lines_that_name(code, [pattern])) == is_named


@each(("line", "said"), [
    ("gzip slurm-$SLURM_JOB_ID.out", "gzip refuses a link: write gzip -f"),
    ("srun a && xz -9 slurm-1.out", "xz refuses a link: write xz -f"),
    ("tar -czf logs.tgz slurm-$SLURM_JOB_ID.out", "tar packs the link alone: write tar -h"),
    ("rsync -a slurm-1.out login:", "rsync copies the link alone: write rsync -L"),
    ("gzip -9f slurm-1.out", ""), ("gzip --force slurm-1.out", ""), ("gzip <slurm-1.out >x.gz", ""),
    ("tar chzf logs.tgz slurm-1.out", ""), ("tar -czhf logs.tgz slurm-1.out", ""), ("rsync -aL slurm-1.out login:", ""),
    ("cp slurm-1.out results/", ""), ("mv slurm-1.out gzip", ""), ("zcat slurm-1.out", ""),
])
def test_what_takes_a_link_for_something_else_than_its_file_is_said(line: str, said: str) -> None:
    assert what_a_link_meets(line).endswith(said) and bool(what_a_link_meets(line)) == bool(said)
