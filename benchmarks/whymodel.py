"""The model by which `safelaunch why` reads lines that no rule knows: what it would say of sets that it has not seen.

    python -m benchmarks.whymodel --corpus DIR… [--write]

Its texts are the rules' samples, counter-samples and explanations, Slurm's words and last words of tests, phrases
(whyphrases.tsv), and the lines that the labels of the corpora name (benchmarks/why.py), with lines of healthy logs that
sound bad. Each set is read by a model that has seen neither its lines nor the samples of rules that know one of them.
`--write` then trains on all and writes the package's file. Needs numpy; the package does not.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tests.pure.why.test_slurm_words import WORDS as SLURM_WORDS

from benchmarks.why import Case, find_corpora, load_corpus
from safelaunch.why import loglines
from safelaunch.why.categories import NAMES
from safelaunch.why.findings import Rule
from safelaunch.why.io.logfiles import read_logs
from safelaunch.why.judge.engine import judge_log
from safelaunch.why.judge.lastlines import BAD_WORDS
from safelaunch.why.read.scan import Compiled
from safelaunch.why.rulebook import RULES
from safelaunch.why.weigh import words
from safelaunch.why.weigh.exceptions import read_exception
from safelaunch.why.weigh.groups import SHARED

PHRASES = Path(__file__).with_name("whyphrases.tsv")
SPOKEN = Path(__file__).parent.parent / "tests" / "why" / "spoken.jsonl"
CLASSES = (*(name for name in NAMES if name != "unknown"), *words.NO_FAILURE)
EPOCHS, RATE, DECAY, SEED = 20, 0.5, 1e-5, 1
KINDS = {
    "checkpoint": "x.pt x.pth x.ckpt x.safetensors x.distcp x.nemo checkpoints/x ckpt/meta "
                  "latest_checkpointed_iteration.txt",
    "config": "x.yaml x.yml x.toml x.ini x.cfg x.conf config.json conf/train.yaml hostfile",
    "data": "x.jsonl x.parquet x.tar x.bin x.idx x.npy x.npz x.h5 x.arrow x.tfrecord x.csv x.tsv x.jpg x.png "
            "x.wav x.zst data/x datasets/x",
    "environment": "libx.so.8 libx.so lib/x.so lib64/libx.so.12 x.sif x.sqsh x.whl x.cu x.h bin/x",
}
PHRASE_WEIGHT = 0.1
KINDS_WEIGHT = 8.0   # of all kinds of a category
FIRST_SHARE = 0.7    # of a text that may be of several categories: the first one's
HARMLESS_OF_A_LOG = 6
CLIPPED = 0.9995     # weights beyond are cut, so that the others keep their places in a byte
EXCEPTION = re.compile(r"^(?:.{0,80}?[\])|:>] ?)?(?P<type>(?:[A-Za-z_]\w*\.)*[A-Z]\w*"
                       r"(?:Error|Exception|Interrupt|Exit)): ?(?P<message>.*)$")


class Text(NamedTuple):
    """One text to learn from: the classes that it may be of, the likeliest first."""

    text: str
    classes: Sequence[str]
    weight: float


@dataclass(frozen=True)
class Labelled:
    """One log of a corpus: its lines that state the cause, and those that only follow."""

    case: Case
    classes: tuple[str, ...]
    causes: tuple[str, ...]
    echoes: tuple[str, ...]
    harmless: tuple[str, ...]


def payload_of(line: str) -> str:
    """What a line says, without what launchers and loggers write before it."""
    return loglines.text(loglines.parse(line.encode()[:2000]).payload)


def read_corpus(folder: Path) -> list[Labelled]:
    """The logs of a corpus with the lines to learn from."""
    labels = {row["id"]: row for row in map(json.loads, (folder / "labels.jsonl").read_text().splitlines())}
    return [_label(case, labels[case.id]) for case in load_corpus(folder)]


def _label(case: Case, label: Mapping[str, Any]) -> Labelled:
    lines = re.split(r"[\r\n]", case.path.read_text(errors="replace"))
    causes = []
    for wanted in case.lines:
        said = payload_of(next((line for line in lines if wanted in line), wanted))
        causes.append(said if wanted.split("\n")[0][:30] in said else wanted)
    bad = (payload_of(line) for line in lines if BAD_WORDS.search(line)) if case.category == "none" else ()
    kinds = {re.sub(r"\d+", "0", line)[:60]: line for line in bad}
    return Labelled(case, (case.category, *sorted(case.categories - {case.category})), tuple(dict.fromkeys(causes)),
                    tuple(map(payload_of, label.get("symptom_lines") or ())), tuple(kinds.values())[:HARMLESS_OF_A_LOG])


def rules_knowing(lines: Iterable[str]) -> frozenset[str]:
    """The rules that know one of the lines, but those for any exception."""
    return frozenset(rule.id for line in lines for rule in RULES
                     if not rule.id.startswith("python.") and any(part in line.encode() for part in rule.anchor)
                     and re.search(rule.pattern, line.encode()))


def texts_of_rules(left_out: frozenset[str]) -> Iterator[Text]:
    """What the rules bring: samples by their roles, what they mean, and lines near them that mean nothing."""
    for rule in RULES:
        if rule.id in left_out or rule.id.startswith("python."):
            continue
        sample = rule.sample.splitlines()[-1] if rule.sample else ""
        if rule.role == "cause":
            yield Text(sample, (rule.category,), 1.0)
            yield Text(f"{re.sub(r'{[a-z_]+}', ' ', rule.summary)} . {rule.explain}", (rule.category,), 0.3)
        elif rule.role == "symptom":
            yield Text(sample, ("echo", rule.category), 0.7)
        elif rule.role != "context":
            yield Text(sample, ("teardown" if rule.role == "teardown" else "none",), 1.0)
    for rule in RULES:
        near = rule.counter_sample.splitlines()[-1] if rule.counter_sample else ""
        if near and not rules_knowing([near]):
            yield Text(near, ("none",), 0.3)


def texts_of_spoken() -> Iterator[Text]:
    """Last words of many programs; of several lines the last one, and the first as well."""
    for row in map(json.loads, SPOKEN.read_text().splitlines()):
        lines = [line for line in row["text"].strip().splitlines() if not line.startswith(("  ", "Traceback"))]
        for line, weight in zip(dict.fromkeys((*lines[-1:], *lines[:1])), (1.0, 0.4), strict=False):
            yield Text(payload_of(line), row["categories"], weight)


def texts_of_phrases() -> Iterator[Text]:
    """Plain phrases of a category, in three or four classes of how much they say."""
    for row in PHRASES.read_text().splitlines():
        category, weight, phrases = row.split("\t")
        yield from (Text(phrase, (category,), PHRASE_WEIGHT * int(weight)) for phrase in phrases.split("; "))


def texts_of_kinds() -> Iterator[Text]:
    """What is lost when a file of a kind is."""
    for category, kinds in KINDS.items():
        for kind in kinds.split():
            weight = KINDS_WEIGHT / len(kinds.split())
            yield Text(f"'/a/b/{kind}'", (category,), weight)
            yield Text(f"[Errno 2] No such file or directory: '/a/b/{kind}'", (category,), weight)


def texts_of(logs: Iterable[Labelled]) -> Iterator[Text]:
    """The lines that labels name."""
    for log in logs:
        yield from (Text(line, log.classes, 1.0) for line in log.causes)
        yield from (Text(line, ("echo",), 0.7) for line in log.echoes)
        yield from (Text(line, ("none",), 0.5) for line in log.harmless)


def texts_of_slurm() -> Iterator[Text]:
    """Slurm's own words: their last line, and those that name no cause are echoes."""
    for category, text in SLURM_WORDS:
        yield Text(payload_of(text.splitlines()[-1]), ("echo" if category == "unknown" else category,), 1.0)


