"""The figures that a training writes into its log: loss, time of a step, throughput."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

# All repeats are bounded: whatever a log holds, reading it must not hold a verb (tests/pure/why/test_patterns.py).
_IS = rb"['\"]?[ \t]{0,8}[:=][ \t]{0,8}"
_FLOAT = rb"(\d{1,18}\.?\d{0,18})"
_PLAIN = rb"(?<![\d,.])([-+]?(?:\d[\d,]{0,24}\.?\d{0,24}(?:e[-+]?\d{1,4})?|nan|inf))"
_NUMBER = _PLAIN + rb"(?![\w.])"
# "lm loss: 2.3E+00" (Megatron), "loss=1.2", "'loss': 0.5" (Transformers), "reduced_train_loss: 1.2" (NeMo). Not the
# losses of a validation, nor the parts of one, nor the mean that Transformers tells at its end.
_LOSS = (rb"(?i)(?<![a-z])(?<!val[ _])(?<!valid[ _])(?<!validation[ _])(?<!eval[ _])(?<!test[ _])(?<!nll[ _])"
         rb"(?<!aux[ _])(?!(?<='train_)loss': {0,8}'?[\d.e+-]{1,24}'?, {1,8}'epoch')"
         rb"loss(?:_step)?['\"]?[ \t]{0,8}[:=]?[ \t]{0,8}['\"]?" + _NUMBER)
# "grad norm: 0.11" (Megatron), "grad_norm: 1.2" (torchtitan), "'grad_norm': 0.5" (Transformers), "gnorm=1" of fairseq.
_GRAD_NORM = rb"(?i)(?<![a-z])(?:grad(?:ient)?[ _]norm|gnorm)" + _IS + rb"['\"]?" + _NUMBER
# A word that stands in each match, a pattern, and the unit. Only the patterns whose word stands in the log, in small
# letters, are compiled and searched for: of all of them 64 kB take 50 ms.
_STEP_TIME = (
    (b"iteration (ms)", rb"(?i)elapsed time per iteration \(ms\): {0,8}" + _NUMBER, 1e-3),    # Megatron-LM
    (b"iteration (s)", rb"(?i)elapsed time per iteration \(s\): {0,8}" + _NUMBER, 1.0),       # Megatron-DeepSpeed
    (b"time", rb"(?i)\b(?:step|iter|iteration)[_ ]time(?: \(s\))?" + _IS + _NUMBER
     + rb"(?! {0,8}(?:ms|us|ns)\b)", 1.0),                                                    # DeepSpeed
    (b"ms", rb"(?i)\b(?:step|iter|iteration)[_ ]time(?: \(ms\)" + _IS + rb"|" + _IS
     + rb"(?=[\d.]{1,36} {0,8}ms\b))" + _FLOAT, 1e-3),
    (b"ms", rb"(?i)\b" + _FLOAT + rb" {0,8}ms ?(?:/|per|a) ?(?:step|iter(?:ation)?)\b", 1e-3),     # "500 ms/step"
    (b"s/step", rb"(?i)\b" + _FLOAT + rb" {0,8}s/step\b", 1.0),
    (b"sec", rb"(?i)\b" + _FLOAT + rb" {0,8}sec(?:onds?)? ?(?:/|per) ?(?:step|iter(?:ation)?)\b", 1.0),
    (b"train_step_timing", rb"(?i)\btrain_step_timing in s" + _IS + _NUMBER, 1.0),    # NeMo
    (b"completed step", rb"completed step: \d{1,12}, seconds: " + _NUMBER, 1.0),               # MaxText
    (b"time ", rb"(?i)\btime " + _FLOAT + rb"ms", 1e-3),                                       # nanoGPT
    (b"s/it", rb"\b" + _FLOAT + rb"s/it\b", 1.0),                                              # tqdm
    (b"it/s", rb"\b" + _FLOAT + rb"it/s\b", 0.0),                                              # the same, of fast steps
    (b"ups=", rb"\bups=" + _FLOAT, 0.0),                                                # fairseq: updates per second
)
_RATE = (
    (b"tps", rb"(?i)\btps" + _IS + _NUMBER, "tokens/s"),
    (b"tokens", rb"(?i)\b(?:tokens_per_sec(?:ond)?|tokens/s(?:ec)?|throughput/tokens_per_sec)" + _IS + _NUMBER,
     "tokens/s"),
    (b"tokens/s/device", rb"(?i)\btokens/s/device" + _IS + _NUMBER, "tokens/s/device"),    # MaxText
    (b"token", rb"(?i)" + _PLAIN + rb" {0,8}tokens?(?:/s(?:ec(?:ond)?)?\b| per second\b)", "tokens/s"),
    (b"wps", rb"(?i)\bwps" + _IS + rb"['\"]?" + _NUMBER, "words/s"),                   # fairseq
    (b"samples", rb"(?i)\b(?:samples/s(?:ec)?|(?:train_)?samples_per_second|currsamplespersec)" + _IS
     + _NUMBER, "samples/s"),
    (b"sample", rb"(?i)" + _PLAIN + rb" {0,8}samples?(?:/s(?:ec(?:ond)?)?\b| per second\b)", "samples/s"),
    (b"image", rb"(?i)" + _PLAIN + rb" {0,8}images?(?:/s(?:ec(?:ond)?)?\b| per second\b)", "samples/s"),
    (b"sequence", rb"(?i)" + _PLAIN + rb" {0,8}sequences?(?:/s(?:ec(?:ond)?)?\b| per second\b)", "samples/s"),
)


class Metrics(NamedTuple):
    """The last figures that the log names; None = it does not. `typical_step_s` is the median of what it names."""

    loss: float | None = None
    step_s: float | None = None
    typical_step_s: float | None = None
    rate: float | None = None
    rate_unit: str = ""


def measure(tail: bytes, loss: str = "auto", step_time: str = "auto") -> Metrics:
    """The figures that a log's tail names; `loss` and `step_time` as in train.yaml's progress (seconds)."""
    losses = _own(loss, tail) if loss != "auto" else [match[1] for match in _losses(tail)]
    times = [seconds for _, seconds in named_step_times(tail, step_time)]
    lowered = tail.lower()
    rates = [(match.start(), _float(match[1]), unit) for word, pattern, unit in _RATE if word in lowered
             for match in re.finditer(pattern, tail)]
    _, rate, unit = max(rates, default=(0, None, ""))
    return Metrics(_float(losses[-1]) if losses else None, times[-1] if times else None,
                   median(times) if times else None, rate, unit)


def named_losses(text: bytes, pattern: str = "auto") -> list[tuple[int, float]]:
    """Where a piece of a log names a loss, and which, in order; `pattern` as in train.yaml's progress.loss."""
    matches = _losses(text) if pattern == "auto" else re.finditer(pattern.encode(), text, re.MULTILINE)
    found = ((match.start(), _float(match[1])) for match in matches if match[1])
    return [(start, value) for start, value in found if value is not None]


