"""Fingerprints: what differs from one occurrence to the next is taken out, the rest stays."""

from __future__ import annotations

from safelaunch.why.fingerprint import MAX_LETTERS, generalize, make_fingerprint
from tests.tables import each


@each(
    ("text", "expected"),
    [
        ("Tried to allocate 2.50 GiB", "Tried to allocate N GiB"),
        ("2025-01-02T03:04:05.678Z lost", "TIME lost"),
        ("at 03:04:05", "at TIME"),
        ("connect to 10.1.2.3<41234> failed", "connect to ADDR failed"),
        ("bind to [::]:29500", "bind to [::]:N"),
        ("peer [fe80::1:2:3]:80", "peer ADDR"),
        ("address 0x7f81ab", "address HEX"),
        ("commit 81ab81ab81ab81ab", "commit HEX"),
        ("no /data/run-17/shard_8.bin here", "no PATH here"),
        ("from https://example.org/x?y=8 now", "from URL now"),
        ("on gpu-012 and ip-26-0-147-135 and nid001234.cluster", "on NAME and NAME and NAME"),
        ("ranks 1, 2, 3", "ranks N"),
        ("KeyError: 'lr'", "KeyError: 'lr'"),
        ("a   b\tc", "a b c"),
        ("x" * 500, "x" * MAX_LETTERS),
    ],
    ids=["numbers", "a stamp", "a time", "an address and port", "any address", "IPv6", "a pointer", "a hash", "a path",
         "a URL", "hosts", "a list", "words stay", "spaces", "length"],
)
def test_what_differs_is_taken_out(text: str, expected: str) -> None:
    assert generalize(text) == expected


def test_category_and_rule_are_part_of_it() -> None:
    assert make_fingerprint("config", "config.yaml", "line 8") == "config:config.yaml:line N"
