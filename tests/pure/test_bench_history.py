"""The history of `make bench-quick`: what is said of its last rows, and that rows and documents are whole."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks import history, quick
from benchmarks.history import (
    DOCS,
    FIGURES,
    MOST_COMMITS,
    Measured,
    Row,
    find_old,
    find_worse,
    parse_rows,
    render_block,
    render_row,
    replace_block,
)

from tests.tables import each


def row(commit: str = "aaaaaaa", cores: int = 2, slurm: str = "22.05.8", dirty: bool = False,
        **ratios: float) -> Row:
    figures = {name: Measured(ratio, ratio * 0.5, 0.5, "s", 9) for name, ratio in (ratios or {"restart": 2.0}).items()}
    return Row(commit, dirty, "2026-11-22T20:00:00+0000", cores, (0.5, 1.5), slurm, "3.11.2", "6.1", 200.0, figures)


@each(
    ("rows", "names"),
    [
        ([], []),
        ([row(restart=9.0)], []),
        ([row(restart=2.0), row(restart=2.4)], []),
        ([row(restart=2.0), row(restart=2.41)], ["restart"]),
        ([row(restart=3.0), row(restart=2.0)], []),
        ([row(restart=2.0, why=1.0), row(restart=3.0, why=1.3)], ["restart", "why"]),
        ([row(restart=2.0), row(restart=9.0, cores=64)], []),
        ([row(restart=2.0), row(restart=9.0, slurm="24.11.5")], []),
        ([row(restart=2.0), row(restart=9.0, slurm="22.05.9")], ["restart"]),
        ([row(restart=2.0), row(restart=1.0, cores=64), row(restart=3.0)], ["restart"]),
        ([row(restart=2.0), row(why=1.0), row(restart=3.0, why=1.0)], ["restart"]),
        ([row(restart=1.0), row(restart=3.0), row(restart=3.0)], []),
    ],
    ids=["no row", "one row", "a fifth more", "over a fifth more", "less", "two figures", "another machine",
         "another release of Slurm", "the same release", "machines in turns", "a figure that was left out",
         "as before"],
)
def test_ratio_that_is_over_a_fifth_worse_than_before_is_named(rows: list[Row], names: list[str]) -> None:
    assert [said.partition(":")[0] for said in find_worse(rows)] == names


def test_warning_names_the_figure_its_peer_both_ratios_both_commits_and_both_loads() -> None:
    before, after = row("1234567", restart=2.0), replace(row("89abcde", dirty=True, restart=3.0), load=(7.5, 8.0))
    assert find_worse([before, after]) == [
        "restart: 3.00 × a bash loop around srun at 89abcde+changes (load 7.5), 2.00 × at 1234567 (load 0.5): 50% more"]


@each(
    ("rows", "commits", "word"),
    [([], None, "empty"), ([row()], None, "no commit"), ([row()], MOST_COMMITS + 1, f"{MOST_COMMITS + 1} commits"),
     ([row()], MOST_COMMITS, ""), ([row()], 0, "")],
    ids=["no row", "an unknown commit", "too many commits", "as many as may be", "none"],
)
def test_history_that_has_fallen_behind_the_product_is_named(rows: list[Row], commits: int | None, word: str) -> None:
    said = find_old(rows, commits)
    assert [word in one for one in said] == ([True] if word else [])


def test_row_is_read_as_it_was_written() -> None:
    rows = (row("1234567", restart=2.5, why=0.05), row("89abcde", dirty=True))
    assert parse_rows("".join(map(render_row, rows))) == rows


@each("torn", ["{", "[]", "{}", '{"commit": "1", "figures": {"restart": 3}}'])
def test_line_that_is_no_row_is_named_with_its_number(torn: str) -> None:
    with pytest.raises(ValueError, match=r"history\.jsonl:2: no row"):
        parse_rows(render_row(row()) + torn + "\n")


def test_block_takes_the_place_of_the_one_before_and_touches_nothing_else() -> None:
    old, new = render_block(row("1234567")), render_block(row("89abcde"))
    assert replace_block(f"# A\n\n{old}\n\nrest\n", new) == f"# A\n\n{new}\n\nrest\n"
    with pytest.raises(ValueError, match="no block between"):
        replace_block("# A\n", new)


def test_quick_run_measures_all_figures() -> None:
    assert list(quick.MEASURES) == list(FIGURES)


def test_ratios_are_of_ours_by_the_peers() -> None:
    assert quick.by_medians([3.0, 1.0, 2.0], [1.0, 1.0, 5.0], "s") == Measured(2.0, 2.0, 1.0, "s", 3)
    assert quick.by_pairs([1.0, 4.0, 9.0], [1.0, 2.0, 3.0], "ms") == Measured(2.0, 4.0, 2.0, "ms", 3)


def test_each_row_of_the_repository_has_all_figures() -> None:
    for one in history.read_rows():
        assert list(one.figures) == list(FIGURES), one.commit
        assert all(figure.ratio > 0 and figure.n > 0 for figure in one.figures.values()), one.commit


def test_benchmarks_page_shows_the_last_row() -> None:
    rows = history.read_rows()
    assert not rows or render_block(rows[-1]) in DOCS.read_text(), "python -m benchmarks.history --docs"
