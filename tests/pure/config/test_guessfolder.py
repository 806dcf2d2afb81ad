"""Where a script seems to save its checkpoints: what is guessed, what is not, and what is said of it."""

from __future__ import annotations

from safelaunch.config.guessfolder import guess_folder, tell_missing
from safelaunch.config.resolve import ConfigLayer, resolve
from safelaunch.config.sbatchscript import draft_from_script
from safelaunch.config.starter import render_draft
from tests.tables import each

HEAD = "#!/bin/bash\n#SBATCH --time=10\n"
BY_ITSELF = ("LATEST=$(ls -t ckpt/*.pt 2>/dev/null | head -1)\n"
             "srun python -u train.py --out ckpt ${LATEST:+--resume $LATEST}\n")


@each(("code", "folder", "is_loaded"), [
    ("srun python train.py --out ckpt", "ckpt", False),
    (BY_ITSELF, "ckpt", True),
    ("python t.py --output_dir=out/run1 --lr 3", "out/run1", False),
    ("python t.py --save-dir $SCRATCH/ck --load $SCRATCH/ck", "${SCRATCH}/ck", True),
    ("CK=/x/y\ntorchrun t.py --save $CK --load $CK", "/x/y", True),
    ("torchrun t.py trainer.default_root_dir=exp/1 +out_dir=o", "exp/1", False),
    ("cd sub\npython t.py --ckpt-dir ck", "sub/ck", False),
    ("cd $SLURM_SUBMIT_DIR\npython t.py --ckpt-dir ./ck/", "ck", False),
    ("last=$(find runs/ck -name 'step_*.pt' | tail -1)\npython t.py $last", "runs/ck", True),
    ("python t.py --resume latest --save ck/last.pt", "ck", True),
    ("python t.py --resume_from_checkpoint out/checkpoint-500 --output_dir out", "out", True),
    ('CHECKPOINT_DIR="$WORK/ck"\nsrun python t.py --dir "$CHECKPOINT_DIR"', "${WORK}/ck", False),
    ('if [ -d ckpt ]; then R="--resume $(ls -d ckpt/step_* | tail -n1)"; fi\nsrun python t.py $R', "ckpt", True),
    ("for f in ckpt/*.pt; do LATEST=$f; done\nsrun python t.py $LATEST", "ckpt", True),
    ("python t.py --outdir=training-runs", "training-runs", False),
    ("srun --output=logs/%j_%t.out python t.py --output runs/a", "runs/a", False),
    ("python t.py --save 100 --save-interval 5 --savedir x", "x", False),
    ("python t.py --load pretrained/llama --save ck", "ck", False),
    ("python t.py --data data/*.tar --out o", "o", False),
])
def test_the_folder_that_a_script_names_is_guessed(code: str, folder: str, is_loaded: bool) -> None:
    found = guess_folder(HEAD + code)
    assert found is not None and (found.folder, found.is_loaded) == (folder, is_loaded), found


@each("code", [
    "python train.py", "OUT=/s/out_$SLURM_JOB_ID\npython t.py --output_dir $OUT", "python t.py --load data/in.json",
    "python t.py --out result.txt", "srun --output=log.txt python x.py", "srun python x.py --out-file x", "ls data",
    "python t.py --out runs/$(date +%F)", "python t.py --save 100", "python t.py --output_dir s3://bucket/x",
    "python t.py --resume auto", "echo 'no end"])
def test_nothing_is_guessed_where_a_script_names_none_or_another_one_each_time(code: str) -> None:
    assert guess_folder(HEAD + code) is None


def test_what_follows_without_a_folder_is_said_with_the_guess_and_its_line() -> None:
    assert tell_missing(HEAD + BY_ITSELF, 3, "job.slurm") == (
        "3 crashes in a row without a further step end this run, since no checkpoint folder is known: add "
        "resume.dir=ckpt (a guess, from 'ckpt/*.pt' in line 3 of job.slurm)")
    assert (tell_missing("python t.py --out o", 1) or "").endswith("(a guess, from '--out o' in command)")
    assert tell_missing(HEAD, 1) is None


@each(("text", "overrides", "is_said"), [
    (HEAD + BY_ITSELF, [], True),
    (HEAD + BY_ITSELF, ["resume.dir=ckpt"], False),
    ("command: python t.py --save-dir ckpt", [], True),
    ("command: python t.py", [], False),
], ids=["a script", "its folder is given", "a command that saves", "a command that names no folder"])
def test_a_check_says_what_follows_without_a_folder(text: str, overrides: list[str], is_said: bool) -> None:
    found = resolve([ConfigLayer("file", "job.slurm", text)], overrides, {"HOME": "/h"})
    assert any("add resume.dir=ckpt (a guess" in note for note in found.notes) is is_said


@each(("code", "lines"), [
    (BY_ITSELF, ["resume:", "  dir: ckpt"]),
    ("srun python train.py --out ckpt", ["# resume:", "#   dir: ckpt"]),
    ("srun python train.py", ["# resume:", "#   dir: checkpoints"]),
], ids=["in force where the script loads from it", "a comment else", "no guess"])
def test_a_first_train_yaml_has_the_guessed_folder(code: str, lines: list[str]) -> None:
    text = render_draft(draft_from_script(HEAD + code, "job.slurm", "job.slurm"))
    assert "\n".join(lines) + "\n" in text
    assert ("a guess" in text) is ("ckpt" in code)
