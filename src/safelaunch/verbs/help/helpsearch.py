"""Finds words in verbs, keys, pages and messages: what `safelaunch help WORDS` shows.

A word also stands for what safelaunch calls it (SYNONYMS). An entry counts by the rare words that it holds, more where
they stand in its name or heading. Entries with all words come first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

MOST_HITS, MOST_OF_A_PAGE = 10, 2
SHOWN_CHARS = 200
VERB, KEY, PAGE, MESSAGE = "verb", "key", "page", "message"
_WEIGHT = {VERB: 3.0, KEY: 3.0, PAGE: 1.0, MESSAGE: 0.6}
_IN_NAME, _IN_HEADING, _BY_SYNONYM = 3.0, 2.0, 0.8
# Of these few users ask.
_FOR_DEVELOPERS = frozenset({"benchmarks", "drills", "simulation", "developing", "architecture", "conformance",
                             "comparison", "protocol", "slurm-releases"})
_FOR_HELP = frozenset({"howto"})
_STOP = frozenset((
    "a", "about", "again", "all", "already", "an", "and", "any", "are", "as", "at", "be", "between", "by", "can",
    "different", "do", "does", "for", "from", "get", "given", "has", "have", "how", "i", "if", "in", "is", "it",
    "its", "job", "make", "many", "me", "mean", "much", "my", "need", "no", "not", "of", "on", "only", "or", "possible",
    "run", "same", "see", "should", "so", "some", "that", "the", "them", "there", "they", "this", "time's", "times",
    "to", "two", "up", "use", "want", "was", "what", "when", "where", "which", "who", "why", "will", "with", "without",
    "would", "you", "your",
))
# What people call it → the words of these pages; a name of another program → the verb.
SYNONYMS: dict[str, tuple[str, ...]] = {
    "abort": ("stop",), "apptainer": ("container",), "array": ("sweep", "array"), "blacklist": ("exclude",),
    "bound": ("max_", "at most"), "broken": ("bad", "died"), "budget": ("restarts", "max_restarts"),
    "cancel": ("stop", "scancel"), "checkpoint": ("resume",), "ckpt": ("checkpoint",), "clean": ("remove", "delete"),
    "conda": ("setup", "venv", "modules"), "continue": ("resume",), "convert": ("init",),
    "cost": ("node-hours", "gpu-hours"), "crash": ("fail",), "dashboard": ("top", "report"), "deadlock": ("hang",),
    "debugger": ("shell", "stacks"), "delete": ("remove", "clean"), "disable": ("max_restarts",),
    "disk": ("storage", "full", "no space"), "docker": ("container",), "drain": ("exclude",),
    "e-mail": ("notify", "mail"), "elastic": ("smaller", "min_nodes", "before_resize"), "email": ("notify", "mail"),
    "env": ("environment", "variable"), "eta": ("done in",), "exit": ("exit code",), "follow": ("logs",),
    "freeze": ("hang", "frozen"), "frozen": ("hang",), "gave": ("given up", "gives up"), "gdb": ("shell", "stacks"),
    "goodput": ("useful",), "grafana": ("prometheus",), "hugging": ("transformers",), "ignore": ("exclude",),
    "interactive": ("salloc", "shell", "--here"), "kill": ("stop",), "limit": ("time limit", "max_"),
    "list": ("status",), "log": ("logs",), "ls": ("status",), "mail": ("notify",), "memory": ("oom", "memory"),
    "module": ("setup", "modules"), "monitor": ("watch", "status", "metrics"), "notification": ("notify",),
    "oom": ("memory",), "output": ("log",), "pause": ("hold",), "pending": ("queued", "in the queue"),
    "phone": ("network", "sends"), "preempt": ("preemption",), "price": ("node-hours",), "ps": ("status",),
    "queue": ("queued", "in the queue"), "quota": ("full", "storage"), "requeue": ("restart.via", "next job"),
    "rerun": ("restart",), "resubmit": ("restart.via", "next job"), "retry": ("restart", "max_restarts"),
    "rm": ("remove", "clean"), "salloc": ("salloc", "allocation", "--here"), "sbatch": ("submit",),
    "scancel": ("stop",), "signal": ("sigterm", "sigusr"), "singularity": ("container",),
    "slack": ("notify", "webhook"), "space": ("full", "storage"), "squeue": ("status",), "ssh": ("shell",),
    "stall": ("hang",), "straggler": ("slow",), "stuck": ("hang",), "tail": ("logs",), "teams": ("webhook",),
    "telemetry": ("network", "metrics", "sends"), "tensorboard": ("tracker",), "timeout": ("time limit",),
    "troubleshoot": ("howto", "why"), "troubleshooting": ("howto", "why"), "undo": ("clear",),
    "uninstall": ("remove", "pip"), "update": ("upgrading",), "upgrade": ("upgrading", "another version"),
    "validate": ("check",), "venv": ("setup", "venv"), "walltime": ("time limit", "slurm.time"),
    "wandb": ("tracker", "w&b"), "yaml": ("train-yaml",),
}


class Entry(NamedTuple):
    """A place that can be found: a verb, a key, a message, or a paragraph or row of a page below a heading."""

    kind: str
    name: str
    heading: str
    text: str


class _Asked(NamedTuple):
    """A word that was asked for, as it is, and as it is called here."""

    own: re.Pattern[str]
    other: re.Pattern[str] | None


def read_page(name: str, text: str) -> Iterator[Entry]:
    """The paragraphs and rows of a page, each with its heading."""
    heading, block, is_code = "", [""][:0], False
    for line in (*text.splitlines(), ""):
        is_fence = line.lstrip().startswith("```")
        is_part = is_code or is_fence or line.startswith(("#", "|", "- ")) or not line.strip()
        if is_part and block:
            yield Entry(PAGE, name, heading, " ".join(block))
            block = []
        is_code ^= is_fence
        if line.startswith("#") and not is_code:
            heading = line.lstrip("# ").replace("`", "")
        elif line.strip() and not is_fence and not re.fullmatch(r"[|\s:-]+", line):
            block.append(line.strip())


def search(entries: Iterable[Entry], asked: Sequence[str]) -> list[Entry]:
    """The best places for the words, the best first."""
    words = [_word(word) for word in _split(asked)]
    scored = [(one, [_score(one, word) for word in words]) for one in entries]
    scored = [(one, scores) for one, scores in scored if any(scores)]
    rare = [math.log(2 + len(scored) / (1 + sum(1 for _, scores in scored if scores[at]))) for at in range(len(words))]
    ranked = sorted(scored, key=lambda row: (
        -sum(score > 0 for score in row[1]),
        -_weight(row[0]) * sum(score * rarity for score, rarity in zip(row[1], rare, strict=True))))
    return list(_spread(one for one, _ in ranked))[:MOST_HITS]


def shown(entry: Entry, asked: Sequence[str]) -> str:
    """The entry's text, or its part around the first of the words."""
    text = re.sub(r"\[([^\[\]]*)\]\([^()]*\)", r"\1", entry.text.strip("| ")).replace("`", "").replace("**", "")
    places = [match.start() for word in map(_word, _split(asked)) for pattern in (word.own, word.other)
              if pattern is not None and (match := pattern.search(text.lower())) is not None]
    if len(text) <= SHOWN_CHARS:
        return text
    begin = text.rfind(" ", 0, max(0, min(places, default=0) - 60)) + 1
    end = begin + SHOWN_CHARS
    return ("… " if begin else "") + text[begin:end].rstrip() + (" …" if end < len(text) else "")


