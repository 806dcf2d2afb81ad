"""The shape of the source, by its syntax trees: what no linter in use can check."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from safelaunch.core import jobstates

SOURCE = Path(__file__).parent.parent / "src"
SLURM = frozenset({"sacct", "sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun"})
MOST_LINES, MOST_LINES_OF_A_FUNCTION = 400, 50


@cache
def modules() -> dict[str, ast.Module]:
    """Dotted name → syntax tree, of every module of the package."""
    found = {}
    for path in sorted((SOURCE / "safelaunch").rglob("*.py")):
        name = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        found[name] = ast.parse(path.read_text())
    return found


def imports_of(tree: ast.AST, names: frozenset[str]) -> Iterator[str]:
    """Which of the names a module imports, also inside of functions, and for types only."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in names or node.module in names:
                    yield full if full in names else node.module


def find_cycle(trees: Mapping[str, ast.Module]) -> list[str]:
    """Modules that import each other in a circle; [] = there is none."""
    names = frozenset(trees)
    sorter = TopologicalSorter({name: set(imports_of(tree, names)) - {name} for name, tree in trees.items()})
    try:
        sorter.prepare()
    except CycleError as error:
        return [str(name) for name in error.args[1]]
    return []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert find_cycle(modules()) == []


def test_a_circle_hidden_in_a_function_is_found() -> None:
    texts = {"a": "import b", "b": "def f():\n    from c import x", "c": "import a.b\nimport a"}
    assert set(find_cycle({name: ast.parse(text) for name, text in texts.items()})) == {"a", "b", "c"}


