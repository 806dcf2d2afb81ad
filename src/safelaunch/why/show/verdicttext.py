"""A verdict for people: rows of a label, a text and a style; the shell folds and colours them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timezone
from itertools import pairwise
from typing import NamedTuple

from safelaunch.why.categories import ENDS_OF_JOBS, TABLE
from safelaunch.why.causes.category import ADVICE
from safelaunch.why.findings import CLOCK_ORDER, Cited, Log, Rule
from safelaunch.why.judge.leavers import ADVICE as OF_LEAVER
from safelaunch.why.judge.witnesses import ENDED_BY_TERM, OF_KILL, OF_TERM, OF_USER, UNEXPLAINED_KILLS, USAGE
from safelaunch.why.read.tracebacks import parse_frames
from safelaunch.why.rulebook import BY_ID
from safelaunch.why.show.verdictjson import evidence_of
from safelaunch.why.verdict import Verdict
from safelaunch.why.weigh.words import sound_of, spoken

SHOWN_SYMPTOMS = 5
SHOWN_CANDIDATES = 3
SHOWN_BLOCK = 12      # lines of a traceback; of a longer one only the frames that tell something
SHOWN_OWN = 3         # frames of the user's own code
SHOWN_LETTERS = 500   # of a line: six lines of a terminal
SHOWN_NAMES = 4
SHOWN_CHECKS = 2      # the whole page: --explain
DOUBTFUL = 0.5
LEFT = "the program left early, and raised no error"
KILLED = "killed, and nothing says by whom"
OFTEN_MEMORY = f"{KILLED}; mostly memory"   # where the signal was SIGKILL
JOB = re.compile(r"\bJOB\b")   # in advice: the job's number, where it is known
# (what the lines say, unless they say this as well, the advice that does not fit then).
UNFIT = tuple(tuple(re.compile(form) for form in forms) for forms in (
    (r"(?i)\b(?:hip\w*|rocm|amd|ascend|npu|hccl|hpu|habana|gaudi|xpu|tpu|neuron\w*|nrt)\b",
     r"(?i)\bcuda|\bnvidia|\bxid\b", r"CUDA_|torch\.cuda|nvidia-smi"),
    (r"\b429\b|Too Many Requests", r"\b40[13]\b", r"\btoken\b"),
    (r"(?i)\bin (?:save|write|dump)\w*\b|torch\.save\(|\.write\(|writ(?:e|ing) failed", r"(?i)\bin load",
     r"all shards there"),
))
_SENTENCE = re.compile(r"(?<=[.;]) ")
_UNITS = (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0))


class VerdictRow(NamedTuple):
    """One paragraph. A row without a label continues the one above it."""

    label: str
    text: str
    style: str = ""       # bold | red | yellow | green | dim, joined by spaces


BLANK = VerdictRow("", "")


def tell(verdict: Verdict, log: Log, outside: Sequence[str] = (), did: Sequence[str] = (),
         next_lines: Sequence[str] = (), show_all: bool = False, follows: str = "", ended: str = "",
         recorded: Verdict | None = None, now: Sequence[str] = (), job: str = "") -> Iterator[VerdictRow]:
    """The whole answer: verdict, what happened in which order, what else it may be, what was done, what to do.

    Of a run's attempt `ended` says when and how it ended, `recorded` by which verdict its supervisor acted, and
    `follows` what its policy makes of that. `now`: what the run does at present, which comes first.
    """
    for number, line in enumerate(now):
        yield VerdictRow("" if number else "now", line, "" if number else "bold")
    if now:
        yield BLANK
        if ended:
            yield VerdictRow("before", f"{ended}:")
    yield from head(verdict, follows, "" if now else ended, recorded, show_all)
    if verdict.confidence < DOUBTFUL:   # the two best readings stand side by side
        yield from rival(verdict, log)
    yield BLANK
    yield from timeline(verdict, log, show_all)
    for number, line in enumerate(outside):
        yield VerdictRow("also" if number == 0 else "", shorten(line))
    yield from doubts(verdict, log, show_all)
    if did:
        yield BLANK
        yield from _listed("safelaunch", did)
    if verdict.category != "none":
        yield BLANK
    yield from advice(verdict, log, next_lines, bool(follows), job, bool(ended))


def head(verdict: Verdict, follows: str = "", ended: str = "", recorded: Verdict | None = None,
         show_all: bool = False) -> Iterator[VerdictRow]:
    """The verdict itself."""
    page = TABLE.get(verdict.category, TABLE["unknown"]).page
    colour = {"none": "green", "unknown": "yellow"}.get(verdict.category, "red")
    title = page.title
    if verdict.rule == ENDED_BY_TERM or verdict.do in (OF_TERM, OF_USER):
        title = KILLED
    elif verdict.rule in UNEXPLAINED_KILLS or verdict.do == OF_KILL:
        title = OFTEN_MEMORY
    elif verdict.do == OF_LEAVER:
        title = LEFT
    if verdict.category == "none" and verdict.action == "look":
        title, colour = "no failure seen", "yellow"
    lead = "not sure, perhaps " if verdict.confidence < DOUBTFUL and verdict.category not in ("none", "unknown") else ""
    yield VerdictRow("verdict", f"{lead}{verdict.category}: {title} ({verdict.confidence:.0%} sure)", f"bold {colour}")
    if verdict.summary:
        yield VerdictRow("", shorten(verdict.summary))
    who = " on ".join(filter(None, (f"rank {verdict.rank}" if verdict.rank is not None else "", verdict.host or "")))
    if who and verdict.cause is not None and len(verdict.cause.hosts) > 1:   # no one place then
        who += f" first; the same on {_many(len(verdict.cause.hosts), 'host')}"
    if where := ", ".join(filter(None, (who, f"port {verdict.port}" if verdict.port else "",
                                        f"file {verdict.file}" if verdict.file else ""))):
        yield VerdictRow("where", where)
    if verdict.place:
        yield VerdictRow("code", verdict.place)
    if verdict.suspects:
        yield VerdictRow("suspect", ", ".join(verdict.suspects), "yellow")
    if ended:
        yield VerdictRow("ended", ended)
    if recorded is not None and (show_all or not verdict.agrees_with(recorded)):
        yield from compare(verdict, recorded)
    yield VerdictRow("action", follows or ADVICE.get(verdict.action) or verdict.action)


def compare(verdict: Verdict, recorded: Verdict) -> Iterator[VerdictRow]:
    """The verdict by which the supervisor acted, and that the log tells more by now where it does."""
    if verdict.agrees_with(recorded):
        yield VerdictRow("recorded", f"when the attempt ended the same was said ({recorded.confidence:.0%} sure)",
                         "dim")
        return
    yield VerdictRow("recorded", f"when the attempt ended the verdict was {_in_short(recorded)}")
    yield VerdictRow("today", f"what is known now says {_in_short(verdict)}")


def _in_short(verdict: Verdict) -> str:
    return f"{verdict.category} ({verdict.confidence:.0%} sure): {shorten(verdict.summary)}"


def timeline(verdict: Verdict, log: Log, show_all: bool = False) -> Iterator[VerdictRow]:
    """First the cause, then what followed from it, then the noise of the end, folded."""
    clocked = log.clock != CLOCK_ORDER
    lines = evidence_of(verdict)
    for number, cited in enumerate(lines if show_all else lines[:SHOWN_SYMPTOMS]):
        label: str = "first" if number == 0 and cited.role == "cause" else cited.role
        label = "last" if verdict.category == "none" and len(lines) == 1 else label
        yield VerdictRow(label, describe(cited, clocked))
        yield from quote(cited, show_all)
    start = verdict.cause.t if verdict.cause and clocked else None
    followed = [cited for cited in verdict.symptoms if cited.role != "teardown"]
    noise = [cited for cited in verdict.symptoms if cited.role == "teardown"]
    for cited in followed if show_all else followed[:SHOWN_SYMPTOMS]:
        yield VerdictRow("then", describe(cited, clocked, start))
        yield from quote(cited)
    hidden = [*noise, *followed[SHOWN_SYMPTOMS:]]
    if show_all:
        for cited in noise:
            yield VerdictRow("echo", describe(cited, clocked, start))
            yield from quote(cited)
    elif hidden:
        count = sum(cited.count for cited in hidden)
        kinds = f" of {len(hidden)} kinds" if len(hidden) > 1 else ""
        follow = "that follows" if count == 1 else "that follow"
        yield VerdictRow("echoes", f"{_many(count, 'line')}{kinds} {follow} from it (--all)", "dim")
    if log.size_bytes and (show_all or len(log.files) > 1):   # of one file it is the same for every log
        order = "sorted by time stamps" if clocked else "in the order of the files: there are no common time stamps"
        yield VerdictRow("read", f"{_many(len(log.files), 'file')}, {_size(log.size_bytes)}; lines {order}", "dim")


def doubts(verdict: Verdict, log: Log, show_all: bool = False) -> Iterator[VerdictRow]:
    """What else it may be, what would have changed the verdict, and what was not looked at."""
    other = verdict.runner_up
    if verdict.confidence >= DOUBTFUL:
        yield from rival(verdict, log)
    said = {(cited.file, cited.offset, cited.text)
            for one in (verdict, other) if one is not None for cited in evidence_of(one)}
    more = [cited for cited in verdict.candidates if (cited.file, cited.offset, cited.text) not in said]
    is_outside = verdict.cause is None and verdict.confidence >= DOUBTFUL   # mere lines of the end say no more then
    for cited in more if show_all else more[:0 if is_outside or other is not None else SHOWN_CANDIDATES]:
        where = describe(cited, log.clock != CLOCK_ORDER)
        yield VerdictRow("candidate", f"{cited.category + ' · ' if cited.category else ''}{where}")
        yield from quote(cited)
    if verdict.changes and show_all:
        yield VerdictRow("wrong if", verdict.changes, "dim")
    for note in verdict.notes:
        yield VerdictRow("note", note, "dim")
    for odd in log.odd[:SHOWN_NAMES]:
        yield VerdictRow("note", odd, "dim")
    if len(log.odd) > SHOWN_NAMES:
        yield VerdictRow("note", f"… and {len(log.odd) - SHOWN_NAMES} more such files", "dim")
    if log.truncated:
        yield VerdictRow("note", "a file ends amid a line: its writer was killed, or still writes", "dim")


def rival(verdict: Verdict, log: Log) -> Iterator[VerdictRow]:
    """The next likely reading, with its line."""
    other = verdict.runner_up
    if other is not None and other.category != "none":
        yield VerdictRow("or", f"{other.category} ({other.confidence:.0%} sure): {other.summary}")
        for cited in evidence_of(other)[:1]:
            yield VerdictRow("", f"  {describe(cited, log.clock != CLOCK_ORDER)}", "dim")


def _fits(line: str, verdict: Verdict) -> bool:
    """Whether advice fits the vendor and the case, by what the verdict's lines say."""
    said = " ".join(text for cited in evidence_of(verdict) for text in (*cited.block[-12:], cited.text))
    return not any(unfit.search(line) and case.search(said) and not unless.search(said)
                   for case, unless, unfit in UNFIT)