def _split(asked: Sequence[str]) -> list[str]:
    words = [word for word in re.findall(r"[\w.&/-]+", " ".join(asked).lower()) if word.strip(".-/")]
    return [word for word in words if word not in _STOP and not word.isdigit()] or words


def _word(word: str) -> _Asked:
    stem = re.sub("(?<=..)ies$", "y", re.sub("(?<=...)(?<!s)s$", "", word) if not word.endswith("ies") else word)
    others = SYNONYMS.get(word, SYNONYMS.get(stem, ()))
    return _Asked(re.compile(rf"(?<![a-z0-9]){re.escape(stem)}"),
                 re.compile(rf"(?<![a-z0-9])(?:{'|'.join(map(re.escape, others))})") if others else None)


def _score(entry: Entry, word: _Asked) -> float:
    best = 0.0
    for pattern, share in ((word.own, 1.0), (word.other, _BY_SYNONYM)):
        if pattern is None:
            continue
        match = pattern.search(entry.name.lower())
        if match is not None:
            is_whole = entry.name.lower() in (match[0], f"{match[0]}s") or entry.name.lower().endswith(f".{match[0]}")
            best = max(best, share * _IN_NAME * (2 if is_whole else 1))
        if pattern.search(entry.heading.lower()):
            best = max(best, share * _IN_HEADING)
        if pattern.search(entry.text.lower()):
            best = max(best, share) if not best else best + 0.5 * share
    return best


def _weight(entry: Entry) -> float:
    return _WEIGHT[entry.kind] * (0.3 if entry.name in _FOR_DEVELOPERS else 1.5 if entry.name in _FOR_HELP else 1.0)


def _spread(ranked: Iterable[Entry]) -> Iterator[Entry]:
    """The best of each heading, a few of each page and of each section of keys."""
    headings: set[tuple[str, str, str]] = set()
    counts: dict[tuple[str, str], int] = {}
    for one in ranked:
        place, page = (one.kind, one.name, one.heading), (one.kind, one.name.partition(".")[0])
        if place in headings or counts.get(page, 0) >= MOST_OF_A_PAGE:
            continue
        headings.add(place)
        counts[page] = counts.get(page, 0) + 1
        yield one
