"""A part of a run that refuses to be read costs its row, not the verb."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from safelaunch.config.keys import NAME_PATTERN
from safelaunch.errors import RunFolderError
from safelaunch.run.io import runfolder
from tests.handmade import YAML, Made, make_run
from tests.io.nodehealth.test_ledger import ALICE, BOB, as_user, needs_root
from tests.verbs.test_foreign_links import give, place, type_verb

__all__ = ["place"]
VERBS: tuple[tuple[str, ...], ...] = (
    ("status",), ("why",), ("events",), ("report", "-o", "-"), ("report", "--json"), ("checkpoints",), ("logs",),
    ("metrics",))
FOLDERS = ("attempts", "attempts/0001", "attempts/0002", "attempts/0002/stacks", "attempts/0002/stacks/2026",
           "attempts/0002/system", "claims", "control", "checkpoints")
FILES = ("attempts/0002/main.log", "attempts/0002/exit.json", "attempts/0002/verdict.json", "pulse.json", "job.sbatch",
         "attempts/0002/stacks/2026/verdict.json", "attempts/0002/system/n0.log", "attempts/0002/system/cores.json")


def a_whole_run(folder: Path) -> Made:
    """A run of two failed attempts with all that can lie in its folder."""
    made = make_run(folder, YAML + f"resume: {{dir: {folder}/checkpoints, by: training}}\n", "1a2b3c4d",
                    cluster="local")
    made.running()
    made.failed(category="unknown")
    made.attempt(2)
    made.failed(2, category="unknown")
    made.event("gave_up", exit_code=1, why="two failures", gen=2)
    for name in FOLDERS:
        (made.dir / name).mkdir(parents=True, exist_ok=True)
    for name in FILES:
        (made.dir / name).write_text("{}")
    made.log(1, b"Traceback\nValueError: first\n")
    made.log(2, b"ValueError: second\n")
    give(folder, ALICE)
    return made


def type_all(folder: Path) -> list[tuple[int, str]]:
    """Of each verb its exit code and what it says; 71 and the exception where it ends by one."""
    said = []
    for verb, *more in VERBS:
        try:
            said.append(type_verb(verb, str(folder), *more))
        except Exception as error:   # noqa: BLE001 - the others are tried too
            said.append((71, repr(error)))
    return said


@needs_root
def test_all_but_the_closed_part_is_shown(place: Path) -> None:
    made = a_whole_run(place / "alice" / "mine")
    for words in VERBS:   # here, so that the children below need not import all of it
        assert type_verb(words[0], str(made.dir), *words[1:])[0] in (0, 1)
    wrong = []
    for name in (*FOLDERS, *FILES, "journal/000002-n0-1.jsonl"):
        path = made.dir / name
        mode = path.stat().st_mode
        path.chmod(0)
        answer = as_user(BOB, partial(type_all, made.dir))   # one child for all verbs: most of a verb is the fork
        assert answer.value is not None, (name, answer)
        for words, (code, said) in zip(VERBS, answer.value, strict=True):
            is_said = "Permission denied" in said or (name, words[0]) not in SAID
            if ((name, words[0]) not in WHOLE and code not in (0, 1)) or not is_said:
                wrong.append((name, words[0], code, said[:300]))
        path.chmod(mode)
    assert not wrong


# What the verb is about: without it, it says why it has nothing to show.
WHOLE = {("checkpoints", "checkpoints")}
# Where nothing else would show that something is missing.
SAID = {("attempts/0002", "report"), ("attempts/0002", "why"), ("attempts/0002/stacks", "report"),
        ("attempts/0002/stacks", "why"), ("attempts/0002/main.log", "why"),
        ("attempts/0002/main.log", "logs"), ("journal/000002-n0-1.jsonl", "events"),
        ("journal/000002-n0-1.jsonl", "status"), ("journal/000002-n0-1.jsonl", "report")}


@needs_root
def test_a_number_of_300_digits_in_a_journal_ends_no_verb(place: Path) -> None:
    made = a_whole_run(place / "alice" / "mine")
    made.attempt(int("1" * 300))
    made.failed(int("1" * 300), category="hang")
    for words in VERBS:
        answer = as_user(BOB, partial(type_verb, words[0], str(made.dir), *words[1:])).value
        assert answer is not None and answer[0] in (0, 1), (words, answer)


@pytest.mark.parametrize("key", ["name", "run_id"])
@pytest.mark.parametrize("value", ["../../pub/own", "/tmp/own", "..", ".", "", "a/b", "a\nb", "-o", 3, None, ["a"]])
def test_a_name_that_is_none_is_refused_when_a_run_is_loaded(key: str, value: object, tmp_path: Path) -> None:
    made = make_run(tmp_path / "run")
    meta = json.loads((made.dir / "run.json").read_text())
    (meta if key == "run_id" else meta["config"])[key] = value
    (made.dir / "run.json").write_text(json.dumps(meta))
    with pytest.raises(RunFolderError, match=r"run\.json cannot be read"):
        runfolder.load(made.dir)


def test_what_counts_as_a_name_is_what_train_yaml_takes() -> None:
    assert runfolder._NAME.pattern == NAME_PATTERN
