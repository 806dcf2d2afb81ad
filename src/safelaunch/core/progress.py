"""Progress read from the training's own lines: steps, signs of what it does between two of them, and its figures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from safelaunch.core.steps import Named, last_steps

# What a training says when it does something that takes longer than a step, and when that is over. Only words from the
# lines of Megatron-LM, DeepSpeed, Transformers, Lightning, NeMo, torchtitan, nanoGPT, fairseq and MaxText (their own
# sources and logs); what none of them says is learned from its duration, and from a look at the stacks
# (core.hangs.hang).
CHECKPOINT, EVALUATION, COMPILE, DATA = "checkpoint", "evaluation", "compile", "data"
_BEGINS = {
    CHECKPOINT: rb"(?<!finished )(?<!done )\bsaving\b.{0,60}\b(?:checkpoint|model|states?|weights|optimizer)"
                rb"|(?:prepar|start|begin)\w* to save\b|writing checkpoint|\bcheckpointing\b",
    EVALUATION: rb"\bevaluat(?:ing|e)\b|running (?:evaluation|validation)|\bvalidating\b"
                rb"|validation (?:dataloader|sanity)"
                rb"|(?:begin|start)\w*.{0,12}\b(?:evaluation|validation|eval)\b",
    COMPILE: rb"\bcompiling\b|\btorch\.compile\b|torchinductor|\bautotun(?:e|ing)\b|cudagraph|XLA compil",
    DATA: rb"\b(?:re)?loading\b.{0,30}\b(?:data|dataset|shards?|split)|building.{0,20}dataset"
          rb"|(?:start|begin)\w*.{0,12}\bepoch|\bepoch\b.{0,12}\b(?:start|begin)",
}
_ENDS = {
    CHECKPOINT: rb"\bsaved\b|(?:finished|done) saving|\bcheckpoint\b.{0,40}\b(?:written|finali[sz]ed|complete)"
                rb"|save-checkpoint\b|writing took",
    EVALUATION: rb"\b(?:validation|valid|val|eval(?:uation)?)[ _](?:loss|ppl|runtime|accuracy)"
                rb"|\b(?:evaluation|validation|eval)\b.{0,30}\b(?:finished|done|complete|took|ended)",
    COMPILE: rb"\bcompil(?:ation|ed|e)\b.{0,40}\b(?:took|finished|done|in \d)",
    DATA: rb"(?:\b(?:loaded|built)|finished (?:loading|building))\b.{0,40}\b(?:data|dataset|shards?|examples|samples)",
}
END = " end"   # a phase's own name behind its last word: what follows may still belong to it, and is learned apart
_SIGNS = tuple((name + suffix, re.compile(rb"(?i)" + words))
               for table, suffix in ((_BEGINS, ""), (_ENDS, END)) for name, words in table.items())
# One of these stands in each of them; looked for one by one they take a twentieth of what one regex of all takes.
_IN_SIGNS = (b"sav", b"val", b"compil", b"inductor", b"autotun", b"cudagraph", b"load", b"buil", b"epoch",
             b"checkpoint", b"writ")
# A number in such a line is where a training goes on from, not a step that it has made.
_RESUMING = re.compile(rb"(?i)\b(?:load|resum|restor)\w*")
_EPOCH = re.compile(rb"['\"]epoch['\"]: ['\"]?(\d+(?:\.\d+)?)")   # Transformers without a bar names nothing else

_PLAIN = rb"([-+]?(?:\d[\d,]*\.?\d*(?:e[-+]?\d+)?|nan|inf))"
_NUMBER = _PLAIN + rb"(?![\w.])"
# "lm loss: 2.3E+00" (Megatron), "loss=1.2", "'loss': 0.5" (Transformers), "reduced_train_loss: 1.2" (NeMo); not the
# losses of a validation, nor the parts of one.
_LOSS = re.compile(rb"(?i)(?<![a-z])(?<!val[ _])(?<!valid[ _])(?<!validation[ _])(?<!eval[ _])(?<!test[ _])(?<!nll[ _])"
                   rb"(?<!aux[ _])loss(?:_step)?['\"]?\s*[:=]?\s*['\"]?" + _NUMBER)
# A word that stands in each match, a pattern, and the unit. Only the patterns whose word stands in the log, in small
# letters, are compiled and searched for: of all of them 64 kB take 50 ms.
_STEP_TIME = (
    (b"iteration (ms)", rb"(?i)elapsed time per iteration \(ms\): *" + _NUMBER, 1e-3),    # Megatron-LM
    (b"iteration (s)", rb"(?i)elapsed time per iteration \(s\): *" + _NUMBER, 1.0),       # Megatron-DeepSpeed
    (b"time", rb"(?i)\b(?:step|iter|iteration)[_ ]time(?: \(s\))?['\"]?\s*[:=]\s*" + _NUMBER
     + rb"(?! *(?:ms|us|ns)\b)", 1.0),                                                    # DeepSpeed
    (b"ms", rb"(?i)\b(?:step|iter|iteration)[_ ]time(?: \(ms\)['\"]?\s*[:=]\s*|['\"]?\s*[:=]\s*(?=[\d.]+ *ms\b))"
     rb"(\d+\.?\d*)", 1e-3),
    (b"ms", rb"(?i)\b(\d+\.?\d*) *ms ?(?:/|per|a) ?(?:step|iter(?:ation)?)\b", 1e-3),     # "500 ms/step"
    (b"s/step", rb"(?i)\b(\d+\.?\d*) *s/step\b", 1.0),
    (b"sec", rb"(?i)\b(\d+\.?\d*) *sec(?:onds?)? ?(?:/|per) ?(?:step|iter(?:ation)?)\b", 1.0),
    (b"train_step_timing", rb"(?i)\btrain_step_timing in s['\"]?\s*[:=]\s*" + _NUMBER, 1.0),    # NeMo
    (b"completed step", rb"completed step: \d+, seconds: " + _NUMBER, 1.0),               # MaxText
    (b"time ", rb"(?i)\btime (\d+\.?\d*)ms", 1e-3),                                       # nanoGPT
    (b"s/it", rb"\b(\d+\.?\d*)s/it\b", 1.0),                                              # tqdm
    (b"it/s", rb"\b(\d+\.?\d*)it/s\b", 0.0),                                              # the same, of fast steps
    (b"ups=", rb"\bups=(\d+\.?\d*)", 0.0),                                                # fairseq: updates per second
)
_RATE = (
    (b"", rb"(?i)\b(?:tps|tokens_per_sec(?:ond)?|tokens/s(?:ec)?|throughput/tokens_per_sec)['\"]?\s*[:=]\s*" + _NUMBER,
     "tokens/s"),
    (b"tokens/s/device", rb"(?i)\btokens/s/device\s*[:=]\s*" + _NUMBER, "tokens/s/device"),    # MaxText
    (b"token", rb"(?i)" + _PLAIN + rb" *tokens?(?:/s(?:ec(?:ond)?)?\b| per second\b)", "tokens/s"),
    (b"wps", rb"(?i)\bwps['\"]?\s*[:=]\s*['\"]?" + _NUMBER, "words/s"),                   # fairseq
    (b"samples", rb"(?i)\b(?:samples/s(?:ec)?|(?:train_)?samples_per_second|currsamplespersec)['\"]?\s*[:=]\s*"
     + _NUMBER, "samples/s"),
    (b"sample", rb"(?i)" + _PLAIN + rb" *samples?(?:/s(?:ec(?:ond)?)?\b| per second\b)", "samples/s"),
    (b"image", rb"(?i)" + _PLAIN + rb" *images?(?:/s(?:ec(?:ond)?)?\b| per second\b)", "samples/s"),
    (b"sequence", rb"(?i)" + _PLAIN + rb" *sequences?(?:/s(?:ec(?:ond)?)?\b| per second\b)", "samples/s"),
)


@dataclass(frozen=True)
class Talk:
    """What a piece of the log says: the last step, and the signs behind it, in order, equal neighbours once.

    `mark` is what tells progress from standing still: the step, or the epoch where a trainer names only that.
    """

    step: int | None = None
    signs: tuple[str, ...] = ()
    mark: str = ""


@dataclass(frozen=True)
class Metrics:
    """The last figures that the log names; None = it does not. `typical_step_s` is the median of what it names."""

    loss: float | None = None
    step_s: float | None = None
    typical_step_s: float | None = None
    rate: float | None = None
    rate_unit: str = ""


def listen(chunk: bytes, pattern: str = "auto") -> Talk:
    """What new lines of the log say; `pattern` as in train.yaml's progress.step."""
    steps = last_steps(chunk, pattern, is_wanted=lambda named: not _RESUMING.search(_line_at(chunk, named.start)))
    step = max((named.step for named in steps), default=None)
    mark = "" if step is None else str(step)
    if step is None and pattern == "auto" and b"epoch" in chunk:
        epochs = _EPOCH.findall(chunk)
        mark = f"epoch {epochs[-1].decode()}" if epochs else ""
    return Talk(step, _signs(chunk[_rest(chunk, steps, step):]), mark)


