"""Finds words in verbs, keys, pages and messages: what `safelaunch help WORDS` shows.

A place is a verb, a key, a message, or a page's section. It counts by the rare words that it holds (BM25), more where
they stand in its name or heading, and by the share of what was asked. Words are compared without their endings; a word
also stands for what these pages call it (CALLED). Of a section its best paragraph or row is shown.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

MOST_HITS, MOST_OF_A_PAGE = 10, 2
SHOWN_CHARS = 200
VERB, KEY, PAGE, MESSAGE = "verb", "key", "page", "message"
_WEIGHT = {VERB: 1.8, KEY: 1.1, PAGE: 1.0, MESSAGE: 0.5}
_TITLE, _CALLED, _AS_PART, _AS_WEAK = 1.5, 0.8, 0.6, 0.3
_USUAL_WORDS = 60   # of a place: each word of a longer one counts less
# Of these few users ask; this one answers what they ask.
_FOR_DEVELOPERS = frozenset({"benchmarks", "drills", "simulation", "developing", "architecture", "conformance",
                             "comparison", "protocol", "slurm-releases", "where", "glossary"})
_FOR_HELP = frozenset({"howto"})
_STOP = frozenset(re.findall(
    r"\S+",
    "a about all already an and any are as at be between by can could did different do does due for from get given "
    "has have how i if in is isn it its make many me mean much multiple my need no not of on only or possible same "
    "see should so some that the their them there they this time's times to try two up use want was what when "
    "where which who will with without would you your",
))
# All is about these.
_WEAK = frozenset(("cluster", "job", "jobs", "node", "nodes", "run", "runs", "safelaunch", "slurm", "train",
                   "training"))
# Words of these pages ← what people call it. A name of another program leads to the verb.
CALLED = (
    ("account node-hours gpu-hours cost", "price money bill charge cost expensive"),
    ("after after-any", "afterok dependency depends chain following then"),
    ("bench slow", "throughput speed performance degraded lag laggard straggler drop"),
    ("check", "validate verify lint typo"),
    ("checkpoint", "ckpt snapshot weights"),
    ("checkpoints resume.step", "rollback rewind roll older earlier"),
    ("clear", "undo trust forgive unban rehabilitate whitelist unsuspect"),
    ("clean delete", "remove rm purge tidy prune"),
    ("container", "docker singularity apptainer podman enroot pyxis image sif"),
    ("eta", "left remaining finish ready long"),
    ("exclude suspect", "ignore avoid skip blacklist blocklist ban drain"),
    ("exit code", "status errorlevel"),
    ("folder dir", "directory directories dirpath path"),
    ("failed fails", "die died dead crash broke"),
    ("filesystem shared", "lustre gpfs nfs beegfs weka ceph mount"),
    ("git commit", "version versions revision"),
    ("full storage space", "quota disk enospc"),
    ("learning rate", "lr"),
    ("given gives", "gave"),
    ("hang", "stuck freeze frozen stall deadlock"),
    ("here salloc", "interactive interactively allocation"),
    ("hold", "pause suspend"),
    ("init", "convert migrate port"),
    ("internet network telemetry", "offline online airgapped firewall phone"),
    ("kill_switch.group teammates colleague", "colleague coworker labmate teammate holiday vacation permission group"),
    ("local", "laptop workstation desktop"),
    ("logs log", "output stdout stderr printed tail follow logfile"),
    ("max_ most bound", "limit maximum cap spend bound"),
    ("max_restarts restarts", "retry retries attempts tries disable budget"),
    ("memory oom", "oom ram"),
    ("metrics prometheus", "grafana monitoring"),
    ("network nccl links link", "infiniband ib cable switch fabric roce"),
    ("next restart.via restart", "requeue resubmit"),
    ("end bound", "forever endless infinite loop"),
    ("nodes.clear node", "machine host computer server box"),
    ("notify mail", "email text sms message slack teams alert webhook ping telegram discord inform notification"),
    ("preemption preempted", "preempt evicted priority"),
    ("preserve_site shell", "debug debugger inspect ssh gdb"),
    ("progress pattern", "format parse recognise recognize iterations"),
    ("pip uninstall", "uninstall"),
    ("python api", "notebook jupyter library import"),
    ("queue queued", "pending waiting waits squeue"),
    ("resume", "continue pick"),
    ("report", "summary statistics"),
    ("restart edit", "edit changed modified halfway rerun relaunch force kick"),
    ("save now", "write immediately"),
    ("script job.sbatch", "generated rendered bash"),
    ("secret secrets", "password credentials leak"),
    ("setup module modules", "conda venv lmod environment activate env"),
    ("slurm.time limit", "walltime timeout timed-out"),
    ("smaller min_nodes before_resize", "elastic shrink grow"),
    ("stacks", "deadlock debugger py-spy backtrace"),
    ("standby takeover", "head master backup failover"),
    ("status", "ls list ps overview state"),
    ("stop", "kill cancel abort terminate quit end halt scancel"),
    ("submit", "sbatch launch"),
    ("sweep sweeps", "array grid hyperparameter hpo ablation search"),
    ("tracker trackers w&b", "wandb tensorboard mlflow"),
    ("troubleshooting why", "troubleshoot"),
    ("upgrade version", "update newer"),
    ("why cause", "reason diagnose"),
)


class Entry(NamedTuple):
    """A place that can be found: a verb, a key, a message, or a paragraph or row of a page below a heading."""

    kind: str
    name: str
    heading: str
    text: str


class _Field(NamedTuple):
    """How often each word stands in a title or text, and how many words it has."""

    words: Mapping[str, float]
    length: int

    def often(self, term: Mapping[str, float]) -> float:
        return max((share * self.words[form] for form, share in term.items() if form in self.words), default=0.0)


class _Section(NamedTuple):
    """A verb, a key, a message, or a section with its paragraphs and rows."""

    entries: Sequence[Entry]
    title: _Field
    text: _Field


class _AskedWord(NamedTuple):
    """What a word that was asked for stands for, each with its share, and how rare that is."""

    forms: Mapping[str, float]
    in_titles: float
    in_texts: float

    @property
    def rarity(self) -> float:
        return max(self.in_titles, self.in_texts)


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
    sections: dict[tuple[str, str, str], list[Entry]] = {}
    for one in entries:
        sections.setdefault((one.kind, one.name, one.heading), []).append(one)
    places = [_section(rows) for rows in sections.values()]
    terms = [_weigh(word, places) for word in _split(asked)]
    scored = [(_score(one, terms), one) for one in places]
    ranked = sorted((row for row in scored if row[0] > 0), key=lambda row: -row[0])
    return list(_spread(_best(one, terms) for _, one in ranked))[:MOST_HITS]


def shown(entry: Entry, asked: Sequence[str]) -> str:
    """The entry's text, or its part around the first of the words."""
    text = re.sub(r"\[([^\[\]]*)\]\([^()]*\)", r"\1", entry.text.strip("| ")).replace("`", "").replace("**", "")
    terms = [_called_here(word) for word in _split(asked)]
    places = [match.start() for match in re.finditer(_WORD, text.lower())
              if any(form in term for term in terms for form in _forms(match[0]))]
    if len(text) <= SHOWN_CHARS:
        return text
    begin = text.rfind(" ", 0, max(0, min(places, default=0) - 60)) + 1
    end = begin + SHOWN_CHARS
    return ("… " if begin else "") + text[begin:end].rstrip() + (" …" if end < len(text) else "")


