"""A run made by hand in a folder of its own, with a checkpoint, a log and a train.yaml: what is then made odd."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.handmade import YAML, Made, fake_command, make_run
from tests.pure.checkpoints.checkpoint_files import torch_file

SCRIPT = "#!/bin/bash\n#SBATCH --nodes=2\nsrun python train.py\n"


@dataclass(frozen=True)
class Place:
    """The folder that the verbs are typed in; `run` lies below it, as do train.yaml, job.sh, ckpt/ and home/."""

    folder: Path
    made: Made

    @property
    def run(self) -> Path:
        return self.made.dir

    @property
    def env(self) -> dict[str, str | None]:
        """No Slurm answers but squeue, and nothing of the caller's home is read."""
        return {"HOME": f"{self.folder}/home", "XDG_STATE_HOME": f"{self.folder}/home/state", "SLURM_CONF": None,
                "PATH": f"{self.folder}/bin:/usr/bin:/bin", "XDG_CONFIG_HOME": None, "COLUMNS": "80"}


def make_place(folder: Path) -> Place:
    """The folder, with all in order."""
    (folder / "home").mkdir(parents=True)
    for name, does in {"squeue": "exit 0", "sbatch": "echo no >&2; exit 1", "scancel": "exit 1", "scontrol": "exit 1",
                       "sacct": "exit 1", "sinfo": "exit 1", "srun": "exit 1"}.items():
        fake_command(folder / "bin", name, does)
    ckpt = folder / "ckpt"
    ckpt.mkdir()
    (ckpt / "step_2.pt").write_bytes(torch_file())
    (folder / "train.yaml").write_text(f"{YAML}resume: {{dir: ckpt, by: training}}\nrun_dir: {folder}/other\n")
    (folder / "job.sh").write_text(SCRIPT)
    made = make_run(folder / "run", f"{YAML}resume: {{dir: {ckpt}, by: training}}\n")
    made.running()
    made.event("progress", attempt=1, step=3, first=1, counter="step")
    made.failed()
    made.log(1, b"[n0:0]:step 1 loss 2.0\n[n1:1]:Traceback (most recent call last):\n[n1:1]:KeyError: 'x'\n")
    (made.dir / "pulse.json").write_text('{"v":1,"count":1,"t":1,"gen":1,"host":"n0","job":"12","state":"running"}')
    (made.dir / "claims" / "1").write_text('{"v":1,"t":1,"gen":1,"host":"n0","pid":1,"action":"lead job 12"}')
    return Place(folder, made)


# Every verb, as it is typed in such a folder. `demo` and `sandbox up` start what they are named for, and read nothing.
OF_A_RUN: tuple[tuple[str, ...], ...] = (
    ("status", "run"), ("status", "--json", "run"), ("status",), ("why", "run"), ("why", "--json", "run"),
    ("why", "--ticket", "run"), ("events", "--all", "run"), ("events", "--json", "run"), ("logs", "run"),
    ("logs", "--json", "run"), ("logs", "-n", "2", "--rank", "0", "run"), ("logs", "--first-error", "run"),
    ("checkpoints", "run"), ("checkpoints", "--json", "run"), ("wait", "--timeout", "1s", "run"),
    ("watch", "--once", "run"), ("shell", "run"), ("stacks", "run"), ("nodes", "run"), ("policy", "run"),
    ("extend", "run"), ("release", "run"), ("hold", "run"), ("resume", "run"), ("stop", "--now", "run"),
    ("stop", "--checkpoint", "run"), ("stop", "run"), ("progress", "run"), ("save", "--within", "1s", "run"),
    ("report", "-o", "page.html", "run"), ("metrics", "run"), ("clean", "run"), ("restart", "run"),
    ("clean", "--older", "1s", "--checkpoints", "--yes", "run"), ("change", "run", "restart.max_restarts=9"),
)
OF_A_CONFIG: tuple[tuple[str, ...], ...] = (
    ("check", "train.yaml"), ("script", "train.yaml"), ("config", "train.yaml"), ("config", "--origin", "train.yaml"),
    ("policy", "train.yaml"), ("checkpoints", "train.yaml"), ("submit", "train.yaml"),
)
OF_A_LOG: tuple[tuple[str, ...], ...] = (
    ("why", "run"), ("why", "--all", "run"), ("logs", "run"), ("logs", "-n", "1", "run"), ("logs", "--json", "run"),
    ("logs", "--first-error", "run"), ("logs", "--rank", "0", "run"), ("status", "run"), ("status",),
    ("progress", "run/attempts/0001/main.log"), ("progress", "--json", "run"), ("report", "-o", "page.html", "run"),
)
OF_CHECKPOINTS: tuple[tuple[str, ...], ...] = (
    ("checkpoints", "ckpt"), ("checkpoints", "--json", "ckpt"), ("checkpoints", "run"), ("status", "run"),
    ("checkpoints", "train.yaml"), ("submit", "train.yaml"),
)
OF_NOTHING: tuple[tuple[str, ...], ...] = (
    ("schema",), ("init", "--from", "job.sh", "-o", "new.yaml"), ("sandbox", "list"), ("nodes",), ("watch", "--once"),
    ("status",), ("why",), ("logs",),
)
ALL = (*OF_A_RUN, *OF_A_CONFIG, *OF_A_LOG[:2], *OF_CHECKPOINTS[:2], *OF_NOTHING)
