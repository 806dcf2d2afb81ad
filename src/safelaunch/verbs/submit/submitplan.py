"""What `submit` shows on a terminal before a job is sent: size, cost, resume point, exclusions, start, git."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import datetime

from safelaunch.base.io.probe import run_in_child
from safelaunch.config.guessfolder import guess_folder
from safelaunch.nodehealth.io import ledger
from safelaunch.nodehealth.ledger import exclusions, of_cluster
from safelaunch.run.io.provenance import GitFacts
from safelaunch.run.plan import Plan
from safelaunch.script import forecast, script
from safelaunch.script.forecast import ExpectedStart, SubmissionFacts
from safelaunch.slurm.io import slurm
from safelaunch.slurm.io.slurm import Command
from safelaunch.slurm.nodeset import expand_own
from safelaunch.verbs.common import talk, terminal
from safelaunch.verbs.submit import firststart

START_S = 5.0     # a person waits
LEDGER_S = 3.0
GIT_S = 2.0


def lines(plan: Plan, text: str, size: str, cwd: str, git: GitFacts, cluster: str) -> list[str]:
    """The plan for this terminal. What does not answer in time is said to be unknown."""
    # The script has the values of env: it goes through memory, and to no file.
    asked = Command(slurm.test_only(script.first_job_options(plan)), slurm.outside_job(os.environ), START_S, cwd,
                    stdin=text.encode())
    resumes = (_no_folder(plan),) if plan.resume.dir is None else firststart.look(plan, cwd).lines
    excluded = _excluded(plan, cluster)
    facts = git.collect(GIT_S)
    start = _start(asked)
    commit = None if facts is None else facts.get("commit", "")
    dirty = forecast.changed_files(facts["diff"]) if facts else 0
    found = SubmissionFacts(size, resumes, excluded, start, commit, dirty, git.is_cut)
    return terminal.lines(forecast.rows(plan, found, talk.span), terminal.width(), terminal.has_colour())


def _no_folder(plan: Plan) -> str:
    guess = guess_folder(plan.command)
    add = f": add resume.dir={guess.folder}, if that is it (a guess)" if guess is not None else " (resume.dir)"
    return f"where the training itself goes on: no checkpoint folder is known{add}"


def _start(asked: Command) -> ExpectedStart:
    result = asked.wait()
    if result.is_unknown:
        return ExpectedStart(trouble=f"Slurm gave no answer within {START_S:.0f} s")
    found = forecast.parse_test_only(result.stderr + result.stdout, result.is_ok)
    try:
        t = datetime.fromisoformat(found.start).timestamp()
    except ValueError:
        return found
    return found._replace(start=f"{talk.moment(t)} (in {talk.span(t - time.time())})")


def _excluded(plan: Plan, cluster: str) -> tuple[tuple[str, str], ...] | None:
    """The nodes that are to be excluded, the user's own first; submit itself then asks which of them Slurm knows."""
    own: Sequence[str] = expand_own(dict(plan.sbatch).get("exclude"))
    named = tuple((node, "slurm.exclude") for node in own)
    if not plan.suspects.exclude:
        return named

    def read() -> list[list[str]]:
        folder = ledger.folder_of(plan.suspects, slurm.outside_job(os.environ))
        known = of_cluster(ledger.read(folder) if folder.is_dir() else (), cluster)
        found = exclusions(known, time.time(), plan.suspects, nodes=plan.allocated_nodes, spares=plan.spare_nodes)
        return [[one.node, one.why] for one in found]

    answer = run_in_child(read, LEDGER_S)
    if not answer.is_ok or answer.value is None:
        return None
    return (*named, *((node, why) for node, why in answer.value if node not in own))
