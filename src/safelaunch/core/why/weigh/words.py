"""What plain words make of a text that no rule knows: for each category the weight of the words that speak for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from safelaunch.core.categories import TABLE
from safelaunch.core.why.read.fields import read_fields
from safelaunch.core.why.weigh.errnos import category_of_errno

MAX_TEXT = 600     # characters of a message that are weighed: its end repeats values, shapes and paths
LEAST_POINTS = 4.0 # below that, or without a lead, words tell no category
LEAST_LEAD = 1.5
OWN_WORD = 4.0     # an errno, or the signal by which a process ended: the system's own word
SAID_WEIGHT = 4.0
PATH_WEIGHT = 3.0  # what the kind of a named file says

_PATH = re.compile(r"(?<![\w.@+=~/-])(?:[\w.@+=~-]{0,255}/){1,64}[\w.@+=-]{0,255}|\b[\w-]{1,255}\.[a-z]\w{1,11}\b")
# What a text only names: the command that a shell was running, modules, the operation that failed.
_NAMED = re.compile(r"(?<=\bKilled )\s*\S.*|(?<=\(core dumped\) )\S.*|'[\w-]+(?:[.:]+[\w-]+)+'"
                    r"|\b[a-z_]\w*(?:\.\w+){2,}")
# What is said of it: weighs more than any name in the sentence.
_SAID = tuple((re.compile(rf"(?i)\b(?:{form})"), category) for form, category in (
    (r"(?:unable|fail(?:ed|s)?|cannot|could not|can't)(?: to)? (?:dl)?(?:load|open|find|import)\b.{0,40}?"
     r"(?:librar|\.so\b|module|plugin)", "environment"),
    (r"line \d+: +\d+ Killed\b", "host_oom"), (r"no space left", "storage"),
    (r"(?:access|permission) denied", "storage"),
    (r"connection (?:was )?refused", "network"), (r"(?:cuda|gpu|hip|hbm|device)\b.{0,40}\bout of memory", "cuda_oom"),
    (r"must (?:be|equal|match|divide)\b.{0,40}\bworld size|not divisible by", "config"),
    (r"(?:maximum|minimum|only) version\b.{0,40}\b(?:supported|required)", "version_mismatch"),
))
# The end of a file's name → what it holds.
_KINDS = (
    (re.compile(r"\.(?:pt|pth|ckpt|safetensors|distcp|nemo)$|(?:^|[/_-])(?:ckpts?|checkpoints?)(?:[/_-]|$)"
                r"|latest\w{0,40}\.txt$|(?:^|/)(?:iter|global_step|checkpoint-)_?\d+"), "checkpoint"),
    (re.compile(r"\.(?:ya?ml|toml|ini|cfg|conf|gin)$|config\w{0,40}\.json$|hostfile$"), "config"),
    (re.compile(r"\.(?:jsonl|parquet|tar|bin|idx|npy|npz|h5|hdf5|arrow|tfrecord|csv|tsv|txt|jpe?g|png|mp4|wav|flac"
            r"|zst)$"
                r"|(?:^|/)data(?:sets?)?/"), "data"),
    (re.compile(r"\.(?:so(?:\.\d+)*|sif|sqsh|whl|cu|h)$|/bin/\w+$"), "environment"),
)


@lru_cache(maxsize=1)
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """A pattern for each category; the name of the group that matched is the weight. Made when first needed."""
    return tuple(
        (category, re.compile("|".join(
            rf"(?P<w{weight}>(?<![A-Za-z0-9])(?:{words})s?(?![A-Za-z]))" for weight, words in row.words),
            re.IGNORECASE))
        for category, row in TABLE.items() if row.words)


@lru_cache(maxsize=512)
def weigh_words(text: str) -> Mapping[str, float]:
    """Category → the weight of the different words of a text that speak for it; those without any are left out."""
    text = text[:MAX_TEXT]
    said = _PATH.sub(" ", _NAMED.sub(" ", text))
    weights: dict[str, float] = {}
    for category, pattern in _patterns():
        heard = {match[0].lower(): int((match.lastgroup or "w0")[1:]) for match in pattern.finditer(said)}
        if heard:
            weights[category] = float(sum(heard.values()))
    for form, category in _SAID:
        if form.search(said):
            weights[category] = weights.get(category, 0.0) + SAID_WEIGHT
    for path in _PATH.findall(text)[:8]:
        kind = next((category for form, category in _KINDS if form.search(path)), None)
        if kind is not None:
            weights[kind] = max(weights.get(kind, 0.0) + PATH_WEIGHT / 2, PATH_WEIGHT)
    return weights


def sound_of(text: str) -> tuple[str, float]:
    """The category that a line's words speak for, and how strongly; empty where none leads."""
    points = dict(weigh_words(text))
    for category in filter(None, (category_of_errno(text), read_fields(text).category)):
        points[category] = points.get(category, 0.0) + OWN_WORD
    first, second = sorted([*points.values(), 0.0, 0.0], reverse=True)[:2]
    if first < LEAST_POINTS or first - second < LEAST_LEAD:
        return "", 0.0
    return max(points, key=lambda name: points[name]), first