# --- words ----------------------------------------------------------------------------------------------------------

_WORD = r"[a-z0-9]+(?:[-_.&/][a-z0-9]+)*"
_ENDINGS = re.compile(r"(?<=...)(?:ations?|ages?|[ai]ble|ings?|edly|ers?|ed|es|s|ly|e)$")


def _split(asked: Sequence[str]) -> list[str]:
    words = re.findall(_WORD, " ".join(asked).lower())
    known = {theirs for _, group in _called() for theirs in group}
    joined = [one + two for one, two in pairwise(words) if stem(one + two) in known]   # "black list"
    return [word for word in words if word not in _STOP] + joined or words


@lru_cache(None)
def stem(word: str) -> str:
    """The word without its ending: "stopped", "stopping" and "stops" are one."""
    if word.endswith("ss"):
        return word
    if word.endswith(("ies", "ied")) and len(word) > 4:
        return word[:-3] + "y"
    bare = _ENDINGS.sub("", word)
    return bare[:-1] if len(bare) > 3 and bare != word and bare[-1] == bare[-2] and bare[-1] not in "sl" else bare


@lru_cache(None)
def _forms(word: str) -> Mapping[str, float]:
    """A word of a text, and the parts of a compound such as `restart.max_restarts`, each with its share."""
    word = re.sub(r"^re-|(?<=^e)-(?=mail)", lambda match: match[0].rstrip("-"), word)
    found = {stem(part): _AS_PART for part in re.split(r"[-_./]|(?<=[a-z])(?=[0-9])", word) if part}
    return found | {stem(part): 1.0 for part in (word, *word.split("."))}


