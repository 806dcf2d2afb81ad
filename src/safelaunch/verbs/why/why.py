"""safelaunch why: the first cause of a failure, with its evidence, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from safelaunch.base.nearest import nearest_word
from safelaunch.errors import UsageError
from safelaunch.extensions.io.rulepacks import load_packs
from safelaunch.slurm import nodefold
from safelaunch.verbs.common import talk, terminal
from safelaunch.verbs.why import whysubject, whyverdict
from safelaunch.verbs.why.whysubject import Subject
from safelaunch.why import rulebook
from safelaunch.why.categories import TABLE
from safelaunch.why.show import ticket as whyticket
from safelaunch.why.show import verdictjson, verdicttext
from safelaunch.why.verdict import Verdict

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from safelaunch.run.io.registry import RegisteredRun

MOST_WIDTH = 160   # lines of a log are longer than prose, and the eye finds them anyhow


def _complete(context: object, parameter: object, typed: str) -> list[CompletionItem]:
    from safelaunch.verbs.common import runs  # a mere log has no time for it

    return runs.complete_run(context, parameter, typed)


@click.command()
@click.argument("words", metavar="[RUN | LOG...]", nargs=-1, shell_complete=_complete)
@click.option("--attempt", type=click.IntRange(1), help="This attempt of the run (default: the newest that failed).")
@click.option("--all", "show_all", is_flag=True, help="Every candidate, symptom and line of the traceback.")
@click.option("--ticket", is_flag=True, help="A text for the site's administrators.")
@click.option("--explain", metavar="RULE", help="What a rule, a category or the words of a line mean.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, documented in docs/why.md.")
def command(
    words: tuple[str, ...], attempt: int | None, show_all: bool, ticket: bool, explain: str | None, as_json: bool,
) -> int:
    """Find the first cause of a failure: of a run, of any Slurm job's logs, of any log ("-" is standard input)."""
    if explain is not None:
        return _explain(explain)
    if ticket and as_json:
        raise UsageError("--ticket cannot be combined with --json")
    subject = _find_subject(words, attempt)
    if not isinstance(subject, Subject):
        from safelaunch.verbs.status import sweeps

        return sweeps.why(subject, as_json)
    log, verdict = whyverdict.judge_subject(subject)
    if as_json:
        then, did = whyverdict.then(verdict, subject), whyverdict.did_follow(verdict, subject)
        talk.emit_json({**verdictjson.of_subject(verdict, then, did, subject.recorded),
                        "now": None if subject.present is None else subject.present.to_public()})
    elif ticket:
        _print_ticket(verdict, subject)
    else:
        following = _next_lines(verdict, words, subject)
        rows = verdicttext.tell(verdict, log, subject.outside, subject.did, following, show_all,
                                whyverdict.follows(verdict, subject), subject.ended, subject.recorded,
                                _now(subject, verdict), subject.job)
        terminal.echo(rows, MOST_WIDTH)
    return 0


def _find_subject(words: Sequence[str], attempt: int | None) -> Subject | list[RegisteredRun]:
    """What the words mean: files where they exist, else one run, sweep or job; raises UsageError."""
    files = whysubject.find_files(words, attempt)
    if files is not None:
        return files
    from safelaunch.verbs.common import runs  # what only runs need costs a mere log 130 of 200 ms
    from safelaunch.verbs.why import whyrun

    if words and (points := runs.find_sweep(words[0])):
        return points
    return whyrun.find(words[0] if words else None, attempt)


def _explain(name: str) -> int:
    packs = load_packs(say=talk.say)
    rows = verdicttext.explain_rule(name, packs)
    if rows is None:
        guess = nearest_word(name, [*rulebook.BY_ID, *(rule.id for rule in packs), *TABLE])
        raise UsageError(f"no rule or category {name!r}", hint=f"did you mean {guess!r}?" if guess else
                         f"the categories: {', '.join(TABLE)}")
    terminal.echo(rows, MOST_WIDTH)
    return 0


def _print_ticket(verdict: Verdict, subject: Subject) -> None:
    if not whyticket.is_for_site(verdict):
        talk.say(f"warning: {verdict.category} is rarely a problem of the site")
    name = subject.run.plan.name if subject.run else ""
    nodes = subject.attempt.nodes if subject.attempt else ()
    click.echo(whyticket.render_ticket(verdict, subject.job, name, nodefold.fold(nodes), subject.outside, subject.when),
               nl=False)


def _now(subject: Subject, verdict: Verdict) -> list[str]:
    if subject.present is None:
        return [subject.lost] if subject.lost else []
    from safelaunch.hangs.present import tell  # for a run that lives

    has_failure = subject.is_of_present and verdict.category != "none"
    return tell(subject.present, talk.span, talk.moment_now, has_failure)


def _next_lines(verdict: Verdict, words: Sequence[str], subject: Subject) -> list[str]:
    """What to type next."""
    what = " ".join(words) or (str(subject.run.dir) if subject.run else "")
    is_late = subject.present is not None and (subject.present.is_silent or subject.present.slower)
    first = [f"safelaunch stacks {what}"] if is_late else []   # it names the rank that the others wait for
    if verdict.category == "none" or subject.is_of_present:
        return first
    is_for_site = whyticket.is_for_site(verdict) and verdict.suspects
    lines = [*first, *([f"safelaunch why --ticket {what}"] if is_for_site else [])]
    if verdict.category == "unknown":
        lines.append(f"safelaunch why --all {what}")
    return [*lines, f"safelaunch why --explain {verdict.rule or verdict.category}"]