def _losses(text: bytes) -> Iterator[re.Match[bytes]]:
    """Matches of _LOSS, tried only where the word stands: a tenth of the time of a search at each place."""
    known, lowered = re.compile(_LOSS), text.lower()
    at = lowered.find(b"loss")
    while at >= 0:
        match = known.match(text, at)
        if match is not None:
            yield match
        at = lowered.find(b"loss", at + 4)


def named_step_times(text: bytes, pattern: str = "auto") -> list[tuple[int, float]]:
    """Where it names the seconds of a step, and how many, in order; `pattern` as in progress.step_time."""
    if pattern == "auto":
        return _step_times(text)
    found = ((match.start(), _float(match[1])) for match in re.finditer(pattern.encode(), text, re.MULTILINE)
             if match[1])
    return [(start, value) for start, value in found if value is not None and value == value]


def seconds_in(line: bytes, step_time: str = "auto") -> float | None:
    """The last time of a step that one line names; None = it names none."""
    times = named_step_times(line, step_time)
    return times[-1][1] if times else None


def loss_in(line: bytes, loss: str = "auto") -> float | None:
    """The last loss that one line names, which may be no finite number; None = it names none."""
    losses = named_losses(line, loss)
    return losses[-1][1] if losses else None


def grad_norm_in(line: bytes) -> float | None:
    """The last norm of the gradients that one line names; None = it names none."""
    norms = named_grad_norms(line)
    return norms[-1][1] if norms else None


def named_grad_norms(text: bytes) -> list[tuple[int, float]]:
    """Where a piece of a log names a norm of the gradients, and which, in order."""
    found = re.finditer(_GRAD_NORM, text) if b"norm" in text.lower() else ()
    return [(match.start(), value) for match in found if (value := _float(match[1])) is not None]


def median(values: Sequence[float]) -> float:
    """The value in the middle, of an even number the mean of both: the library's takes 5 ms to import."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def robust_deviation(values: Sequence[float], middle: float) -> float:
    """Standard deviation of a normal distribution that has the median absolute deviation of these from `middle`."""
    return 1.4826 * median([abs(value - middle) for value in values])


def _step_times(tail: bytes) -> list[tuple[int, float]]:
    lowered = tail.lower()
    found = sorted((match.start(), _seconds(float(match[1].replace(b",", b"")), unit))
                   for word, pattern, unit in _STEP_TIME if word in lowered for match in re.finditer(pattern, tail))
    return [(start, seconds) for start, seconds in found if seconds > 0]


def _seconds(value: float, unit: float) -> float:
    """Of a time in `unit`, or of a rate a second, where that is 0."""
    return value * unit if unit else 1 / value if value else 0.0


def _own(pattern: str, tail: bytes) -> list[bytes]:
    """What the one group of the user's regex has matched."""
    return [match[1] for match in re.finditer(pattern.encode(), tail, re.MULTILINE) if match[1]]


def _float(text: bytes) -> float | None:
    try:
        return float(text.replace(b",", b""))
    except ValueError:   # a regex of the user's that matches words
        return None
