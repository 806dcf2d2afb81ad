"""What plain words make of a text that no rule knows: for each category the weight of the words that speak for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from safelaunch.core.categories import TABLE

MAX_TEXT = 600     # characters of a message that are weighed: its end repeats values, shapes and paths
PATH_WEIGHT = 3.0  # what the kind of a named file says

_PATH = re.compile(r"(?<![\w.@+=~/-])(?:[\w.@+=~-]{0,255}/){1,64}[\w.@+=-]{0,255}|\b[\w-]{1,255}\.[a-z]\w{1,11}\b")
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
    said = _PATH.sub(" ", text)
    weights: dict[str, float] = {}
    for category, pattern in _patterns():
        heard = {match[0].lower(): int((match.lastgroup or "w0")[1:]) for match in pattern.finditer(said)}
        if heard:
            weights[category] = float(sum(heard.values()))
    for path in _PATH.findall(text)[:8]:
        kind = next((category for form, category in _KINDS if form.search(path)), None)
        if kind is not None:
            weights[kind] = max(weights.get(kind, 0.0) + PATH_WEIGHT / 2, PATH_WEIGHT)
    return weights