def advice(verdict: Verdict, log: Log, next_lines: Sequence[str] = (),
           is_followed: bool = False, job: str = "", has_ended: bool = False) -> Iterator[VerdictRow]:
    """What the reader can do: the rule's own advice first, then the category's page. What to do next is not told where
    a policy has an answer to that.
    """
    if verdict.category == "none":
        return
    page = TABLE.get(verdict.category, TABLE["unknown"]).page
    rule = find_rule(verdict.rule or "", log.rules)
    do = verdict.do or (rule.do if rule is not None else "") or ("" if is_followed else page.then)
    # By the journal, or while nothing has ended yet: there is nothing to look for.
    is_known = is_followed and (verdict.category in ENDS_OF_JOBS or verdict.action == "none")
    # The page's checks are of adapters, not of names; of tracebacks, of which a rank that left has none; of sizes.
    is_else = (rule is not None and (rule.ask_site or rule.id in USAGE)) or verdict.do == OF_LEAVER
    do = " ".join(part for part in _SENTENCE.split(do) if _fits(part, verdict))
    checks = [line for line in (*(() if has_ended else page.alive), *page.check) if _fits(line, verdict)][:SHOWN_CHECKS]
    said = [*filter(None, (do,)), *(() if is_known or is_else else checks)]
    yield from _listed("you", [JOB.sub(job, line) for line in said] if job else said)
    for line in next_lines:
        yield VerdictRow("next", line, "bold")


