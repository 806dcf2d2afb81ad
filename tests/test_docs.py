"""The documents say what the code does: tables in docs/ against the tables and literals of src/."""

from __future__ import annotations

import ast
import hashlib
import re
import stat
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from safelaunch.cli import VERBS
from safelaunch.run.acts import ACTS
from safelaunch.run.fold.folding import _STEPS
from safelaunch.slurm.sbatchoptions import REFUSED
from safelaunch.verbs.common.eventwords import SENTENCES
from tests import promtext
from tests.house.source import modules, text_of
from tests.localruns import SubmitLocal
from tests.tables import each

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src" / "safelaunch"
README = (ROOT / "README.md").read_text()
RUN_FOLDER = "".join((ROOT / "docs" / name).read_text() for name in ("run-folder.md", "protocol.md"))

# Where the kind is not a literal: (module, expression) → what it can be.
COMPUTED = {("supervisor/ends/endings.py", "action.how"): ("completed", "gave_up", "stopped"),
            ("supervisor/observe.py", "event"): ("kill_switch", "request"),
            ("supervisor/nodes/slowing.py", "event"): ("slower", "slower_over"),
            ("supervisor/state/journal.py", "event"): ()}   # passed on


def table(head: str) -> list[list[str]]:
    """Cells of the rows of the table with this head."""
    rows = RUN_FOLDER.partition(f"{head}\n")[2].partition("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def names(cell: str) -> tuple[str, ...]:
    """The words in backticks."""
    return tuple(re.findall("`([^`]+)`", cell))


EVENTS = {names(row[0])[0]: set(names(row[1])) for row in table("| event | fields | what it says |")}
FILES = {names(row[0])[0]: row[1] for row in table("| file | mode | who writes it | when |")}


SHELL_WRITES = {"ended_alone"}   # by templates/slurm


@cache
def written() -> tuple[tuple[str, str, frozenset[str]], ...]:
    """(module, kind, fields) of every event that src/ writes."""
    return tuple(_written())


def _written() -> Iterator[tuple[str, str, frozenset[str]]]:
    for module in modules():
        kinds = ("writer.event", "journal.event", "NewEvent(")
        calls = module.all(ast.Call) if any(kind in module.text for kind in kinds) else ()
        for node in calls:   # 3 s for all files
            made = ast.unparse(node.func)
            if made == "NewEvent" and isinstance(node.args[0], ast.Constant):
                keys = node.args[1].keys if isinstance(node.args[1], ast.Dict) else []
                yield module.path, str(node.args[0].value), frozenset(text_of(key) for key in keys if key is not None)
            elif made.endswith(("writer.event", "journal.event")):
                kind = node.args[0]
                fields = frozenset(keyword.arg for keyword in node.keywords if keyword.arg)
                if isinstance(kind, ast.Constant):
                    yield module.path, str(kind.value), fields
                else:
                    for one in COMPUTED[module.path, ast.unparse(kind)]:
                        yield module.path, one, fields


def test_every_event_that_is_written_is_documented_with_its_fields() -> None:
    assert written()
    assert not [(module, kind, fields) for module, kind, fields in written() if not fields <= EVENTS.get(kind, set())]
    assert {kind for _, kind, _ in written()} <= set(EVENTS)


def test_no_event_is_documented_that_nothing_writes_or_that_nobody_can_read() -> None:
    assert set(EVENTS) == {kind for _, kind, _ in written()} | SHELL_WRITES
    assert set(EVENTS) <= set(SENTENCES)
    assert set(_STEPS) <= set(SENTENCES)


def test_events_that_only_readers_know_are_called_reserved() -> None:
    sentence = RUN_FOLDER.partition("are reserved")[0].rpartition(". ")[2]
    assert set(SENTENCES) - set(EVENTS) == set(names(sentence))


def test_every_act_that_is_announced_is_documented() -> None:
    assert set(ACTS) == set(names(RUN_FOLDER.partition("\nActs: ")[2].partition(". ")[0]))


def keys_of(module: str, *markers: str) -> set[str]:
    """Keys of the one literal of a module that has these keys."""
    found = [{str(key.value) for key in node.keys if isinstance(key, ast.Constant)}
             for node in ast.walk(ast.parse((SRC / module).read_text())) if isinstance(node, ast.Dict)]
    (keys,) = [keys for keys in found if set(markers) <= keys]
    return keys


def test_what_is_known_of_an_attempt_at_its_start_is_documented() -> None:
    assert keys_of("supervisor/attempt/attempts.py", "resume_path") <= EVENTS["attempt_started"]


@pytest.mark.parametrize(
    ("heading", "module", "marker"),
    [
        ("## The journal", "run/journal.py", "seq"),
        ("### `claims/<n>`", "run/io/journal.py", "action pid"),
        ("### `run.json`", "verbs/submit/submitting.py", "origins"),
        ("### `pulse.json`", "run/heartbeat.py", "guards"),
        ("### `attempts/<n>/record.json`", "supervisor/leader.py", "endpoint"),
        ("### `attempts/<n>/exit.json`", "decide/ends/closing.py", "srun_code"),
    ],
    ids=lambda text: text.strip("# ") if text.startswith("#") else None,
)
def test_every_key_of_a_file_is_documented(heading: str, module: str, marker: str) -> None:
    section = RUN_FOLDER.partition(f"{heading}\n")[2]
    rows = section.partition("| key | value |\n")[2].partition("\n\n")[0].splitlines()[1:]
    assert {name for row in rows for name in names(row.split("|")[1])} == {
        key for one in marker.split() for key in keys_of(module, one, *(() if " " in marker else ("v",)))}


def test_only_files_of_the_table_are_explained() -> None:
    assert set(re.findall("^### `([^`]+)`$", RUN_FOLDER, re.MULTILINE)) <= set(FILES)


def test_a_run_leaves_the_files_that_are_documented_with_their_modes(submit_local: SubmitLocal) -> None:
    # Whatever state this machine is in: a check that fails is only reported.
    run = submit_local("--steps 12 --step-time 0.01 --die-at 8", "checks.boot=true", "checks.on_bad_node=report",
                       "launch.logs=both")
    assert run.wait_end().how == "completed"
    patterns = {re.compile(re.sub("<[a-z]+>", "[^/]+", name.replace(".", r"\."))): name for name in FILES}
    seen = set()
    for path in (path for path in run.run_dir.rglob("*") if path.is_file()):
        relative = path.relative_to(run.run_dir).as_posix()
        (name,) = [name for pattern, name in patterns.items() if pattern.fullmatch(relative)] or [f"no row: {relative}"]
        seen.add(name)
        if FILES[name] != "umask":
            assert f"{stat.S_IMODE(path.stat().st_mode):04o}" == FILES[name], relative
    theirs = {name for name in FILES if name.startswith(("control/", "attempts/<n>/stacks/", "attempts/<n>/system/"))}
    rare = {"later-jobs.json", "slurm-<job>.out", "slurm-<job>.standby-<host>.out", "git.json",
            "attempts/<n>/checks-after.json"}   # needs a spare that takes the place of a suspect
    assert seen >= set(FILES) - theirs - rare
    ends = promtext.parse((run.run_dir / "metrics.prom").read_text())["safelaunch_run_state"]
    assert {dict(labels)["state"] for labels, value in ends.items() if value} == {"completed"}


def test_every_verb_has_a_section_and_is_in_the_table_of_verbs() -> None:
    page = (ROOT / "docs" / "verbs.md").read_text()
    heads = re.findall(r"[`, ]([a-z]+)\b", "\n".join(re.findall("^## (`.*)$", page, re.MULTILINE)))
    table = names(page.partition("| for | verbs |")[2].partition("\n\n")[0])
    assert set(VERBS) - set(heads) == set()
    assert sorted(table) == sorted([*VERBS, "help"])


def test_readme_says_how_many_options_of_sbatch_are_refused() -> None:
    assert f"(the [{len(REFUSED)}](docs/train-yaml.md#slurm) that safelaunch sets itself are refused" in README


def test_each_promise_on_security_names_a_test_that_is_there() -> None:
    named = re.findall(r"`(tests/[a-z_/]+\.py)::(test_\w+)`", (ROOT / "docs" / "security.md").read_text())
    assert named and [f"{file}::{test}" for file, test in named
                      if f"\ndef {test}(" not in (ROOT / file).read_text()] == []


def test_each_drawing_is_drawn_from_its_source_and_shown_on_a_page() -> None:
    pages = "".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    sources = sorted((ROOT / "docs" / "drawings").glob("*.dot"))
    assert sources and "```mermaid" not in pages
    for source in sources:
        drawn = (ROOT / "docs" / "images" / f"{source.stem}.svg").read_text()
        assert hashlib.sha256(source.read_bytes()).hexdigest() in drawn.partition("\n")[0], f"{source}: make drawings"
        assert f"](images/{source.stem}.svg)" in pages


CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
WHERE = (ROOT / "docs" / "where.md").read_text()
NAMED = sorted({name for name in names(re.sub("(?s)```.*?```", "", CONTRIBUTING) + WHERE)
                if re.fullmatch(r"[\w./-]+(?:/|\.(?:py|md|sbatch|toml|txt))(?:::\w+)?", name)} - {"control/"})


def place(path: str) -> Path:
    """Where a path of CONTRIBUTING.md or docs/where.md is: below the checkout, or below src/safelaunch."""
    return ROOT / path if (ROOT / path).exists() else SRC / path


def defined(path: Path) -> set[str]:
    """The names that a module's own statements define."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


@each("named", NAMED)
def test_where_one_changes_what_is_where_the_page_says(named: str) -> None:
    path, _, symbol = named.partition("::")
    assert place(path).exists()
    assert not symbol or symbol in defined(place(path))


def test_each_row_of_where_to_change_what_begins_at_a_place_that_is_checked() -> None:
    rows = WHERE.partition("| you want | begin at | then |\n")[2].splitlines()[1:]
    begins = {row.split("|")[2].strip(): [name for name in names(row) if name in NAMED] for row in rows}
    assert len(begins) == len(rows) >= 16 and all(begins.values()), begins


def test_contributing_draws_the_layers_of_the_contract() -> None:
    contract = (ROOT / "pyproject.toml").read_text().partition("\nlayers = [")[2].partition("]")[0]
    layers = [layer.replace("safelaunch.", "").replace(" : ", ", ") for layer in re.findall('"([^"]+)"', contract)]
    assert f"`{' > '.join(layers)}`" in CONTRIBUTING


TARGETS = dict(re.findall(r"^([a-z-]+):[^#\n]*(?:## (.*))?$", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("file", [
    "README.md", "CONTRIBUTING.md", "docs/developing.md", ".ci/run", ".pre-commit-config.yaml",
    ".github/workflows/ci.yml", ".github/pull_request_template.md"])
def test_each_target_of_make_that_is_named_is_there_and_make_help_tells_of_it(file: str) -> None:
    named = re.findall("(?m)(?:^|`|exec |run: |entry: )make (?:--[a-z-]+ )?([a-z-]+)", (ROOT / file).read_text())
    assert named
    assert [target for target in named if not TARGETS.get(target)] == []
