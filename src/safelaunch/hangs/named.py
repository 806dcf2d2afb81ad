"""Whether the looks at a silent training name a rank for which all others wait, and show nothing that takes its time.

Such a hang needs no long hold (hang.NAMED_S). Evidence shortens the wait, not the clock: a rank that sleeps in the
program's own code has not run since the first look, or a rank stands in another collective than all others. The
others wait or poll. A compilation, download, save, evaluation, file or retry on any stack keeps the usual hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from safelaunch.stacks.activity import COLLECTIVE, COMPILE, DATA, LOCK, RENDEZVOUS, STORAGE, classify
from safelaunch.stacks.ranks import ObservedRank, Stack
from safelaunch.stacks.scene import Odd, activity_of, computes
from safelaunch.stacks.sleepers import has_slept_since, is_in_one_loop, is_look, naps, rests
from safelaunch.stacks.stacks import normalise, split_frame

_SLOW_KINDS = (COMPILE, DATA, LOCK, RENDEZVOUS, STORAGE)
# Libraries and functions whose waits end by themselves, also in a sleep: retries of a download wait for up to minutes.
_SLOW_FILES = re.compile(
    r"(?:^|/)(?:requests|urllib3?|http|httpx|httpcore|aiohttp|grpc|boto3|botocore|s3transfer|s3fs|fsspec|gcsfs|adlfs"
    r"|google/(?:cloud|api_core)|azure|huggingface_hub|wandb|mlflow|comet_ml|neptune|clearml|tensorboardX?|tenacity"
    r"|backoff|retrying|subprocess|shutil|tarfile|zipfile|gzip|bz2|lzma|socket|ssl|concurrent/futures|fcntl"
    r"|multiprocessing/(?:connection|managers|pool|queues|synchronize)|torch/(?:hub|utils/cpp_extension|export|onnx)"
    r"|torch/_inductor/(?!output_code)|triton|tensorrt|transformers/utils/hub)(?:\.py$|/)|<frozen importlib")
_SLOW_NAMES = re.compile(
    r"(?:^|[._])(?:download|upload|fetch|push|pull|retry|retries|backoff|compile|export|convert|tokenize|preprocess"
    r"|build|load|restore|rollout|generate|warmup|warm_up)(?:_|$)", re.IGNORECASE)
_ALWAYS_THERE = "torch/_dynamo/eval_frame.py"   # on the stack of every compiled model that runs


def takes_its_time(stack: Stack) -> bool:
    """Whether a frame of this stack is on the way to what may end by itself, after minutes."""
    return classify(stack).kind in _SLOW_KINDS or fetches_or_builds(stack)


def fetches_or_builds(stack: Stack) -> bool:
    """Whether it is a download, a compilation, or another wait of that kind: its network or its files may stand still,
    and it with them: two compilations and a download of
    8,184 replayed job-hours showed no sign of life for 300 s.
    """
    frames = [split_frame(frame) for frame in stack]
    return any(_SLOW_FILES.search(file) or (file != _ALWAYS_THERE and _SLOW_NAMES.search(name))
               for name, file in frames)


def is_named_for_sure(looks: Sequence[Sequence[ObservedRank]], odd: Sequence[Odd]) -> bool:
    """Whether each look at all ranks shows these apart, and the others waiting for them."""
    chosen = {(one.node, one.pid) for one in odd}
    seen: dict[tuple[str, int], list[ObservedRank]] = {}
    for ranks in looks:
        for rank in ranks:
            seen.setdefault((rank.node, rank.pid), []).append(rank)
    if not chosen or not chosen < set(seen) or len(chosen) * 2 > len(seen):
        return False
    if any(len(points) < len(looks) or not all(map(_can_be_read, points)) for points in seen.values()):
        return False
    places = _Places(rank for points in seen.values() for rank in points)
    if places.takes_its_time:
        return False
    apart, rest = ([points for key, points in seen.items() if (key in chosen) is is_odd] for is_odd in (True, False))
    if all(places.sleeps(points) for points in apart):
        return all(places.waits(points) or places.polls(points) for points in rest)
    # In another collective than all others, where no rank can have come from the one to the other.
    return all(map(places.is_in_collective, [*apart, *rest]))


def _can_be_read(rank: ObservedRank) -> bool:
    return bool(rank.samples) and not rank.is_gone and not rank.is_stopped and rank.stuck_in is None


class _Places:
    """Where ranks stand. Equal stacks of one look are one object, so each is worked out once, of any number of ranks.

    `points` of its methods: one rank in each look.
    """

    def __init__(self, ranks: Iterable[ObservedRank]) -> None:
        texts: dict[str, str] = {}
        samples = {id(sample): sample for rank in ranks for sample in rank.samples}
        self._normal = {key: normalise(sample, texts) for key, sample in samples.items()}
        self.takes_its_time = any(map(takes_its_time, set(samples.values())))

    def _stands(self, points: Sequence[ObservedRank]) -> bool:
        return len({self._normal[key] for key in {id(sample) for rank in points for sample in rank.samples}}) == 1

    def sleeps(self, points: Sequence[ObservedRank]) -> bool:
        """Whether it is in one sleep of the program's own code that has lasted since the first look."""
        return self._stands(points) and all(naps(rank) and _is_still(rank, points[0]) for rank in points)

    def is_in_collective(self, points: Sequence[ObservedRank]) -> bool:
        """Whether it stands in a collective."""
        return self._stands(points) and all(
            activity_of(rank.samples[-1], [rank]).kind == COLLECTIVE for rank in points)

    def waits(self, points: Sequence[ObservedRank]) -> bool:
        """Whether it is in a collective, or in any other wait that has lasted since the first look, but no sleep."""
        return self.is_in_collective(points) or (self._stands(points) and all(
            not naps(rank) and _is_still(rank, points[0]) for rank in points))

    def polls(self, points: Sequence[ObservedRank]) -> bool:
        """Whether it asks again and again in one loop of the program's own, and works on no GPU."""
        seen = {self._normal[id(sample)] for rank in points for sample in rank.samples}
        asks = any(is_look(stack[0]) for stack in seen if stack)
        pauses = any(map(rests, points)) and not any(map(computes, points))
        return (asks or pauses) and is_in_one_loop(seen) and not any(rank.gpu_util for rank in points)


def _is_still(rank: ObservedRank, first: ObservedRank) -> bool:
    return rank.ran is False and has_slept_since(rank, first)