def describe(cited: Cited, clocked: bool, start: float | None = None) -> str:
    """When, where and by whom: "10 min later · main.log:1301 · 62 ranks on 8 hosts · 10234 lines"."""
    parts = []
    if cited.t is not None and clocked:
        parts.append(stamp(cited.t) if start is None else _later(cited.t - start))
    parts.append(place(cited))
    parts += filter(None, [who(cited)])
    if cited.count > 1:
        parts.append(_many(cited.count, "line"))
    return " · ".join(parts)


def quote(cited: Cited, whole: bool = False) -> Iterator[VerdictRow]:
    """The line itself, or the traceback that ends in it."""
    block = cited.block
    if len(block) > 1 and block[1].lstrip().startswith("Traceback "):
        block = block[1:]   # what stood before it: for the judge only
    if len(block) > 1 and cited.text.startswith(block[-1].strip()):
        block = (*block[:-1], cited.text)   # of a block's lines the first 400 letters are kept
    if not whole:
        block = fold_traceback(block)
    for line in block if len(block) > 1 else (cited.text.strip(),):
        shown = line.rstrip() if whole else shorten(line.rstrip())
        yield VerdictRow("", f"  {shown}", "" if cited.role == "cause" else "dim")


def fold_traceback(block: Sequence[str]) -> tuple[str, ...]:
    """A traceback with its first frame, the user's own deepest ones and the last: libraries fill pages in between."""
    frames = [number for number, line in enumerate(block) if line.lstrip("| +").startswith('File "')]
    if len(block) > SHOWN_BLOCK and len(frames) > 2:
        block = (*block[:frames[0]], *_fold_frames(block, frames))
    elif len(block) > SHOWN_BLOCK:
        block = (*block[:2], f"    … {len(block) - SHOWN_BLOCK} lines …", *block[2 - SHOWN_BLOCK:])
    return tuple(line for line in block if line.strip(" ^~|"))


