"""The differences between the two sides of a script, but for those that `differences.py` allows."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tests.conformance.case import Case
from tests.conformance.differences import PASSING, SAID, is_allowed, normal, unfolded
from tests.conformance.observe import Observed, Probe

# Of scontrol show job: what the user has asked for, and got.
OPTIONS = ("JobName", "UserId", "Nice", "Account", "QOS", "Dependency", "Requeue", "TimeLimit", "TimeMin", "Deadline",
           "Partition", "ReqNodeList", "ExcNodeList", "NumNodes", "NumTasks", "CPUs/Task", "ReqB:S:C:T", "Socks/Node",
           "NtasksPerN:B:S:C", "CoreSpec", "MinCPUsNode", "MinMemoryNode", "MinMemoryCPU", "MinTmpDiskNode", "Features",
           "DelayBoot", "OverSubscribe", "Contiguous", "Licenses", "Network", "Comment", "TresPerJob", "TresPerNode",
           "TresPerTask", "TresPerSocket", "CpusPerTres", "MemPerTres", "TresBind", "TresFreq", "MailUser", "MailType",
           "Command", "WorkDir", "StdErr", "StdOut", "StdIn", "BatchFlag", "Reservation", "AdminComment",
           "NtasksPerTRES", "CPU_max_freq", "CPU_min_freq", "Switches", "ArrayTaskThrottle", "OverCommit", "Gres",
           "BurstBuffer", "WCKey")


MOST_SHOWN = 400   # lines


class Difference(NamedTuple):
    """One thing that is not the same."""

    kind: str    # end, output, files, option, environment, argument, folder, umask, stdin, ulimit, tasks, refused, …
    name: str
    plain: str
    safe: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: sbatch {self.plain!r}, safelaunch {self.safe!r}"


def compare(plain: Observed, safe: Observed) -> list[Difference]:
    """What differs and is not allowed to; the order is that of what matters most."""
    return [one for one in _differences(plain, safe) if not is_allowed(one.kind, one.name)]


def is_said(difference: Difference, case: Case, said: str) -> bool:
    """Whether `submit` has told of it: in the words that the script names, or that its kind has."""
    if case.says and re.search(case.says, said):
        return True
    return any(one.kind == difference.kind and re.fullmatch(one.name, difference.name) and re.search(one.words, said)
               for one in SAID)


def _differences(plain: Observed, safe: Observed) -> Iterator[Difference]:
    if plain.submit_code or safe.submit_code:
        if bool(plain.submit_code) != bool(safe.submit_code):
            kind = "refused" if safe.submit_code else "accepted"
            yield Difference(kind, str(safe.submit_code), plain.said[-300:], safe.said[-600:])
        return
    if plain.is_late or safe.is_late:
        yield Difference("late", "end", "late" if plain.is_late else plain.end, "late" if safe.is_late else safe.end)
    if plain.end != safe.end:
        yield Difference("end", "code", plain.end, safe.end)
    yield from _output(plain, safe)
    yield from _files(plain, safe)
    yield from _options(plain, safe)
    yield from _probes(plain, safe)


def _word(seen: Observed, text: str) -> str:
    hosts = dict.fromkeys(seen.hosts, "H") if seen.side.case.is_array else {   # Slurm puts each task where it likes
        host: f"H{number}" for number, host in enumerate(seen.hosts)}
    return normal(text.replace(str(seen.side.room), "ROOM"), hosts) if text else ""


def _words(seen: Observed, lines: Iterable[str]) -> Iterator[str]:
    return (one for line in lines if line for one in unfolded(_word(seen, line)))


def _output(plain: Observed, safe: Observed) -> Iterator[Difference]:
    """Lines in any order: ranks write at once. The run keeps its lines, too, where sbatch's file is gone."""
    if not plain.has_output:
        return
    left, right = (sorted(_words(seen, seen.output)) for seen in (plain, safe))
    left, right = ([line for line in lines if not PASSING.fullmatch(line)] for lines in (left, right))
    if left != right:
        yield Difference("output", "lines", *_changed(left, right))


def _changed(left: Sequence[str], right: Sequence[str]) -> tuple[str, str]:
    if len(left) + len(right) > MOST_SHOWN:
        lost, new = Counter(left) - Counter(right), Counter(right) - Counter(left)
        return "\n".join(lost)[:500], "\n".join(new)[:500]
    lines = list(difflib.ndiff(left, right))
    less, more = ("\n".join(line[2:] for line in lines if line.startswith(sign))[:1500] for sign in "-+")
    return less, more


