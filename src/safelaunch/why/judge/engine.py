"""The verdict on a set of logs: candidates weighed, the earliest of the heaviest chosen, outside evidence joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from safelaunch.why.categories import OF_THE_PROGRAM, advice
from safelaunch.why.findings import Cited, Log, OutsideEvidence
from safelaunch.why.fingerprint import make_fingerprint
from safelaunch.why.judge import lastlines, places
from safelaunch.why.judge.ends import ECHOES
from safelaunch.why.judge.life import good_end, judge_life, says_well, went_on
from safelaunch.why.judge.memorytime import tell_when
from safelaunch.why.judge.speakers import name_speakers
from safelaunch.why.judge.witnesses import UNEXPLAINED_KILLS, join
from safelaunch.why.order.episodes import Episode, last_episode
from safelaunch.why.read.fields import read_fields, read_objects
from safelaunch.why.read.globalranks import by_launcher
from safelaunch.why.read.tracebacks import is_of_thread, is_played_down
from safelaunch.why.rulebook import BY_ID
from safelaunch.why.rules.generic import EXCEPTION, LINE
from safelaunch.why.verdict import Verdict
from safelaunch.why.weigh.counterevidence import ECHO_BYTES, doubt, is_past, trace_course
from safelaunch.why.weigh.groups import SYMPTOM_SHARE, WHAT, FindingGroup, cite, gather, moment, place_of
from safelaunch.why.weigh.words import sound_of, spoken

READ = (EXCEPTION, LINE, WHAT)   # rules whose category is read from words
SPEAKING = ("cause", "symptom", "teardown")
WINDOW = 0.15           # causes that weigh within this of the heaviest are equals: the earliest of them wins
MIN_WEIGHT = 0.3
CLEAR_WEIGHT = 0.45     # a cause below this does not keep symptoms from being considered
MAX_CONFIDENCE = 0.97
REMARK_CONFIDENCE = 0.78
RAISED_CONFIDENCE = 0.3 # of an exception after which the program may have gone on
RIVAL_COST = 0.12       # another category weighs about as much
HELD, FIRM_RULE = 0.1, 0.7
KILL, KILLED_RULE = 9, "memory.sigkill_elastic"
CRASHED, KILLED = 0.75, 0.55   # how sure the signal is of the category that it is a sign of
MAX_CANDIDATES = 8
NOTHING_KNOWN = OutsideEvidence()
MAX_SUSPECTS = 2        # the same cause on more nodes than this blames no node


def judge_log(log: Log, known: OutsideEvidence = NOTHING_KNOWN) -> Verdict:
    """The verdict on the last episode of a set of logs, with what is known from outside."""
    log = by_launcher(log)
    episode = last_episode(log)
    groups = tuple(replace(group, is_excused=True, is_fatal=False)
                   if group.role in SPEAKING and group.category != "numerical" and went_on(group.last, log) else group
                   for group in _without_echoes(gather(episode, log), known))
    notes = (f"only the last of {episode.number} launches was looked at",) if episode.number > 1 else ()
    causes = _candidates(groups, episode, log)
    if not causes:
        verdict = _without_cause(groups, episode, log, known)
    else:
        chosen = places.first_failed(_choose(causes, episode), episode)
        said = lastlines.judge_statement(chosen.first, episode, log, known) if chosen.role == "symptom" else None
        verdict = tell_when(_with_cause(chosen, causes, groups, episode, log), chosen.first, episode)
        report = places.first_report(episode, log) if chosen.rule.id in UNEXPLAINED_KILLS and not known.exits else None
        if report is not None and not report.told.signal and report.line.offset < chosen.first.offset:
            verdict = _by_report(report, verdict.candidates, log)   # its launcher killed the others
        if said is not None and (said.category != verdict.category or said.weight > verdict.confidence):
            verdict = replace(_by_words(said, verdict.candidates, log),
                              symptoms=(*verdict.cited[:1], *verdict.symptoms))
    if verdict.category != "none" and verdict.confidence < FIRM_RULE:
        listed = lastlines.cite_guesses(groups, episode, log, verdict.cause)
        verdict = replace(verdict, candidates=(*listed, *verdict.candidates)[:MAX_CANDIDATES])
    verdict = places.name_objects(places.complete(verdict, groups, episode, log), log)
    found = join(replace(verdict, notes=(*notes, *verdict.notes)), known, bool(episode.progress),
                 episode.findings)
    return places.asked_to(name_speakers(found, episode, known))


def is_by_rule(verdict: Verdict) -> bool:
    """Whether a rule names its cause: everything else is read from words, and good logs can say more of those."""
    rule = BY_ID.get(verdict.rule or "")
    return rule is not None and rule.role == "cause" and rule.id not in READ


def _without_echoes(groups: Sequence[FindingGroup], known: OutsideEvidence) -> tuple[FindingGroup, ...]:
    """The groups, those as teardown that only say that safelaunch itself has ended the ranks. Where nothing of the
    attempt had failed before, these are all that came behind that moment. What all good logs say as well, and no rule
    calls a cause, is noise.
    """
    def is_echo(group: FindingGroup) -> bool:
        first, is_word = group.first, group.rule.id in ECHOES or group.role == "symptom"
        return known.is_behind_own_end(first.file, first.offset) and (
            is_word or known.is_own_end(first.file, first.offset, None))

    def is_usual(group: FindingGroup) -> bool:
        is_read = group.role == "symptom" or group.rule.id in READ
        return is_read and not (group.is_fatal and group.first.block) and known.in_good(group.first.text) is True

    return tuple(replace(group, role="teardown", is_excused=True) if is_echo(group) else
                 replace(group, role="noise", is_excused=True) if known.good and is_usual(group) else group
                 for group in groups)


def _candidates(groups: Sequence[FindingGroup], episode: Episode, log: Log) -> list[FindingGroup]:
    """What can be the cause, each with its weight: symptoms only when there is no clear cause."""
    course = trace_course(groups, episode, log)
    living = [group for group in groups if not group.is_excused and not is_past(group, episode)]
    causes = [doubt(group, course) for group in living if group.role == "cause"]
    causes = [group for group in causes if group.weight >= MIN_WEIGHT]
    if any(group.weight >= CLEAR_WEIGHT for group in causes):
        return causes
    symptoms = [doubt(replace(group, weight=group.weight * SYMPTOM_SHARE), course)
                for group in living if group.role == "symptom"]
    return [*causes, *(group for group in symptoms if group.weight >= MIN_WEIGHT)]


def _choose(causes: list[FindingGroup], episode: Episode) -> FindingGroup:
    """The earliest of those that weigh about as much as the heaviest. What was only mentioned long before an exception
    that ended the program had not ended it.
    """
    raised = [group.first for group in causes if group.first.block and group.weight >= CLEAR_WEIGHT
              and not is_played_down(group.first.block) and not is_of_thread(group.first.block)]
    causes = [group for group in causes if group.first.block or group.category not in OF_THE_PROGRAM or not any(
        one.file == group.last.file and one.offset > group.last.offset + ECHO_BYTES for one in raised)] or causes
    heaviest = max(group.weight for group in causes)
    near = [group for group in causes if group.weight >= heaviest - WINDOW]
    return min(near, key=lambda group: moment(group, episode))


def _without_cause(groups: Sequence[FindingGroup], episode: Episode, log: Log, known: OutsideEvidence) -> Verdict:
    """What the last words of a log make of it that fell; else what speaks for its health."""
    fallen = [group for group in groups if not group.is_excused and not is_past(group, episode)
              and (group.role == "teardown" or (group.is_fatal and (group.role == "symptom" or group.first.block)))]
    raised = _last_raised(groups, episode)
    if raised is not None and raised.weight < MIN_WEIGHT:   # sys.exit(3), a subprocess's: an end, and no reason for it
        fallen = fallen or [raised]
    elif raised is not None:
        return replace(_with_cause(raised, (raised,), groups, episode, log), confidence=RAISED_CONFIDENCE)
    candidates = tuple(cite(group, log) for group in groups if group.role in SPEAKING and not _is_of_own_end(
        group, known))[:MAX_CANDIDATES]
    has_ended = good_end(episode) is not None and not fallen
    report = None if has_ended else places.first_report(episode, log)
    words = None if has_ended else lastlines.judge_last_lines(episode, log, bool(fallen or report), known)
    if words is not None and not words.category and not fallen and not words.is_new and says_well(log):
        words = None   # a word of a failure beside the program's own that it is done
    is_told = known.exits or (words is not None and words.category)   # by what says more
    if report is not None and not is_told and (not fallen or report.told.signal or report.told.host
                                               or report.told.rank is not None):
        return _by_report(report, candidates, log)
    if words is not None and (words.category or not fallen):
        told = _by_words(words, candidates, log)
        return told if words.category or known.exits else replace(told, action="look")
    if fallen:
        first = fallen[0]
        return Verdict("unknown", f"the log tells the end, not its cause: {first.summary}", 0.2, "restart",
                       candidates=candidates, cited=(cite(first, log),),
                       host=first.hosts[0] if first.hosts else None, rank=first.ranks[0] if first.ranks else None)
    is_open = any(group.role in ("cause", "symptom") and not group.is_excused and not is_past(group, episode)
                  for group in groups)
    if is_open and not has_ended and not episode.progress and not says_well(log):
        return Verdict("unknown", "nothing in the log names a cause", 0.1, "look", candidates=candidates)
    return judge_life(episode, log, candidates)


def _is_of_own_end(group: FindingGroup, known: OutsideEvidence) -> bool:
    """Whether it came from ranks that safelaunch had told to end, and from no node that had failed before."""
    first = group.first
    return group.is_excused or all(known.is_own_end(first.file, first.offset, host) for host in group.hosts or (None,))


def _last_raised(groups: Sequence[FindingGroup], episode: Episode) -> FindingGroup | None:
    """The first exception behind the last step, however much was printed after it: that it was caught, nothing says."""
    reached = lastlines.last_steps(episode)
    return next((group for group in groups if group.role == "cause" and group.first.block and not group.is_excused
                 and not is_past(group, episode) and not is_played_down(group.first.block)
                 and group.first.offset > reached.get(group.first.file, -1)), None)


def _by_words(words: lastlines.LastLines, candidates: tuple[Cited, ...], log: Log) -> Verdict:
    """What a line that no rule knows sounds like; unknown where it sounds like nothing in particular."""
    line = words.line
    cited = lastlines.cite_line(line, log, "cause" if words.category else "context")
    category, named = words.category or "unknown", read_fields(line.text)
    lead = "no good log of this command has the line: " if words.is_new else "the log does not say why; it ends with: "
    said = f"{'' if words.category else lead}{line.text.strip()}"[:300]
    return Verdict(category, said, words.weight, advice(category), candidates=candidates, cited=(cited,),
                   evidence=(line.text,), host=line.host or named.host,
                   rank=named.rank if line.rank is None else line.rank, cause=cited if words.category else None,
                   fingerprint=make_fingerprint(category, "", line.text) if words.category else "",
                   changes=f"a person finds another line: no rule knows this one, its words spoke: "
                   f"{', '.join(spoken(line.text, category))}" if words.category else "",
                   runner_up=_read_otherwise(line.text, category, words.weight) if words.category else None)


def _by_report(report: places.Report, candidates: tuple[Cited, ...], log: Log) -> Verdict:
    """What a launcher says of the first process that ended badly, where nothing says why it did."""
    line, told = report
    host, rank = told.host or line.host, told.rank if told.rank is not None else line.rank
    category, is_killed = told.category or "unknown", told.signal == KILL
    who = " on ".join(filter(None, ("a process" if rank is None else f"rank {rank}", host)))
    how = f"by signal {told.signal}" if told.signal else f"with exit code {told.code}"
    objects = read_objects(line.text)
    said = f"{who} ended {how}{' at ' if objects.time else ''}{objects.time}; nothing in the log says why"
    cited = lastlines.cite_line(line, log, "cause" if told.category else "context")
    sure = KILLED if is_killed else CRASHED if told.category else 0.2
    return Verdict(category, said, sure, advice(category), host=host, rank=rank, file=objects.file, cited=(cited,),
                   candidates=candidates, evidence=(line.text,), cause=cited if told.category else None,
                   rule=KILLED_RULE if is_killed else None, fingerprint=make_fingerprint(category, "", how))


def _read_otherwise(text: str, category: str, weight: float) -> Verdict | None:
    """The next likely reading of the same words; None = there is none to speak of."""
    second, share = sound_of(text, is_failure=True, but=category)
    sure = min(weight, round(share, 2))
    return Verdict(second, "the same line, read otherwise", sure, advice(second)) if second else None


def _with_cause(chosen: FindingGroup, causes: Sequence[FindingGroup], groups: Sequence[FindingGroup], episode: Episode,
                log: Log) -> Verdict:
    """The verdict with its cause, what followed from it, and what else it may be."""
    others = sorted((group for group in causes if group is not chosen and group.category != chosen.category),
                    key=lambda group: -group.weight)
    rivals = [group for group in others if group.weight >= chosen.weight - WINDOW / 2]
    most = REMARK_CONFIDENCE if _may_be_remark(chosen) else MAX_CONFIDENCE
    confidence = max(0.1, min(most, chosen.weight + (-RIVAL_COST if rivals else _held(chosen))))
    host, rank = places.culprit(chosen, groups, episode)
    context = tuple(cite(group, log, "context") for group in groups
                    if group.role == "context" and group.category == chosen.category)
    symptoms = tuple(cite(group, log) for group in groups
                     if group.role in ("symptom", "teardown") and group.rule.id != chosen.rule.id)
    cause = cite(chosen, log, "cause")
    raised = _raised_after(chosen, causes)
    context = (*((cite(raised, log, "context"),) if raised else ()), *context)
    runner = others[0] if others else None
    return Verdict(
        chosen.category, chosen.summary, round(confidence, 2), chosen.action,
        suspects=_suspects(chosen, host),
        evidence=(cause.text,), rank=rank, host=host, rule=chosen.rule.id, cause=cause, cited=(cause, *context),
        symptoms=symptoms,
        candidates=tuple(cite(group, log) for group in others[:MAX_CANDIDATES]),
        runner_up=_as_runner_up(runner, log) if runner else _read_otherwise(
            chosen.first.text, chosen.category, chosen.weight) if chosen.rule.id in (EXCEPTION, LINE) else None,
        fingerprint=make_fingerprint(chosen.category, chosen.rule.id, cause.text),
        changes=_what_would_change(chosen, runner), place=place_of(raised or chosen),
    )


def _held(chosen: FindingGroup) -> float:
    """What a rule's own word is worth more than its weight says where nothing speaks against it: of causes named by
    rules at first sight 98 of 100 were right, of readings of unknown texts 79.
    """
    rule = chosen.rule
    is_plain = chosen.role == "cause" and rule.id not in READ and chosen.weight >= max(rule.weight, FIRM_RULE)
    return HELD if is_plain and not _may_be_remark(chosen) else 0.0


def _raised_after(chosen: FindingGroup, causes: Sequence[FindingGroup]) -> FindingGroup | None:
    """The exception by which the program heard of a cause that it did not raise: a GPU prints its assertions itself."""
    return None if chosen.first.block else next(
        (group for group in causes if group.first.block and group.category == chosen.category
         and group.first.file == chosen.first.file and group.first.rank == chosen.first.rank
         and group.first.offset > chosen.first.offset), None)


def _may_be_remark(group: FindingGroup) -> bool:
    """Whether the cause may be no more than a remark: no traceback, not near the end, not the kernel's or Slurm's."""
    return not group.first.block and not group.is_fatal and group.rule.blames in ("job", "rank")


def _as_runner_up(group: FindingGroup, log: Log) -> Verdict:
    cause = cite(group, log, "cause")
    return Verdict(group.category, group.summary, round(max(0.05, group.weight / 2), 2), group.action,
                   rule=group.rule.id, cause=cause, cited=(cause,), host=group.hosts[0] if group.hosts else None,
                   rank=group.ranks[0] if group.ranks else None)


def _suspects(chosen: FindingGroup, host: str | None) -> tuple[str, ...]:
    """The nodes that the cause blames; the same on many nodes blames none."""
    if chosen.rule.blames != "node" or chosen.action != "exclude_and_restart":
        return ()
    hosts = chosen.hosts or ((host,) if host else ())
    return hosts if len(hosts) <= MAX_SUSPECTS else ()


def _what_would_change(chosen: FindingGroup, runner: FindingGroup | None) -> str:
    if chosen.role == "symptom":
        return "an error line of any rank stands before this one, which is an echo"
    if runner is not None:
        return f"this has come first, or alone: {runner.summary}"
    return "steps of the training follow this line"
