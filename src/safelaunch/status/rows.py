"""What is known of a run as rows for people: a label, a text, and its style on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from safelaunch.base.model import ELSEWHERE
from safelaunch.base.numbers import count, figure, percent
from safelaunch.base.plaintext import Row
from safelaunch.nodehealth.slow.oddfigures import NAN, tell_odd
from safelaunch.slurm import jobstates, via
from safelaunch.slurm.queuereasons import in_words
from safelaunch.status.costs import RestartCost
from safelaunch.status.overview import (
    NewestCheckpoint,
    NodeSearch,
    Overview,
    RunAttempt,
    next_lines,
    since_of,
    style_of,
    word_of,
)
from safelaunch.status.shares import KINDS, USEFUL, goodput_of
from safelaunch.status.silence import SeenHeartbeat
from safelaunch.status.speech import Speech, duration, tell_slower
from safelaunch.trainlog.lines import tell_unread

FAR_S = 90 * 86400.0   # Slurm's word for a job that it has not planned is a year ahead
SHOWN_RESTARTS = 3
SHOWN_ODD = 3
SHOWN_KINDS = 4        # of lost time
STEADY = 0.05          # a change of pace that is below it says nothing
# What a screen that is too small goes without, what is wanted least first; of rows of one label the first.
LEAST_WANTED = ("slurm", "used", "decided", "decided", "time", "lost", "standby", "hang", "decided", "next job",
                "supervisor")


def rows(seen: Overview, speech: Speech) -> Iterator[Row]:
    """What people are told, one row a thing; rows without content are left out."""
    now = seen.now_t
    yield "run", f"{seen.name} ({seen.run_id}) in {seen.run_dir}", "bold"
    since_t = since_of(seen)
    since = f", since {speech.clock(since_t)} ({speech.span(now - since_t)})" if since_t else ""
    yield "state", f"{word_of(seen)}{since}", style_of(seen)
    yield "", seen.sentence, "yellow" if seen.ended_early or seen.ended_nan else ""
    yield from _alarm_rows(seen, speech)
    yield from _job_rows(seen, speech)
    if seen.relaunch_t is not None and seen.relaunch_t > now:
        yield "then", f"the next attempt starts in {speech.span(round(seen.relaunch_t - now))}", ""
    if (lost := seen.lost_progress) is not None:
        word, style = ("lost", "red") if lost.sure else ("perhaps lost", "yellow")
        yield "progress", f"{word}: {lost.why}", style
    yield from _progress_rows(seen, speech)
    yield from _restart_rows(seen, speech)
    yield from _node_rows(seen, speech)
    yield from _request_rows(seen, speech)
    yield "used", _used(seen), ""
    yield from _decision_rows(seen, speech)
    yield from (("next", line, "bold") for line in next_lines(seen))


def without(shown: Sequence[Row], label: str) -> list[Row]:
    """The rows without the first of that label, and without the ones that go on below it."""
    start = next((number for number, row in enumerate(shown) if row[0] == label), len(shown))
    end = next((number for number in range(start + 1, len(shown)) if shown[number][0]), len(shown))
    return [*shown[:start], *shown[end:]]


def _alarm_rows(seen: Overview, speech: Speech) -> Iterator[Row]:
    pulse, job = seen.pulse, seen.job
    label = "supervisor"
    if pulse is not None and pulse.is_stale:
        yield label, f"no sign of life from the supervisor on {pulse.host} for {speech.span(pulse.age_s)}", "red"
    elif pulse is None and job and job.started_t and not seen.ended and seen.now_t - job.started_t > 60:
        yield label, f"no sign of life from a supervisor since {speech.clock(job.started_t)}", "red"
    elif pulse is not None and _has_supervisor(seen):
        yield label, f"on {pulse.host}, heard {speech.span(pulse.age_s)} ago", ""
        if seen.standby is not None:
            yield "standby", f"on {seen.standby}, ready to take over", ""
        yield from _hang_rows(seen, pulse, speech)
    yield from _slurm_rows(seen)
    if seen.local_folder is not None:
        yield "warning", "{path} on {node} belongs to {owner}, not to you: tell an administrator".format(
            **seen.local_folder._asdict()), "yellow"
    for problem in seen.journal_problems:
        yield "journal", f"cannot be read: {problem}", "red"


def _has_supervisor(seen: Overview) -> bool:
    """Whether the last one that gave a sign of life is to be there still: not after the end, nor without its job."""
    return not seen.ended and seen.state not in ("queued", "waiting", "unknown")


def _slurm_rows(seen: Overview) -> Iterator[Row]:
    said = seen.slurm
    if said.trouble and not seen.ended:
        yield "slurm", f"no clear answer: {said.trouble}", "yellow"
    if said.version is not None and said.is_known:
        yield "slurm", str(said.version), ""
    elif said.version is not None:
        yield "slurm", (f"{said.version}, an unknown release: where it cannot read why "
                        "something ended, it asks, and counts no failure"), "yellow"
    unread = said.unknown_words
    if unread is not None:
        yield "slurm", (f"ended something of job {unread.job} with a message that this safelaunch does not know: "
                        f"{unread.said!r}"), "yellow"


def _hang_rows(seen: Overview, pulse: SeenHeartbeat, speech: Speech) -> Iterator[Row]:
    hang_t, attempt = pulse.hang_t, seen.attempt
    if hang_t is None or attempt is None or attempt.number != pulse.attempt:
        return   # the pulse is as old as 15 s, and may tell of the attempt before
    if attempt.ended or seen.state in ("ending", "stopping", "preserving"):
        return
    if seen.job is not None and seen.job.ends_t and hang_t >= seen.job.ends_t:
        yield "hang", f"none before this job's time limit: without a step, one is due at {speech.clock(hang_t)}", ""
    elif hang_t > seen.now_t:
        yield "hang", f"hang check at {speech.clock(hang_t)} if no step is logged by then", ""
    else:
        yield "hang", f"hang check since {speech.clock(hang_t)}: reading the stacks of all ranks", "yellow"


def _job_rows(seen: Overview, speech: Speech) -> Iterator[Row]:
    job, is_over = seen.job, seen.state == "waiting"
    if job is not None:
        start = f", started {speech.clock(job.started_t)}" if job.started_t else ""
        where = f" on {job.nodelist}" if job.nodes else ""
        ends = ""
        if job.ends_t is not None:
            left = speech.span(job.ends_t - seen.now_t)
            ends = f", its time limit ends it at {speech.clock(job.ends_t)} ({left} left)"
        yield "job", f"{job.id}{where}{start}{', over' if is_over or seen.ended else ends}", ""
    if seen.ended:
        return
    if seen.successor is not None:
        known = next((one for one in seen.slurm.jobs or () if one.id == seen.successor), None)
        is_pending = known is not None and known.state == jobstates.PENDING
        reason = f" ({in_words(known.reason)})" if known and is_pending else ""
        expected = f"; Slurm expects it to start at {speech.clock(known.start_t)}" if (
            known and known.start_t and seen.now_t < known.start_t < seen.now_t + FAR_S) else ""
        behind = "has started" if known and not is_pending else (
            "waits in the queue" if is_over else "is queued behind it")
        yield "next job", f"job {seen.successor} {behind}{reason}{expected}", ""
    elif seen.next_cancelled is not None:
        yield "next job", f"a person cancelled job {seen.next_cancelled}: the run ends with this one", "yellow"
    elif seen.via is not None:
        yield "next job", f"{via.sentence(seen.via)} (restart.via: {seen.via})", ""
    if seen.later_jobs:
        yield "later jobs", ", ".join(f"{key} {value}" for key, value in seen.later_jobs.items()), ""


def _progress_rows(seen: Overview, speech: Speech) -> Iterator[Row]:
    attempt = seen.attempt
    if attempt is None:
        return
    at = f", from step {attempt.resume_step}" if attempt.resume_step is not None else ""
    if attempt.began_step is not None:
        at = f", went on at step {attempt.began_step} by itself"
    end = f", {attempt.ended}" if attempt.ended else ""
    why = f": {attempt.summary}" if attempt.summary else ""
    yield "attempt", f"{attempt.number} on {attempt.nodelist}{_size(attempt)}{at}{end}{why}", ""
    if seen.step is not None:
        of = f" of {seen.step_total} ({percent(seen.step / seen.step_total)})" if seen.step_total else ""
        yield "step", ", ".join([f"{seen.step}{of}", *_figures(seen, speech)]), ""
    elif seen.place is not None:
        yield "step", ", ".join([f"{seen.place}: the log names no step", *_figures(seen, speech)]), ""
    elif seen.unread is not None:
        yield "step", tell_unread(*seen.unread), "yellow"
    if (slower := seen.slower) is not None and seen.ended is None:
        told = tell_slower(slower.step, slower.from_s, slower.to_s)
        yield "slower", f"{told}, seen at {speech.clock(slower.t)}; {slower.follows}", "yellow"
    search = seen.slow_search
    if search is not None and search.measured:
        yield "slow node", tell_search(search), "yellow" if search.slow else ""
    newest = [one for one in seen.odd_figures if one.attempt == attempt.number][-SHOWN_ODD:]
    for one in newest:
        told = tell_odd(one.kind, one.value, one.usual)
        yield "figures", f"{told} at step {one.step}, seen at {speech.clock(one.t)}", (
            "red" if one.kind == NAN else "yellow")
    if seen.eta_t is not None:
        yield "ETA", _eta(seen, seen.eta_t, speech), ""
    yield from _checkpoint_rows(seen, speech)


def _size(attempt: RunAttempt) -> str:
    """What is not as usual: fewer nodes than the run wants, or a conversion for another number of them."""
    if attempt.resize is not None:
        return f" (before_resize, from {attempt.resize.from_} to {attempt.resize.to} nodes)"
    used, wanted = len(attempt.nodes), attempt.of_nodes
    return f" ({used} of {wanted} nodes)" if used < wanted else ""


def tell_search(search: NodeSearch) -> str:
    """What the measurements after a drop have shown, and what came of it."""
    found = "; ".join(f"{one.node} ({one.why})" for one in search.slow) or "none"
    proof = "" if search.won is None else (
        f"; the speed {'has come back' if search.won else 'did not come back'} without it")
    return f"{found}, of {search.measured} that were measured after attempt {search.attempt}{proof}"


def _figures(seen: Overview, speech: Speech) -> Iterator[str]:
    """What the log says of the last step: "loss 2.31", "12.5 s a step (median 11.9 s)", "7282 tokens/s"."""
    if seen.loss is not None:
        yield f"loss {seen.loss}"
    now_s, typical_s = seen.step_time_s, seen.typical_step_time_s
    if isinstance(now_s, float):
        now = duration(now_s, speech.span)
        usual = duration(typical_s, speech.span) if isinstance(typical_s, float) else ""
        yield f"{now} a step{f' (median {usual})' if usual not in ('', now) else ''}"
    elif seen.pace_s is not None:
        yield f"{duration(seen.pace_s, speech.span)} a step by the clock"
    if seen.pace_trend is not None and (seen.attempt is None or seen.attempt.ended is None):
        yield trend_words(seen.pace_trend)
    if seen.throughput is not None:
        yield f"{figure(seen.throughput.value, 6)} {seen.throughput.unit}"


def trend_words(trend: float) -> str:
    """How the pace of the last minutes compares with the half hour before."""
    if abs(trend) < STEADY:
        return "steady"
    return f"lately {percent(abs(trend))} {'slower' if trend > 0 else 'faster'}"


def time_words(spent: Mapping[str, float], span: Callable[[float], str]) -> str:
    """Goodput so far, and what the rest of the time went to, the most first."""
    total_s = sum(spent.values())
    lost = sorted(((seconds, kind) for kind, seconds in spent.items() if kind != USEFUL and seconds >= 1), reverse=True)
    goodput = goodput_of(spent)
    told = [f"{KINDS[kind][0]} {span(seconds)}" for seconds, kind in lost[:SHOWN_KINDS]]
    if len(lost) > SHOWN_KINDS:
        told.append(f"other causes {span(sum(seconds for seconds, _ in lost[SHOWN_KINDS:]))}")
    if goodput is None:
        return f"no step could be read, so what was useful of {span(total_s)} is not known: {', '.join(told)}"
    share = f"{percent(goodput)} of {span(total_s)} useful"
    return f"{share}; the rest: {', '.join(told)}" if told else share


def _eta(seen: Overview, eta_t: float, speech: Speech) -> str:
    left = speech.span(eta_t - seen.now_t)
    job = seen.job
    beyond = ""
    if job is not None and job.ends_t is not None and eta_t > job.ends_t:
        beyond = ", after the end of this job" + (": the next one goes on" if seen.successor is not None else "")
    return f"done in {left}, at {speech.clock(eta_t)}, if it goes on like this{beyond}"


def _checkpoint_rows(seen: Overview, speech: Speech) -> Iterator[Row]:
    found = seen.checkpoint
    label = "checkpoint"
    if found is None:
        if not seen.ended:
            yield label, ("resume.dir is not set: a restart begins from the start, unless the training resumes by "
                          "itself"), "yellow"
        return
    risk = _at_risk(seen, found, speech)
    if found.trouble:
        last = f"; the last one that the journal names is of step {seen.checkpoint_step}" if (
            seen.checkpoint_step is not None) else ""
        yield label, f"not known: {found.trouble}{last}", "yellow"
    elif found.path is None:
        yield label, f"no complete one yet in {found.dir}{risk}", "yellow" if risk else ""
    else:
        name = f"step {found.step}" if found.step is not None else found.path
        age = f", {speech.span(found.age_s)} old" if found.age_s is not None else ""
        yield label, f"{name} is the newest complete one{age}{risk}", ""
    for one in found.skipped[:1]:
        more = f" ({len(found.skipped)} in all are left out)" if len(found.skipped) > 1 else ""
        yield "skipped", f"{one.path}: {one.reason}{more}", "yellow"


def tell_loss(seen: Overview, speech: Speech) -> str:
    """What a kill at this moment would lose: "12 steps (3 min)", or why that is not known."""
    found = seen.checkpoint
    if found is None:
        return "resume.dir is not set, so nobody knows which checkpoint is complete"
    if found.steps_at_risk is None:
        return f"the newest complete checkpoint is not known{': ' if found.trouble else ''}{found.trouble or ''}"
    newest = "there is no complete checkpoint" if found.path is None else "the newest complete checkpoint is of " + (
        f"step {found.step}" if found.step is not None else found.path)
    return f"{newest}{_at_risk(seen, found, speech).replace('; an end now', '; a kill now')}"


def _at_risk(seen: Overview, found: NewestCheckpoint, speech: Speech) -> str:
    """What an end at this moment would cost."""
    if found.steps_at_risk is None or (seen.attempt is not None and seen.attempt.ended):
        return ""
    if not found.steps_at_risk:
        return "; an end now would lose no step"
    pace_s = seen.pace_s or seen.typical_step_time_s
    took = f" ({duration(found.steps_at_risk * pace_s, speech.span)})" if isinstance(pace_s, float) else ""
    return f"; an end now would lose {count(found.steps_at_risk, 'step')}{took}"


def _restart_rows(seen: Overview, speech: Speech) -> Iterator[Row]:
    if seen.attempt is None:
        return
    most = seen.max_restarts
    used = f"{min(seen.restarts, most)} of {most} used" if most else "none allowed (restart.max_restarts)"
    yield "restarts", (f"{used}; {seen.failures_without_progress} of {seen.max_without_progress} failures in a "
                       "row without progress"), ""
    if seen.time and sum(seen.time.values()) >= 1:
        yield "time", time_words(seen.time, speech.span), ""
    lost = seen.lost
    if not lost.restarts:
        return
    times = "once" if len(lost.restarts) == 1 else f"{len(lost.restarts)} times"
    overhead = f"; restart overhead {percent(lost.overhead)}" if lost.overhead is not None else ""
    steps = f" and {count(lost.steps, 'step')}" if lost.steps else ""
    yield "lost", f"{speech.span(lost.seconds)}{steps} by starting again {times}{overhead}", ""
    for one in lost.restarts[-SHOWN_RESTARTS:]:
        queued = f", {speech.span(one.queued_s)} of it in the queue" if one.queued_s >= 60 else ""
        again = f"{count(one.steps, 'step')}, " if one.steps else ""
        yield "", (f"{speech.clock(one.t)} attempt {one.attempt - 1} {one.why}: {again}"
                   f"{speech.span(one.seconds)} {_until(one)}{queued}"), ""


def _until(one: RestartCost) -> str:
    """How far a restart has come."""
    if not one.from_step:
        return "until the first step" if one.is_over else "so far, and no step yet"
    step = f"step {one.from_step}"
    return f"until {step} was reached again" if one.is_over else f"so far, until {step} is reached again"


def _node_rows(seen: Overview, speech: Speech) -> Iterator[Row]:
    out = {*(one.node for one in seen.excluded), *(one.node for one in seen.left_out)}
    for one in seen.excluded:
        until = f" until {speech.clock(one.until_t)}" if one.until_t is not None else ""
        yield "excluded", f"{one.node}{until}: {one.why}", "yellow"
    for used in seen.left_out:
        if used.why not in ELSEWHERE:
            yield "suspect", f"{used.node} is excluded from other runs, and used by this one: {used.why}", "yellow"
    for suspect in seen.suspects:
        if suspect.node not in out:
            yield "suspect", f"{suspect.node}: {suspect.why}", "yellow"


def _decision_rows(seen: Overview, speech: Speech) -> Iterator[Row]:
    """Each once: the run's end is its state, and a hang comes again as what ended the attempt."""
    rows = {one.row for one in seen.decisions}
    for one in seen.decisions:
        is_said = seen.ended and one.why.startswith("the run has ended: ")
        if not is_said and not (one.row == "hang" and "hung" in rows):
            yield "decided", f"{speech.clock(one.t)} {'launch: ' if one.row == 'launch' else ''}{one.why}", ""


def _request_rows(seen: Overview, speech: Speech) -> Iterator[Row]:
    for request in seen.requests:
        if request.name == "extend":   # its time says until when, and `kept` says that
            continue
        if request.name == "checkpoint":   # its time can lie ahead
            yield "asked", f"{request.who} wants it to stop at its next checkpoint", "yellow"
            continue
        then = ""
        if request.name == "hold" and seen.state in ("running", "ending"):
            then = ": no new attempt starts after this one"
        yield "asked", f"{request.who} touched {request.name} at {speech.clock(request.t)}{then}", "yellow"
    if seen.preserving_until_t is not None:
        until, left = seen.preserving_until_t, seen.preserving_until_t - seen.now_t
        yield "kept", f"until {speech.clock(until)} ({speech.span(left)} left), for people to look", "red"


def _used(seen: Overview) -> str:
    gpus = f", {figure(seen.gpu_hours, 4)} GPU-hours" if seen.gpu_hours is not None else ""
    return f"{figure(seen.node_hours, 4)} node-hours{gpus} so far"
