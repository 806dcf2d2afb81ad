"""safelaunch help: verbs, pages of the documents, man pages."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest

from safelaunch.cli import ALIASES, VERBS, run
from safelaunch.verbs.common import talk
from safelaunch.verbs.help import help as pages
from safelaunch.verbs.help import helpsearch
from tests.tables import each

DOCS = Path(__file__).parents[2] / "docs"


def test_a_page_comes_as_it_is_through_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "hangs"]) == 0
    assert capsys.readouterr().out == (DOCS / "hangs.md").read_text()


def test_a_page_is_laid_out_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(talk, "is_for_person", lambda: True)
    assert run(["help", "--page", "hangs"]) == 0
    shown = capsys.readouterr().out
    assert "Silence only starts a hang check" in shown and "| the silence is in |" not in shown


def test_a_verb_says_what_it_takes_and_where_its_page_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "why"]) == 0
    shown = capsys.readouterr().out
    assert "Usage: safelaunch why" in shown and shown.endswith("safelaunch help --page why\n")
    assert run(["help", "wait"]) == 0 and "page" not in capsys.readouterr().out


def test_every_page_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "--pages"]) == 0
    assert capsys.readouterr().out.split() == sorted(path.stem for path in DOCS.glob("*.md"))


# What people ask, in their own words → one of the places that answers it, among the first five.
ASKED = [
    ("hang", "page hangs"), ("restart", "key restart.max_restarts"), ("max_restarts", "key restart.max_restarts"),
    ("ls", "verb status"), ("cancel", "verb stop"), ("kill", "verb stop"), ("tail", "verb logs"),
    ("e-mail", "verb notify"), ("email", "verb notify"), ("walltime", "page howto"),
    ("retry", "key restart.max_restarts"),
    ("retries", "key restart.max_restarts"), ("elastic", "key min_nodes"), ("straggler", "page slow"),
    ("telemetry", "page howto"), ("conda modules", "key setup"), ("salloc", "page howto"),
    ("wandb", "page trackers"), ("docker", "key container.image"), ("exclude a node", "key suspects.exclude"),
    ("array job", "page sweeps"), ("disk space", "message storage"), ("exit codes", "verb wait"),
    ("NCCL start", "page howto"), ("ImportError", "message env.cannot_import"),
    ("uninstall", "page howto"), ("delete old runs", "verb clean"), ("phone home", "page howto"),
    ("upgrade", "page howto"),
    ("resume from a given step", "key resume.step"), ("bound of hours", "page howto"), ("restart now", "verb restart"),
    ("my job keeps restarting", "page howto"), ("run on a different partition", "verb change"),
    ("how do I disable automatic restarts", "key restart.max_restarts"), ("skip broken node", "page howto"),
    ("attach debugger to rank", "verb stacks"), ("multiple runs share same checkpoint directory", "key resume.shared"),
    ("keep the node for debugging after crash", "key preserve_site.for"), ("resume after time limit", "page howto"),
    ("job_submit", "page administrators"), ("pending", "page howto"), ("slack", "verb notify"),
    ("text me when it has finished", "verb notify"), ("hyperparameter grid", "key sweep"),
    ("black list worker nodes", "page nodes"), ("Is there a maximum of times it is re-queued", "page howto"),
    ("throughput dropped overnight", "page slow"), ("re-runnable with modified params", "verb restart"),
    ("exit status 11", "page verbs"), ("which log is the real failure", "verb why"),
    ("mail-user", "key notify.smtp"), ("trust a node again", "verb nodes"),
]


@each(("asked", "place"), ASKED, called=lambda row: row[0])
def test_what_people_ask_is_found_in_their_own_words(asked: str, place: str) -> None:
    found = helpsearch.search(pages.entries(VERBS), asked.split())
    assert place in [f"{one.kind} {one.name}" for one in found[:5]]


@each(("asked", "answer"), [
    ("how to see gpu memory usage", "stacks RUN --gpus"), ("train without internet", "no telemetry"),
    ("change learning rate between restarts", "safelaunch restart RUN"), ("job stuck in queue", "why a job waits"),
    ("start from scratch ignore checkpoints", "resume.dir=ckpt2"), ("slow network between nodes", "nodes bench"),
    ("which checkpoint will be loaded", "checkpoints RUN"),
], called=lambda row: row[0])
def test_the_first_place_of_a_question_shows_its_answer_not_its_heading_alone(asked: str, answer: str) -> None:
    first = helpsearch.search(pages.entries(VERBS), asked.split())[0]
    assert answer in helpsearch.shown(first, asked.split())


def test_places_are_shown_with_their_heading_and_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "max_restarts", "budget"]) == 0
    shown = capsys.readouterr().out
    assert "key     restart.max_restarts\n        Restarts in all before the run gives up. (default: 30)\n" in shown
    assert "page    " in shown and " › " in shown and "safelaunch help PAGE" in shown


def test_what_is_nowhere_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "xyzzyq"]) == 2
    assert "no verb, page, key or message about 'xyzzyq'" in capsys.readouterr().err


@each(("typed", "meant"), [("ls", "status"), ("list", "status"), ("cancel", "stop"), ("kill", "stop"), ("tail", "logs"),
                           ("sbatch", "submit"), ("ssh", "shell"), ("statsu", "status")])
def test_another_programs_name_for_a_verb_is_understood(typed: str, meant: str) -> None:
    with contextlib.redirect_stderr(io.StringIO()) as said:
        assert run([typed]) == 2
    assert f"Did you mean '{meant}'?" in said.getvalue()


def test_every_other_name_of_a_verb_is_no_verb_itself() -> None:
    assert not ALIASES.keys() & VERBS.keys()


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
    assert run(["help", "--page", "hangs"]) == 2
    assert run(["help", "hangs"]) == 0 and "key     hang.no_progress" in capsys.readouterr().out


def test_every_verb_has_a_man_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "share" / "man1"
    assert run(["help", "--man", str(folder)]) == 0
    assert "man finds them if MANPATH has" in capsys.readouterr().err
    written = {path.name for path in folder.iterdir()}
    assert {"safelaunch.1", *(f"safelaunch-{verb}.1" for verb in VERBS)} <= written
    page = (folder / "safelaunch-logs.1").read_text()
    assert "--first\\-error" in page.replace("\\-\\-", "--") and ".SH NAME" in page
    assert run(["help", "--man", str(tmp_path / "man")]) == 0 and (tmp_path / "man/man1/safelaunch.1").exists()
    assert f"MANPATH has {tmp_path / 'man'}\n" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert run(["help", "--man", str(tmp_path / "file")]) == 2
