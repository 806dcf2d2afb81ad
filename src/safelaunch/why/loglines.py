"""A log's line taken apart: who printed it, when, how loud, and what it says.

Launchers and loggers put their words before a line, often several: "3: [rank17]:[E1121 20:38:35.1 file.cpp:7] …".
Forms are tried again and again at the start of what is left, until none fits. The innermost rank wins: "0: [rank1]:" is
task 0 of srun and rank 1 of the training.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from safelaunch.base.secretmask import mask
from safelaunch.why import logstamps

MAX_PREFIX = 512        # bytes at a line's start that may be prefixes
_MAX_FORMS = 8

# Colours, cursor moves and window titles of terminals (ECMA-48), and colours whose escape byte got lost on the way
# (Ray's output, copied from a terminal, begins "[36m(main_task pid=…)").
_ANSI = re.compile(rb"\x1b\[[0-?]{0,40}[ -/]{0,4}[@-~]|\x1b\][^\x07\x1b\n]{0,200}(?:\x07|\x1b\\)|\x1b[()][0-9A-Z]"
                   rb"|\[(?:0|1|2|22|39|[349][0-7])m")
_CONTROL = bytes(byte for byte in (*range(32), 127) if byte not in b"\t\x1b")

_HOST = rb"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}"
# Who speaks, by the first byte: "A" for letters and digits. Numbers in order of what they are worth. "rank" is torch's,
# "place" the launcher's beside the host. "said" is what the program calls itself (of a process group, at times),
# "local" a number on the node, "task" srun's. A blank behind the label goes only where its launcher writes one
# (indentation).
_WHO: Mapping[bytes, tuple[re.Pattern[bytes], ...]] = {
    b"[": tuple(re.compile(form) for form in (
        rb"\[rank(?P<rank>\d{1,7})\]: ?",                                          # torch ≥ 2.3
        rb"\[(?:[Gg]lobal[_ ]?[Rr]ank|GLOBAL_RANK)[ =:#]{1,2}(?P<rank>\d{1,7})(?:/\d{1,7})?\]:? ?",
        rb"\[(?:[Ll]ocal[_ ]?[Rr]ank|LOCAL_RANK)[ =:#]{1,2}(?P<local>\d{1,5})(?:/\d{1,5})?\]:? ?",
        rb"\[(?:[Rr]ank|RANK)[ =:#]{0,2}(?P<said>\d{1,7})(?:/\d{1,7})?\]:? ?",       # what a program calls itself
        rb"\[[a-z_]{1,30}(?P<local>\d{1,5})\]:",                                   # torchrun --tee: "[default3]:"
        rb"\[(?P<host>" + _HOST + rb"):(?P<place>\d{1,6})\]:",                     # safelaunch's launchers
        rb"\[(?P<host>" + _HOST + rb"):node\]:",                                  # its setup's, and its launcher's own
        rb"\[(?P<host>" + _HOST + rb"):(?P<place>\d{1,4})\](?= {2}|[^ :])",        # the same of others
        rb"\[(?P<host>[A-Za-z][A-Za-z0-9-]{0,252}):(?P<rank>\d{1,6})\](?=[^\s:])",   # older ones, without a colon
        rb"\[\d{1,9},(?P<rank>\d{1,7})\]<std(?:out|err|diag)>: ?",                 # mpirun --tag-output
        rb"\[(?P<host>" + _HOST + rb"):\d{1,8}\] ",                                # Open MPI, PMIx
        rb"\[(?P<host>" + _HOST + rb"):\d{1,8}(?::\d{1,9}){1,2}\] {1,20}",          # UCX
    )),
    b" ": (re.compile(rb" {1,6}(?P<task>\d{1,6}): ?"),),                            # srun --label
    b"(": (re.compile(rb"\((?:[Rr]ank|RANK)[ =:#]{1,2}(?P<said>\d{1,7})(?:/\d{1,7})?\):? ?"), re.compile(   # Ray
        rb"\((?P<actor>[A-Za-z_][\w.:<>-]{0,80})(?: rank=(?P<rank>\d{1,7}))? pid=\d{1,9}"
        rb"(?:, ip=(?P<host>[0-9A-Fa-f.:]{1,45}))?\)(?: \[repeated \d{1,9}x[^\]\n]{0,60}\])? ?"),),
    b"A": tuple(re.compile(form) for form in (
        rb"(?P<task>\d{1,6}): ?(?!\d\d:)",                                          # srun --label
        rb"(?P<host>" + _HOST + rb"):\d{1,8}:\d{1,8} \[(?P<local>\d{1,3})\] ",       # NCCL
        rb"(?P<host>" + _HOST + rb") (?:kernel|slurmd|slurmstepd|systemd|nvidia-[a-z-]{1,30})(?:\[\d{1,8}\])?: ",
        rb"(?P<host>" + _HOST + rb"): (?=\[[a-z]{1,30}\d{1,7}\]:)",                 # pdsh, before a rank
        rb"(?:stdout|stderr) [FP] ",                                               # containerd, after its stamp
        rb"(?:global_rank|GLOBAL_RANK)[ =:#]{1,2}(?P<rank>\d{1,7})(?:/\d{1,7})?(?::| \||,| -|\]) ?",
        rb"(?:[Rr]ank|RANK)[ =:#]{1,2}(?P<said>\d{1,7})(?:/\d{1,7})?(?::| \||,| -) ",
        rb"worker-(?P<said>\d{1,7})(?::| \|) ",
    )),
}
_RANKS = ("rank", "place", "said", "local", "task")
_KINDS: Mapping[bytes, bytes] = {byte: byte for byte in (b"[", b" ", b"(", b"-", b"|", b">")}
_LABEL = re.compile(rb"(?P<host>" + _HOST + rb"): ?")                              # pdsh, clush, mpirun of MPICH

_WORD = rb"DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL"
_LEVELS = (*_WORD.split(b"|"), b"D", b"I", b"W", b"E", b"F")
# How loud and from where: what loggers write between the stamp and the message.
_HOW: Mapping[bytes, tuple[re.Pattern[bytes], ...]] = {
    b"[": tuple(re.compile(form) for form in (
        rb"\[(?:" + _WORD + rb"|[DIWEF])\] ?",
        rb"\[[IWEF] [\w./+-]{1,120}\.(?:cpp|cc|cu|h|hpp|cuh):\d{1,6}\] ?",                  # c10 without a stamp
        rb"\[(?:" + _WORD + rb")\|[\w./-]{1,120}:\d{1,6}\] ?",                           # transformers
        rb"\[[\w./-]{1,120}\.(?:py|cpp|cc|c):\d{1,6}(?::[\w<>]{1,60})?\] ?",             # DeepSpeed
        rb"\[[\w.]{1,80}\]\[(?:" + _WORD + rb")\] ?(?:- )?",                             # Hydra, fairseq
    )),
    b"-": tuple(re.compile(form) for form in (
        rb"- (?:[\w.]{1,120} - )?(?:" + _WORD + rb") - ",                                # "- name - INFO - "
        rb"- ?(?:" + _WORD + rb") *- ?",
    )),
    b"|": tuple(re.compile(form) for form in (
        rb"\| (?:" + _WORD + rb") {1,8}\| [\w.<>]{1,120}(?::[\w<>]{1,60})?(?::\d{1,6})? - ",          # loguru
        rb"\| ?(?:" + _WORD + rb") {0,8}\| ?",
    )),
    b">": (re.compile(rb">> "),),
    b"A": tuple(re.compile(form) for form in (
        rb"(?:" + _WORD + rb"):[\w.]{1,120}:",                                           # logging.basicConfig
        rb"(?:" + _WORD + rb") {0,8}[:|]? {1,8}(?=[\w./-]{1,120}(?::[\w<>]{1,60})?:\d{1,6}[\] ])",          # vLLM
        rb"[IWEF] (?=[\w./+-]{1,120}\.(?:cc|cpp|h):\d{1,6}\])",                          # TensorFlow
        rb"[\w./-]{1,120}\.(?:py|cpp|cc|c|h|cu):\d{1,6}\] ?",
    )),
}


# Launchers' labels, which come again and again: "137: [default1]:[rank137]:".
LABELS = re.compile(rb"(?: {0,6}\d{1,6}: ?(?!\d\d:))?(?:\[[A-Za-z][\w.-]{0,60}(?::\d{1,6})?\]:){1,3} ?"
                     rb"| {0,6}\d{1,6}: ?(?!\d\d:)")
_PLAIN = frozenset(bytes([byte]) for byte in b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ\"'*#")


_LEVEL = re.compile(rb"(?<![\w.-])((?:" + _WORD + rb")(?![\w.-])|[DIWEF](?=\d{4} |[ \]]))")
_TORCH_RANK = re.compile(rb"\[rank\d{1,7}\]: ?$")
_OWN_RANK = re.compile(rb"\[Rank \d{1,7}\] $")
_LEADS = frozenset((*_LEVELS, *logstamps.MONTHS, b"stdout", b"stderr", b"rank", b"Rank", b"RANK"))


class Parsed(NamedTuple):
    """One line taken apart. `stream` tells apart who prints: lines of one traceback share it."""

    stream: bytes
    body: bytes                  # without what launchers add
    payload: bytes               # without what loggers add either
    host: str | None
    rank: int | None
    t: float | None


def parse(line: bytes, hosts: frozenset[bytes] = frozenset()) -> Parsed:
    """A line without its line end, taken apart; `hosts` are the names that label lines as "host: " in this log.

    Stamps without a year or a date count from 1970: see `clocks.settle`.
    """
    line = plain(line)
    head = line[:MAX_PREFIX]
    labels = LABELS.match(head)
    found: dict[str, bytes] = {}
    stamp: float | None = None
    stream = b""
    at = who_ends = 0
    if labels is not None:
        stream, named, at = _parse_labels(labels[0])
        found.update(named)
        # Others write a blank behind such a label; behind ours a line with one blank is rare, and indentation has more.
        at += at > 0 and head[at - 1:at] == b":" and head[at:at + 1] == b" " and head[at + 1:at + 2].strip() != b""
        who_ends = at
    for _ in range(_MAX_FORMS):
        first = head[at:at + 1]
        if first in _PLAIN and stamp is None and _is_plain_word(head, at) and not hosts:
            break
        when = logstamps.match(head, at) if first in logstamps.FIRST else None
        if when is not None:
            stamp, at = when.t if when.t is not None else stamp, when.end
            continue
        match, is_who = _match_form(head, at, first, hosts)
        if match is None:
            break
        groups = {name: value for name, value in match.groupdict().items() if value}
        _take(groups, found)
        at = match.end()
        if is_who:
            stream += b"" if "said" in groups else b"|".join(groups.values()) + b";"
            who_ends = who_ends if "said" in groups else at
    rank = next((found[key] for key in _RANKS if key in found), None)
    host = found.get("host")
    return Parsed(stream, line[who_ends:] if who_ends else line, line[at:] if at else line,
                  host.decode("ascii", "replace") if host else None, int(rank) if rank else None, stamp)


def said_by(line: Parsed) -> bytes:
    """The payload, led by the rank that a library calls itself by in its message (PyTorch's "[Rank 3] ")."""
    lead = _OWN_RANK.search(line.body[:len(line.body) - len(line.payload)])
    return lead[0] + line.payload if lead is not None else line.payload


def level_of(line: bytes, payload: bytes) -> str:
    """How loud the line is, by what stands before its payload: E, W or I; R for PyTorch's "[rank3]:" and no level."""
    lead = plain(line)[:-len(payload) or None][:MAX_PREFIX]
    found = _LEVEL.search(lead)
    if found is not None:
        return "W" if found[1][:1] == b"W" else "I" if found[1][:1] in b"DI" else "E"
    return "R" if _TORCH_RANK.search(lead) else ""


@lru_cache(maxsize=4096)
def _parse_labels(labels: bytes) -> tuple[bytes, tuple[tuple[str, bytes], ...], int]:
    """Stream, who prints, and the length of the launchers' labels at a line's start, as far as they are such."""
    found: dict[str, bytes] = {}
    stream = b""
    at = 0
    while at < len(labels):
        match, is_who = _match_form(labels, at, labels[at:at + 1], frozenset())
        if match is None or not is_who:
            break
        groups = {name: value for name, value in match.groupdict().items() if value}
        _take(groups, found)
        stream += b"" if "said" in groups else b"|".join(groups.values()) + b";"
        at = match.end()
    return stream, tuple(found.items()), at


def _take(groups: Mapping[str, bytes], found: dict[str, bytes]) -> None:
    """The innermost counts, but of safelaunch's labels the outermost: a rank may print lines of another run."""
    if not ("place" in groups and "place" in found):
        found.update(groups)


def _is_plain_word(head: bytes, at: int) -> bool:
    """Whether the word at `at` begins no prefix: no level or month, nothing with a colon or a bracket."""
    end = head.find(b" ", at)
    word = head[at:end if end >= 0 else len(head)]
    return not (b":" in word or b"]" in word or word in _LEADS or word[:5].lower() == b"rank="
                or (word[:1] in b"DIWEF" and word[1:].isdigit()))


def _match_form(head: bytes, at: int, first: bytes, hosts: frozenset[bytes]) -> tuple[re.Match[bytes] | None, bool]:
    """The prefix that stands at `at`, and whether it says who prints."""
    kind = _KINDS.get(first, b"A" if first.isalnum() else b"")
    for form in _WHO.get(kind, ()):
        match = form.match(head, at)
        if match is not None:
            return match, True
    if hosts:
        match = _LABEL.match(head, at)
        if match is not None and match["host"] in hosts:
            return match, True
    for form in _HOW.get(kind, ()):
        match = form.match(head, at)
        if match is not None:
            return match, False
    return None, False


def plain(line: bytes) -> bytes:
    """The line without colours and control characters; tabs stay."""
    if b"\x1b" in line or b"[0m" in line or line[:1] == b"[":
        line = _ANSI.sub(b"", line)
        line = line.replace(b"\x1b", b"")
    return line.translate(None, _CONTROL)


def text(payload: bytes, limit: int = 2000) -> str:
    """The payload as text of at most `limit` characters, without secrets; bytes that are no UTF-8 become U+FFFD."""
    return mask(payload[:limit * 4].decode("utf-8", "replace")[:limit].rstrip())


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