def all_texts(left_out: frozenset[str], logs: Iterable[Labelled]) -> Iterator[Text]:
    """All that a model learns from, without the rules that are left out."""
    yield from texts_of_rules(left_out)
    yield from texts_of_spoken()
    yield from texts_of_slurm()
    yield from texts_of_phrases()
    yield from texts_of_kinds()
    yield from texts_of(logs)


def train(texts: Iterable[Text]) -> words.Model:
    """The model of some texts: multinomial logistic regression, by steps of one text (AdaGrad)."""
    known = [one for one in texts if one.text and set(one.classes) & set(CLASSES)]
    rows = [np.array(sorted({bucket for _, bucket in words.features_of(words.words_of(one.text))}), int)
            for one in known]
    wanted = np.array([_shares(one.classes) for one in known], np.float32)
    weight = np.array([one.weight for one in known], np.float32)
    counts = (wanted * weight[:, None]).sum(0)
    weight *= wanted @ ((counts.mean() / np.maximum(counts, 1)) ** 0.3).astype(np.float32)   # rare classes count more
    weight /= weight.mean()
    matrix = np.zeros((words.BUCKETS, len(CLASSES)), np.float32)
    seen = np.full(words.BUCKETS, 1e-2, np.float32)
    draw = np.random.default_rng(SEED)
    for _ in range(EPOCHS):
        for number in draw.permutation(len(known)):
            buckets = rows[number]
            if not len(buckets):
                continue
            scale = words.scale_of(len(buckets))
            own = matrix[buckets]
            sums = own.sum(0) * scale
            share = np.exp(sums - sums.max())
            slope = (share / share.sum() - wanted[number]) * (weight[number] * scale)
            seen[buckets] += slope @ slope
            matrix[buckets] = own * (1 - DECAY) - (RATE / np.sqrt(seen[buckets]))[:, None] * slope
    unit = float(np.quantile(np.abs(matrix[matrix != 0]), CLIPPED)) / 127
    whole = np.clip(np.rint(matrix / unit), -127, 127).astype(np.int8)
    return words.Model(CLASSES, round(unit, 6), memoryview(whole.tobytes()).cast("b"))


