"""Evidence as text: what goes through a line or an event and back, and what a hostile line can not do."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from safelaunch.base.model import Event
from safelaunch.nodehealth.ledger import CLEARED, KINDS, ExclusionTerm, NodeEvidence
from safelaunch.nodehealth.ledgerlines import (
    MAX_LINE_BYTES,
    evidence_of,
    node_excluded,
    node_suspected,
    parse_line,
    render_line,
)
from tests.tables import each

ONE = NodeEvidence("gpu-012", "gpu", 1_795_000_000.25, "Xid 79", "alice", "1a2b3c4d", 3, "gpu:xid79", "alpha")
LINE = {"v": 1, "t": 1_795_000_000.25, "node": "gpu-012", "kind": "gpu", "why": "Xid 79", "run": "1a2b3c4d",
        "attempt": 3, "fingerprint": "gpu:xid79", "cluster": "alpha"}


def line(**changes: Any) -> bytes:
    return json.dumps({**LINE, **changes}).encode()


def test_a_line_says_what_the_evidence_says_but_for_whose_it_is() -> None:
    assert json.loads(render_line(ONE)) == LINE
    assert parse_line(render_line(ONE), "alice") == ONE


def test_the_owner_is_the_files_whatever_the_line_says() -> None:
    found = parse_line(line(owner="root"), "mallory")
    assert found is not None and found.owner == "mallory"


def test_a_line_without_a_cluster_is_of_one_that_nobody_knows() -> None:
    old = {key: value for key, value in LINE.items() if key != "cluster"}
    found = parse_line(json.dumps(old).encode(), "alice")
    assert found == replace(ONE, cluster="")


@each("odd", [7, None, ["alpha"], "two words", "a" * 65, "a;b"])
def test_a_line_of_an_odd_cluster_is_no_line(odd: object) -> None:
    assert parse_line(line(cluster=odd), "alice") is None


def test_events_without_a_cluster_are_of_the_one_that_their_run_is_on() -> None:
    old = {key: value for key, value in node_suspected(ONE).items() if key != "cluster"}
    events = [event("node_suspected", ONE.t, **old), event("node_suspected", ONE.t, **node_suspected(ONE))]
    assert [one.cluster for one in evidence_of(events, ONE.run, "beta")] == ["beta", "alpha"]


def test_weights_are_not_taken_from_lines() -> None:
    boasting = parse_line(line(weight=1e9, kind="first_to_fail"), "mallory")
    assert boasting == parse_line(line(kind="first_to_fail"), "mallory")


@given(st.builds(NodeEvidence, node=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True),
                 kind=st.sampled_from(sorted(KINDS)), t=st.floats(0, 1e10), why=st.text(max_size=9000),
                 owner=st.just("alice"), run=st.sampled_from(["", "1a2b3c4d"]), attempt=st.none() | st.integers(0, 99),
                 fingerprint=st.text(max_size=3000), cluster=st.sampled_from(["", "alpha", "mixed_Case-1"])))
@example(NodeEvidence("n1", "gpu", 0.0, "\U0001f600" * 5000, "alice", "", None, "\U0001f600" * 5000))
@example(NodeEvidence("n1", "gpu", 0.0, '{"v":1,"node":"x"}\n{"v":1}\x00\x1b[2J', "alice"))
def test_any_evidence_is_one_short_line_and_comes_back(one: NodeEvidence) -> None:
    text = render_line(one)
    assert len(text) <= MAX_LINE_BYTES and text.count(b"\n") == 1 and text.endswith(b"\n") and text.isascii()
    back = parse_line(text, "alice")
    assert back is not None
    assert (back.node, back.kind, back.run, back.attempt) == (one.node, one.kind, one.run, one.attempt)
    assert back.t == pytest.approx(one.t, abs=0.001)
    assert render_line(back) == text   # what was cut or digested once stays as it is


@each(
    "text",
    [
        line(node="../../etc/passwd"), line(node="$(reboot)"), line(node="n1,n2"), line(node="n[0-9]"),
        line(node="--exclude"), line(node=""), line(node="n1\n"), line(node="n" * 65), line(node=7), line(node=None),
        line(node="@all"), line(node="ñ1"), line(t="now"), line(t=None), line(t=True), line(t=1e300),
        line().replace(b"1795000000.25", b"NaN"), line().replace(b"1795000000.25", b"-Infinity"),
        line().replace(b"1795000000.25", b"9" * 5000),
        line(kind=["gpu"]), line(kind="a b"), line(kind="x" * 65), line(run=1), line(run="../x\n"), line(run="x" * 65),
        line(attempt="3"), line(attempt=True), line(attempt=1.5), line(attempt=1 << 40), line(v=2), line(v=None), b"",
        b"[]", b"null", b"\x00" * 100, b'{"v":1', line()[:-9], b'{"v":1,"t":' + b"[" * 5000, line(why="x" * 90_000),
    ],
)
def test_what_is_no_line_is_skipped(text: bytes) -> None:
    assert parse_line(text, "mallory") is None


@given(st.binary(max_size=200) | st.text(max_size=80).map(lambda text: text.encode()))
def test_no_bytes_make_a_reader_fall(garbage: bytes) -> None:
    found = parse_line(garbage, "mallory")
    assert found is None or isinstance(found, NodeEvidence)


@each("at", range(0, 120, 7))
def test_a_line_behind_a_torn_one_is_read(at: int) -> None:
    torn = render_line(ONE)[:at].rstrip(b"\n")
    assert parse_line(torn + render_line(ONE).rstrip(b"\n"), "alice") == ONE


def test_halves_of_characters_do_not_reach_a_terminal() -> None:
    found = parse_line(line().replace(b"Xid 79", rb"\ud800 Xid"), "mallory")
    assert found is not None
    assert found.why.encode() == b"? Xid"


@each("node", ["", "n1 n2", "n[0-3]", "-n", "n1\n"], ids=repr)
def test_no_line_is_written_for_what_is_no_node(node: str) -> None:
    with pytest.raises(ValueError, match="not a line"):
        render_line(NodeEvidence(node, "gpu", 0.0, "why", "alice"))


# --- the journal --------------------------------------------------------------------------------------------------


def event(name: str, t: float = 5.0, /, **data: Any) -> Event:
    return Event(t, 1, 1, "n0", name, data)


def test_the_journal_alone_suffices() -> None:
    assert evidence_of([event("node_suspected", ONE.t, **node_suspected(ONE))], ONE.run) == (ONE,)


def test_a_clearing_in_the_journal_clears() -> None:
    (found,) = evidence_of([event("node_cleared", node="n1", why="new GPU", owner="bob")], "r1")
    assert (found.node, found.kind, found.t, found.why, found.owner) == ("n1", CLEARED, 5.0, "new GPU", "bob")


def test_a_node_that_is_kept_out_no_more_keeps_what_speaks_against_it() -> None:
    events = [event("node_suspected", ONE.t, **node_suspected(ONE)),
              event("node_readmitted", ONE.t + 1.0, node=ONE.node, why="others count more")]
    assert evidence_of(events, ONE.run) == (ONE,)


def test_a_suspect_of_the_first_version_was_a_lost_node() -> None:
    (found,) = evidence_of([event("node_suspected", node="n1", why="no answer", owner="leader")], "r1")
    assert found == NodeEvidence("n1", "lost", 5.0, "no answer", "leader", "r1")


@each(
    "data", [{}, {"node": 7}, {"node": "n1", "kind": {}}, {"node": "n1", "attempt": "x"}, {"node": "a/b"}], ids=repr)
def test_odd_events_are_skipped(data: dict[str, Any]) -> None:
    assert evidence_of([event("node_suspected", **data), event("progress", step=1)], "r1") == ()


def test_an_exclusion_is_an_event_with_its_owner_and_end() -> None:
    fields = node_excluded(ExclusionTerm("n1", "lost", "alice", 123.4567, 2.00049))
    assert fields == {"node": "n1", "why": "lost", "owner": "alice", "until": 123.457, "score": 2.0}
