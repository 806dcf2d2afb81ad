"""A user's own script as sbatch would run it: its environment, its names in Slurm, its output file, its next link."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safelaunch.base.endings import AttemptEnd
from safelaunch.decide.jobs import links
from safelaunch.run.fold.state import State
from safelaunch.script.io import standins
from safelaunch.slurm import jobstates, nodefold
from safelaunch.slurm.outputname import JobNames, default_pattern, expand, lines_that_name
from safelaunch.slurm.sbatchoptions import LETTERS, OPTIONS
from safelaunch.supervisor.state.ports import Here

# Of the job around the script, which under sbatch would be the script's own.
_OF_OUR_JOB = ("SLURM_JOB_DEPENDENCY", "SLURM_OPEN_MODE", "SLURM_RESTART_COUNT")
# What the attempt adds that another job must not have, unless the user has it.
_ADDED = ("WANDB_RUN_ID", "WANDB_RESUME", "PYTHONUNBUFFERED")


class ScriptJob:
    """The job of a script's next attempt, as sbatch would have made it."""

    def __init__(self, here: Here, state: State, number: int, nodes: tuple[str, ...]) -> None:
        self.here, self.state, self.number, self.nodes = here, state, number, nodes
        self.link = links.in_force(state)
        self.options: Mapping[str, str] = self.link.get("options") or {}
        self.restarts = links.restarts_before(state)
        self.text: str = self.link.get("text") or ""
        self.cwd: str = self.link.get("chdir") or here.job.cwd
        own = here.plan.own
        self.name = self.options.get("job-name") or own.job_name or here.plan.name
        self.args: tuple[str, ...] = tuple(self.link["args"]) if self.link else own.args
        self.open_mode = self.options.get("open-mode") or own.open_mode
        array, _, task = own.array.partition("_")
        self.patterns = [self.options.get("output") or own.output or default_pattern(bool(task)),
                         self.options.get("error") or own.error or ""]
        self.aliases = {name: here.job.id for name in (own.array, array) if name}
        names = JobNames(here.job.id, self.name, here.user, nodes[0] if nodes else here.job.host, array, task)
        self.output, self.error = (pattern and os.path.normpath(Path(self.cwd) / expand(pattern, names))
                                   for pattern in self.patterns)

    def environ(self) -> dict[str, str]:
        """What the script's environment has beside the job's, or instead of it."""
        env: dict[str, str] = {**(self.link.get("env") or {}), "SAFELAUNCH_JOB_NAME": self.name,
                               "SAFELAUNCH_OUTPUT": self.output, "SAFELAUNCH_ERROR": self.error}
        if self.restarts:
            env["SLURM_RESTART_COUNT"] = str(self.restarts)
        if self.open_mode:
            env["SLURM_OPEN_MODE"] = self.open_mode[:1]
        if self.text:
            env["SAFELAUNCH_SCRIPT"] = str(self.here.local / standins.TEXT)
        if self.link:
            env |= {"SAFELAUNCH_LINK": "yes", "SAFELAUNCH_CWD": self.cwd,
                    "SLURM_SUBMIT_DIR": self.link.get("cwd") or self.cwd}
        if (depth := self.here.job.env.get("SHLVL", "")).isdigit() and int(depth) > 0:
            env["SHLVL"] = str(int(depth) - 1)   # a shell of ours stands between
        if lines_that_name(self.here.plan.command, filter(None, self.patterns)):
            env["SAFELAUNCH_OWN_LOG"] = "yes"
        return env

    def dead_steps(self) -> dict[str, str]:
        """What lets a step with --exact start beside that of a node which died in this job: it keeps its processors for
        Slurm for good (22.05, measured: 700 s).
        """
        is_left = any(one.job == self.here.job.id and one.ended in (AttemptEnd.LOST, AttemptEnd.INTERRUPTED)
                      for one in self.state.attempts)
        return {"SAFELAUNCH_OVERLAP": "force"} if is_left else {}

    def env_of_job(self) -> dict[str, str]:
        """The job's environment without what is ours, or gone in the link."""
        gone = {*_OF_OUR_JOB, *(self.link.get("gone") or ())}
        return {name: value for name, value in self.here.job.env.items() if name not in gone}

    def facts(self, log: str, excluded: tuple[str, ...]) -> dict[str, Any]:
        """What the stubs of Slurm's commands know of it (node/standin/main.py); `log`: the attempt's, of the run."""
        here, own = self.here, self.here.plan.own
        shown = {"JobName": self.name, "Command": " ".join([own.path, *self.args]) if own.path else "",
                 "StdOut": self.output, "StdErr": self.error or self.output, "Restarts": str(self.restarts),
                 "Requeue": "1", "WorkDir": self.cwd}
        if len(self.nodes) != len(here.job.nodes):
            shown |= {"NodeList": nodefold.fold(self.nodes), "NumNodes": str(len(self.nodes))}
        if excluded:
            shown["ExcNodeList"] = dict(here.plan.sbatch).get("exclude") or "(null)"
        return {
            "job": here.job.id, "aliases": self.aliases, "attempt": self.number, "job_name": here.plan.job_name,
            "shown": {name: value for name, value in shown.items() if value},
            "job_file": str(here.run_dir / "job.sbatch"), "script": own.path, "log": log,
            "spool": str(here.local / f"attempt-{self.number:04d}.log"), "link_env": self.link.get("env") or {},
            "options": {name: value or "" for name, value in here.plan.sbatch},
            "text": self.text, "has_new_text": bool(self.text),
            "added": [name for name in _ADDED if name not in here.job.env],
            "takes": {name: option.takes for name, option in OPTIONS.items()}, "letters": LETTERS,
            "pending": jobstates.PENDING,
        }