def _shares(classes: Sequence[str]) -> list[float]:
    fits = [name for name in dict.fromkeys(classes) if name in CLASSES]
    rest = (1 - FIRST_SHARE) / max(1, len(fits) - 1)
    share = dict.fromkeys(fits, rest) | {fits[0]: FIRST_SHARE if len(fits) > 1 else 1.0}
    return [share.get(name, 0.0) for name in CLASSES]


def use(model: words.Model) -> None:
    """Lets the package's own functions read by this model."""
    words.load = lambda: model   # type: ignore[assignment]
    words.shares_of.cache_clear()


def read_line(line: str) -> tuple[str, float]:
    """What the package makes of a line by itself, and how sure it is; empty where it says nothing."""
    found = EXCEPTION.match(line)
    if found is None:
        return words.sound_of(line)
    reading = read_exception(found["type"], found["message"], ())
    return reading.category, reading.weight


def without_their_rules(logs: Sequence[Labelled]) -> Iterator[tuple[str, float]]:
    """Category and certainty of each log, judged without the rules that know the lines that its label names."""
    for log in logs:
        gone = rules_knowing(log.causes) - set(SHARED.values())
        rules: tuple[Rule, ...] = tuple(rule for rule in RULES if rule.id not in gone)
        verdict = judge_log(read_logs([log.case.path], rules, compiled=Compiled(rules)))
        yield verdict.category, verdict.confidence


def report(name: str, logs: Sequence[Labelled]) -> str:
    """A row of the table: lines alone, then whole logs without their rules."""
    failed = [log for log in logs if log.causes and log.case.category not in ("none", "unknown")]
    lines = [read_line(log.causes[0])[0] for log in failed]
    told = list(without_their_rules(failed))
    right = [said in log.case.categories for (said, _), log in zip(told, failed, strict=True)]
    sure = [one for one, (_, confidence) in zip(right, told, strict=True) if confidence >= 0.8]
    read = sum(one in log.case.categories for one, log in zip(lines, failed, strict=True))
    return (f"| {name} | {len(failed)} | {read} | {sum(map(bool, lines))} | {sum(right)} "
            f"| {sum(said == 'none' for said, _ in told)} | {len(sure) - sum(sure)} of {len(sure)} |")


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.whymodel", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--corpus", type=Path, action="append", default=[], help="a folder with labels.jsonl and cases")
    parser.add_argument("--write", action="store_true", help="train on all sets, and write the package's file")
    options = parser.parse_args(argv)
    sets = {folder.name: read_corpus(folder) for folder in find_corpora(options.corpus)}
    if options.write:
        model = train(all_texts(frozenset(), [log for logs in sets.values() for log in logs]))
        path = Path(words.__file__).with_name(words.FILE)
        path.write_bytes(words.pack(model.classes, model.unit, model.weights.tobytes()))
        print(f"{path.name}: {path.stat().st_size} bytes")
        return 0
    columns = ("set left out", "logs", "cause line right", "of it read", "log right without its rules", "called none",
               "wrong and sure")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for name, logs in sets.items():
        others = [log for other, more in sets.items() if other != name for log in more]
        known = rules_knowing(line for log in logs for line in log.causes)
        use(train(all_texts(known, others)))
        print(report(name, logs), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
