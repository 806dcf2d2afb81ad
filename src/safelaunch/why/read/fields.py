"""Host, rank, exit code and signal that stand inside a line, by their keys and shapes, whoever prints them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_NAME = r"(?<![\w.-])(?=[\w.-]{0,80}\d)[A-Za-z0-9][\w-]{1,62}(?:\.[\w-]{1,62}){0,8}"   # a node's name holds a digit
_ADDRESS = r"(?<![\w.-])\d{1,3}(?:\.\d{1,3}){3}"
# The first that fits counts: what names a culprit before what names the speaker.
_HOSTS = tuple(re.compile(form) for form in (
    rf"(?P<host>{_NAME}): rank \d{{1,7}} (?:exited|died|was)",                   # PALS, MPICH's Hydra
    rf"(?i)\b(?:lost|remote) (?:executor|worker|task|node|daemon)\b.{{1,60}}? on (?:node )?(?-i:(?P<host>{_NAME}))",
    rf"\bpeer (?:ipv[46]:)?(?P<host>{_ADDRESS}|{_NAME})(?=[<:\s])",            # NCCL, gRPC
    rf"\b(?:on node|failed on) (?P<host>{_NAME}|{_ADDRESS})\b",
    rf"(?i)\b(?:host(?:name|\(s\))?|node(?:name)?|ip)(?: ?[:=] ?| )<?(?:\d+\*)?"
    rf"(?P<host>{_ADDRESS}|(?-i:{_NAME}))(?=[\s,;:)\]>]|$)",
    rf"\[job id [\d.]{{1,20}}\](?: ?\[[^\]]{{1,40}}\])?? ?\[(?P<host>{_NAME})\]",  # Cray MPICH
    rf"\bhost {{2,9}}: (?P<host>{_NAME})",                                         # torchrun
    rf"(?i:\brunning at) (?P<host>{_NAME}|{_ADDRESS})(?=\s|$)",                    # MPICH, Intel MPI
    rf"\bmlx\d(?:_\d+)?: (?P<host>{_NAME}): ",                                    # rdma-core
    rf": (?P<host>{_NAME}) \[\d{{1,7}}\]: \w{{1,60}}\.c:\d",                         # Slurm's plugins
    r"(?:^|\s)(?P<host>[A-Za-z][A-Za-z0-9.-]{1,62}) kernel: ",
    rf"<(?:warn|error)> (?P<host>{_NAME}): ",                                     # libfabric
    rf"\w@(?P<host>{_NAME})[ :]\S{{0,80}}? ?[%$#] ",                              # a shell's prompt
))
_RANK = re.compile(r"\[rank[ =:]{0,2}(\d{1,6})\]|\b(?:[Rr]ank|RANK)[ =:#]{1,8}(\d{1,6})\b|, rank=(\d{1,6})\]"
                   r"|Process name: (?:\[\S{1,60},)?(\d{1,6})\b"                       # Open MPI, PRRTE, Horovod
                   r"|\b[Pp]rocess (\d{1,6}) (?:exit|terminated)|--local_rank=(\d{1,6})\b"
                   r"|\bon proc (\d{1,6})\b|\) - process (\d{1,6})\b|[Mm]issing ranks: (\d{1,6})\b"   # LAMMPS; MPICH
                   r"|/replica:\d{1,6}/task:(\d{1,6})\b|process \[\d{1,12},(\d{1,6})\]")   # XLA; Open MPI
_CODE = re.compile(r"(?i)\bexit(?:ed)?[ _]?(?:with )?(?:exit ?|return ?|status )?(?:code|status)[ :=]{0,8}(-?\d{1,3})\b"
                   r"|\b(?:exited with|terminated with (?:exit )?code|return code =|errorcode) (-?\d{1,3})\b")
_SIGNAL = re.compile(r"(?i)\b(?:died from|died of|caught|received|exited on|killed by|got) signal[ :=]{1,3}(\d{1,2})\b"
                     r"|\bsignal: [a-z ]{3,30}\((\d{1,2})\)|\(signal (\d{1,2})\)|<Signals\.\w{1,10}: (\d{1,2})>"
                     r"|\bSIG[A-Z]{2,6} ?\(-?(\d{1,2})\)")
_ABORTED = re.compile(r"\b(?:Aborted {1,40}\(core dumped\)|line \d{1,5}:\s+\d{1,7} Aborted\b)"
                      r"|Fatal Python error: Aborted")
_PORT = re.compile(r"(?i)\bport(?:[:= `'\"]| is ){1,3}(\d{2,5})\b"
                   r"|(?:\]|\blocalhost|\*|(?:\d{1,3}\.){3}\d{1,3}):(\d{2,5})\b|\('?[\w.:-]{1,80}'?, (\d{2,5})\)")
# What is said of a file, and how it is named: quoted, from the root, or a library.
_OF_FILE = re.compile(
    r"(?i)no such file|not found|does(?: not|n't) exist|permission denied"
    r"|(?:can(?:not|'t)|unable to) (?:open|stat|access)|writ(?:e|ing)|not a directory|read-only|no space"
    r"|quota|stale file|corrupt|truncated|error_file")
_FILES = tuple(map(re.compile, (
    r"(?:^|[\s(=:])['\"`](?=[^'\"`]{0,400}/|[^'\"`]{0,200}\.\w{2,6}['\"`])([\w./~@ +=:%-]{2,400})['\"`]",
    r"(?<![\w:/.<-])(/(?:[\w.@+=~%-]{1,255}/){0,40}[\w.@+=~%-]{1,255})(?=[\s:,;)]|$)",
    r"(?:^|\s)(lib[\w.+-]{1,80}\.so[\w.]{0,20}):")))
_TIME = re.compile(r"\btime +: (\d{4}-\d\d-\d\d)_(\d\d:\d\d:\d\d)")
# What a launcher, a shell or a wrapper says of the end of a process, and torchrun's key for where its error is kept.
_REPORT = re.compile(
    r"(?i)\b(?:(?:exit(?:ed|s)?|terminated|died|crashed|killed) (?:with|on|from|by|of) (?:an? )?(?:non-zero )?"
    r"(?:exit |return |status )?(?:code|status|signal|<signals|-?\d)|returned non-zero"
    r"|exit ?(?:code|status|string)(?: of rank \d{1,7})? ?[:=]|non-zero status|exitcode|error_file ?:|running at "
    r"|core dumped\)|mpi_abort(?: was invoked on rank|\()|called cmiabort|line \d{1,5}:\s+\d{1,7} aborted\b"
    r"|first process to do so was|received signal \S)")

ABORT, TERM = 6, 15
# What a signal says by itself; SIGABRT follows a statement always, SIGTERM and SIGINT come from elsewhere.
OF_SIGNAL = {4: "native_crash", 7: "native_crash", 8: "native_crash", 9: "host_oom", 11: "native_crash"}


class Fields(NamedTuple):
    """What a text names; None = nothing."""

    host: str | None = None
    rank: int | None = None
    code: int | None = None
    signal: int | None = None

    @property
    def category(self) -> str | None:
        """What its signal is a sign of."""
        return OF_SIGNAL.get(self.signal or 0)


@lru_cache(maxsize=1024)
def read_fields(text: str) -> Fields:
    """The fields of one line; an exit code that tells a signal (-7, 135) gives that."""
    host = next((found["host"] for form in _HOSTS if (found := form.search(text))), None)
    code, signal = _number(_CODE, text), _number(_SIGNAL, text)
    if signal is None and code is not None:
        signal = -code if code < 0 else code - 128 if 128 < code < 160 else None
    if signal is None and _ABORTED.search(text):
        signal = ABORT
    return Fields(host, _number(_RANK, text), code, signal)


class Objects(NamedTuple):
    """What a text is about: a port, a file, and the time that torchrun's summary names."""

    port: int | None
    file: str
    time: str


def read_objects(text: str) -> Objects:
    """The objects of one line or message."""
    time, paths = _TIME.search(text), [found[1] for form in _FILES if (found := form.search(text))]
    is_of_file = paths and _OF_FILE.search(text) and ("/" in paths[0] or "file" in text)
    return Objects(_number(_PORT, text), paths[0] if is_of_file else "", " ".join(time.groups()) if time else "")


@lru_cache(maxsize=1024)
def is_report(text: str) -> bool:
    """Whether the text tells that a process ended, which is no cause."""
    return _REPORT.search(text) is not None


def _number(form: re.Pattern[str], text: str) -> int | None:
    found = form.search(text)
    return int(next(filter(None, found.groups()))) if found else None
