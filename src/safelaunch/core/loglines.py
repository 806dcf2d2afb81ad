"""A log's line taken apart: who printed it, when, how loud, and what it says.

Launchers and loggers put their words before a line, often several: "3: [rank17]:[E1121 20:38:35.1 file.cpp:7] …".
Forms are tried again and again at the start of what is left, until none fits. The innermost rank wins: "0: [rank1]:" is
task 0 of srun and rank 1 of the training.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from safelaunch.core import logstamps

MAX_PREFIX = 512        # bytes at a line's start that may be prefixes
_MAX_FORMS = 8

# Colours, cursor moves and window titles of terminals (ECMA-48), and colours whose escape byte got lost on the way
# (Ray's output, copied from a terminal, begins "[36m(main_task pid=…)").
_ANSI = re.compile(rb"\x1b\[[0-?]{0,40}[ -/]{0,4}[@-~]|\x1b\][^\x07\x1b\n]{0,200}(?:\x07|\x1b\\)|\x1b[()][0-9A-Z]"
                   rb"|\[(?:0|1|2|22|39|[349][0-7])m")
_CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")

_HOST = rb"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}"
# Who speaks. "rank" is a rank of the training, "local" a number on its node; both may come, then the rank counts.
_WHO: tuple[re.Pattern[bytes], ...] = tuple(re.compile(form) for form in (
    rb"\[(?P<host>" + _HOST + rb"):(?P<rank>\d{1,6})\]: ?",                       # safelaunch's own launchers
    rb"\[[Rr]ank[ =#]?(?P<rank>\d{1,7})(?:/\d+)?\]:? ?",                          # torch ≥ 2.3; [Rank 0] of loggers
    rb"\[[a-z_]{1,30}(?P<local>\d{1,5})\]: ?",                                    # torchrun --tee: [default3]:
    rb" {0,6}(?P<task>\d{1,6}): ?",                                               # srun --label
    rb"\((?P<actor>[A-Za-z_][\w.:<>-]{0,80})(?: rank=(?P<rank>\d+))? pid=\d+(?:, ip=(?P<host>[0-9A-Fa-f.:]+))?\)"
    rb"(?: \[repeated \d+x[^\]\n]{0,60}\])? ?",                                    # Ray
    rb"\[\d{1,9},(?P<rank>\d{1,7})\]<std(?:out|err|diag)>: ?",                    # mpirun --tag-output
    rb"(?P<host>" + _HOST + rb"):\d{1,8}:\d{1,8} \[(?P<local>-?\d{1,3})\] ",       # NCCL
    rb"\[(?P<host>" + _HOST + rb"):\d{1,8}(?::\d{1,9}){0,2}\] {1,20}",             # Open MPI, PMIx, UCX
    rb"(?:stdout|stderr) [FP] ",                                                  # containerd, after its stamp
    rb"(?P<host>" + _HOST + rb") (?:kernel|slurmd|slurmstepd|systemd|nvidia-[a-z-]+)(?:\[\d{1,8}\])?: ",   # syslog
))
_LABEL = re.compile(rb"(?P<host>" + _HOST + rb"): ?")                              # pdsh, clush, mpirun of MPICH

_LEVELS: Mapping[bytes, str] = {
    b"D": "debug", b"DEBUG": "debug", b"I": "info", b"INFO": "info", b"W": "warning", b"WARN": "warning",
    b"WARNING": "warning", b"E": "error", b"ERROR": "error", b"F": "critical", b"FATAL": "critical",
    b"CRITICAL": "critical",
}
_WORD = rb"DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL"
# How loud and from where: what loggers write between the stamp and the message.
_HOW: tuple[re.Pattern[bytes], ...] = tuple(re.compile(form) for form in (
    rb"\[(?P<level>[IWEF]) [\w./+-]{1,120}\.(?:cpp|cc|cu|h|hpp|cuh):\d{1,6}\] ?",              # c10 without a stamp
    rb"\[(?P<level>" + _WORD + rb")\|[\w./-]{1,120}:\d{1,6}\] ?",                           # transformers
    rb"\[(?P<level>" + _WORD + rb"|[DIWEF])\] ?",
    rb"(?P<level>" + _WORD + rb"):[\w.]{1,120}:",                                           # logging.basicConfig
    rb"[-|] ?(?P<level>" + _WORD + rb") *[-|] ?",
    rb"(?P<level>" + _WORD + rb") *[:|]? +(?=[\w./-]{1,120}(?::[\w<>]{1,60})?:\d{1,6}[\] ])",  # vLLM, loguru
    rb"(?P<level>[IWEF]) (?=[\w./+-]{1,120}\.(?:cc|cpp|h):\d{1,6}\])",                        # TensorFlow
    rb"\[[\w./-]{1,120}\.(?:py|cpp|cc|c):\d{1,6}(?::[\w<>]{1,60})?\] ?",                      # DeepSpeed
    rb"[\w./-]{1,120}\.(?:py|cpp|cc|c|h|cu):\d{1,6}\] ?",
    rb"- (?:[\w.]{1,120} - )?(?P<level>" + _WORD + rb") - ",                                # "- name - INFO - "
    rb"\[[\w.]{1,80}\]\[(?P<level>" + _WORD + rb")\] ?(?:- )?",                             # Hydra, fairseq
    rb"\| (?P<level>" + _WORD + rb") +\| [\w.<>]{1,120}(?::[\w<>]{1,60})?(?::\d{1,6})? - ",   # loguru
    rb">> ",
))


class Parsed(NamedTuple):
    """One line taken apart. `stream` tells apart who prints: lines of one traceback share it."""

    stream: bytes
    body: bytes                  # without what launchers add
    payload: bytes               # without what loggers add either
    host: str | None
    rank: int | None
    t: float | None
    level: str


def parse(line: bytes, hosts: frozenset[bytes] = frozenset(), year: int | None = None) -> Parsed:
    """A line without its line end, taken apart; `hosts` are the names that label lines as "host: " in this log.

    Stamps without a year get `year`; without it, or without a date, they count from 1970.
    """
    line = plain(line)
    head = line[:MAX_PREFIX]
    at = who_ends = 0
    host: bytes | None = None
    rank: int | None = None
    place: int | None = None
    stamp: float | None = None
    level = ""
    streams: list[bytes] = []
    for _ in range(_MAX_FORMS):
        found = logstamps.match(head, at, year)
        if found is not None:
            stamp = found.t if found.t is not None else stamp
            level = _LEVELS.get(found.level, level)
            at = found.end
            host = found.host or host
            continue
        who = _match_who(head, at, hosts)
        if who is not None:
            streams.append(_speaker(who))
            groups = who.groupdict()
            host = groups.get("host") or host
            if groups.get("rank"):
                rank = int(groups["rank"])
            elif groups.get("local") or groups.get("task"):
                place = int(groups.get("local") or groups["task"])
            at = who_ends = who.end()
            continue
        how = _match_how(head, at)
        if how is None:
            break
        if "level" in how.re.groupindex:
            level = _LEVELS.get(how["level"], level)
        at = how.end()
    payload = line[at:]
    return Parsed(b"".join(streams), line[who_ends:] if at else line, payload,
                  host.decode("ascii", "replace") if host else None, rank if rank is not None else place, stamp, level)


def plain(line: bytes) -> bytes:
    """The line without colours and control characters; tabs stay."""
    if b"\x1b" in line or b"m" in line[:8] or b"[0m" in line:
        line = _ANSI.sub(b"", line)
    return _CONTROL.sub(b"", line)


def text(payload: bytes, limit: int = 2000) -> str:
    """The payload as text of at most `limit` characters; bytes that are no UTF-8 become U+FFFD."""
    return payload[:limit * 4].decode("utf-8", "replace")[:limit].rstrip()


def learn_hosts(sample: bytes) -> frozenset[bytes]:
    """The names that label the sample's lines as "host: ", as pdsh and clush do; empty where few lines have one.

    A word before a colon is no host by itself ("wandb: ", "fp16: "): labels begin most lines of a log, or none.
    """
    counts: dict[bytes, int] = {}
    lines = sample.splitlines()
    for line in lines:
        match = _LABEL.match(line)
        if match is not None and not match["host"].isdigit():
            counts[match["host"]] = counts.get(match["host"], 0) + 1
    names = {name: count for name, count in counts.items()
             if name.lower() not in _NO_HOSTS and any(48 <= byte <= 57 for byte in name)}
    return frozenset(names) if sum(names.values()) * 2 >= max(len(lines), 1) else frozenset()


_NO_HOSTS = frozenset({b"wandb", b"srun", b"slurmstepd", b"info", b"warning", b"error", b"epoch", b"step"})


def _match_who(head: bytes, at: int, hosts: frozenset[bytes]) -> re.Match[bytes] | None:
    for form in _WHO:
        match = form.match(head, at)
        if match is not None:
            return match
    if hosts:
        match = _LABEL.match(head, at)
        if match is not None and match["host"] in hosts:
            return match
    return None


def _match_how(head: bytes, at: int) -> re.Match[bytes] | None:
    for form in _HOW:
        match = form.match(head, at)
        if match is not None:
            return match
    return None


def _speaker(who: re.Match[bytes]) -> bytes:
    """What names the speaker in a prefix; thread and process numbers change within one traceback."""
    groups = who.groupdict()
    return b"|".join(groups[key] for key in ("host", "rank", "local", "task", "actor") if groups.get(key)) + b";"
