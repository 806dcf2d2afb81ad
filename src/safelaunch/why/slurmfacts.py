"""What Slurm's commands say of a job, as evidence of its end: scontrol show job, sacct, scontrol show node."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from safelaunch.slurm import jobstates

# sacct --parsable2: the job's line, then its steps'. WorkDir comes last: a path may hold a "|".
ACCOUNT_FORMAT = "JobID,State,ExitCode,NodeList,WorkDir"
_BAD_NODE = ("DOWN", "FAIL", "NOT_RESPONDING", "*")
_KEY = r"[A-Z]\w{0,60}(?:[/:]\w{1,60}){0,4}"
_WORD = re.compile(rf"(?:^|\s)({_KEY})=(.*?)(?=\s{_KEY}=|\s{{0,8}}$)")


@dataclass(frozen=True)
class JobFacts:
    """What Slurm knows of a job; "" and () for what it does not say."""

    state: str = ""
    reason: str = ""
    exit_code: str = ""
    nodes: str = ""
    outputs: tuple[str, ...] = ()
    folder: str = ""
    steps: tuple[str, ...] = ()      # states of its steps that name a cause

    @property
    def is_alive(self) -> bool:
        """It has not ended."""
        return bool(self.state) and jobstates.is_alive(self.state)

    @property
    def states(self) -> tuple[str, ...]:
        """Slurm's words that are evidence of its end."""
        return tuple(dict.fromkeys(filter(None, (() if self.is_alive else (self.state,)) + self.steps)))

    @property
    def said(self) -> str:
        """For people: "NODE_FAIL (reason NodeDown, exit code 1:0)"; "" = nothing."""
        more = [f"reason {self.reason}" if self.reason not in ("", "None") else "",
                f"exit code {self.exit_code}" if self.exit_code not in ("", "0:0") else "",
                f"a step ended as {', '.join(self.steps)}" if self.steps else ""]
        words = ", ".join(filter(None, more))
        return f"{self.state}{f' ({words})' if words else ''}" if self.state else ""


def parse_job(text: str) -> JobFacts | None:
    """The first job of `scontrol --oneliner show job`; None = it shows none. Values may hold blanks."""
    lines = [dict(_WORD.findall(line)) for line in text.splitlines() if line.startswith("JobId=")]
    if not lines:
        return None
    first = lines[0]
    outputs = dict.fromkeys(row.get(key, "") for row in lines for key in ("StdOut", "StdErr"))
    return JobFacts(first.get("JobState", ""), first.get("Reason", ""), first.get("ExitCode", ""),
                    _none(first.get("NodeList", "")), tuple(path for path in outputs if path.startswith("/")),
                    first.get("WorkDir", ""))


def parse_account(text: str, job: str) -> JobFacts | None:
    """The job in `sacct --parsable2 --noheader --format=ACCOUNT_FORMAT`; None = it is in none of the lines."""
    found: JobFacts | None = None
    steps = []
    for line in text.splitlines():
        parts = line.split("|", 4)
        if len(parts) < 5:
            continue
        state = parts[1].split()[0] if parts[1].split() else ""
        if parts[0] == job:
            found = JobFacts(state, "", parts[2], _none(parts[3]), (), parts[4])
        elif parts[0].startswith(f"{job}.") and state in jobstates.STEP_CAUSES:
            steps.append(state)
    if found is None:
        return None
    return JobFacts(found.state, "", found.exit_code, found.nodes, (), found.folder, tuple(dict.fromkeys(steps)))


def bad_nodes(text: str, since_t: float, until_t: float) -> tuple[tuple[str, str], ...]:
    """(node, what Slurm says of it) of those in `scontrol --oneliner show node` that failed within that time.

    A node that is down today may have been well then: only a reason that was set at the time counts.
    """
    found = []
    for line in text.splitlines():
        words = dict(_WORD.findall(line))
        state, reason = words.get("State", ""), words.get("Reason", "")
        when = re.search(r"\[[^\s\[\]@]{1,64}@(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\]", reason)
        if when is None or not any(word in state for word in _BAD_NODE):
            continue
        if since_t <= datetime.fromisoformat(when[1]).timestamp() <= until_t:
            found.append((words.get("NodeName", ""), f"Slurm: {state}, {reason}"))
    return tuple(found)




def _none(text: str) -> str:
    return "" if text in ("(null)", "None assigned", "None") else text