def _files(plain: Observed, safe: Observed) -> Iterator[Difference]:
    left, right = ({_word(seen, name): _content(seen, text) for name, text in seen.files.items()}
                   for seen in (plain, safe))
    logs = {_word(safe, name) for name in safe.logs}
    together = "\n".join(sorted(line for name in logs for line in left.get(name, "").splitlines()))
    for name in sorted({*left, *right}):
        if left.get(name) != right.get(name):
            is_one = len(logs) > 1 and name in left and name in logs and right[name] == together
            yield Difference("one log" if is_one else "files", name, *_shown(left.get(name), right.get(name)))
    modes, others = ({_word(seen, name): mode for name, mode in seen.modes.items()} for seen in (plain, safe))
    for name in sorted({*modes} & {*others}):
        if modes[name] != others[name]:
            yield Difference("log's mode" if name in logs else "mode", name, modes[name], others[name])


def _content(seen: Observed, text: str) -> str:
    return "\n".join(line for line in sorted(_words(seen, text.splitlines())) if not PASSING.fullmatch(line))


def _shown(left: str | None, right: str | None) -> tuple[str, str]:
    if left is None or right is None:
        return "(none)" if left is None else left[:200], "(none)" if right is None else right[:200]
    return _changed(left.splitlines(), right.splitlines())


def _options(plain: Observed, safe: Observed) -> Iterator[Difference]:
    if not plain.jobs or not safe.jobs:
        return
    for name in OPTIONS:
        left, right = (_word(seen, seen.jobs[0].get(name, "")) for seen in (plain, safe))
        if left != right:
            yield Difference("option", name, left, right)


def _probes(plain: Observed, safe: Observed) -> Iterator[Difference]:
    """Of scripts first; then of tasks in the order of steps and ranks, what the script's have not told yet."""
    found: set[tuple[str, str]] = set()
    for of, left, right in (("script", plain.scripts, safe.scripts), ("tasks", plain.tasks, safe.tasks)):
        before, after = sorted(left, key=_turn), sorted(right, key=_turn)
        places = [sorted(_word(seen, fact) for probe in probes for fact in probe.facts if fact.startswith("node "))
                  for seen, probes in ((plain, left), (safe, right))]
        if len(before) != len(after) or places[0] != places[1]:
            yield Difference(of, "places", *(", ".join(some) or f"{count} of them"
                                             for some, count in zip(places, (len(left), len(right)), strict=True)))
            continue
        for one, other in zip(before, after, strict=True):
            facts = [[_word(seen, fact) for fact in probe.facts] for seen, probe in ((plain, one), (safe, other))]
            variables = [{name: _word(seen, f"{name}={value}") for name, value in probe.environment.items()}
                         for seen, probe in ((plain, one), (safe, other))]
            for difference in (*_facts(of, *facts), *_environment(*variables)):
                if (difference.kind, difference.name) not in found:   # the same of each task: once is enough
                    found.add((difference.kind, difference.name))
                    yield difference


def _turn(probe: Probe) -> tuple[int, str, int]:
    """Steps that run at once have their numbers by chance: what a task was called with comes first."""
    task, step = (probe.environment.get(f"SLURM_{name}", "0") for name in ("ARRAY_TASK_ID", "STEP_ID"))
    return _number(task), normal(re.sub(r"/(plain|safelaunch)(?=/)", "", " ".join(probe.facts))), _number(step)


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


def _facts(of: str, left: Sequence[str], right: Sequence[str]) -> Iterator[Difference]:
    for kind in sorted({fact.partition(" ")[0] for fact in (*left, *right)} if left != right else ()):
        mine, its = ([fact for fact in facts if fact.partition(" ")[0] == kind] for facts in (left, right))
        if kind == "ulimit":
            yield from (Difference("ulimit", a, a, b) for a, b in zip(mine, its, strict=False) if a != b)
        elif mine != its:
            yield Difference(kind.rstrip(":"), of, ", ".join(mine), ", ".join(its))


def _environment(left: Mapping[str, str], right: Mapping[str, str]) -> Iterator[Difference]:
    for name in sorted({*left, *right}):
        if left.get(name) != right.get(name):
            yield Difference("environment", name, left.get(name, "(unset)"), right.get(name, "(unset)"))


def kinds_of(differences: Iterable[Difference]) -> str:
    """The kinds with their names, for a line of a table."""
    return "; ".join(dict.fromkeys(f"{one.kind} {one.name}" for one in differences))
