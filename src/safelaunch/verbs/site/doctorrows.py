"""safelaunch doctor: what at this site can harm a run, and what to set."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from safelaunch.base.model import CHECK_FAILED
from safelaunch.errors import SlurmUnreachable
from safelaunch.nodehealth.checks.judge import judge as judge_answers
from safelaunch.nodehealth.io.nodechecks import CheckQuestion, NodeChecks
from safelaunch.site.io import doctor, sitefolder
from safelaunch.site.io.doctor import SmallJob
from safelaunch.site.noderows import judge_checks, judge_nodes, judge_team
from safelaunch.site.sitefolder import CAUTION, NOT_SAFE, OK, UNKNOWN, SiteRow
from safelaunch.site.sitefolder import judge as judge_folder
from safelaunch.site.slurmrows import judge_slurm
from safelaunch.slurm.io import slurm
from safelaunch.slurm.io.noderound import Target
from safelaunch.verbs.common import talk, terminal
from safelaunch.verbs.common.talk import Say

STYLES = {OK: "green", CAUTION: "yellow", NOT_SAFE: "bold red", UNKNOWN: "magenta"}
ORDER = (NOT_SAFE, CAUTION, UNKNOWN, OK)


@dataclass(frozen=True)
class DoctorQuestion:
    """What was typed."""

    folder: str
    partition: str | None
    group: str | None
    with_job: bool
    options: tuple[str, ...]   # for sbatch and salloc


@dataclass(frozen=True)
class Diagnosis:
    """All rows; `slurm`: whether Slurm answered, None = there is none here. `job`: the small job's id, "" = none."""

    rows: tuple[SiteRow, ...]
    slurm: bool | None
    job: str = ""

    @property
    def exit_code(self) -> int:
        """0, CHECK_FAILED where something is not safe or the folder does not answer, 4 where Slurm does not."""
        if any(row.verdict == NOT_SAFE or (row.verdict == UNKNOWN and row.check in sitefolder.PROBES)
               for row in self.rows):
            return CHECK_FAILED
        return SlurmUnreachable.exit_code if self.slurm is False else 0


def examine(question: DoctorQuestion, say: Say) -> Diagnosis:
    """Ask Slurm, the folder, and with a job two nodes."""
    env = slurm.outside_job(os.environ)
    rows, has_slurm, job = _ask_slurm(question, env), _has_slurm(), SmallJob()
    answered = None if not has_slurm else any(row.check == "release" and row.verdict != UNKNOWN for row in rows)
    rows += judge_folder(sitefolder.measure(question.folder))
    if question.group is not None:
        rows += (judge_team(doctor.ask_folder(question.folder, question.group)),)
    if question.with_job and has_slurm:
        say("asking for a job of two nodes: up to some minutes")
        with doctor.small_job(_options(question), env, say) as job:
            rows += _ask_job(job, question, env)
    return Diagnosis(tuple(rows), answered, job.id)


def _has_slurm() -> bool:
    return shutil.which("sbatch") is not None


def _options(question: DoctorQuestion) -> tuple[str, ...]:
    named = (f"--partition={question.partition}",) if question.partition else ()
    return (*named, *question.options)


def _ask_slurm(question: DoctorQuestion, env: Mapping[str, str]) -> tuple[SiteRow, ...]:
    if not _has_slurm():
        return (SiteRow("release", CAUTION, "there is no sbatch on the PATH", "runs can use this machine only",
                        "cluster: local"),)
    return judge_slurm(doctor.ask_slurm(question.partition, question.options, env))


def _ask_job(job: SmallJob, question: DoctorQuestion, env: Mapping[str, str]) -> tuple[SiteRow, ...]:
    """What the nodes of the job say."""
    if job.trouble:
        return (SiteRow("nodes: job", UNKNOWN, job.trouble, "the nodes were not looked at: no two of them are free, or "
                        "an option is missing", "safelaunch doctor --job -- --account=… --partition=… --nodes=1"),)
    question_of_checks = CheckQuestion(dict.fromkeys(job.nodes, "light"), {"paths": [question.folder]})
    checked = NodeChecks(Target(job.id, job.nodes), env, question_of_checks).wait()
    return (*judge_nodes(doctor.ask_nodes(job, _options(question), env)),
            *judge_checks(judge_answers(checked.reports, {one.node: one.why for one in checked.silent})))


def show(question: DoctorQuestion, diagnosis: Diagnosis, with_all: bool) -> list[str]:
    """Lines for people: the worst first; what is well only where it was asked for."""
    rows = sorted(diagnosis.rows, key=lambda row: ORDER.index(row.verdict))
    wanted = [row for row in rows if with_all or row.verdict != OK]
    is_terminal = talk.is_for_person()
    shown: list[terminal.Row] = []
    for row in wanted:
        shown.append((row.verdict, f"{row.check}: {row.measured}" + (f": {row.means}" if row.means else ""),
                      STYLES[row.verdict]))
        if row.setting and row.verdict != OK:
            shown.append(("", f"→ {row.setting}", "bold"))
    lines = terminal.lines(shown, terminal.width(), terminal.has_colour()) if is_terminal else terminal.lines(shown)
    return [*lines, _summary(question, diagnosis.rows, with_all)]


def _summary(question: DoctorQuestion, rows: Sequence[SiteRow], with_all: bool) -> str:
    count = Counter(row.verdict for row in rows)
    words = ", ".join(f"{count[verdict]} {verdict}" for verdict in ORDER if count[verdict])
    hint = "" if with_all or not count[OK] else "   (what is ok: --all)"
    return talk.clean(f"{question.folder}: {words}{hint}")


def as_json(question: DoctorQuestion, diagnosis: Diagnosis) -> dict[str, object]:
    """The object of --json."""
    return {"v": 1, "ok": diagnosis.exit_code == 0, "folder": question.folder, "host": os.uname().nodename,
            "partition": question.partition, "slurm": diagnosis.slurm, "job": diagnosis.job or None,
            "rows": [vars(row) for row in diagnosis.rows]}
