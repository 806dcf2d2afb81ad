"""safelaunch help: verbs, pages of the documents, man pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from safelaunch.cli import VERBS, run
from safelaunch.commands import help as pages
from safelaunch.views import talk

DOCS = Path(__file__).parents[2] / "docs"


def test_a_page_comes_as_it_is_through_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "hangs"]) == 0
    assert capsys.readouterr().out == (DOCS / "hangs.md").read_text()


def test_a_page_is_laid_out_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(talk, "is_for_person", lambda: True)
    assert run(["help", "--page", "hangs"]) == 0
    shown = capsys.readouterr().out
    assert "A training that hangs prints nothing" in shown and "| the silence is in |" not in shown


def test_a_verb_says_what_it_takes_and_where_its_page_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "why"]) == 0
    shown = capsys.readouterr().out
    assert "Usage: safelaunch why" in shown and shown.endswith("safelaunch help --page why\n")
    assert run(["help", "wait"]) == 0 and "page" not in capsys.readouterr().out


def test_every_page_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "--pages"]) == 0
    assert capsys.readouterr().out.split() == sorted(path.stem for path in DOCS.glob("*.md"))


def test_a_word_that_is_neither_gets_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "hang"]) == 2
    assert "no verb or page 'hang'. Did you mean 'hangs'?" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["--help", "-h", "help"])
def test_help_about_help_is_the_list_of_verbs(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", word]) == 0 and "safelaunch help --pages" in capsys.readouterr().out


def test_a_verb_without_a_page_is_no_guess_for_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "--page", "status"]) == 2
    assert "no page 'status'" in (said := capsys.readouterr().err) and "Did you mean 'status'" not in said


def test_where_no_documents_are_installed_verbs_still_have_their_help(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "FOLDERS", ())
    assert run(["help", "why"]) == 0 and "Usage: safelaunch why" in capsys.readouterr().out
    assert run(["help", "hangs"]) == 2


def test_every_verb_has_a_man_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "share" / "man1"
    assert run(["help", "--man", str(folder)]) == 0
    assert "man finds them if MANPATH has" in capsys.readouterr().err
    written = {path.name for path in folder.iterdir()}
    assert {"safelaunch.1", *(f"safelaunch-{verb}.1" for verb in VERBS)} <= written
    page = (folder / "safelaunch-logs.1").read_text()
    assert "--first\\-error" in page.replace("\\-\\-", "--") and ".SH NAME" in page
    (tmp_path / "file").write_text("")
    assert run(["help", "--man", str(tmp_path / "file")]) == 2
