"""What check and submit say of a script, line by line, and what they do not."""

from __future__ import annotations

from safelaunch.config.resolve import ConfigLayer, resolve
from safelaunch.config.scripts.scripthints import script_hints
from safelaunch.launch.settings import SbatchValue
from tests.tables import each


def hints(code: str, **slurm: SbatchValue) -> list[str]:
    return script_hints(f"#!/bin/bash\n{code}\n", "job.slurm", {"nodes": 1, **slurm})


@each(("code", "line", "said"), [
    ('OUT=out/$(date +%Y%m%d)\nsrun python a.py --dir "$OUT"', 2, "the date is in the name of a folder"),
    ("srun python a.py --output_dir=out/`date +%F`", 2, "the date"),
    ("STAMP=$(date +%s)\nEXP=runs/$STAMP\nsrun python a.py --save-to $EXP", 2, "the date"),
    ("D=$(date +%F)\nmkdir -p ckpt/$D\nsrun python a.py", 2, "the date"),
    ("export CKPT_DIR=ckpt_$RANDOM\nsrun python a.py --ckpt $CKPT_DIR", 2, "a new number"),
    ("OUT=$(mktemp -d -p runs)\nsrun python a.py --out $OUT", 2, "a new name"),
    ("OUT=out/$(openssl rand -hex 4)\nsrun python a.py --out $OUT", 2, "a new name"),
    ("OUT=out/$(shuf -i 1-9999 -n1)\nsrun python a.py --out $OUT", 2, "a new name"),
    ("OUT=out/$(hostname)\nsrun python a.py --out $OUT", 2, "after a restart on other nodes"),
    ("srun python a.py --output_dir out/$SLURMD_NODENAME", 2, "after a restart on other nodes"),
    ("OUT=out/run$(ls out | wc -l)\nsrun python a.py --out $OUT", 2, "a count of what is there"),
    ("OUT=out/$BASHPID\nsrun python a.py --out $OUT", 2, "the shell's pid"),
    ("OUT=out/$SLURM_JOB_START_TIME\nsrun python a.py --out $OUT", 2, "after the next job"),
    ('"$(which mpirun)" -n 4 python b.py', 2, "write srun --mpi"),
    ("dsh -M -- python a.py", 2, "outside of Slurm's steps"),
    ("huggingface-cli login --token hf_abcdefghijklmnopqrstuvwxyz\nsrun a", 2, "a secret in the script"),
    (f"wandb login {'0123456789abcdef' * 2}01234567\nsrun a", 2, "a secret in the script"),
    ("OUT=/scratch/me/run_$SLURM_JOB_ID\nsrun python a.py $OUT", 2, "after the next job of the run it is a new one"),
    ("RUN_NAME=lm-$SLURM_JOBID\nsrun python a.py run_name=$RUN_NAME", 2, "after the next job"),
    ("srun python a.py hydra.run.dir=out/$(date +%F)", 2, "the date"),
    ("printf -v OUT 'out/%(%F)T'\nmkdir -p out/$$\nsrun a.py", 3, "the shell's pid"),
    ("printf -v OUT 'out/%(%F_%T)T'\nsrun python a.py --dir $OUT", 2, "the date"),
    ("OUT=out/$(python3 -c 'import time; print(time.strftime(\"%F\"))')\nsrun python a.py --dir $OUT", 2, "the date"),
    ("OUT=out/$(head -c 4 /dev/urandom | xxd -p)\nsrun python a.py --dir $OUT", 2, "a new name"),
    ("OUT=out/$(python -c 'import uuid; print(uuid.uuid4())')\nsrun python a.py --dir $OUT", 2, "a new name"),
    ("srun python a.py hydra.run.dir='outputs/${now:%Y-%m-%d}'", 2, "the date"),
    ("OUT=/tmp/$USER/$SLURM_JOB_ID\nsrun python a.py --out $OUT", 2, "after the next job"),
    ("srun python a.py --ckpt-dir /tmp/$USER/$SLURM_JOB_ID", 2, "after the next job"),
    ("D=/tmp/$USER/$SLURM_JOB_ID\nmkdir -p $D\nsrun python a.py --ckpt-dir $D", 2, "after the next job"),
    ("if [ $A ]; then exec > train.log 2>&1; fi\nsrun python a.py", 2, "exec > >(tee FILE)"),
    ("exec > train.log 2>&1\nsrun python a.py", 2, "exec > >(tee FILE)"),
    ("exec &>> train.log\nsrun python a.py", 2, "exec > >(tee FILE)"),
    ("( srun python a.py ) > f 2>&1", 2, "leave the redirection out"),
    ("( cd x; srun python a.py ) >> f", 2, "leave the redirection out"),
    ("{ srun python a.py; } > f", 2, "leave the redirection out"),
    ("{\n  srun python a.py\n} > f 2>&1", 4, "leave the redirection out"),
    ("for i in 1 2; do\n  srun python a.py || exit 1\ndone > f", 4, "leave the redirection out"),
    ("train() {\n  srun python a.py\n}\ntrain x > train.log 2>&1", 5, "leave the redirection out"),
    ("srun python a.py 2> err.txt", 2, "leave the redirection out"),
    ("export SLURM_STDOUTMODE=%t.log\nsrun python a.py", 2, "leave --output out"),
    ("srun -e f python a.py", 2, "leave --output out"),
    ("srun -n 2 --error=f python a.py", 2, "leave --output out"),
    ("unbuffer srun python a.py > train.log", 2, "leave the redirection out"),
    ("A=1 stdbuf -oL srun python a.py > train.log", 2, "leave the redirection out"),
    ("srun bash -c 'python a.py > log.$SLURM_PROCID'", 2, "leave the redirection out"),
    ("srun -n2 bash -lc \"cd x; python a.py &> out/\\$SLURM_PROCID.txt\"", 2, "leave the redirection out"),
    ("for h in $(scontrol show hostnames $SLURM_JOB_NODELIST); do ssh $h python3 train.py & done; wait", 2,
     "outside of Slurm's steps"),
    ("while read h; do ssh -n $h 'cd x; bash run.sh' & done < hosts\nwait", 2, "outside of Slurm's steps"),
    ("parallel --sshlogin $HOSTS python train.py ::: 0 1", 2, "outside of Slurm's steps"),
    ("scontrol show hostnames | xargs -P4 -I{} ssh {} python train.py", 2, "outside of Slurm's steps"),
    ("prun -np 8 python a.py", 2, "srun --mpi=pmix"), ("ibrun python a.py", 2, "srun --mpi=pmix"),
    ("time horovodrun -np 8 python a.py", 2, "srun --mpi=pmix"),
    ("for h in $HOSTS; do\n  ssh $h \"cd $PWD && python train.py\" &\ndone", 3, "outside of Slurm's steps"),
    ("pdsh -w $HOSTS python train.py", 2, "outside of Slurm's steps"),
    ("parallel-ssh -H $HOSTS 'torchrun a.py'\npssh -i bash run.sh", 3, "outside of Slurm's steps"),
    ("deepspeed --hostfile=hosts a.py", 2, "by ssh"),
    ("mpirun -np 8 python a.py", 2, "srun --mpi=pmix"),
    ("srun --output=logs/%j_%t.log python a.py", 2, "leave --output out"),
    ("srun -N2 -o logs/a.log python a.py", 2, "leave --output out"),
    ("srun python a.py > train.log 2>&1", 2, "2>&1 | tee FILE"),
    ("nohup srun --label bash run.sh &> out.txt", 2, "leave the redirection out"),
    ("module load slurm\nsrun a", 2, "an srun that is Slurm's own"),
    ("source env.sh\nexec srun python a.py", 3, "write srun alone"),
    ("export PATH=/opt/bin:/usr/bin\ntimeout 1h srun python a.py", 3, "write srun alone"),
    ('[ "$CLEAN" ] || exec env -i CLEAN=1 HOME="$HOME" bash "$0"\nsrun a', 2, "leave -i out"),
    ("export HF_TOKEN=hf_abcdefghijklmnop\nsrun a", 2, "a secret"),
    ("srun python a.py | tee log", 2, "set -o pipefail"),
    ("srun python a.py\necho done", 2, "|| exit $?"),
])
def test_what_works_otherwise_is_said_with_its_line(code: str, line: int, said: str) -> None:
    found = [one for one in hints(code) if one.startswith(f"job.slurm:{line}: ")]
    assert len(found) == 1 and said in found[0], hints(code)