def test_every_class_name_means_one_thing() -> None:
    homes: dict[str, list[str]] = {}
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(name)
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def test_no_file_and_no_function_is_too_long_to_be_read_at_once() -> None:
    long_files = {str(path.relative_to(SOURCE)): lines for path in (SOURCE / "safelaunch").rglob("*.py")
                  if (lines := path.read_text().count("\n")) > MOST_LINES}
    functions = ((name, node) for name, tree in modules().items() for node in ast.walk(tree)
                 if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    long_functions = {f"{name}.{node.name}": lines for name, node in functions
                      if (lines := (node.end_lineno or 0) - node.lineno + 1) > MOST_LINES_OF_A_FUNCTION}
    assert (long_files, long_functions) == ({}, {})


STARTS = re.compile(r"\bsubprocess\.(?:Popen|run|call|check_\w+)\(|\bos\.(?:fork|posix_spawn\w*|system|killpg)\(|"
                    r"\bPopen\(|\bmultiprocessing\.get_context\(")
# Outside of node/, which has its own. What is started for its output is a ProgramRun, or a function in a fork.
STARTERS = {
    "adapters/program.py": "programs: a deadline, bounded output, a session that ends",
    "adapters/probe.py": "functions, in forks: what may hang is touched there",
    "adapters/shared.py": "the courier, which ends with its leader",
    "adapters/attempt.py": "an attempt and its log pump, which outlive their supervisor",
    "adapters/local.py": "a job of the local cluster, which outlives submit",
    "adapters/logs/linenumbers.py": "wc, which counts the lines of gigabytes that are moved into its pipe",
    "adapters/logs/logfiles.py": "the workers that search one large log",
    "adapters/sitefolder.py": "writers that race for one file, within a probe",
    "adapters/notify.py": "a program within a probe, whose session ends with it",
    "sandbox/accounting.py": "MariaDB, a daemon",
    "sandbox/namespaces.py": "Slurm's daemons",
    "sandbox/login.py": "a user's command, with pipes for who runs it",
}


def test_processes_are_started_in_few_places() -> None:
    found = {name for path in (SOURCE / "safelaunch").rglob("*.py") if STARTS.search(path.read_text())
             and not (name := str(path.relative_to(SOURCE / "safelaunch"))).startswith("node/")}
    assert found == set(STARTERS)


def test_slurms_words_for_a_jobs_state_stand_in_one_table() -> None:
    """But for the rules of `why`, which read them in logs, and for node programs, which import nothing."""
    known = {value for name, value in vars(jobstates).items() if name.isupper() and isinstance(value, str)}
    said = {f"{name}:{node.lineno}" for name, tree in modules().items()
            if name != "safelaunch.core.jobstates" and not name.startswith("safelaunch.core.why.rules")
            for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value in known}
    assert said == set()


def test_slurms_commands_are_made_in_one_module() -> None:
    """But for the sandbox, which is an administrator, and for node programs, which import nothing."""
    made = {f"{name}:{node.lineno}" for name, tree in modules().items()
            if name != "safelaunch.adapters.slurm" and not name.startswith(("safelaunch.sandbox", "safelaunch.node"))
            for node in ast.walk(tree) if isinstance(node, ast.expr) and is_slurm_command(node)}
    assert made == set()


def test_a_command_of_slurm_is_seen_where_it_is_made() -> None:
    seen = [is_slurm_command(ast.parse(text, mode="eval").body) for text in (
        '["srun", "--overlap", *words]', '("scontrol", verb, job)', '("squeue", f"--job={job}")',
        '("squeue", "scontrol")', '("srun", *programs)', '("srun",)', '["env", "A=1"]')]
    assert seen == [True, True, True, False, False, False, False]


def is_slurm_command(node: ast.expr) -> bool:
    """A list or tuple of an argument list, not one of names."""
    if not isinstance(node, (ast.List, ast.Tuple)) or len(node.elts) < 2:
        return False
    first, second = node.elts[:2]
    is_name = isinstance(second, ast.Starred) or (isinstance(second, ast.Constant) and second.value in SLURM)
    return isinstance(first, ast.Constant) and first.value in SLURM and not is_name


def test_every_comment_on_the_simulation_names_a_scenario_that_exists() -> None:
    """`(simulated: test_found "name")`: a key of a table of that file, or a test's name with spaces."""
    known = {path.stem: scenarios_of(path) for path in (Path(__file__).parent / "simulation").glob("*.py")}
    wrong = []
    for path in sorted((SOURCE / "safelaunch").rglob("*.py")):
        text = re.sub(r"\s*\n\s*(# )?", " ", path.read_text())
        for at in re.finditer(r"\(simulated|simulated\)|found by simulation", text):
            named = re.match(r'\(simulated: (\w+) "([^"]+)"\)', text[at.start():])
            if named is None or named[2] not in known.get(named[1], ()):
                wrong.append(f"{path.name}: {text[at.start():][:100]}")
    assert wrong == []


def scenarios_of(path: Path) -> set[str]:
    """The names of a file's scenarios: string keys of its tables, and its tests."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    keys = {key.value for node in nodes if isinstance(node, ast.Dict) for key in node.keys
            if isinstance(key, ast.Constant) and isinstance(key.value, str)}
    return keys | {node.name.removeprefix("test_").replace("_", " ") for node in nodes
                   if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


BY_PATH = frozenset({"chmod", "chown", "copystat", "copymode", "copy2", "copytree"})
# A device node of a sandbox, in a folder of root's alone; to open it would need its driver.
BY_PATH_ALLOWED = {"safelaunch.sandbox.daemons": 1}


def changes_by_path(tree: ast.AST) -> list[str]:
    """Calls that give whatever bears a name a mode or an owner; os.fchmod and os.fchown do so for what is open."""
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    names = (func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "") for func in calls)
    of_shutil = [ast.unparse(node.func) for node in ast.walk(tree)
                 if isinstance(node, ast.Call) and ast.unparse(node.func) == "shutil.copy"]
    return [*(name for name in names if name in BY_PATH), *of_shutil]


def test_no_mode_and_no_owner_is_changed_by_path() -> None:
    """Whoever may write beside a file can put a link in its place: the change would be one of any file of ours."""
    found = {name: len(calls) for name, tree in modules().items() if (calls := changes_by_path(tree))}
    assert found == BY_PATH_ALLOWED, "use modes.set_mode, os.fchmod, or durable.put(…, for_all=True)"


def test_each_way_to_change_a_mode_by_path_is_found() -> None:
    text = "path.chmod(0o644)\nos.chmod(path, 1)\nchown(path, 1, 1)\nshutil.copystat(a, b)\nshutil.copy(a, b)\nd.copy()"
    assert sorted(changes_by_path(ast.parse(text))) == ["chmod", "chmod", "chown", "copystat", "shutil.copy"]
    assert changes_by_path(ast.parse("os.fchmod(1, 0o600)\nos.fchown(1, 2, 3)\nos.lchown(a, 1, 1)")) == []
