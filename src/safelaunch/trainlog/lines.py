"""Progress read from the training's own lines: steps, and signs of what it does between two of them."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from safelaunch.trainlog.epochs import line_at, line_begin
from safelaunch.trainlog.shapes import has_figure, has_number, is_training
from safelaunch.trainlog.steps import last_steps

# What a training says when it does something that takes longer than a step, and when that is over. Only words from the
# lines of Megatron-LM, DeepSpeed, Transformers, Lightning, NeMo, torchtitan, nanoGPT, fairseq and MaxText (their own
# sources and logs). What none of them says is learned from its duration, and from a look at the stacks
# (hangs.hang).
CHECKPOINT, EVALUATION, COMPILE, DATA = "checkpoint", "evaluation", "compile", "data"
_BEGINS = {
    CHECKPOINT: rb"(?<!finished )(?<!done )\bsaving\b.{0,60}\b(?:checkpoint|model|states?|weights|optimizer)"
                rb"|(?:prepar|start|begin)\w{0,8} to save\b|writing checkpoint|\bcheckpointing\b",
    EVALUATION: rb"\bevaluat(?:ing|e)\b|running (?:evaluation|validation)|\bvalidating\b"
                rb"|validation (?:dataloader|sanity)"
                rb"|(?:begin|start)\w{0,8}.{0,12}\b(?:evaluation|validation|eval)\b",
    COMPILE: rb"\bcompiling\b|\btorch\.compile\b|torchinductor|\bautotun(?:e|ing)\b|cudagraph|XLA compil",
    DATA: rb"\b(?:re)?loading\b.{0,30}\b(?:data|dataset|shards?|split)|building.{0,20}dataset"
          rb"|(?:start|begin)\w{0,8}.{0,12}\bepoch|\bepoch\b.{0,12}\b(?:start|begin)",
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
_signs = cache(lambda: tuple((name + suffix, re.compile(rb"(?i)" + words))   # 2 ms, and `status` reads no signs
                             for table, suffix in ((_BEGINS, ""), (_ENDS, END)) for name, words in table.items()))
# One of these stands in each of them; looked for one by one they take a twentieth of what one regex of all takes.
_IN_SIGNS = (b"sav", b"val", b"compil", b"inductor", b"autotun", b"cudagraph", b"load", b"buil", b"epoch",
             b"checkpoint", b"writ")
# A number in such a line is where a training goes on from, not a step that it has made.
_RESUMING = re.compile(rb"(?i)\b(?:load|resum|restor)")
# What PyTorch puts before the lines of an exception that nobody caught, once a process group is there (its excepthook,
# torch/distributed/distributed_c10d.py): that rank goes no further. Its process may stay, by a thread that never ends.
_RAISED = re.compile(rb"\[rank\d{1,7}\]: Traceback \(most recent call last\):")
_EPOCH = re.compile(rb"['\"]epoch['\"]: ['\"]?(\d{1,12}(?:\.\d{1,18})?)")   # Transformers without a bar: nothing else
# rich's bar without columns for numbers: "Training... ━━━━━━╸━━━━━  47% 0:00:05"
_SHARE = re.compile(rb"(?m)(?:^|\r)(?P<what>[^\r\n%\xe2]{0,80})"
                    rb"(?:\xe2[\x94-\x97][\x80-\xbf]){3,200} {1,4}(?P<share>\d{1,3})%")


class Talk(NamedTuple):
    """What a piece of the log says: the last step, and the signs behind it, in order, equal neighbours once.

    `mark` is what tells progress from standing still: the step, or the epoch where a trainer names only that.
    `has_raised`: an exception has ended a rank of PyTorch. `named`: how many steps it names, as far as they are read.
    """

    step: int | None = None
    signs: tuple[str, ...] = ()
    mark: str = ""
    has_raised: bool = False
    named: int = 1


class Unread(NamedTuple):
    """What a log holds that names no step: so many lines, and the one that comes nearest to a step's."""

    lines: int = 0
    line: str = ""


MOST_UNREAD, UNREAD_S = 100, 300.0   # lines, or seconds with some, after which it is told that none names a step
START_S = 60.0                       # a start may write hundreds of lines
SHOWN_CHARS = 160


def leave_unread(known: Unread, text: bytes) -> Unread:
    """With more lines that name no step: the last one with a figure of a training, else with a number, is shown."""
    lines = [line.strip() for line in text.replace(b"\r", b"\n").split(b"\n") if line.strip()]
    near = max((known.line.encode(), *lines), key=lambda line: (has_figure(line), has_number(line), line in lines))
    last = next((line for line in reversed(lines) if (has_figure(line), has_number(line)) == (
        has_figure(near), has_number(near))), near)
    return Unread(known.lines + len(lines), last.decode(errors="replace")[:SHOWN_CHARS])


def tell_unread(line: str, pattern: str) -> str:
    """What to do where the log names no step that is read."""
    whose = ("none of the log's lines names one" if pattern == "auto" else
             f"progress.step {pattern!r} matches none of the log's lines")
    return (f"{whose}; last line: {line!r}; set progress.step, see safelaunch help train-yaml; try it with "
            "safelaunch progress LOG --pattern '…'")


def listen(chunk: bytes, pattern: str = "auto", since: int = 0) -> Talk:
    """What new lines of the log say; `pattern` as in train.yaml's progress.step. Those before `since` have been heard:
    they tell how the others count (trainlog.steps.carry_on). A match may begin with the end of the line before.
    """
    steps = last_steps(chunk, pattern, is_wanted=lambda named: named.start >= since - 1 and not _RESUMING.search(
        line_at(chunk, line_begin(chunk, named.start))))
    step = max((named.step for named in steps), default=None)
    new = chunk[since:]
    has_raised = b"]: Traceback" in new and _RAISED.search(new) is not None
    mark = place_in(new) if step is None and pattern == "auto" else "" if step is None else str(step)
    # From the line on that names the last step first: "saving checkpoint at iteration 1000" names one, too.
    first = next((named.start for named in steps if named.step == step), since)
    signs = signs_in(chunk[max(since, chunk.rfind(b"\n", 0, first + 1) + 1):])
    return Talk(step, signs, mark, has_raised, len({named.step for named in steps}) or 1)


def place_in(text: bytes) -> str:
    """How far a training is where its lines name no step: "epoch 0.12", "47 %"; "" = they do not say."""
    epochs = _EPOCH.findall(text) if b"epoch" in text else []
    if epochs:
        return f"epoch {epochs[-1].decode()}"
    shares = [match["share"] for match in _SHARE.finditer(text) if is_training(match["what"])] if b"%" in text else []
    return f"{shares[-1].decode()} %" if shares else ""


def signs_in(text: bytes) -> tuple[str, ...]:
    """The signs in some lines, in order, equal neighbours once."""
    lowered = text.lower()
    if not any(word in lowered for word in _IN_SIGNS):
        return ()
    found = sorted((match.start(), name) for name, words in _signs() for match in words.finditer(text))
    names = [name for _, name in found]
    return tuple(name for number, name in enumerate(names) if number == 0 or names[number - 1] != name)
