"""One sentence on each kind of event of the journal: what `events`, `why` and `demo` say of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from safelaunch.base.endings import ENDED_BY, ENDED_WHOLE
from safelaunch.base.model import Event
from safelaunch.base.numbers import figure
from safelaunch.hangs.present import tell_silence
from safelaunch.nodehealth.slow.oddfigures import tell_odd
from safelaunch.run.acts import ACTS
from safelaunch.run.codefiles import tell_changed
from safelaunch.slurm import nodefold, via
from safelaunch.stacks import stacktext
from safelaunch.trainlog.lines import tell_unread
from safelaunch.verbs.common import talk

Data = Mapping[str, Any]


def describe(event: Event) -> str:
    """One sentence on an event; its fields for a kind that this version does not know."""
    sentence = SENTENCES.get(event.event)
    try:
        text = sentence(event.data) if sentence else None
    except (KeyError, TypeError, ValueError, AttributeError):
        text = None   # a known kind in an unknown form: written by another version
    if text is None:
        text = f"{event.event}: " + ", ".join(f"{key}={value}" for key, value in event.data.items())
    return talk.clean(text)


def _nodes(data: Data) -> str:
    return nodefold.fold(map(str, data.get("nodes") or ())) or "no nodes"


def _because(data: Data) -> str:
    return f": {data['why']}" if data.get("why") else ""


def _checks(data: Data) -> str:
    level = "full node checks" if data.get("level") == "full" else "node checks"
    return level if data.get("after") is None else f"{level} after attempt {data['after']}"


def _submitted(data: Data) -> str:
    if not data.get("successor_of"):
        return f"job {data['job']} is submitted"
    excludes = nodefold.fold(map(str, data.get("exclude") or ()))
    return (f"job {data['job']} is queued as the successor of job {data['successor_of']}"
            + (f", without {excludes}" if excludes else ""))


def _attempt_started(data: Data) -> str:
    at = f" from step {data['resume_step']}" if data.get("resume_step") is not None else ""
    if data.get("resize"):
        return f"attempt {data['attempt']} runs before_resize on {_nodes(data)}{at}{_because(data)}"
    return f"attempt {data['attempt']} starts on {_nodes(data)}{at}{_because(data)}"


def _hang_suspected(data: Data) -> str:
    step = f", the last was step {data['step']}" if data.get("step") is not None else ""
    silence = tell_silence(float(data["silent_s"]), data.get("usual_s"), talk.span, str(data["phase"]))
    return f"attempt {data['attempt']} may hang: {silence}{step}"


def _checkpoint(data: Data) -> str:
    return f"the checkpoint of step {data['step']} is complete" + (f": {data['path']}" if data.get("path") else "")


def _failure(data: Data) -> str:
    """By which task ended first, unless all of them were ended for another reason."""
    asked = str(data.get("asked"))
    if asked in ENDED_WHOLE:
        return f"attempt {data['attempt']} was ended{_at_step(data)}: {ENDED_BY[asked]}"
    exits = [str(text) for text in data.get("exits") or ()]
    more = f", and {len(exits) - 1} more" if len(exits) > 1 else ""   # in the order in which they ended
    told = f": {exits[0]}{more}" if exits else ""
    return f"attempt {data['attempt']} failed{_at_step(data)}, exit code {data.get('exit_code')}{told}"


def _at_step(data: Data) -> str:
    return f" at step {data['at_step']}" if data.get("at_step") is not None else ""


def _verdict(data: Data) -> str:
    summary = f": {data['summary']}" if data.get("summary") else ""
    follows = data.get("follows") or (f"to do: {data['action']}" if data.get("action") else "")
    return (f"verdict on attempt {data['attempt']}: {data['category']} "
            f"({float(data.get('confidence', 0)):.0%} sure){summary}{f'; {follows}' if follows else ''}")


def _attempt_ended(data: Data) -> str:
    code = data.get("exit_code")
    return f"attempt {data['attempt']} has ended{_at_step(data)}: {data['how']}" + (
        f", exit code {code}" if code is not None else "") + _because(data)


def _outcome(data: Data) -> str:
    how = {True: "done", False: "it did not work", None: "unknown whether it happened"}[data.get("ok")]
    note = data.get("note") or data.get("why")
    return f"{str(data.get('act')).replace('_', ' ')}{_claim(data)}: {how}" + (f": {note}" if note else "")


def _decision(data: Data) -> str:
    """The row is a name for programs and `--all`."""
    return f"decided ({str(data['row']).replace('_', ' ')}){_because(data)}" if "row" in data else str(data["why"])


def _intent(data: Data) -> str:
    act = str(data["act"])
    return f"about to {ACTS[act].sentence if act in ACTS else act.replace('_', ' ')}{_claim(data)}"


def _claim(data: Data) -> str:
    return f" (claim {data['claim']})" if "claim" in data else ""


def _preserved(data: Data) -> str:
    which = _nodes(data) if "nodes" in data else "the nodes"
    return f"{which} are kept for people to look at until {talk.moment(float(data['until']))}{_because(data)}"


def _handed_over(data: Data) -> str:
    to = f"job {data['job']}" if data.get("job") else "the next job"
    return f"the run is handed over to {to}{_because(data)}"


def _node_excluded(data: Data) -> str:
    until = f" until {talk.moment(float(data['until']))}" if data.get("until") is not None else ""
    return f"{data['node']} is excluded{until}{_because(data)}"


def _took_over(data: Data) -> str:
    before = f" after the one on {data['before']}" if data.get("before") else ""
    return f"a new supervisor leads job {data['job']}{before}{_because(data)}"


def _lost_progress(data: Data) -> str:
    then = "it is ended before it can overwrite newer checkpoints" if data.get("then") == "stop" else "it goes on"
    return f"progress is {'lost' if data.get('sure') else 'perhaps lost'}: {data['why']}; {then}"


def _left_out(count: int, upto: int) -> str:
    if count == 1:
        return f"one checkpoint behind step {upto} is not used"
    return f"{count} checkpoints behind step {upto} are not used" if count else f"no checkpoint is behind step {upto}"


def _slower(data: Data) -> str:
    now_s, before_s = (figure(float(data[key]), 4) for key in ("level_s", "from_s"))
    return f"steps take {now_s} s instead of {before_s} s since step {data['since_step']}"


def _checkpoint_skipped(data: Data) -> str:
    instead = f"the newest complete one is {data['instead']}" if data.get("instead") else "there is no complete one"
    return f"the checkpoint {data['path']} is skipped: {data['reason']}; {instead}"


def _notified(data: Data) -> str:
    sent, failed = (", ".join(map(str, data.get(key) or ())) for key in ("sent", "failed"))
    parts = [f"was sent to {sent}" if sent else "", f"did not reach {failed}" if failed else ""]
    return f"a message on {', '.join(str(key).split()[0] for key in data['keys'])} {' and '.join(filter(None, parts))}"


# What a journal line leaves out of a leftover's row (supervisor.common.inspection).
_UNSAID = {"cmd": "", "name": "", "gpus": (), "rss_mb": None, "why": ""}
SENTENCES: dict[str, Callable[[Data], str]] = {
    "submitted": _submitted,
    "job_started": lambda data: f"job {data['job']} has started on {_nodes(data)}; batch host {data.get('batch_host')}",
    "checks_passed": lambda data: f"the {_checks(data)} have passed on {_nodes(data)}",
    "checks_failed": lambda data: f"the {_checks(data)} have failed on {_nodes(data)}{_because(data)}",
    "attempt_started": _attempt_started,
    "code_changed": lambda data: f"attempt {data['attempt']}: {tell_changed(data['files'], data['since'])}",
    "progress": lambda data: f"attempt {data['attempt']} is at step {data['step']}",
    "checkpoint": _checkpoint,
    "advanced": lambda data: f"attempt {data['attempt']} is progress{_because(data)}",
    "hang_suspected": _hang_suspected,
    "leftovers": lambda data: "; ".join(stacktext.tell_left(row["node"], {**_UNSAID, **row}) for row in data["left"]),
    "cores": lambda data: f"attempt {data['attempt']} has left core files: {', '.join(data['paths'])}",
    "failure": _failure,
    "verdict": _verdict,
    "attempt_ended": _attempt_ended,
    "fenced": lambda data: f"nothing of attempt {data['attempt']} is left on any node",
    "node_suspected": lambda data: f"{data['node']} is suspected{_because(data)}",
    "node_lost": lambda data: f"{data['node']} is lost{_because(data)}",
    "node_excluded": _node_excluded,
    "node_left_out": lambda data: f"{data['node']} is used all the same{_because(data)}",
    "node_readmitted": lambda data: f"{data['node']} is no longer excluded{_because(data)}",
    "node_cleared": lambda data: f"{data['node']} is cleared{_because(data)}",
    "checkpoint_rejected": lambda data: f"the checkpoint {data['path']} is rejected{_because(data)}",
    "conversions_removed": lambda data: (f"outputs of before_resize that nothing goes on from are removed: "
                                         f"{', '.join(map(str, data['outputs']))}"),
    "checkpoint_skipped": _checkpoint_skipped,
    "lost_progress": _lost_progress,
    "steps_unread": lambda data: (f"attempt {data['attempt']} has written {data['lines']} lines, and no step was read: "
                                  f"{tell_unread(str(data['line']), str(data['pattern']))}"),
    "odd_figure": lambda data: (f"{tell_odd(data['kind'], data['value'], data.get('usual'))}, since step "
                                f"{data['step']} of attempt {data['attempt']}"),
    "step_time": lambda data: f"a step takes {figure(float(data['level_s']), 4)} s",
    "slower": _slower,
    "slow_evidence": lambda data: f"when steps became longer: {data['why']}",
    "nodes_benched": lambda data: f"{_nodes(data)} were measured{_because(data)}",
    "swap_judged": lambda data: (f"the speed has {'come back' if data['won'] else 'not come back'} without "
                                 f"{_nodes(data)}: {figure(float(data['level_s']), 4)} s a step"),
    "evidence_withdrawn": lambda data: f"what was measured against {data['node']} is taken back{_because(data)}",
    "checkpoints_cut": lambda data: _left_out(len(data["checkpoints"]), data["upto"]) + (
        ": the loss of attempt {attempt} was no finite number from step {step} on" if data["attempt"] else
        ": a person wants to start there (resume.step)").format_map(data),
    "slower_over": lambda data: f"the drop of speed is over: {_slower(data)}",
    "standby_started": lambda data: f"a second supervisor stands by on {data['node']}",
    "standby_lost": lambda data: f"the second supervisor on {data['node']} is lost{_because(data)}",
    "via_chosen": lambda data: f"{via.sentence(str(data['via']))}{_because(data)}",
    "successor_cancelled": lambda data: f"a person cancelled the next job, {data['job']}: the run ends with this one",
    "need_successor": lambda data: f"a watch has to queue the next job{_because(data)}",
    "decision": _decision,
    "intent": _intent,
    "outcome": _outcome,
    "preserved": _preserved,
    "released": lambda data: f"the kept nodes are released{_because(data)}",
    "request": lambda data: f"{data['who']} touched control/{data['name']}",
    "kill_switch": lambda data: f"{data['who']} " + (
        "wants it to stop at its next checkpoint" if data["name"] == "checkpoint" else
        f"touched the kill switch ({data['name']})"),
    "took_over": _took_over,
    "slurm": lambda data: f"Slurm {data['version']} runs here" + (
        "" if data.get("known", True) else ", a release that this safelaunch does not know"),
    "local_folder_taken": lambda data: (f"warning: {data['path']} on {data['node']} belongs to {data['owner']}; the "
                                        f"supervisor uses another folder there"),
    "unknown_words": lambda data: (f"Slurm ended something of job {data['job']} in words that this safelaunch does not "
                                   f"know: {data['said']!r}"),
    "clock_stepped": lambda data: (f"the clock of this host has stepped {'ahead' if data['by_s'] > 0 else 'back'} by "
                                   f"{talk.span(abs(data['by_s']))}"),
    "held": lambda data: f"safelaunch put the run on hold{_because(data)}",
    "handed_over": _handed_over,
    "successor_lost": lambda data: f"job {data['job']}, which was to go on, is lost{_because(data)}",
    "successor_relaxed": lambda data: f"job {data['job']} excludes fewer nodes now{_because(data)}",
    "successor_freed": lambda data: f"job {data['job']} may start before the job ahead of it has ended{_because(data)}",
    "resubmitted": _handed_over,
    "ended_alone": lambda data: f"job {data['job']} has ended with exit code {data['exit_code']}, without a supervisor",
    "notified": _notified,
    "completed": lambda data: f"the run has completed{_because(data)}",
    "gave_up": lambda data: f"the run has given up, exit code {data.get('exit_code')}{_because(data)}",
    "stopped": lambda data: f"the run was stopped{_because(data)}",
}
