"""Rule packs: what a site may add, and what it is told when it errs."""

from __future__ import annotations

from typing import Any

import pytest

from safelaunch.errors import ConfigError
from safelaunch.why.findings import Rule
from safelaunch.why.rulepacks import parse_pack, read_pack
from tests.tables import each

GOOD: dict[str, Any] = {
    "id": "site.burst_buffer", "category": "storage", "anchor": ["burst buffer"],
    "pattern": r"burst buffer (?P<name>\S+) is full", "weight": 0.8, "summary": "the burst buffer {name} is full",
    "sample": "bbd: burst buffer bb3 is full", "counter_sample": "bbd: burst buffer bb3 is ready",
}


def pack(*rules: dict[str, Any]) -> dict[str, Any]:
    return {"version": 1, "rules": list(rules)}


def complaints(raw: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_pack("site.yaml", raw)
    return [f"{problem.key}: {problem.text}" for problem in caught.value.problems]


def test_a_rule_of_a_pack_is_a_rule() -> None:
    (rule,) = parse_pack("site.yaml", pack(GOOD))
    assert rule == Rule("site.burst_buffer", "storage", (b"burst buffer",), rb"burst buffer (?P<name>\S+) is full",
                        weight=0.8, summary="the burst buffer {name} is full", sample=GOOD["sample"],
                        counter_sample=GOOD["counter_sample"])


@each(
    ("change", "said"),
    [
        ({"id": "Disk"}, "rules[0].id: expected lower-case words joined by dots"),
        ({"id": "gpu.ecc"}, "rules[0].id: is taken by another rule"),
        ({"category": "disk"}, "rules[0].category: expected one of cancelled, checkpoint"),
        ({"role": "reason"}, "rules[0].role: expected one of"),
        ({"anchor": ["bb"]}, "rules[0].anchor: a literal needs at least 4 bytes"),
        ({"anchor": "burst buffer"}, "rules[0].anchor: expected a list of literals"),
        ({"pattern": "burst ("}, "rules[0].pattern: is no regular expression"),
        ({"pattern": "(?:" * 3000 + "burst" + ")" * 3000}, "rules[0].pattern: is no regular expression"),
        ({"pattern": "burst buffer (?P<name>(a+)+) is full"}, "rules[0].pattern: repeats a group that repeats inside"),
        ({"pattern": "burst buffer (?P<name>(a|a)+$)"}, "rules[0].pattern: repeats a group that repeats"),
        ({"pattern": r"burst buffer (?P<name>(?:\w|[a-z])* is)"}, "rules[0].pattern: repeats a group"),
        ({"summary": "{disk} is full"}, "rules[0].summary: names the group {disk}, which the pattern does not have"),
        ({"summary": "{name"}, "rules[0].summary: is no template"),
        ({"host_group": "host"}, "rules[0].host_group: the pattern has no group host"),
        ({"weight": 2}, "rules[0].weight: expected a number from 0 to 1"),
        ({"weight": "high"}, "rules[0].weight: expected a number from 0 to 1"),
        ({"order": 99}, "rules[0].order: expected a whole number"),
        ({"sumary": "x"}, "rules[0].sumary: unknown key; did you mean summary?"),
        ({"sample": "all is well"}, "rules[0].sample: is not matched by the pattern"),
        ({"anchor": ["Burst Buffer"]}, "rules[0].sample: holds none of the anchors"),
        ({"counter_sample": "burst buffer x is full"}, "rules[0].counter_sample: is matched by the pattern"),
    ],
    ids=lambda value: next(iter(value)) + " " + str(next(iter(value.values())))[:20] if isinstance(value, dict) else "",
)
def test_each_mistake_is_named_with_its_key(change: dict[str, Any], said: str) -> None:
    found = complaints(pack({**GOOD, **change}))
    assert any(text.startswith(said) for text in found), found


def test_a_missing_key_is_named() -> None:
    assert "rules[0].pattern: is missing" in complaints(pack({k: v for k, v in GOOD.items() if k != "pattern"}))


def test_two_rules_may_not_share_an_id() -> None:
    assert complaints(pack(GOOD, GOOD)) == ["rules[1].id: is taken by another rule"]


@each("raw", [None, [], {"rules": []}, {"version": 2, "rules": []}, {"version": 1, "rules": {}}],
                         ids=["nothing", "a list", "no version", "another version", "rules are no list"])
def test_what_is_no_pack_is_refused(raw: object) -> None:
    assert complaints(raw) == [': expected "version: 1" and a list "rules"']


def test_a_mistake_in_a_file_has_its_line_and_column() -> None:
    text = 'version: 1\nrules:\n  - id: site.bad\n    category: disk\n    anchor: [burst]\n    pattern: burst\n'
    with pytest.raises(ConfigError) as caught:
        read_pack("site.yaml", text)
    assert str(caught.value).startswith("site.yaml:4:15: rules[0].category: expected one of")


def test_every_mistake_of_a_pack_is_told_at_once() -> None:
    assert len(complaints(pack({**GOOD, "weight": 2, "category": "x"}, {**GOOD, "id": "site.two", "order": 99}))) == 3
