"""#SBATCH lines as sbatch reads them, and what of a script is refused."""

from __future__ import annotations

from safelaunch.config.scripts.sbatchlines import read_sbatch_lines, split_words
from safelaunch.config.scripts.scriptrefusals import find_refusals, find_submissions
from safelaunch.config.scripts.slurmkeys import split_flags
from tests.tables import each

WORDS = [
    (" -N 2 --ntasks=4", ["-N", "2", "--ntasks=4"]),
    ("--nodes=2", ["--nodes=2"]),
    (" --nodes=2  # as many as Trainer(num_nodes=…)", ["--nodes=2"]),
    (' --comment="a b#c" -q x', ["--comment=a b#c", "-q", "x"]),
    (" --comment='a\\'b'", ["--comment=a'b"]),
    (' --comment=a\\ b ""', ["--comment=a\\", "b", ""]),
    (" --comment=a#b", ["--comment=a"]),
    ("", []),
]
REFUSED = [
    ("#!/bin/bash\n#SBATCH -N1\n#SBATCH hetjob\n#SBATCH -N2\nsrun a\n", [3]),
    ("#!/bin/bash\n#SBATCH packjob\nsrun --het-group=0 a : --het-group=1 b\n", [2, 3]),
    ("#!/bin/bash\nagain() {\n  scontrol -v requeuehold \"$SLURM_JOB_ID\"\n}\n", [3]),
    ("#!/bin/bash\nsrun -n3 --multi-prog a.conf\n", [2]),
    ("#!/bin/bash\nx=$(/opt/slurm/bin/srun hostname)\n", [2]),
    ("#!/bin/bash\nSRUN=/usr/bin/srun\nexport RUN=\"$SLURM_HOME/bin/srun\"\n$SRUN hostname\n", [2, 3]),
    ("#!/bin/bash\n\"$SLURM_HOME/bin/srun\" hostname\n${SLURM_HOME}/bin/srun hostname\n", [2, 3]),
    ('#!/bin/bash\nsrun --comment="a;b|c" --het-group=0 a\n', [2]),
    (f"#!/bin/bash\n{'export A=b; ' * 9000}srun --het-group=0 a\n", [2]),   # behind 100,000 characters
    ("#!/bin/bash\nx=a \\\n" + "  y=b \\\n" * 2000 + "  srun -n1 --multi-prog a.conf\n", [2]),
]
SUBMITS = [
    ("trap 'scontrol requeue $SLURM_JOB_ID' USR1\nsrun a\n", "job.slurm:2: scontrol requeue ends the script"),
    ("srun a || sbatch --dependency=afterany:$SLURM_JOB_ID \\\n  \"$0\"\n", "job.slurm:2: submits itself"),
    ("sbatch -d singleton job.slurm\n", "job.slurm:2: submits itself"),
    ("exec sbatch ${BASH_SOURCE[0]}\n", "job.slurm:2: submits itself"),
    ("ssh login01 sbatch job.slurm\n", "job.slurm:2: sbatch on another host"),
    ("/usr/bin/sbatch \"$ME\"\n", "job.slurm:2: sbatch by its path"),
    ("SB=/usr/bin/sbatch\n$SB $0\n", "job.slurm:2: sbatch by its path"),
    ("qsub job.slurm\n", "job.slurm:2: qsub goes past"),
    ("R=$(/usr/bin/scontrol show job $SLURM_JOB_ID)\n", "job.slurm:2: a command of Slurm by its path"),
    ("SCONTROL=/opt/slurm/bin/scontrol\n$SCONTROL requeue $SLURM_JOB_ID\n", "job.slurm:2: a command of Slurm by its"),
    ("srun a || $SLURM/bin/scontrol requeue $SLURM_JOB_ID\n", "job.slurm:2: a command of Slurm by its path"),
    ("srun -n1 bash -c 'train; sbatch job.slurm'\n", "job.slurm:2: sbatch in a task is Slurm's own"),
    ("ssh login01 'cd /w; sbatch job.slurm'\n", "job.slurm:2: sbatch on another host"),
    ('echo "sbatch $0" | at now + 23 hours\n', "job.slurm:2: sbatch by at, cron, tmux, ssh, env -i or in a container"),
    ('echo "cd $PWD; sbatch job.slurm" | batch\n', "job.slurm:2: sbatch by at"),
    ('at -q b now <<< "sbatch $0"\n', "job.slurm:2: sbatch by at"),
    ("at now + 1 day <<'END'\ncd /w\nsbatch job.slurm\nEND\n", "job.slurm:4: sbatch by at"),
    ("ssh login01 <<END\nsbatch job.slurm\nEND\n", "job.slurm:3: sbatch by at"),
    ('(crontab -l; echo "0 4 * * * sbatch $PWD/job.slurm") | crontab -\n', "job.slurm:2: sbatch by at"),
    ("tmux new -d 'sleep 9h; sbatch job.slurm'\n", "job.slurm:2: sbatch by at"),
    ("bash <<END\nsbatch job.slurm\nEND\n", "job.slurm:3: submits itself"),
    ("env -i PATH=/usr/bin sbatch job.slurm\n", "job.slurm:2: sbatch by at"),
    ("singularity exec x.sif sbatch job.slurm\n", "job.slurm:2: sbatch by at"),
    ('sbatch --wrap "bash job.slurm"\n', "job.slurm:2: submits itself"),
    ('sbatch --wrap="cd /w && bash job.slurm"\n', "job.slurm:2: a job that only runs this script is another job"),
    ("sbatch <<EOF\n#!/bin/bash\nbash $PWD/job.slurm\nEOF\n", "job.slurm:4: a job that only runs this script"),
    ("echo 'sbatch $0' | bash\n", "job.slurm:2: submits itself"),
    (f"{'a=b; ' * 9000}sbatch \"$0\"\n", "job.slurm:2: submits itself"),
]
LEFT = [
    "#!/bin/bash\n##SBATCH hetjob\n #SBATCH hetjob\nsrun a\n#SBATCH hetjob\n",
    "#!/bin/bash\n# scontrol requeue $SLURM_JOB_ID would do it\nsrun a  # or sbatch $0\n",
    "#!/bin/bash\nscontrol show hostnames $SLURM_JOB_NODELIST\nsbatch evaluate.slurm\nsrun python requeue.py\n",
    "#!/bin/bash\nH=$(/usr/bin/scontrol show hostnames $SLURM_JOB_NODELIST)\nls /opt/srun/x /etc/scontrol.d\n",
    "#!/bin/bash\nat now <<END\necho a\nEND\nsbatch evaluate.slurm\necho batch of sbatch\n",
    "#!/bin/bash\nsbatch <<EOF\n#!/bin/bash\npython eval.py\nEOF\nsbatch --wrap 'python eval.py' <<< x\n",
    "#!/bin/bash\nsrun a; python b --multi-prog\nsrun a --my-multi-prog | b --het-group\n",
]