def _fold_frames(block: Sequence[str], frames: Sequence[int]) -> Iterator[str]:
    """The frames that tell something, a word on those between them, and the exception."""
    own = [number for number in frames if all(frame.is_user for frame in parse_frames((block[number],)))]
    shown = {frames[0], *own[-SHOWN_OWN:], frames[-1]}
    behind = range(frames[-1] + 1, len(block))
    end = next((number for number in behind if not block[number].startswith((" ", "|"))), len(block) - 1)
    skipped = 0
    for number, until in pairwise([*frames, end]):
        if number not in shown:
            skipped += 1
            continue
        if skipped:
            yield f"    … {_many(skipped, 'frame')} …"
        skipped = 0
        yield from block[number:until]
    yield from block[end:]


def shorten(text: str) -> str:
    """The text, without the middle of a very long one: what went wrong often stands at the end."""
    if len(text) <= SHOWN_LETTERS:
        return text
    return f"{text[:SHOWN_LETTERS - 100]} … {text[-100:]}"


def place(cited: Cited) -> str:
    """file:line, as editors take it; the byte where lines were not counted."""
    return f"{cited.file}:{cited.line_number}" if cited.line_number else f"{cited.file} at byte {cited.offset}"


def who(cited: Cited) -> str:
    """Whose line it is: one rank and host, or how many."""
    ranks, hosts = len(cited.ranks), len(cited.hosts)
    if ranks > 1 or hosts > 1:
        # Fewer ranks than hosts: they are local ones, the same on each.
        words = [_few(tuple(map(str, cited.ranks)), "rank") if ranks >= hosts else "",
                 _few(cited.hosts, "host") if hosts else ""]
        return " on ".join(filter(None, words))
    rank = f"rank {cited.rank}" if cited.rank is not None else ""
    return " on ".join(filter(None, (rank, cited.host or "")))


