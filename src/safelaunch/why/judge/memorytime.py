"""When in its run a training ran out of memory: in the first steps its sizes do not fit, later something grew.

No run records its memory over time, so growth itself is not seen. The steps before the error are.
"""

from __future__ import annotations

from dataclasses import replace

from safelaunch.why.findings import Finding
from safelaunch.why.judge.witnesses import UNEXPLAINED_KILLS
from safelaunch.why.order.episodes import Episode, is_comparable, order_of
from safelaunch.why.verdict import Verdict

EARLY_STEPS = 3                    # optimizer states and caches come with the first ones; from the fourth on it is open
EARLY_BYTES = 16 << 20             # of a log that is longer, its beginning may not have been read
# Where no line names a step, it may be that none was read. Then a log is early while it is short in bytes and in time.
EARLY_S, NO_STEPS_BYTES = 1800.0, 4 << 20
LATE_STEPS = 100                   # sizes that fit so often fit
LATE_S, LATE_FEW_STEPS = 3600.0, 10   # of trainings with steps of minutes

# (category, is late) → what a person can do.
ADVICE = {
    ("cuda_oom", False): "It came in the first steps: these sizes do not fit. Smaller micro batch, activation "
    "checkpointing, more sharding. The same again fails the same way, unless another process held memory (nvidia-smi).",
    ("cuda_oom", True): "It came late, so the sizes fit, and something grew or varied. It may be the longest sample, "
    "an evaluation at that step, or losses kept with their graph (use .item()). Or it is fragmentation: then reserved "
    "is much larger than allocated (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True). A restart begins with free "
    "memory.",
    ("host_oom", False): "It came in the first steps: the job does not fit. More memory (slurm.mem), fewer loader "
    "workers, no whole copy of model or data on each rank.",
    ("host_oom", True): "It came late, so memory grew. It may be loader workers that keep what they have read, caches, "
    "files in /dev/shm, or a checkpoint gathered on one rank at that step. sacct's MaxRSS of the attempts tells how "
    "fast. A restart begins with free memory; more of it (slurm.mem) buys time only.",
}


def tell_when(verdict: Verdict, finding: Finding, episode: Episode) -> Verdict:
    """The verdict with its time in the run, and the advice that follows; the same where that is open."""
    if (verdict.category, True) not in ADVICE:
        return verdict
    steps, lasted_s = _steps_before(finding, episode)
    made = steps[-1] - steps[0] if steps else 0
    is_late = made >= LATE_STEPS or (made >= LATE_FEW_STEPS and lasted_s >= LATE_S)
    # A log that names each tenth step, or goes on from a checkpoint, does not tell how many came before the first one.
    is_short = lasted_s < EARLY_S and finding.offset < NO_STEPS_BYTES
    is_early = finding.offset < EARLY_BYTES and (
        steps[0] <= EARLY_STEPS and made < EARLY_STEPS if steps else is_short)
    if not is_late and not is_early:
        return verdict
    hours = f" and {lasted_s / 3600:.1f} h" if lasted_s >= LATE_S else ""
    said = f"late, after {made} good steps{hours}" if is_late else (
        f"early, after step {steps[-1]}" if steps else "early, before a step was logged")
    do = ADVICE[verdict.category, is_late]
    if verdict.rule in UNEXPLAINED_KILLS:   # nobody has said that it was memory
        do = f"If it was memory: {do[0].lower()}{do[1:]}"
    return replace(verdict, summary=f"{verdict.summary} ({said})", do=do)


def _steps_before(finding: Finding, episode: Episode) -> tuple[list[int], float]:
    """The steps of this launch that were logged before the error, sorted, and the seconds since the first sign of life;
    0 = no clock tells. Of long logs only the first, the last and some more are known.
    """
    at = order_of(finding, episode.is_timed)
    signs = [one for one in episode.progress
             if is_comparable(one, finding, episode) and order_of(one, episode.is_timed) < at]
    times = [one.t for one in signs if one.t is not None]
    lasted_s = max(0.0, finding.t - min(times)) if times and finding.t is not None else 0.0
    return sorted({one.step for one in signs if one.step is not None}), lasted_s