@each("code", [
    "START=$(date +%s)\nsrun python a.py || exit 1\necho took $(($(date +%s) - START)) s",
    "echo started $(date)\nsrun python a.py",
    "MASTER_PORT=$((10000 + SLURM_JOB_ID % 50000))\nexport MASTER_PORT\nsrun python a.py",
    "export TMPDIR=/tmp/$SLURM_JOB_ID\nmkdir -p $TMPDIR\nsrun python a.py",
    "exec > >(tee -a train.log) 2>&1\nsrun python a.py", "exec 3> lock\nsrun python a.py",
    "exec > /dev/null\nsrun python a.py",
    "( echo a ) > f\nsrun python a.py", "{ hostname; date; } > f\nsrun a",
    "for i in 1 2; do\n  echo $i\ndone > f\nsrun python a.py",
    "prep() {\n  python b.py\n}\nprep > data.json\nsrun python a.py",
    "DIR=$(dirname $(scontrol show job $SLURM_JOB_ID | sed -n 's/ *Command=//p'))\ncd $DIR\nsrun python a.py",
    "srun --label bash -e run.sh",
    "srun -l bash -c 'python a.py 2>/dev/null'", "srun bash -c 'hostname > hosts.txt'\nsrun python a.py",
    "for h in $HOSTS; do ssh $h nvidia-smi; done\nsrun python a.py",
    "parallel -j 4 python prep.py ::: 1 2\nsrun python a.py",
    "SEED=$(od -An -N4 -tu4 /dev/urandom)\nsrun python a.py --seed $SEED", "echo prun ibrun\nsrun python a.py",
    "WORK=/tmp/$USER/$SLURM_JOB_ID\nmkdir -p $WORK\nsrun python a.py",
    "T=$(python -c 'import time; print(time.time())')\nsrun a",
    "D=/tmp/$SLURM_JOB_ID\nrsync -a ckpt/ $D\nsrun python a.py --ckpt $D",
    "D=/tmp/$SLURM_JOB_ID\nsrun python a.py --data $D",
    "OUT=/tmp/$SLURM_JOB_ID\ntrap 'cp -r $OUT home' EXIT\nsrun python a.py --out $OUT",
    "LOCAL_OUT=/tmp/$SLURM_JOB_ID\nsrun python a.py --out $LOCAL_OUT",
    "LOGDIR=logs/$(date +%F)\nmkdir -p $LOGDIR\nsrun python a.py",
    "HOSTFILE=hostfile.$SLURM_JOB_ID\nscontrol show hostnames > $HOSTFILE\nsrun python a.py",
    "srun torchrun --rdzv_id=$SLURM_JOB_ID --rdzv_endpoint=$H:1 a.py",
    "OUT=out/${SAFELAUNCH_RUN_ID:-$(date +%F)}\nsrun python a.py --dir $OUT",
    "OUT=out/$(date +%F)\nsrun python a.py --dir $OUT ${SAFELAUNCH_RESUME_PATH:+--load $SAFELAUNCH_RESUME_PATH}",
    "MASTER_ADDR=$(hostname)\nsrun python a.py --master_addr $MASTER_ADDR --output_dir out",
    "srun -w $SLURMD_NODENAME torchrun --rdzv_endpoint=$(hostname):1 a.py --out x",
    "N=$(ls data | wc -l)\nsrun a --n $N",
    "ssh login01 touch done\nsrun python a.py", "ssh -N -L 8080:localhost:80 login &\nsrun python a.py",
    "srun hostname > hosts.txt\nsrun python a.py", "python prepare.py > data.json\nsrun python a.py",
    "srun python a.py 2>/dev/null", "echo 'srun --output=x'\nsrun python a.py", "srun python a.py --output model",
    "exec srun python a.py", "trap 'echo bye' USR1\nsrun python a.py", "echo $1 $SLURM_ARRAY_JOB_ID\nsrun a",
    "MAX_TOKEN=4096\nUSE_API_KEY=true\nTOKEN=$(cat ~/.token)\nsrun a", "# ssh $h python a.py\nsrun a",
    "export PATH=/opt/bin:$PATH\ntimeout 1h srun a", "cat <<END\nssh h python a.py\nEND\nsrun a",
])
def test_what_is_as_under_sbatch_is_not_spoken_of(code: str) -> None:
    assert [one for one in hints(code) if "exit code" not in one] == []