def _called_here(word: str) -> Mapping[str, float]:
    found = dict(_forms(word))
    for ours, theirs in _called():
        if not theirs.isdisjoint(found):
            found = {**dict.fromkeys(ours, _CALLED), **found}
    return found


@lru_cache(None)
def _called() -> tuple[tuple[tuple[str, ...], frozenset[str]], ...]:
    return tuple((tuple(map(stem, ours.split())), frozenset(map(stem, theirs.split()))) for ours, theirs in CALLED)


# --- scores ---------------------------------------------------------------------------------------------------------

def _section(entries: Sequence[Entry]) -> _Section:
    first = entries[0]
    return _Section(entries, _field(f"{first.name} {first.heading}"), _field(" ".join(one.text for one in entries)))


def _field(text: str) -> _Field:
    words: dict[str, float] = {}
    found = re.findall(_WORD, text.lower())
    for word in found:
        for form, share in _forms(word).items():
            words[form] = words.get(form, 0.0) + share
    return _Field(words, len(found))


def _weigh(word: str, places: Sequence[_Section]) -> _AskedWord:
    forms, share = _called_here(word), _AS_WEAK if word in _WEAK else 1.0

    def rarity(count: int) -> float:
        return share * math.log(1 + len(places) / (1 + count)) if count else 0.0

    return _AskedWord(forms, rarity(sum(one.title.often(forms) > 0 for one in places)),
                 rarity(sum(one.text.often(forms) > 0 for one in places)))


def _score(place: _Section, terms: Sequence[_AskedWord]) -> float:
    score = covered = 0.0
    for term in terms:
        title, text = place.title.often(term.forms), place.text.often(term.forms)
        if title:
            score += _TITLE * term.in_titles * title / (title + 0.3 + 0.1 * place.title.length)
        if text:
            score += term.in_texts * text / (text + 0.6 + 0.9 * place.text.length / _USUAL_WORDS)
        covered += term.rarity * (bool(title) or bool(text))
    first = place.entries[0]
    is_for_few = first.name in _FOR_DEVELOPERS or first.heading.startswith("The object of")
    page = 0.3 if is_for_few else 1.4 if first.name in _FOR_HELP else 1.0
    return score * (covered / (sum(term.rarity for term in terms) or 1.0)) * _WEIGHT[first.kind] * page


def _best(place: _Section, terms: Sequence[_AskedWord]) -> Entry:
    """The paragraph or row of a place that holds most of it."""
    return max(place.entries, key=lambda one: _score(_section([one._replace(heading="", name="")]), terms))


def _spread(ranked: Iterable[Entry]) -> Iterator[Entry]:
    """A few of each page and of each section of keys."""
    counts: Counter[tuple[str, str]] = Counter()
    for one in ranked:
        page = (one.kind, one.name.partition(".")[0])
        counts[page] += 1
        if counts[page] <= MOST_OF_A_PAGE + (one.name in _FOR_HELP):
            yield one
