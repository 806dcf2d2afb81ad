"""Where the scripts run: a Slurm with accounting whose nodes take hundreds of jobs at once, and fresh folders."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from safelaunch.sandbox.cluster import Sandbox
from tests.conformance.case import CASES, PROGRAMS, Case
from tests.runs import ALICE, Installation
from tests.sandboxes import make_workdir, new_sandbox

NODES, CPUS, GPUS, MEMORY_MB = 6, 512, 64, 512_000
SUBMIT_S = 120.0
PLAIN, SAFE = "plain", "safelaunch"
PROBE = '{programs}/probe $$ "$0" "$@"; '


@dataclass(frozen=True)
class Side:
    """A script on one side: its folder, and beside it what was said at submit and what the script's probes left."""

    case: Case
    name: str      # PLAIN or SAFE
    room: Path

    @property
    def folder(self) -> Path:
        """Where the script is submitted."""
        return self.room / "work"

    @property
    def said(self) -> Path:
        """What the command said; .err and .code beside it."""
        return self.room / "said.out"

    def owns(self, job: str, folder: str) -> bool:
        """Whether a job is of this side: it runs in its folder, or the command named it (`--chdir`)."""
        return folder.startswith(str(self.folder)) or f" {job}\n" in self.said.read_text()


@dataclass(frozen=True)
class Place:
    """A sandbox, and the checkout as its users see it."""

    sandbox: Sandbox
    installation: Installation
    base: Path

    def lay_out(self, case: Case, name: str) -> Side:
        """A fresh folder with the script and all that it uses."""
        side = Side(case, name, self.base / case.name / name)
        side.folder.mkdir(parents=True)
        (side.room / "probe").mkdir()
        (side.folder / case.file).write_bytes(self._text(case, side).encode("utf-8", "surrogateescape"))
        for program in ("rank", "train.py"):
            shutil.copy(PROGRAMS / program, side.folder)
        for file, source in case.also:
            (side.folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(CASES / (source or file), side.folder / file)
        for path in (side.room, *side.room.rglob("*")):
            shutil.chown(path, ALICE, ALICE)
        return side

    def _text(self, case: Case, side: Side) -> str:
        """The script, which says first of all what it was started with."""
        if not case.has_probe:
            return case.text
        probe = PROBE.format(programs=self.installation.root / PROGRAMS.relative_to(PROGRAMS.parents[2]))
        lines = case.text.splitlines(keepends=True)
        first = next((at for at, line in enumerate(lines) if line.strip() and not line.startswith("#")), len(lines))
        head, rest = "".join(lines[:first]), "".join(lines[first:])
        return f"{head}CONFORMANCE_PROBE={side.room}/probe {probe}{rest}"

    def submit(self, sides: Sequence[Side]) -> None:
        """Submit all; what each command said lies beside the folders then."""
        tasks = [self._task(side) for side in sides]
        file = self.base / "tasks.json"
        file.write_text(json.dumps(tasks))
        submitter = self.installation.root / "tests" / "conformance" / "submitter.py"
        done = self.sandbox.run([str(self.installation.python), str(submitter), str(file)], user=ALICE, cwd=self.base,
                                env=self.installation.env, timeout_s=SUBMIT_S)
        assert done.returncode == 0, done.stdout + done.stderr

    def _task(self, side: Side) -> dict[str, object]:
        case = side.case
        env = {**self.installation.env, "XDG_STATE_HOME": f"{side.room}/state", "PWD": str(side.folder),
               "CONFORMANCE_PROBE": f"{side.room}/probe", "SAFELAUNCH_LOCAL_DIR": f"{self.sandbox.dir}/local",
               "TRAIN_PAUSE": "0.02", **dict(case.env)}
        return {"cwd": str(side.folder), "argv": _argv(side), "env": env, "umask": case.umask, "out": str(side.said)}

    def living(self) -> dict[str, list[str]]:
        """Jobs that have not ended, by the folder of each."""
        found: dict[str, list[str]] = {}
        for line in self.sandbox.slurm(["squeue", "-h", "-a", "-o", "%A|%Z"]).splitlines():
            job, _, folder = line.partition("|")
            found.setdefault(folder, []).append(job)
        return found


def _argv(side: Side) -> list[str]:
    case = side.case
    if side.name == PLAIN:
        return ["sbatch", *case.options, case.file, *case.args]
    # The exit code of a script's own end is looked for: it is not tried again where nothing was made to fail.
    once = () if case.is_faulted else ("restart.max_restarts=0",)
    # Flags of sbatch, and behind a second -- the script's arguments.
    behind = ["--", *case.options, *(["--", *case.args] if case.args else [])] if case.options or case.args else []
    return ["safelaunch", "submit", case.file, "restart.backoff=0s", *once, *case.overrides, *behind]


@contextmanager
def a_place(installation: Installation, name: str = "conformance") -> Iterator[Place]:
    """A new sandbox for as long as the block runs."""
    sandbox = new_sandbox(NODES, cpus=CPUS, gpus=GPUS, memory_mb=MEMORY_MB, accounting=True,
                          conf={"Licenses": "matlab:900,comsol:900", "MaxArraySize": "1001"})
    try:
        (sandbox.dir / "local").mkdir(exist_ok=True)
        (sandbox.dir / "local").chmod(0o1777)
        for argv in SETUP:
            sandbox.slurm(argv)
        yield Place(sandbox, installation, make_workdir(sandbox, name))
    finally:
        sandbox.down()


PARTITIONS = ("short", "gpu", "train", "hopper-prod")
SETUP = (
    *(["scontrol", "create", f"PartitionName={name}", "Nodes=ALL", "MaxTime=2880", "State=UP"] for name in PARTITIONS),
    ["scontrol", "update", f"NodeName=n[0-{NODES - 1}]", "AvailableFeatures=fast,big", "ActiveFeatures=fast,big"],
    ["sacctmgr", "-i", "add", "qos", "high"],
    ["sacctmgr", "-i", "add", "account", "second"],
    ["sacctmgr", "-i", "add", "user", ALICE, "Account=second"],
    ["sacctmgr", "-i", "modify", "user", ALICE, "set", "QOS+=high"],
)
