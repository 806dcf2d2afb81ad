"""on_nan: previous_checkpoint: which checkpoints are left out after a loss that was no finite number, and when the run
has gone back often enough.

Laws:
- Nothing that was saved behind the last finite loss is resumed from, by no later attempt, unless it is written again.
- At the same step at most MOST_SAME times: what comes back there is in the data or in the code.
- The run never starts from the beginning because of it, if the attempt did not.
"""

from __future__ import annotations

from collections.abc import Sequence

from safelaunch.run.fold.state import Attempt, State, ToldFigure
from safelaunch.run.nancut import NanCut, SavedAt, last_good_step

MOST_SAME = 3
BY_PERSON = 0   # in the place of an attempt's number


def first_cut(state: State, step: int | None) -> NanCut | None:
    """What resume.step asks for before the first attempt, while the checkpoints were not searched for it. It counts as
    the cut of an attempt 0, at no step of a loss.
    """
    is_open = step is not None and not state.attempts and _cut_of(state, BY_PERSON) is None
    return NanCut(BY_PERSON, -1, step) if is_open and step is not None else None


def open_cut(state: State) -> NanCut | None:
    """What the last attempt's end asks for, while the checkpoints were not searched for it; None = nothing."""
    last = state.attempt
    nan = state.had_nan(last.number) if last is not None else None
    if last is None or nan is None or last.ended is None or _cut_of(state, last.number) is not None:
        return None
    upto = last_good_step(nan.step, nan.before, last.resume_step, is_again=bool(_same(state, nan)))
    return NanCut(last.number, nan.step, upto)


def cut_off(cut: NanCut, saved: Sequence[SavedAt]) -> NanCut:
    """The same with those of these checkpoints that are behind it. One whose name holds no step may be one of them."""
    taken = tuple(one for one in saved if one.step is None or one.step > cut.upto)
    return cut._replace(taken=taken, is_left=len(taken) < len(saved))


def is_cut_off(state: State, one: SavedAt) -> bool:
    """Whether a checkpoint is one of those; not if it was surely written again since."""
    return any(one == cut or (one[:2] == cut[:2] and 0.0 in (one.t, cut.t))
               for known in state.nan_cuts for cut in known.taken)


def why_no_further(state: State, last: Attempt, nan: ToldFigure) -> str | None:
    """Why the run ends instead of going back once more; None = it goes back."""
    same, cut = _same(state, nan), _cut_of(state, last.number)
    attempts = ", ".join(str(one) for one in (*(known.attempt for known in same), last.number))
    is_spent = cut is not None and not cut.is_left
    if len(same) + 1 >= MOST_SAME or (same and is_spent):
        more = "" if len(same) + 1 >= MOST_SAME else ", and no checkpoint before it is left"
        return (f"the loss of attempts {attempts} was {nan.value} from step {nan.step} on{more}: what comes back at "
                "the same step is in the data or in the code")
    if is_spent and last.resume_path is not None:
        upto = cut.upto if cut is not None else nan.step
        return (f"the loss of attempt {last.number} was {nan.value} from step {nan.step} on, and no complete "
                f"checkpoint up to step {upto} is left to go back to")
    return None


def _cut_of(state: State, attempt: int) -> NanCut | None:
    return next((cut for cut in state.nan_cuts if cut.attempt == attempt), None)


def _same(state: State, nan: ToldFigure) -> list[NanCut]:
    """Earlier attempts that met it at the same step."""
    return [cut for cut in state.nan_cuts if cut.step == nan.step and cut.attempt != nan.attempt]