@each(("code", "slurm", "is_said"), [
    ("srun torchrun --nproc_per_node 4 a.py", {"ntasks-per-node": 4}, True),
    ("srun torchrun --nproc_per_node 4 a.py", {"nodes": 2, "ntasks": 8}, True),
    ("srun --ntasks-per-node=2 accelerate launch a.py", {}, True),
    ("srun bash -c 'torchrun --nproc_per_node 4 a.py'", {"ntasks-per-node": 4}, True),
    ("srun --ntasks-per-node=1 torchrun a.py", {"ntasks-per-node": 4}, False),
    ("srun -N 2 -n 2 torchrun a.py", {"nodes": 2, "ntasks-per-node": 4}, False),
    ("srun torchrun --node_rank $SLURM_NODEID a.py", {"ntasks-per-node": 4}, False),
    ("srun torchrun a.py", {"nodes": 4}, False),
    ("srun python a.py torchrun", {"ntasks-per-node": 4}, False),
])
def test_a_launcher_in_each_task_of_a_node_is_said_of_a_script_and_not_refused(
    code: str, slurm: dict[str, SbatchValue], is_said: bool
) -> None:
    found = hints(code, **slurm)
    assert any("starts once for each of" in one and "--ntasks-per-node=1" in one for one in found) == is_said, found


def test_check_and_submit_say_all_that_init_says() -> None:
    text = "#!/bin/bash\n#SBATCH -N 1\nOUT=out/$(date +%F)\nsrun -o x.log python a.py --dir $OUT\n"
    found = resolve([ConfigLayer("file", "job.slurm", text)], ["cluster=slurm"], {"HOME": "/h"}, (), "/work").notes
    assert [one for one in script_hints(text, "job.slurm", {}) if one not in found] == []
    assert sum("job.slurm:3: " in one or "job.slurm:4: " in one for one in found) == 2, found
