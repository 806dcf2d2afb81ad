"""The training's progress, read from its log."""

from __future__ import annotations

import re

# Lines of common trainers; the number is the step. Sources: Megatron-LM training_log ("iteration  100/ 1000 |"),
# DeepSpeed engine ("step=100, skipped=0"), torchtitan ("step: 100"), nanoGPT ("iter 100: loss"), and plain "step 100".
STEP_LINE = re.compile(
    rb"(?:^|[\s|\]:,{'\"])(?:iteration|iter|global_step|step)['\"]?\s*[:=]?\s*(\d{1,12})(?=\s*(?:[/|,:}\s]|$))",
    re.IGNORECASE | re.MULTILINE,
)


def latest_step(tail: bytes, pattern: str) -> int | None:
    """The last step named in the log's tail; `pattern` is "auto" or a regex with one group; None = none is named."""
    regex = STEP_LINE if pattern == "auto" else re.compile(pattern.encode(), re.MULTILINE)
    last: bytes | None = None
    for match in regex.finditer(tail):
        last = match.group(1) or last
    return int(last) if last is not None and last.isdigit() else None