def _rest(chunk: bytes, steps: list[Named], step: int | None) -> int:
    """Where the line begins that names the last step first: "saving checkpoint at iteration 1000" names one, too."""
    first = next((named.start for named in steps if named.step == step), 0)
    return chunk.rfind(b"\n", 0, first + 1) + 1


def _line_at(chunk: bytes, start: int) -> bytes:
    begin = max(chunk.rfind(b"\n", 0, start + 1), chunk.rfind(b"\r", 0, start + 1)) + 1
    return chunk[begin:max(start, chunk.find(b"\n", start + 1))]


def _signs(text: bytes) -> tuple[str, ...]:
    lowered = text.lower()
    if not any(word in lowered for word in _IN_SIGNS):
        return ()
    found = sorted((match.start(), name) for name, words in _SIGNS for match in words.finditer(text))
    names = [name for _, name in found]
    return tuple(name for number, name in enumerate(names) if number == 0 or names[number - 1] != name)


def measure(tail: bytes, loss: str = "auto", step_time: str = "auto") -> Metrics:
    """The figures that a log's tail names; `loss` and `step_time` as in train.yaml's progress (seconds)."""
    losses = _own(loss, tail) if loss != "auto" else _LOSS.findall(tail)
    times = _own_numbers(step_time, tail) if step_time != "auto" else _step_times(tail)
    lowered = tail.lower()
    rates = [(match.start(), _float(match[1]), unit) for word, pattern, unit in _RATE if word in lowered
             for match in re.finditer(pattern, tail)]
    _, rate, unit = max(rates, default=(0, None, ""))
    return Metrics(_float(losses[-1]) if losses else None, times[-1] if times else None,
                   median(times) if times else None, rate, unit)


def median(values: Sequence[float]) -> float:
    """The value in the middle, of an even number the mean of both: the library's takes 5 ms to import."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _step_times(tail: bytes) -> list[float]:
    lowered = tail.lower()
    found = sorted((match.start(), _seconds(float(match[1].replace(b",", b"")), unit))
                   for word, pattern, unit in _STEP_TIME if word in lowered for match in re.finditer(pattern, tail))
    return [seconds for _, seconds in found if seconds > 0]


def _seconds(value: float, unit: float) -> float:
    """Of a time in `unit`, or of a rate a second, where that is 0."""
    return value * unit if unit else 1 / value if value else 0.0


def _own(pattern: str, tail: bytes) -> list[bytes]:
    """What the one group of the user's regex has matched."""
    return [match[1] for match in re.finditer(pattern.encode(), tail, re.MULTILINE) if match[1]]


def _own_numbers(pattern: str, tail: bytes) -> list[float]:
    return [value for text in _own(pattern, tail) for value in [_float(text)] if value is not None and value == value]


def _float(text: bytes) -> float | None:
    try:
        return float(text.replace(b",", b""))
    except ValueError:   # a regex of the user's that matches words
        return None
