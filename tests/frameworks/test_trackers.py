"""The recipes of docs/trackers.md, typed as they stand there: two attempts, read back by each package's own reader.

`make test-frameworks` installs the packages; `make test` skips those that are missing.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.localruns import ROOT

RUN_ID = "1a2b3c4d"
# The first attempt dies after step 10; the second goes on from the checkpoint of step 8.
FIRST, SECOND = (1, 10), (9, 14)
ONE_CURVE = {**{step: float(step) for step in range(1, 9)}, **{step: 100.0 + step for step in range(9, 15)}}


def needs(package: str) -> None:
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed: make test-frameworks")


def recipe(title: str) -> str:
    text = (ROOT / "docs" / "trackers.md").read_text()
    section = text.split(f"\n## {title}\n")[1].split("\n## ")[0]
    return "\n".join(re.findall(r"(?ms)^```python\n(.*?)^```", section))


def run(folder: Path, code: str, **more: str) -> str:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SAFELAUNCH_", "WANDB_", "MLFLOW_"))}
    env = {**kept, "SAFELAUNCH_RUN_ID": RUN_ID, "WANDB_RUN_ID": RUN_ID, "WANDB_RESUME": "allow",
           "WANDB_MODE": "offline", "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db", "HOME": str(folder), **more}
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=env, capture_output=True, text=True,
                          timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def attempts(folder: Path, title: str) -> None:
    """Two attempts of a recipe; the second one's losses are 100 higher, so that one sees whose they are."""
    flush = "writer.flush()" if title == "TensorBoard" else ""   # as the page tells to do at a checkpoint
    for (first, last), higher, env in ((FIRST, 0, {}), (SECOND, 100, {"SAFELAUNCH_RESUME_STEP": "8"})):
        steps = f"for step in range({first}, {last + 1}): log(step, float(step + {higher}))"
        run(folder, f"{recipe(title)}\n{steps}\n{flush}", **env)


def test_tensorboard_shows_one_curve(tmp_path: Path) -> None:
    needs("tensorboard")
    attempts(tmp_path, "TensorBoard")
    said = run(tmp_path, (
        "from tensorboard.backend.event_processing.event_accumulator import EventAccumulator\n"
        f"read = EventAccumulator('curves/{RUN_ID}'); read.Reload()\n"
        "print([(one.step, one.value) for one in read.Scalars('loss')])"))
    assert eval(said) == list(ONE_CURVE.items())
    assert len(list((tmp_path / "curves" / RUN_ID).iterdir())) == 2


def test_wandb_offline_leaves_two_folders_of_one_run_with_the_trainings_own_steps(tmp_path: Path) -> None:
    needs("wandb")
    attempts(tmp_path, "W&B")
    said = run(tmp_path, READ_WANDB)
    assert eval(said) == [(RUN_ID, list(range(1, 11))), (RUN_ID, list(range(9, 15)))]


def test_wandb_is_rewound_by_the_lines_for_setup(tmp_path: Path) -> None:
    needs("wandb")
    text = (ROOT / "docs" / "trackers.md").read_text()
    lines = re.findall(r"(?ms)^  ```bash\n(.*?)^  ```", text)[0]
    env = {"PATH": os.environ["PATH"], "WANDB_RUN_ID": RUN_ID, "WANDB_RESUME": "allow", "SAFELAUNCH_RESUME_STEP": "8"}
    code = ("import os, wandb; it = wandb.Settings(); it.update_from_env_vars(os.environ)\n"
            "print(it.resume, it.resume_from.run, it.resume_from.value)")
    told = subprocess.run(["bash", "-euc", f'{lines}\nexec "$0" -c "$1"', sys.executable, code], env=env, text=True,
                          capture_output=True, check=True)
    assert told.stdout == f"None {RUN_ID} 8\n"


def test_mlflow_goes_on_in_the_run_with_the_tag_and_refuses_an_unknown_id(tmp_path: Path) -> None:
    needs("mlflow")
    attempts(tmp_path, "MLflow")
    said = run(tmp_path, (
        "import mlflow\n"
        "runs = mlflow.search_runs(search_all_experiments=True, output_format='list')\n"
        "read = mlflow.MlflowClient().get_metric_history(runs[0].info.run_id, 'loss')\n"
        "print((len(runs), sorted((one.step, one.value) for one in read)))"))
    twice = {(step, float(step)) for step in range(1, 11)} | set(ONE_CURVE.items())
    assert eval(said) == (1, sorted(twice))
    told = run(tmp_path, "import mlflow\ntry: mlflow.start_run()\nexcept mlflow.MlflowException as error: print(error)",
               MLFLOW_RUN_ID=RUN_ID * 4)
    assert "not found" in told


def test_aim_goes_on_in_the_run_of_the_file(tmp_path: Path) -> None:
    needs("aim")
    attempts(tmp_path, "Aim")
    reindex = [str(Path(sys.executable).parent / "aim"), "storage", "--repo", ".", "reindex", "--yes"]
    subprocess.run(reindex, cwd=tmp_path, env={**os.environ, "HOME": str(tmp_path)}, check=True, timeout=240)
    said = run(tmp_path, (
        "import aim\n"
        f"repo = aim.Repo('.'); read = repo.get_run(open('aim-{RUN_ID}').read())\n"
        "print((len(list(repo.iter_runs())), [one.values.sparse_list()[1] for one in read.metrics()\n"
        "       if one.name == 'loss']))"))
    runs, curves = eval(said.splitlines()[-1])   # in an order of its own
    assert (runs, [sorted(curve) for curve in curves]) == (1, [sorted(ONE_CURVE.values())])


# Their records are those of a LevelDB log: blocks of 32 KiB, each record behind a checksum, its length and its type.
READ_WANDB = """
import glob
from wandb.proto.wandb_internal_pb2 import Record
found = []
for path in sorted(glob.glob("wandb/offline-run-*/*.wandb")):
    text, at, steps, name, whole = open(path, "rb").read(), 7, [], "", b""
    while at + 7 <= len(text):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        length, kind = int.from_bytes(text[at + 4:at + 6], "little"), text[at + 6]
        whole = (b"" if kind in (1, 2) else whole) + text[at + 7:at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            record = Record.FromString(whole)
            name = record.run.run_id or name
            steps += [record.history.step.num] if record.HasField("history") else []
    found.append((name, steps))
print(found)
"""