def stamp(t: float) -> str:
    """2022-03-21 13:34:34, as the log's own clock says it: a log seldom names its zone."""
    try:
        return datetime.fromtimestamp(t, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{t:.0f}"


def find_rule(name: str, packs: Iterable[Rule] = ()) -> Rule | None:
    """The rule of that id, of the rulebook or of rule packs."""
    return BY_ID.get(name) or next((rule for rule in packs if rule.id == name), None)


def explain_rule(name: str, packs: Iterable[Rule] = ()) -> Iterator[VerdictRow] | None:
    """What a rule looks for and means, or the help page of a category; None = there is neither."""
    rule = find_rule(name, packs)
    if rule is not None:
        return _rule_rows(rule)
    return page_rows(name) if name in TABLE else _text_rows(name) if " " in name else None


def _text_rows(text: str) -> Iterator[VerdictRow]:
    """What a line's words make of it, where no rule knows it."""
    category, share = sound_of(text)
    yield VerdictRow("read as", f"{category} ({share:.0%})" if category else "nothing in particular", "bold")
    yield VerdictRow("by", ", ".join(spoken(text, category)))


def page_rows(category: str) -> Iterator[VerdictRow]:
    """A category's help page."""
    page = TABLE[category].page
    yield VerdictRow("category", f"{category}: {page.title}", "bold")
    yield VerdictRow("means", page.means)
    yield from _listed("check", (*page.alive, *page.check))
    yield VerdictRow("then", page.then)


def _rule_rows(rule: Rule) -> Iterator[VerdictRow]:
    yield VerdictRow("rule", f"{rule.id}: {rule.role} of {rule.category}, weight {rule.weight:g}, blames {rule.blames}",
                     "bold")
    yield VerdictRow("looks for", rule.pattern.decode(errors="replace"))
    for label, text in (("means", rule.explain), ("do", rule.do), ("source", rule.source)):
        if text:
            yield VerdictRow(label, text)
    if rule.category in TABLE:
        yield BLANK
        yield from page_rows(rule.category)


def _listed(label: str, lines: Sequence[str]) -> Iterator[VerdictRow]:
    for number, line in enumerate(lines):
        yield VerdictRow(label if number == 0 else "", f"- {line}" if len(lines) > 1 else line)


def _few(names: Sequence[str], noun: str) -> str:
    if len(names) > SHOWN_NAMES:
        return f"{len(names)} {noun}s"
    return f"{noun if len(names) == 1 else noun + 's'} {', '.join(names)}"


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _later(seconds: float) -> str:
    if abs(seconds) < 1:
        return "at once"
    for unit, size in _UNITS:
        if abs(seconds) >= size:
            return f"{abs(seconds) / size:.0f} {unit} {'later' if seconds > 0 else 'before'}"
    return "at once"


def _size(size_bytes: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size_bytes >= size:
            return f"{size_bytes / size:.3g} {unit}"
    return f"{size_bytes} bytes"
