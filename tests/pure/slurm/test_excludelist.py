"""Exclude lists without the names that Slurm does not know."""

from __future__ import annotations

from safelaunch.slurm.excludelist import ExcludeList, unknown_names
from tests.tables import each

THERE = ("n0", "n1", "n2")


@each(("names", "there", "unknown"), [
    (("n1", "old7", "n2", "old3", "old7"), THERE, ("old7", "old3")), (("n0",), THERE, ()),
    (("old7",), None, ()), (("old7",), (), ()),
], ids=["each once, in their order", "all are there", "Slurm says nothing", "an empty answer says nothing"])
def test_names_that_slurm_does_not_know(names: tuple[str, ...], there: tuple[str, ...] | None,
                                        unknown: tuple[str, ...]) -> None:
    assert unknown_names(names, there) == unknown


def test_list_holds_the_users_own_nodes_and_no_name_that_has_gone() -> None:
    asked = ExcludeList(("n2", "old3"))
    assert asked.text(("n0", "old7")) == "n[0,2],old[3,7]"
    gone = asked.gone(("n0", "old7"), THERE)
    assert gone == ("old7", "old3")
    assert asked.without(gone).text(("n0", "old7")) == "n[0,2]"
    assert asked.without(gone).gone(("n0", "old7"), THERE) == ()


def test_nodes_that_the_user_asks_for_stand_in_no_list_of_ours() -> None:
    asked = ExcludeList.of((("nodelist", "n[0-1]"), ("exclude", "n7")))
    assert asked.text(("n0", "n2")) == "n[2,7]" and asked.options(("n1",)) == []
    assert asked.is_in(("n0", "n2"), ("n2", "n7")) and not asked.is_in(("n2",), ("n7",))


def test_job_scripts_own_list_is_replaced_only_where_it_would_not_do() -> None:
    asked = ExcludeList(("old3",))
    assert asked.options(()) == []
    assert asked.options(("n0",)) == ["--exclude=n0,old3"]
    assert asked.without(("old3",)).options(()) == ["--exclude="]
    assert asked.without(("old7",)).options(()) == []
