"""The category of a log's last lines that no rule knows, by their words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from safelaunch.why.findings import Cited, Finding, Line, Log, OutsideEvidence, Role, Rule
from safelaunch.why.order.episodes import Episode
from safelaunch.why.read.fields import is_report
from safelaunch.why.read.messages import MORE, list_causes, stated, whole
from safelaunch.why.weigh.groups import FindingGroup, cite
from safelaunch.why.weigh.words import guesses_of, shares_of, sound_of, without_paths

LAST_LINES = 5          # the very end of a file: what it says may tell why, whatever it is
STATEMENT_SHARE = 0.4   # of an unknown line that is to stand before an echo
TELLING = 0.75          # of a last line without a word of a failure
GOES_ON = 3             # lines of information behind it: the program lives
CALM = 0.8              # of a line that has one, and is harmless by its other words
UNKNOWN_WEIGHT = 0.15
LEAST_WEIGHT = 0.2
MOST_WEIGHT = 0.6
SHARE_WEIGHT = 0.6      # what the whole share adds to the least weight
# Words of a failure in any program's last lines, and lines in which they mean nothing.
BAD_WORDS = re.compile(r"(?i)\b(?:error|fatal|fail(?:ed|ure|s)?|abort(?:ed|ing)?|panic|cannot|could ?n[o']t|unable"
                       r"|died|killed|not (?:found|converged|healthy|positive|defined|recogni[sz]ed|permitted|allowed"
                       r"|installed|a valid|enough)|unsupported|denied|refused|no (?:such|matching|rule to|space|route)"
                       r"|time(?:d )?out|seg-?fault"
                       r"|panicked|un(?:expected|defined|recogni[sz]ed|resolved)|unknown (?!source)|illegal|halted"
                       r"|out of (?:bounds|range)|diverged?|violated|does(?: not|n't) exist|smashing|must (?:not )?be"
                       r"|too (?:many|long|large|big|small|few)|(?:larger|smaller|more|less) than|un(?:expectedly|wrap)"
                       r"|sig(?:kill|segv|bus|abrt|term)|terminated|exception|unresponsive|truncated|reboot(?:ing)?"
                       r"|err: -?\d+|invalid|mismatch|corrupt(?:ed)?|has run out of|insufficient|unhealthy|unreachable"
                       r"|exceed(?:ed|s)|limit exceeded.*|out of memory|lost|stalled|expelled|evicted|preempt(?:ed|ing)"
                       r"|NCCL WARN|severe|KeyboardInterrupt|[A-Z]\w{1,60}(?:Error|Exception)"
                       r"|missing\b(?! (?:keys|ranks|values?)\b)"
                       r"|(?:queue|ring|buffer|table|stack)s?[ -]overflow(?:ed|s)?|overrun)\b")
# How runtimes say that nothing has caught an error: all that stands before it may tell why.
_UNCAUGHT = re.compile(r"panicked at |Exception in thread \"main\"|^Execution halted|^goroutine \d+ \[running"
                       r"|^Error termination|FATAL ERROR|\bAborted\b.{0,40}$|Segmentation fault|^==\d+==ABORTING"
                       r"|^\S{1,300}:\d+:\d+: (?:fatal )?error: ")
# An exception behind a label that no form knows: nobody could read its traceback, nor whether anybody minds.
BEHIND_LABEL = re.compile(r"\S.{0,80}? (?:Traceback \(most recent call last|\w{1,60}(?:Error|Exception): )")
_INFO = re.compile(r"\bINFO\b")
_FRAME = re.compile(r'\s+File "[^"]+", line \d+')
# The last two: what `warnings` of Python print for a library, and scontrol show job.
HARMLESS = re.compile(r"(?i)warning|(?<!_)error[s_ ]*(?:[:=] ?[\d.]+(?!\d| [a-z])|\d+\.\d)|deprecat|debug|retr[yi]"
                      r"|skipping|not found in cache|info\b|logging error|exception ignored|\bWRN\b"
                      r"|^\S{0,200}-packages/\S{1,200}\.py:\d+: "
                      r"|^\s*Requeue=\d+ Restarts=\d+ ")
# What a line says well, whatever else it says: "exited normally", "0 failed".
_WELL = re.compile(r"(?i)\b(?:0|no|without(?: any)?) (?:errors?|failures?|failed)"
                   r"|\bexpected failures?|\berror (?:codes?|rates?|norms?|bars?|estimates?|tolerances?|handl\w+)"
                   r"|\b(?:errors?|fail(?:ed|ures?)?)[:=] ?0\b"
                   r"|\b(?:exit(?:ed|s)?|terminated?|abort(?:ed)?|end(?:ed)?) (?:normally|successfully|cleanly)"
                   r"|\b(?:you|quote|says): \"[^\"]{0,300}\"")
LOUD_LINES = 2          # E and F lines, and those behind PyTorch's "[rank3]:", as the last words of a file
_SCALE = re.compile(r"(?i)\bloss[ _]scale(?:[ :=]|to){1,6}([\d.]+(?:e[+-]?\d+)?)")
FALLING = 5             # times in a row that the loss scale fell, and never rose
SCALE_SHARE = 0.5


class LastLines(NamedTuple):
    """A line with words of a failure; `category` is empty where they do not tell which."""

    line: Line
    category: str
    share: float     # how likely its words are of the category
    is_new: bool = False   # no good log of the same command has it

    @property
    def weight(self) -> float:
        """How sure the line is about its category: of held-out lines with a share of 0.5, 98 of 100 were right, but the
        line itself may be another one.
        """
        return round(min(MOST_WEIGHT, LEAST_WEIGHT + SHARE_WEIGHT * self.share), 2) if self.category else UNKNOWN_WEIGHT


def judge_last_lines(episode: Episode, log: Log, has_fallen: bool, known: OutsideEvidence) -> LastLines | None:
    """The line after the last step that says most about a failure, else the last suspicious one; None = neither.

    Without a failed rank only the very last lines count: the program still runs or has ended well. Lines behind the
    moment at which safelaunch itself ended the ranks tell of that.
    """
    best: LastLines | None = None
    latest: LastLines | None = None
    worth = (False, 0.0)
    if (fallen_to := _falling_scale(log)) is not None:
        return LastLines(fallen_to, "numerical", SCALE_SHARE)
    has_fallen = has_fallen or any(_UNCAUGHT.search(line.text) for line in log.last)
    has_failed = has_fallen or known.first_bad is not None or known.end is not None
    for line, is_last, is_new in _suspicious(episode, log, known, has_failed):
        category, share = _state(line.text) if is_last or has_fallen else ("", 0.0)
        if category and (sounds_bad(line.text), share) > worth:   # a word of a failure before one that the model hears
            best, worth = LastLines(line, category, share), (sounds_bad(line.text), share)
        if is_last or is_new:
            latest = latest if latest is not None and latest.is_new else LastLines(line, "", 0.0, is_new)
    return best or latest


@lru_cache(maxsize=1024)
def sounds_bad(text: str) -> bool:
    """Whether a line has a word of a failure that is no part of a name, nor denied: "exited normally", "0 failed"."""
    said = without_paths(_WELL.sub(" ", text)) if BAD_WORDS.search(text) else ""
    return BAD_WORDS.search(said) is not None and shares_of(text).get("none", 0.0) < CALM


def last_steps(episode: Episode) -> Mapping[int, int]:
    """Where in each file the last sign of life stands."""
    reached: dict[int, int] = {}
    for sign in episode.progress:
        reached[sign.file] = max(sign.offset, reached.get(sign.file, -1))
    return reached


def messages_of(episode: Episode, log: Log) -> Iterator[Line]:
    """The last lines of all files behind their last steps, as whole messages."""
    reached = last_steps(episode)
    return (line for line, _, _ in _ends(log) if line.offset > reached.get(line.file, -1))


def cite_guesses(groups: Sequence[FindingGroup], episode: Episode, log: Log,
                 cause: Cited | None) -> tuple[Cited, ...]:
    """The causes that messages only list, each as a candidate; a symptom's only where no line tells the cause."""
    is_known = cause is not None and cause.role == "cause"
    speaking = ("cause", "teardown") if is_known else ("cause", "symptom", "teardown")
    told = [(f"{group.first.text} {group.first.groups.get(MORE, '')}", cite(group, log, "context"))
            for group in groups if group.role in speaking and not group.is_excused]
    told += [(line.text, cite_line(line, log)) for line in messages_of(episode, log) if line.level != "W"]
    return tuple({text: cited._replace(rule="", text=text, block=(), category=category) for said, cited in told
                  for text, category in guesses_of(said)[1].items()}.values())


