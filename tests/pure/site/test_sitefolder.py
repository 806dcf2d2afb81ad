"""What measurements of a shared folder are judged to mean."""

from __future__ import annotations

from typing import Any

from safelaunch.site.sitefolder import CAUTION, CHECKS, NEEDS, NOT_SAFE, OK, UNKNOWN, judge
from tests.tables import each

GOOD: dict[str, dict[str, Any]] = {
    "mount": {"kind": "nfs4", "source": "server:/scratch", "options": ["rw", "hard"]},
    "write": {"took_s": 0.01, "same": True}, "append": {"made": 100, "right": 100},
    "rename": {"renames": 200, "reads": 500, "torn": 0}, "link": {"rounds": 10, "wins": 10, "racers": 4, "lies": 0},
    "clock": {"offset_s": 0.0}, "space": {"free_bytes": 1 << 40, "free_files": 1 << 20}, "exec": {"noexec": False},
    "groups": {"count": 3, "is_nfs": True},
}


def verdict(name: str, **changes: Any) -> str:
    (row,) = judge({name: {**GOOD[name], **changes}})
    assert row.check == name and row.measured
    return row.verdict


def test_good_folder_is_good_in_every_row() -> None:
    rows = judge(GOOD)
    assert [row.check for row in rows] == list(CHECKS) == list(NEEDS)
    assert {row.verdict for row in rows} == {OK}


@each(("name", "changes", "expected"), [
    ("mount", {"kind": "ext4"}, CAUTION), ("mount", {"options": ["rw", "soft"]}, CAUTION),
    ("mount", {"options": ["nocto"]}, CAUTION), ("mount", {"kind": "lustre"}, OK),
    ("write", {"same": False}, NOT_SAFE), ("write", {"took_s": 3.0}, CAUTION),
    ("append", {"right": 60}, CAUTION), ("rename", {"torn": 1}, NOT_SAFE),
    ("link", {"wins": 11}, NOT_SAFE), ("link", {"wins": 9}, NOT_SAFE), ("link", {"lies": 1}, OK),
    ("clock", {"offset_s": -300.0}, CAUTION), ("clock", {"offset_s": 2.0}, OK),
    ("space", {"free_bytes": 0}, NOT_SAFE), ("space", {"free_files": 0}, NOT_SAFE),
    ("space", {"free_bytes": 1 << 20}, CAUTION), ("space", {"free_files": None}, OK),
    ("exec", {"noexec": True}, CAUTION), ("groups", {"count": 30}, CAUTION),
    ("groups", {"count": 30, "is_nfs": False}, OK),
])
def test_each_misbehaviour_is_told(name: str, changes: dict[str, Any], expected: str) -> None:
    assert verdict(name, **changes) == expected


@each("name", CHECKS)
def test_folder_that_hangs_is_unknown_and_never_ok(name: str) -> None:
    assert judge({name: {"late": True}})[0].verdict == UNKNOWN


def test_folder_without_hard_links_is_not_safe() -> None:
    (row,) = judge({"link": {"error": "OSError: [Errno 1] Operation not permitted"}})
    assert (row.verdict, row.measured) == (NOT_SAFE, "OSError: [Errno 1] Operation not permitted")
