"""Time stamps at the start of a log's line.

Stamps are read as they stand, without zones. Within one log nearly all are the local time of one site; some of them say
so ("+01:00") and most do not. Taking only those with a zone to UTC would put the lines of one second an hour apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

MONTHS = {name: number for number, name in enumerate(
    (b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"), start=1)}
_CLOCK = rb"(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)(?:[.,](?P<f>\d{1,9}))?"
_DAY = rb"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_MONTH = rb"(?P<mon>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_TAIL = rb"(?:Z|[+-]\d\d:?\d\d| UTC)?"

_FORMS: tuple[re.Pattern[bytes], ...] = tuple(re.compile(form) for form in (
    # ISO and its relatives: Python's logging, DeepSpeed, Megatron, Slurm, docker, syslog. SGLang adds " TP3".
    rb" ?\[?(?P<Y>\d{4})[-/.](?P<M>\d\d)[-/.](?P<D>\d\d)[ T_-]" + _CLOCK + _TAIL
    + rb"(?: (?:DP\d+ )?TP\d+(?: EP\d+)?| [IWEF] \d+ \d+)?\]?[ ,:]{0,3}",
    # glog and torch: "E0311 14:12:27.954000 458395 file.py:897] ", "[W222 11:55:33.286939859 file.cpp:4115] "
    rb"\[?[IWEFD](?P<M>\d{1,2})(?P<D>\d\d) " + _CLOCK + rb" {0,3}(?:\d{1,10} )?"
    rb"(?:[\w./+-]{1,160}:\d{1,6})?\] ?",
    # absl before it is set up: "E0000 00:00:1738140690.520316  464956 cuda_dnn.cc:8310] "
    rb"[IWEF]0000 00:00:(?P<epoch>\d{9,10}\.\d{1,9}) {1,4}\d{1,10} [\w./+-]{1,160}:\d{1,6}\] ?",
    # UCX: "[1580334916.007460] "
    rb"\[(?P<epoch>1\d{9}\.\d{6})\] ",
    # dmesg: since boot, which says nothing about the day
    rb"\[ {0,8}(?P<boot>\d{1,8}\.\d{6})\] ",
    # dmesg -T: "[Wed Mar  1 17:52:09 2023] "
    rb"\[" + _DAY + rb" " + _MONTH + rb" {1,2}(?P<D>\d{1,2}) " + _CLOCK + rb" (?P<Y>\d{4})\] ?",
    # syslog: "Nov 21 20:38:35 host "
    rb"(?:<\d{1,3}>)?" + _MONTH + rb" {1,2}(?P<D>\d{1,2}) " + _CLOCK + rb" ",
    # vLLM: "WARNING 07-16 22:59:22 file.py:14] ", with brackets round the file since 0.10
    rb"(?:INFO|WARNING|ERROR|DEBUG|CRITICAL) (?P<M>\d\d)-(?P<D>\d\d) " + _CLOCK
    + rb" \[?[\w./-]{1,120}:\d{1,6}\] ?",
    # the time of day alone
    rb"\[?" + _CLOCK + rb"\]?[ :]{1,2}",
))


_ISO, _GLOG, _ABSL, _UCX, _BOOT, _CTIME, _SYSLOG, _VLLM, _TIME = _FORMS
_BY_FIRST: Mapping[bytes, tuple[re.Pattern[bytes], ...]] = {
    **{b"%d" % digit: (_ISO, _TIME) for digit in range(10)}, b" ": (_ISO,), b"<": (_SYSLOG,),
    b"[": (_ISO, _GLOG, _UCX, _BOOT, _CTIME, _TIME), b"I": (_GLOG, _ABSL, _VLLM), b"W": (_GLOG, _ABSL, _VLLM),
    b"E": (_GLOG, _ABSL, _VLLM), b"F": (_GLOG, _ABSL, _SYSLOG), b"D": (_GLOG, _VLLM, _SYSLOG), b"C": (_VLLM,),
    **dict.fromkeys((b"J", b"M", b"A", b"S", b"O", b"N"), (_SYSLOG,)),
}
FIRST = frozenset(_BY_FIRST)


class Stamp(NamedTuple):
    """A stamp: `t` in epoch seconds of the log's own clock, None where it cannot be told; `end` is where it ends.

    Without a year it is of 1970, without a date of 1970-01-01.
    """

    t: float | None
    end: int


def match(head: bytes, at: int) -> Stamp | None:
    """The stamp that stands at `at`; None = there is none."""
    for form in _BY_FIRST.get(head[at:at + 1], ()):
        found = form.match(head, at)
        if found is not None:
            return Stamp(_seconds(found.groupdict()), found.end())
    return None


def _seconds(groups: dict[str, bytes | None]) -> float | None:
    epoch = groups.get("epoch")
    if epoch is not None:
        return float(epoch)
    if groups.get("boot") is not None:
        return None
    clock = int(groups["h"] or 0) * 3600 + int(groups["m"] or 0) * 60 + int(groups["s"] or 0)
    fraction = groups.get("f")
    t = clock + (float(b"0." + fraction) if fraction else 0.0)
    day = groups.get("D")
    if day is None:
        return t
    name = groups.get("mon")
    month = MONTHS[name] if name else int(groups["M"] or 1)
    written = groups.get("Y")
    return t + 86400.0 * days_since_epoch(int(written) if written else 1970, month, int(day))


def days_since_epoch(year: int, month: int, day: int) -> int:
    """Days from 1970-01-01 to a date of the Gregorian calendar; impossible dates give near ones, never an error."""
    year -= month <= 2
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468