def cite_line(line: Line, log: Log, role: Role = "context") -> Cited:
    """A line as one that the verdict shows."""
    return Cited("", role, log.files[line.file], line.line_number, line.text, line.host, line.rank, line.t, line.offset)


def judge_statement(echo: Finding, episode: Episode, log: Log, known: OutsideEvidence) -> LastLines | None:
    """What a line that no rule knows states before an echo in the same file; None = nothing, or nothing clear."""
    best: LastLines | None = None
    for line, _, _ in _suspicious(episode, log, known):
        if line.file != echo.file or line.offset >= echo.offset or not (line.level or sounds_bad(line.text)):
            continue
        category, share = _state(line.text)
        if share >= STATEMENT_SHARE and (best is None or share > best.share):
            best = LastLines(line, category, share)
    return best


def _state(text: str) -> tuple[str, float]:
    """What a line states: one that only lists causes states none, unless all are of one kind."""
    return ("", 0.0) if guesses_of(text)[1] else sound_of(text if list_causes(text)[1] else stated(text))


def _falling_scale(log: Log) -> Line | None:
    """The last line on a loss scale that has only fallen, below 1: gradients overflow at every step."""
    told = [(float(found[1].rstrip(".")), line) for line in log.last if (found := _SCALE.search(line.text))]
    scales = [scale for scale, _ in told]
    falls = sum(one > other for one, other in pairwise(scales))
    return told[-1][1] if falls >= FALLING and scales == sorted(scales, reverse=True) and scales[-1] < 1 else None


