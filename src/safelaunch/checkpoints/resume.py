"""The words that tell the training command where to resume from."""

from __future__ import annotations

import re
import shlex

from safelaunch.checkpoints.model import Checkpoint

_FIELD = re.compile(r"\{(\w+)\}")


# Why a complete checkpoint is not resumed from.
NO_STEP = "nothing tells its step, and resume.args needs {step}"


def is_usable(template: str, step: int | None) -> bool:
    """Whether `resume.args` can be filled in for a checkpoint of that step; None = nothing tells it."""
    return step is not None or "{step}" not in template


def resume_args(template: str, checkpoint: Checkpoint | None) -> tuple[str, ...]:
    """The words of `resume.args` with {path} and {step} filled in; none without a checkpoint.

    The template is split into words first. So a path with blanks stays one word, and no part of a path is ever read as
    shell code. ValueError: unbalanced quotes, an unknown {field}, {step} of a checkpoint that tells none.
    """
    words = shlex.split(template)
    known = {"path", "step"}
    unknown = [field for word in words for field in _FIELD.findall(word) if field not in known]
    if unknown:
        raise ValueError(f'resume.args "{template}": {{{unknown[0]}}} is unknown; known: {{path}}, {{step}}')
    if checkpoint is None:
        return ()
    values = {"path": checkpoint.path}
    if checkpoint.step is not None:
        values["step"] = str(checkpoint.step)
    return tuple(_fill(word, values, checkpoint) for word in words)


def _fill(word: str, values: dict[str, str], checkpoint: Checkpoint) -> str:
    try:
        return _FIELD.sub(lambda field: values[field.group(1)], word)
    except KeyError:
        raise ValueError(f"resume.args needs {{step}}, but the name of {checkpoint.path} tells no step") from None
