"""The table of launchers, held to the words of node code and template, which import nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from safelaunch.launch.launchers import (
    CUSTOM,
    LAUNCHERS,
    Launcher,
    default_launcher,
    fill_args,
    find_launcher,
    owned_flag,
)
from safelaunch.node.guard.processes import is_launcher
from safelaunch.node.proctable import Process, may_be_rank
from tests.pure.why.judged import judge_text
from tests.tables import each

SRC = Path(__file__).parents[3] / "src" / "safelaunch"
FRAGMENTS = SRC / "templates" / "slurm" / "launch"
STARTERS = {name: row for name, row in LAUNCHERS.items() if row.starts_ranks}




def lines_of(row: Launcher) -> list[list[str]]:
    """Command lines of its own processes."""
    return [*(["/venv/bin/python", f"/venv/bin/{name}", "train.py"] for name in row.programs),
            *(["python", "-m", name, "train.py"] for name in row.modules)]


@each("row", LAUNCHERS.values(), ids=LAUNCHERS)
def test_every_launcher_says_what_it_does(row: Launcher) -> None:
    assert row.doc and row.label
    assert bool(row.programs) == row.starts_ranks or row is LAUNCHERS[CUSTOM]
    assert not (row.starts_ranks and row.fills_gpus)


@each(("has_nproc", "is_wide", "name"), [
    (True, True, "torchrun"), (True, False, "torchrun"), (False, True, "srun"), (False, False, "none")])
def test_a_config_that_names_none_gets_the_one_that_fits(has_nproc: bool, is_wide: bool, name: str) -> None:
    assert default_launcher(has_nproc, is_wide) == name and name in LAUNCHERS


@each("name", [name for name, row in LAUNCHERS.items() if not row.is_script])
def test_a_launcher_has_its_fragment_of_the_script(name: str) -> None:
    function = "sl_start_ranks" if name in STARTERS else "sl_task"
    assert f"{function}() {{" in (FRAGMENTS / f"{name}.sh").read_text()


@each("row", STARTERS.values(), ids=STARTERS)
def test_a_launchers_own_process_is_no_rank_and_takes_no_word_for_the_training(row: Launcher) -> None:
    for words in lines_of(row):
        assert is_launcher([word.encode() for word in words]), words
        assert not may_be_rank(process(words)), words
    assert may_be_rank(process(["python", "train.py"]))


@each("words", [
    ["/venv/bin/python", "-I", "-S", "/tmp/x/lib/safelaunch/injob.py", "lead", "/runs/a", "/tmp/x", "leader"],
    ["python3", "-I", "-S", "-c", "…; from safelaunch.loop import main; main(sys.argv[2:])"],   # before 0.2
    ["python3", "-I", "-S", "/tmp/x/lib/safelaunch/node/pump.py", "--spool", "x"]], ids=["now", "old", "pump"])
def test_a_supervisor_is_no_rank(words: list[str]) -> None:
    assert not may_be_rank(process(words))


@pytest.mark.parametrize(("program", "words"), [
    ("mylaunch", ["/venv/bin/python", "/venv/bin/mylaunch", "--nodes", "2"]),
    ("my.launch", ["python3", "-m", "my.launch"])])
def test_a_launcher_of_launch_call_is_told_from_its_ranks_by_its_name(program: str, words: list[str],
                                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAFELAUNCH_PROGRAM", program)   # set by the job script
    assert is_launcher([word.encode() for word in words])
    assert not is_launcher([b"python3", b"train.py"])


def test_the_words_of_a_call_take_the_arguments_at_their_place() -> None:
    assert fill_args(["x", "{args}", "--"], ["-a", "b"]) == ("x", "-a", "b", "--")
    assert fill_args(["x"], ["-a"]) == ("x", "-a") and fill_args(["x", "{args}", "y", "{args}"], []) == ("x", "y")


def test_of_rays_processes_its_workers_alone_are_ranks() -> None:
    site = "/venv/lib/python3.11/site-packages/ray"
    for words in (["/venv/bin/python3", "/venv/bin/ray", "start", "--head"], ["ray::IDLE"],
                  ["python3", "-u", f"{site}/_private/log_monitor.py"], ["python3", f"{site}/dashboard/agent.py"]):
        assert not may_be_rank(process(words)), words
    for words in (["ray::Worker.step"], ["python3", "train.py"], ["python3", "/home/ray/train.py"]):
        assert may_be_rank(process(words)), words


def process(words: list[str]) -> Process:
    made = Process(1, 0, "S", "python", 0, 0)
    made.words = words
    return made


@each("name", [name for name, row in LAUNCHERS.items() if row.valued])
def test_a_command_line_shows_its_launcher(name: str) -> None:
    row = LAUNCHERS[name]
    for words in (*([one] for one in row.programs), *(["python", "-m", one] for one in row.modules)):
        assert find_launcher([*words, "--nnodes", "2"]) == (name, ["--nnodes", "2"])
    assert find_launcher(["python", "train.py"]) is None and find_launcher([]) is None


def test_options_that_safelaunch_sets_are_known_in_both_spellings_and_words_and_values_are_none() -> None:
    torchrun = LAUNCHERS["torchrun"]
    for word in ("--nproc-per-node=2", "--nproc_per_node", "--master_addr", "-m"):
        assert owned_flag(torchrun, word), word
    for word in ("--max-restarts=3", "nnodes", "--rdzv_conf", "timeout=60"):
        assert not owned_flag(torchrun, word), word


def test_a_kind_of_mpi_that_slurm_does_not_know_is_a_mistake_of_the_config() -> None:
    # Slurm 22.05, srun --mpi=pmix where the site has no PMIx library.
    said = judge_text("srun: error:  mpi/pmix_v4: init: (null) [0]: pmi/pmix: can not load PMIx library\n"
                      "srun: error: MPI: Unable to load any plugin\n"
                      "srun: error: Invalid MPI type 'pmix', --mpi=list for acceptable types\n")
    assert (said.category, said.action) == ("config", "fix_config")
    assert "srun does not take its options: Invalid MPI type 'pmix'" in said.summary