def _suspicious(episode: Episode, log: Log, known: OutsideEvidence,
                has_fallen: bool = False) -> Iterator[tuple[Line, bool, bool]]:
    """Lines after the last step that sound bad and that no rule knows; whether each is near its file's end, and
    new. No line that all good logs have; where something has failed, each that none of them has.
    """
    reached = last_steps(episode)
    judged = {(found.file, found.offset) for found in episode.findings if episode.role(found) != "context"}
    noise = [rule for rule in episode.rules.values() if rule.role == "noise"]
    frames = {(line.file, line.offset) for line in _frames(log)}
    calm = () if has_fallen else [line for line in log.last if line.level == "I" or _INFO.search(line.text)]
    for line, is_last, is_loud in _ends(log, judged):
        if sum(one.file == line.file and one.offset > line.offset for one in calm) >= GOES_ON:
            continue
        if line.offset <= reached.get(line.file, -1) or (line.file, line.offset) in judged | frames or (
                is_report(line.text) and ("(core dumped)" not in line.text or "Abort" in line.text)):
            continue
        is_usual = known.in_good(line.text)
        is_new = has_fallen and is_usual is False
        if (is_loud or (line.level not in ("W", "I") and not HARMLESS.search(line.text) and (
                is_new or sounds_bad(line.text) or BEHIND_LABEL.match(line.text) or guesses_of(line.text)[1]
                or (is_last and sound_of(line.text)[1] >= TELLING)))) and not (
                is_usual or known.is_own_end(line.file, line.offset, line.host) or _is_noise(line.text, noise)):
            yield line, is_last, is_new


def _is_noise(text: str, rules: Sequence[Rule]) -> bool:
    raw = text.encode()
    return any(any(map(raw.__contains__, rule.anchor)) and re.search(rule.pattern, raw) for rule in rules)


def _frames(log: Log) -> Iterator[Line]:
    """Lines inside tracebacks: the file of a frame, and the text of the program below it. Both are code, no message.

    (A launcher that was ended by SIGTERM stood in `return self._wait(timeout=timeout)`: that was called a hang.)
    """
    inside: dict[tuple[int, str | None, int | None], bool] = {}
    for line in log.last:
        speaker = (line.file, line.host, line.rank)
        is_deep = line.text.startswith("    ") and inside.get(speaker, False)
        inside[speaker] = bool(_FRAME.match(line.text)) or is_deep
        if inside[speaker]:
            yield line


def _ends(log: Log, judged: Set[tuple[int, int]] = frozenset()) -> tuple[tuple[Line, bool, bool], ...]:
    """The last lines of each file: whether each is near its end, and whether its label makes it an error there."""
    return _ends_of(log.last, len(log.files), frozenset(judged))


@lru_cache(maxsize=8)
def _ends_of(last: Sequence[Line], files: int, judged: Set[tuple[int, int]]) -> tuple[tuple[Line, bool, bool], ...]:
    """Those, once for each log: several ask."""
    ends: list[tuple[Line, bool, bool]] = []
    by_file: Mapping[int, list[Line]] = {file: [] for file in range(files)}
    for line in last:
        by_file[line.file].append(line)
    for lines in by_file.values():
        # Where the program, or its launcher, labels all it says, the label means nothing.
        is_label_rare = 2 * sum(line.level == "R" for line in lines) <= len(lines)
        lines = list(whole(lines, judged))
        for number, line in zip(range(len(lines), 0, -1), lines, strict=True):
            is_rank = line.level == "R" and number == 1 and is_label_rare
            is_loud = is_rank or (line.level == "E" and number <= LOUD_LINES)
            ends.append((line, number <= LAST_LINES, is_loud))
    return tuple(ends)
