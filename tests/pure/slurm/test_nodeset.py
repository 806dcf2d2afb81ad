"""Node lists: Slurm's order in, Slurm's brackets out, and nothing else is taken for one."""

from __future__ import annotations

import re

import pytest
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet
from hypothesis import given
from hypothesis import strategies as st

from safelaunch.errors import ParseError
from safelaunch.slurm import nodefold, nodeset
from tests.tables import each

NAMES = st.builds("{}{}".format, st.sampled_from(["n", "gpu", "r1-n", "r2-n", "jean-zay-ib"]), st.integers(0, 300))


@each(
    ("text", "expected"),
    [
        ("n0", ("n0",)),
        ("n[0-2]", ("n0", "n1", "n2")),
        ("n[7,0-1],m3", ("n7", "n0", "n1", "m3")),
        ("n37[0-10]", ("n370", "n371", "n372", "n373", "n374", "n375", "n376", "n377", "n378", "n379", "n3710")),
        ("n[9-011,1-3,2,01]", ("n9", "n10", "n11", "n1", "n2", "n3", "n01")),
        ("m3,n0,a1", ("m3", "n0", "a1")),
        ("gpu[008-011]", ("gpu008", "gpu009", "gpu010", "gpu011")),
        ("r1n[0-1],r2n0", ("r1n0", "r1n1", "r2n0")),
        ("jean-zay-ia[810-811]-ib0", ("jean-zay-ia810-ib0", "jean-zay-ia811-ib0")),
        ("r[1-2]n[3-4]", ("r1n3", "r1n4", "r2n3", "r2n4")),
        ("", ()),
    ],
    ids=["one", "a range", "ranges and names", "a number before the bracket", "several widths", "the names' order",
         "leading zeros", "two numbers in a name", "a number inside", "two brackets", "none"],
)
def test_the_names_in_a_list(text: str, expected: tuple[str, ...]) -> None:
    assert nodeset.expand(text) == expected


@each(
    "text", ["n[0-", "n[0-3],m[1", "n0]", "n[3-1]", "n[a-b]", "n[]", "@gpus", "n0!n1", "n0&n1", "n0^n1", "n*", "n?"],
    ids=["cut off in a range", "cut off in the second name", "a bracket too many", "backwards", "letters", "empty",
         "a group", "a difference", "an intersection", "a symmetric difference", "a star", "a question mark"],
)
def test_what_slurm_never_writes_is_an_error(text: str) -> None:
    with pytest.raises(ParseError, match="not a node list"):
        nodeset.expand(text)


@each(
    "text", ["n[0-65536]", "n37[0-70000]", "n[1-300][1-300]", "n[0-40000],m[0-40000]", "n[0-999999999999999]",
             "n[" + "0-9999," * 7 + "1]", "n" + "[0-9]" * 5 + "[1-9]"],
    ids=["one range", "a number before it", "two brackets", "two parts", "a long number", "many ranges",
         "many brackets"],
)
def test_no_more_names_than_a_cluster_has_nodes(text: str) -> None:
    with pytest.raises(ParseError, match="names more than 65536 nodes"):
        nodeset.expand(text)


def test_a_whole_cluster_is_a_list() -> None:
    names = nodeset.expand("n9999[0-65000]")
    assert (len(names), names[0], names[-1]) == (65_001, "n99990", "n999965000")


@given(st.text(st.sampled_from("n01[],-! @&ü\n"), max_size=14))
def test_any_text_is_a_list_or_an_error(text: str) -> None:
    try:
        names = nodeset.expand(text)
    except ParseError:
        return
    assert all(names)


@each(
    ("nodes", "expected"),
    [
        ((), ""),
        (("n1", "n0", "n3"), "n[0-1,3]"),
        (("r1n0", "r1n1", "r2n0"), "r1n[0-1],r2n0"),
        (("gpu009", "gpu010"), "gpu[009-010]"),
        (("n0", "n0"), "n0"),
        (("n9", "n10", "n010", "n099", "n100"), "n[9-10,010,099-100]"),
        (("b", "a", "login", "a1", "a2"), "a,a[1-2],b,login"),
        (("", "n[", "n" + "7" * 5000), f",n{'7' * 5000},n["),
    ],
    ids=["none", "a range", "one bracket a name, as Slurm reads it", "leading zeros", "twice the same",
         "numbers of several lengths", "names without numbers", "what no node is called"],
)
def test_the_short_form(nodes: tuple[str, ...], expected: str) -> None:
    assert nodefold.fold(nodes) == expected


@given(st.lists(st.one_of(NAMES, st.from_regex(r"[a-c0-2-]{0,3}[a-c][01]{0,4}[b-]?", fullmatch=True)), max_size=12))
def test_folded_is_as_clustershell_expands_it(nodes: list[str]) -> None:
    folded = nodefold.fold(nodes)
    assert sorted(map(str, NodeSet(folded, resolver=RESOLVER_NOGROUP))) == sorted(set(nodes))
    parts = re.sub(r"\[[^]]*\]", "[]", folded).split(",")
    assert len(set(parts)) == len(parts) and all(part.count("[") < 2 for part in parts)


@given(st.lists(NAMES, max_size=30))
def test_folded_and_expanded_are_the_same_nodes(nodes: list[str]) -> None:
    assert set(nodeset.expand(nodefold.fold(nodes))) == set(nodes)