@each(("line", "words"), WORDS)
def test_words_of_a_line_are_those_of_sbatch(line: str, words: list[str]) -> None:
    assert split_words(line) == words


def test_sbatch_stops_at_the_first_command() -> None:
    text = ("#!/bin/bash\n#SBATCH -N2\n\n# a comment\n##SBATCH -N3\n  #SBATCH -N4\n"
            "#SBATCH --mem=0\nset -e\n#SBATCH -N5\n")
    assert [(line.number, line.words) for line in read_sbatch_lines(text)] == [(2, ("-N2",)), (7, ("--mem=0",))]


def test_an_open_quote_is_a_fault_of_its_line() -> None:
    line, = read_sbatch_lines('#!/bin/bash\n#SBATCH --comment="a\n')
    assert (line.words, line.fault) == ((), 'a " has no end')


def test_a_unique_beginning_stands_for_its_option_and_no_other() -> None:
    assert split_flags(["--err=a", "--outp", "b", "--excl"]) == (
        [("error", "a"), ("output", "b")], [("--excl", "could be --exclude or --exclusive")])


@each(("text", "lines"), REFUSED)
def test_what_would_start_a_second_job_or_pass_the_fence_is_refused_with_its_line(text: str, lines: list[int]) -> None:
    assert [one.line for one in find_refusals(text, "/home/me/job.slurm")] == lines


@each("text", LEFT)
def test_what_only_looks_like_it_is_left_alone(text: str) -> None:
    assert find_refusals(text, "job.slurm") == []


@each(("text", "said"), SUBMITS)
def test_a_submission_of_the_script_itself_is_said_with_its_line(text: str, said: str) -> None:
    text = f"#!/bin/bash\n{text}"
    assert not find_refusals(text, "job.slurm")
    (note,) = find_submissions(text, "job.slurm")
    assert note.startswith(said)
