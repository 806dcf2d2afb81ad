"""The table of causes: every row is complete, and no second table of them stands anywhere."""

from __future__ import annotations

import re
from pathlib import Path

from safelaunch.nodehealth.ledger import KINDS
from safelaunch.why.categories import NAMES, TABLE, advice
from safelaunch.why.causes import program, surroundings
from safelaunch.why.causes.category import ADVICE, POLICY_WORDS, Category
from tests.tables import each

ROOT = Path(__file__).parents[3]


@each(("name", "row"), [(name, TABLE[name]) for name in NAMES], ids=NAMES)
def test_every_category_says_what_follows_and_why(name: str, row: Category) -> None:
    assert row.action in ADVICE and row.then in POLICY_WORDS and row.because
    assert row.budget is None or row.budget > 0
    assert row.blame is None or set(row.blame) <= set(KINDS)
    assert row.to_do or row.then in ("continue", "stop"), "nobody says what a person does about it"


def test_every_category_has_a_help_page_and_no_row_hides_another() -> None:
    assert all(row.page.title and row.page.means and row.page.then for row in TABLE.values())
    assert len(TABLE) == len(surroundings.ROWS) + len(program.ROWS)


def test_a_category_of_another_version_is_restarted() -> None:
    assert advice("of_tomorrow") == "restart" == advice("unknown")


def test_the_policys_words_are_documented() -> None:
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \|$", (ROOT / "docs" / "policy.md").read_text(), re.MULTILINE)
    assert rows == list(POLICY_WORDS)


def test_the_actions_are_documented() -> None:
    row = re.search(r"^\| `action` \| (`.*) \|$", (ROOT / "docs" / "why.md").read_text(), re.MULTILINE)
    assert row is not None and re.findall(r"`(\w+)`", row[1]) == list(ADVICE)
