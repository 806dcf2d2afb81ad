"""What the numbers and names of the system's errors mean, and the status words of RPCs, wherever they are printed."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Linux, errno(3): number, name, what it is a sign of. Those that say nothing by themselves (ENOENT) are left out.
_ERRNOS = (
    (5, "EIO", "storage"), (7, "E2BIG", "environment"), (8, "ENOEXEC", "environment"),
    (12, "ENOMEM", "host_oom"), (13, "EACCES", "storage"), (16, "EBUSY", "storage"), (23, "ENFILE", "environment"),
    (24, "EMFILE", "environment"), (26, "ETXTBSY", "storage"), (27, "EFBIG", "storage"), (28, "ENOSPC", "storage"),
    (30, "EROFS", "storage"), (36, "ENAMETOOLONG", "user_code"), (71, "EPROTO", "network"),
    (98, "EADDRINUSE", "rendezvous"), (99, "EADDRNOTAVAIL", "network"), (100, "ENETDOWN", "network"),
    (101, "ENETUNREACH", "network"), (103, "ECONNABORTED", "network"), (104, "ECONNRESET", "network"),
    (107, "ENOTCONN", "storage"), (108, "ESHUTDOWN", "storage"), (110, "ETIMEDOUT", "network"),
    (111, "ECONNREFUSED", "network"), (112, "EHOSTDOWN", "network"), (113, "EHOSTUNREACH", "network"),
    (116, "ESTALE", "storage"), (117, "EUCLEAN", "storage"), (121, "EREMOTEIO", "storage"), (122, "EDQUOT", "storage"),
)
# Said of a file, they blame its name: it exists, lies elsewhere, is a folder, or has a character that may not be there.
_OF_NAMES = {**dict.fromkeys((17, 18, 22, 39), "user_code"), **dict.fromkeys((20, 21, 40), "config")}
# gRPC and absl, so XLA, TensorFlow, etcd; INTERNAL, UNKNOWN, ABORTED, CANCELLED, NOT_FOUND tell nothing by themselves.
_STATUS = {"DEADLINE_EXCEEDED": "hang", "UNAVAILABLE": "network", "RESOURCE_EXHAUSTED": "cuda_oom", "DATA_LOSS": "data",
           "UNAUTHENTICATED": "hub_auth", "PERMISSION_DENIED": "storage", "INVALID_ARGUMENT": "user_code"}
_BY_NUMBER: Mapping[int, str] = {number: category for number, _, category in _ERRNOS}
_BY_NAME: Mapping[str, str] = {**{name: category for _, name, category in _ERRNOS}, **_STATUS}
# "[Errno 28]", "errno = 11", "errno: 28", Lustre's "rc = -28", the kernel's "error -5".
_NUMBER = re.compile(r"(?i)\b(?:errno[ :=]{1,3}|rc[ :=]{1,3}-|(?:error|err|ret|status|code)[ :=]{1,3}-)(\d{1,3})\b")
_NAME = re.compile(rf"\bE[A-Z0-9]{{3,14}}\b|\b(?:{'|'.join(_STATUS)})\b")
_OS_ERROR = re.compile(r"\[Errno (\d{1,3})\] [^:'\"]{3,60}(?P<of_file>: ['\"b])?")   # as OSError prints itself


def category_of_errno(text: str) -> str | None:
    """The category that the first telling error number or name in a text is a sign of; None = there is none."""
    for number in _NUMBER.findall(text):
        if (category := _BY_NUMBER.get(int(number))) is not None:
            return category
    return next((_BY_NAME[name] for name in _NAME.findall(text) if name in _BY_NAME), None)


def category_of_os_error(message: str) -> str | None:
    """The category of a message that is the system's own: its number decides, whatever the file is called."""
    found = _OS_ERROR.match(message)
    number = int(found[1]) if found else 0
    return _BY_NUMBER.get(number) or (_OF_NAMES.get(number) if found and found["of_file"] else None)
