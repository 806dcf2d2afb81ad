"""Progress read from the training's own lines: steps, and hints at what it is doing between two of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from safelaunch.core.steps import STEP_LINE

# What a training says when it does something that takes longer than a step. Only words that stand in the lines of
# Megatron-LM, DeepSpeed, Transformers, Lightning, NeMo, torchtitan, nanoGPT, fairseq and MaxText (their own sources);
# what none of them says is learned from its duration alone (core.hang).
_HINTS = {
    "checkpoint": re.compile(rb"(?i)\b(?:sav(?:ing|ed?)\b.{0,40}\b(?:checkpoint|model|state|weights|optimizer)"
                             rb"|checkpoint(?:s|ing)?\b.{0,30}\b(?:sav|writ)|writing checkpoint|save_checkpoint)"),
    "evaluation": re.compile(rb"(?i)\b(?:evaluat(?:ing|ion|e)\b|eval(?:_|\b)|validat(?:ing|ion|e)\b|validation loss)"),
    "compile": re.compile(rb"(?i)\b(?:compil(?:ing|ation|ed)\b|torch\.compile|torchinductor|autotun(?:e|ing)|cudagraph"
                          rb"|XLA compil)"),
    "data": re.compile(rb"(?i)\b(?:(?:re)?load(?:ing)?\b.{0,30}\b(?:data|dataset|shard|split)|building.{0,20}dataset"
                       rb"|(?:start|begin)\w*.{0,12}\bepoch|epoch.{0,12}\b(?:start|begin))"),
}
PHASES = ("start", "step", *_HINTS)
# A word in front of a number, as "loss: 2.31", "'loss': 2.31", "lm loss: 2.3E+00", "loss=2.31".
_LOSS = re.compile(
    rb"(?i)\b(?:lm |train(?:ing)?[ _])?loss['\"]?\s*[:=]?\s*([-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|nan|inf))\b")
_STEP_TIME = (
    (re.compile(rb"(?i)elapsed time per iteration \(ms\): *(\d+\.?\d*)"), 1e-3),     # Megatron-LM, training_log
    (re.compile(rb"(?i)\b(?:step|iter|iteration)[_ ]time(?: \(s\))?['\"]?\s*[:=]\s*(\d+\.?\d*)\s*(ms)?"), 1.0),
    (re.compile(rb"(?i)\btime (\d+\.?\d*)ms"), 1e-3),                                # nanoGPT
    (re.compile(rb"(\d+\.?\d*)s/it\b"), 1.0),                                        # tqdm
)
_THROUGHPUT = re.compile(
    rb"(?i)(\d[\d,]*\.?\d*) *(tokens?|samples?|images?|sequences?)(?:/s(?:ec(?:ond)?)?\b| per second\b)"
    rb"|\b(tps|tokens_per_second|tokens/s|samples_per_second|throughput)['\"]?\s*[:=]\s*(\d[\d,]*\.?\d*)")


@dataclass(frozen=True)
class Talk:
    """What a piece of the log says: its last step, and the phases that it hints at behind that step."""

    step: int | None = None
    hints: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Metrics:
    """The last figures that the log names; None = it does not."""

    loss: float | None = None
    step_time_s: float | None = None
    throughput: str | None = None


def listen(chunk: bytes, pattern: str = "auto") -> Talk:
    """What new lines of the log say; `pattern` as in train.yaml's progress.step."""
    regex = STEP_LINE if pattern == "auto" else re.compile(pattern.encode(), re.MULTILINE)
    last = None
    for last in regex.finditer(chunk):   # noqa: B007 - the last one
        pass
    # From the start of that line: "saving checkpoint at iteration 1000" names a step, too.
    rest = chunk if last is None else chunk[chunk.rfind(b"\n", 0, last.start()) + 1:]
    number = None if last is None or last.group(1) is None else last.group(1)
    hints = frozenset(phase for phase, words in _HINTS.items() if words.search(rest))
    return Talk(int(number) if number is not None and number.isdigit() else None, hints)


def measure(tail: bytes) -> Metrics:
    """The last loss, step time and throughput that a log's tail names."""
    losses = _LOSS.findall(tail)
    return Metrics(float(losses[-1]) if losses else None, _step_time_s(tail), _throughput(tail))


def _step_time_s(tail: bytes) -> float | None:
    found = [(match.start(), float(match[1]) * (1e-3 if match.lastindex == 2 and match[2] else unit))
             for regex, unit in _STEP_TIME for match in regex.finditer(tail)]
    return max(found)[1] if found else None


def _throughput(tail: bytes) -> str | None:
    found = _THROUGHPUT.findall(tail)
    if not found:
        return None
    number, unit, name, value = (part.decode() for part in found[-1])
    return f"{number} {unit}/s" if number else f"{name} {value}"
