"""The journal as text: what is read back is what was written, and nothing that stands in a file stops the reader."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safelaunch.base.model import Event
from safelaunch.run import journal
from safelaunch.run.journal import MAX_LINE_BYTES
from tests.tables import each

NAMES = st.text(st.characters(codec="utf-8"), max_size=12)
DATA = st.dictionaries(
    NAMES.filter(lambda key: key not in {"v", "t", "gen", "seq", "host", "event"}),
    st.recursive(
        st.none() | st.booleans() | st.integers(-1 << 63, 1 << 63) | NAMES, lambda inner: st.lists(inner, max_size=3),
        max_leaves=5,
    ),
    max_size=4,
)
TIMES_S = st.integers(0, 4_000_000_000_000).map(lambda t_ms: t_ms / 1000)


@st.composite
def event_lists(draw: st.DrawFn) -> list[Event]:
    """Events as writers make them: each generation counts its own lines."""
    events = []
    for gen in draw(st.lists(st.integers(1, 9), unique=True, max_size=3)):
        for seq in range(draw(st.integers(0, 4))):
            events.append(Event(draw(TIMES_S), gen, seq + 1, f"h{gen}", draw(NAMES), draw(DATA)))
    return events


def line(seq: int, gen: int = 1, event: str = "progress", host: str = "h", t: float = 1.0, **data: Any) -> bytes:
    return journal.render(Event(t, gen, seq, host, event, data))


def read(*files: bytes) -> journal.Journal:
    return journal.merge({f"{number}.jsonl": data for number, data in enumerate(files)})


@pytest.mark.parametrize("key", ["step", "attempt", "exit_code"])
def test_a_number_that_no_writer_counts_to_is_no_line(key: str) -> None:
    made = (line(seq, mark=0).replace(b'"mark":0', b'"%s":%d' % (key.encode(), number))
            for seq, number in enumerate((1 << 63, 10 ** 400, -10 ** 400), 1))
    read = journal.merge({"a": b"".join(made)})
    assert [event.seq for event in read.events] == [1] and len(read.problems) == 2


@given(event_lists())
def test_what_was_written_is_read_back(events: list[Event]) -> None:
    merged = read(b"".join(map(journal.render, events)))
    assert not merged.problems
    assert list(merged.events) == sorted(events, key=lambda event: event.order)


STEPS = st.builds(lambda t, gen, seq, host, attempt, step: line(seq, gen, host=host, t=t, attempt=attempt, step=step),
                  TIMES_S, st.integers(-1, 10**17), st.integers(0, 10**17), st.sampled_from(["n0", "a-b.c_1", "é", ""]),
                  st.integers(-1, 99), st.none() | st.integers(-1, 10**17))


@given(STEPS, st.integers(0, 150), st.sampled_from([b"", b"0", b"-", b"e", b".", b'"', b" ", b"\xff", b"{"]))
def test_lines_of_steps_are_read_as_json_reads_them(step: bytes, at: int, more: bytes) -> None:
    data = step + step[:at] + more + step[at:]
    short, journal._step_line = journal._step_line, cache(lambda: re.compile(b"(?!)"))
    try:
        by_json = read(data)
    finally:
        journal._step_line = short
    assert read(data) == by_json


@given(event_lists())
def test_a_rendered_event_is_one_ascii_line(events: list[Event]) -> None:
    for event in events:
        rendered = journal.render(event)
        assert rendered.isascii()
        assert rendered.endswith(b"}\n")
        assert rendered.count(b"\n") == 1


@each("key", ["v", "t", "gen", "seq", "host", "event"])
def test_an_event_cannot_carry_a_field_of_the_lines_own(key: str) -> None:
    with pytest.raises(ValueError, match=key):
        journal.render(Event(1.0, 1, 1, "h", "progress", {key: 1}))


@given(event_lists(), st.permutations(range(4)), st.randoms(use_true_random=False))
def test_neither_the_names_nor_the_order_of_the_files_matter(
    events: list[Event], names: list[int], random: Any,
) -> None:
    parts: list[list[Event]] = [[], [], [], []]
    for event in events:
        parts[random.randrange(4)].append(event)
    data = [b"".join(map(journal.render, part)) for part in parts]
    straight = journal.merge({f"{number}.jsonl": part for number, part in enumerate(data)})
    shuffled = journal.merge({f"{name}.jsonl": data[number] for number, name in enumerate(names)})
    assert straight.events == shuffled.events


def test_lines_of_the_same_order_stand_alike_whatever_their_files_are_called() -> None:
    one, other = line(1, gen=0, event="kill_switch", who="a"), line(1, gen=0, event="kill_switch", who="b")
    assert read(one, other).events == read(other, one).events


@given(event_lists())
def test_redelivered_lines_count_once(events: list[Event]) -> None:
    data = b"".join(map(journal.render, events))
    once, twice = read(data), read(data + data, data)
    assert once == twice


def test_two_commands_of_one_login_node_do_not_hide_each_others_lines() -> None:
    by_alice = line(1, gen=0, event="released", host="login", t=5.0)
    by_bob = line(1, gen=0, event="released", host="login", t=6.0)
    merged = read(by_alice, by_bob)
    assert [event.t for event in merged.events] == [5.0, 6.0]
    assert not merged.problems


def test_two_writers_of_one_generation_are_reported() -> None:
    merged = read(line(1, gen=3, step=1), line(1, gen=3, step=2))
    assert len(merged.events) == 2
    assert merged.problems == ("generation 3 has two lines 1; one is 'progress' from h",)


@each("cut", range(1, len(line(2))))
def test_a_torn_last_line_is_ignored_in_silence(cut: int) -> None:
    merged = read(line(1) + line(2)[:-cut])
    assert [event.seq for event in merged.events] in ([1], [1, 2])   # whole but for its newline: it counts
    assert len(merged.events) == 1 + (cut == 1)
    assert not merged.problems


@each("cut", [1, 10, 40])
def test_a_torn_middle_line_is_reported_with_its_place_and_costs_only_itself(cut: int) -> None:
    torn = line(2)[:-1 - cut] + b"\n"
    merged = journal.merge({"1-h-7.jsonl": line(1) + torn + line(3)})
    assert [event.seq for event in merged.events] == [1, 3]
    assert merged.problems == ("1-h-7.jsonl:2: not a journal line",)


def test_zero_bytes_of_a_lost_write_are_reported_as_that() -> None:
    merged = journal.merge({"a": line(1) + b"\0" * 512 + b"\n" + line(2)})
    assert [event.seq for event in merged.events] == [1, 2]
    assert merged.problems == ("a:2: zero bytes (a lost write of the filesystem)",)


def test_zero_bytes_at_the_end_are_a_torn_last_line() -> None:
    assert read(line(1) + b"\0" * 512) == read(line(1))


@given(st.lists(st.binary(max_size=200), max_size=4))
def test_binary_garbage_never_stops_the_reader(files: list[bytes]) -> None:
    read(*files)


@given(event_lists(), st.binary(max_size=60), st.integers(0, 10_000))
def test_garbage_between_whole_lines_costs_no_line(events: list[Event], garbage: bytes, at: int) -> None:
    lines = [journal.render(event) for event in events]
    place = at % (len(lines) + 1)
    merged = read(b"".join([*lines[:place], garbage + b"\n", *lines[place:]]))
    assert set(map(journal.render, events)) <= {journal.render(event) for event in merged.events}


@each(
    "bad",
    [
        b"[1,2]",
        b'"text"',
        b"null",
        b"{}",
        b"\xff\xfe{}",
        b'{"v":2,"t":1,"gen":1,"seq":2,"host":"h","event":"x"}',
        b'{"v":1,"t":NaN,"gen":1,"seq":2,"host":"h","event":"x"}',
        b'{"v":1,"t":Infinity,"gen":1,"seq":2,"host":"h","event":"x"}',
        b'{"v":1,"t":1' + b"0" * 400 + b',"gen":1,"seq":2,"host":"h","event":"x"}',
        b'{"v":1,"t":1' + b"0" * 5000 + b',"gen":1,"seq":2,"host":"h","event":"x"}',
        b'{"v":1,"t":true,"gen":1,"seq":2,"host":"h","event":"x"}',
        b'{"v":1,"t":"1","gen":1,"seq":2,"host":"h","event":"x"}',
        b'{"v":1,"t":1,"gen":-1,"seq":2,"host":"h","event":"x"}',
        b'{"v":1,"t":1,"gen":1.5,"seq":2,"host":"h","event":"x"}',
        b'{"v":1,"t":1,"gen":1,"seq":true,"host":"h","event":"x"}',
        b'{"v":1,"t":1,"gen":1,"seq":2,"host":null,"event":"x"}',
        b'{"v":1,"t":1,"gen":1,"seq":2,"host":"h","event":["x"]}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"v":1,"t":1,"gen":1,"seq":2,"host":"h","event":"' + b"x" * MAX_LINE_BYTES + b'"}',
    ],
    ids=["list", "text", "null", "empty", "utf-16 mark", "version 2", "NaN", "Infinity", "400 digits", "5000 digits",
         "true as time", "text as time", "negative gen", "broken gen", "true as seq", "no host", "event is a list",
         "100,000 brackets", "100,000 levels", "a huge line"],
)
def test_a_line_that_is_none_of_ours_is_reported_and_skipped(bad: bytes) -> None:
    merged = read(line(1) + bad + b"\n" + line(3))
    assert [event.seq for event in merged.events] == [1, 3]
    assert merged.problems == ("0.jsonl:2: not a journal line",)


def test_events_of_a_later_version_of_the_program_are_kept() -> None:
    (event,) = read(line(1, event="teleported", where="n7")).events
    assert (event.event, dict(event.data)) == ("teleported", {"where": "n7"})


@each("blank", [b"", b"\n\n", b" \t\r\n"], ids=["nothing", "empty lines", "blanks"])
def test_blank_lines_are_no_problem(blank: bytes) -> None:
    assert read(blank) == journal.Journal(())


def test_generations_follow_each_other_whatever_their_clocks_say() -> None:
    merged = read(line(1, gen=2, t=10.0), line(1, gen=1, t=99.0))
    assert [event.gen for event in merged.events] == [1, 2]


def test_a_line_is_json_that_any_tool_can_read() -> None:
    assert json.loads(line(7, step=5)) == {
        "v": 1, "t": 1.0, "gen": 1, "seq": 7, "host": "h", "event": "progress", "step": 5,
    }
