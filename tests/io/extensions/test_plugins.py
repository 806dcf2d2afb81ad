"""Plugins: an example package, really installed, is used by every part of a run; broken ones are named and left out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import safelaunch
from safelaunch.checkpoints.io import checkpoints
from safelaunch.checkpoints.latest import NAMES
from safelaunch.cli import run as cli
from safelaunch.extensions.io import plugins, rulepacks
from safelaunch.extensions.plugins import BUILT_IN_FORMATS, CHECKS, FORMATS, GROUPS, LAUNCHERS, NOTIFIERS, RULES
from safelaunch.notify.io import notify
from safelaunch.notify.message import Message
from safelaunch.notify.targets import PLUGIN, NotifyTarget
from tests.localruns import LocalRun, type_safelaunch

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "tests" / "fixtures" / "plugin"
YAML = """\
name: plugged
command: |
  echo "rank $RANK of $WORLD_SIZE, here $LOCAL_RANK, from $SAFELAUNCH_RESUME_STEP"
  echo our cooling loop has failed on rack7
  exit 3
env: {{PYTHONPATH: {site}}}
slurm: {{nodes: 2}}
srun: {{kill_on_bad_exit: 0}}
launch: {{with: twins, nproc_per_node: 2, args: [--slow, "no"]}}
resume: {{dir: ckpt, format: numbered, by: training}}
restart: {{max_restarts: 0}}
checks: {{boot: true, on_bad_node: report}}
notify: {{to: ["plugin:file"], when: [gave_up]}}
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with safelaunch and the example package, as pip installs it."""
    made = tmp_path_factory.mktemp("plugged")
    shutil.copytree(EXAMPLE, made / "source")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(made / "venv")], check=True)
    site = next((made / "venv" / "lib").glob("python*/site-packages"))
    ours = [path for path in sys.path if path.endswith("-packages")]
    (site / "tests.pth").write_text("\n".join([*ours, str(Path(safelaunch.__file__).parents[1])]) + "\n")
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index",
                    "--no-deps", "--no-build-isolation", "--no-compile", "--target", str(site), str(made / "source")],
                   check=True)
    return site


@pytest.fixture
def installed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example package is one of this interpreter's."""
    use(monkeypatch, home)


def use(monkeypatch: pytest.MonkeyPatch, site: Path) -> None:
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    plugins._entry_texts.cache_clear()
    monkeypatch.setattr(plugins, "_entry_texts", plugins._entry_texts.__wrapped__)


def package(folder: Path, name: str, entries: dict[str, str], code: str) -> None:
    """A package NAME as an installer leaves it: a module, and its dist-info with (group → "entry = object")."""
    (folder / f"{name}.py").write_text(code)
    info = folder / f"{name}-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("".join(f"[{group}]\n{rows}\n" for group, rows in entries.items()))


def test_one_run_uses_a_plugin_of_each_group(home: Path, tmp_path: Path, local_env: dict[str, str]) -> None:
    (tmp_path / "train.yaml").write_text(YAML.format(site=home))
    (tmp_path / "ckpt").mkdir()
    for name, text in (("7.state", "whole\nend\n"), ("9.state", "whole\nend\n"), ("12.state", "half"), ("x.pt", "")):
        (tmp_path / "ckpt" / name).write_text(text)
    local_env["EXAMPLE_NOTICES"] = str(tmp_path / "notices")
    python = str(home.parents[2] / "bin" / "python")
    submit = subprocess.run([python, "-m", "safelaunch", "submit", "train.yaml", "--wait"], cwd=tmp_path,
                            env=local_env, capture_output=True, text=True, timeout=120)
    run_dir = tmp_path / "runs" / "plugged"
    assert submit.returncode == 11, submit.stdout + submit.stderr
    LocalRun(tmp_path, run_dir, local_env).wait_end()   # its last words, and the log's end, come after the journal's
    log = (run_dir / "attempts" / "0001" / "main.log").read_text()
    for node, local in ((0, 0), (0, 1), (1, 0), (1, 1)):
        assert f"[local{node}:{local}]:rank {node * 2 + local} of 4, here {local}, from 9\n" in log
    told = json.loads((run_dir / "attempts" / "0001" / "verdict.json").read_text())["verdict"]
    assert told["summary"] == "the cooling loop of rack7 has failed"
    assert {one["file"] for one in told["evidence"]} == {"attempts/0001/main.log"}, "no path of the leader's own disk"
    checked = json.loads((run_dir / "attempts" / "0001" / "checks.json").read_text())
    assert ("licence", "ok", "the licence server answers") in {
        (one["name"], one["outcome"], one["why"]) for one in checked["nodes"][0]["checks"]}
    assert (tmp_path / "notices").read_text() == "safelaunch: plugged has given up (failure)\n"
    kept = json.loads((run_dir / "run.json").read_text())["config"]["launch"]
    assert kept["with"] == "custom" and kept["call"][:3] == ["python3", "-m", "safelaunch_example.launch"]


def test_the_verb_lists_them(installed: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(["plugins", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["plugins"]
    assert {(one["group"], one["distribution"], one["version"], one["state"]) for one in rows} == {
        (group, "safelaunch-example", "1.2", "used") for group in GROUPS}
    assert cli(["plugins"]) == 0
    assert "launchers           twins     safelaunch-example  1.2      used\n" in capsys.readouterr().out


def test_without_a_plugin_the_list_is_empty_and_nothing_that_is_slow_is_imported(tmp_path: Path,
                                                                                local_env: dict[str, str]) -> None:
    done = type_safelaunch(["plugins"], tmp_path, local_env)
    assert (done.returncode, done.stdout) == (0, "") and "no package here extends safelaunch" in done.stderr
    code = ("import sys; from safelaunch.extensions.io import rulepacks; rulepacks.load_packs(); "
            "print('importlib.metadata' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", code], env=local_env, capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n", done.stderr


BROKEN = {
    "absent": ("nothing.of.this.name", "ModuleNotFoundError: No module named 'nothing'"),
    "raises": ("bad:raises", "ZeroDivisionError: not today"),
    "shape": ("bad:shape", "got int"),
    "exits": ("bad:exits", "SystemExit"),
    "dies": ("bad:dies", "died before it answered"),
    "odd": ("bad:odd", "no plain"),
    "empty": ("bad:empty", "expected"),
}
CODE = """
import os, time
def raises(): raise ZeroDivisionError("not today")
shape = 7
def exits(): raise SystemExit(3)
def dies(): os._exit(1)
def slow(): time.sleep(60)
odd = {"program": object()}
empty = {}
def judge(folder, candidate): raise ValueError("surprised")
def candidates(folder): raise KeyError("lost")
def send(message, env): raise RuntimeError("https://secret")
"""


@pytest.mark.parametrize("group", [RULES, CHECKS, LAUNCHERS])
def test_a_broken_one_is_named_with_its_reason_and_harms_nobody(group: str, tmp_path: Path,
                                                                monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, "bad", {group: "\n".join(f"{name} = {at}" for name, (at, _) in BROKEN.items())}, CODE)
    use(monkeypatch, tmp_path)
    states = {one.name: plugins.state_of(one) for one in plugins.list_plugins(group)}
    assert set(states) == set(BROKEN) and {state for state, _ in states.values()} == {"broken"}
    wrong = {name: why for name, (_, why) in states.items() if BROKEN[name][1] not in why and name != "odd"}
    assert wrong == {}
    said: list[str] = []
    assert rulepacks.load_packs({"SAFELAUNCH_RULES": ""}, said.append) == ()
    checks, notes = plugins.load_checks()
    assert checks == {} and len(said) + len(notes) == (len(BROKEN) if group != LAUNCHERS else 0)


def test_one_that_does_not_come_back_is_left_after_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "LOAD_S", 0.3)
    package(tmp_path, "bad", {RULES: "slow = bad:slow"}, CODE)
    use(monkeypatch, tmp_path)
    (slow,) = plugins.list_plugins(RULES)
    assert plugins.state_of(slow) == ("broken", "it took longer than 0.3 s")


def test_code_that_fails_when_it_is_called_is_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, "bad", {FORMATS: "lost = bad\nshape = bad:shape", NOTIFIERS: "loud = bad:send"}, CODE)
    use(monkeypatch, tmp_path)
    states = {one.name: plugins.state_of(one) for group in (FORMATS, NOTIFIERS) for one in plugins.list_plugins(group)}
    assert {name: state for name, (state, _) in states.items()} == {"lost": "used", "shape": "broken", "loud": "used"}
    with pytest.raises(ValueError, match="the plugin lost failed: KeyError: 'lost'"):
        checkpoints.find(str(tmp_path), "lost")
    with pytest.raises(ValueError, match=r'checkpoint format "nobody": no plugin nobody'):
        checkpoints.find(str(tmp_path), "nobody")
    message = Message("bloom", "title", "info", ("hang",), "text")
    assert delivered("loud", message) == "RuntimeError"   # its own words may hold a secret
    assert delivered("nobody", message).startswith("no plugin nobody")


def delivered(name: str, message: Message) -> str:
    delivery = notify.Delivery([NotifyTarget(PLUGIN, name)], message, None, {})
    while (results := delivery.poll()) is None:
        time.sleep(0.01)
    return results[f"plugin:{name}"]


def test_a_checkpoint_that_the_plugin_fails_on_is_skipped(installed: None, tmp_path: Path,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "3.state").write_text("end\n")
    (tmp_path / "5.state").mkdir()   # read as a file it raises OSError
    found = checkpoints.find(str(tmp_path), "numbered")
    assert found.best is not None and (found.best.step, found.best.format) == (3, "numbered")
    assert [one.path for one in found.skipped] == [str(tmp_path / "5.state")]


def test_of_two_with_one_name_the_first_package_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = "fast = {0}:call\nsrun = {0}:call\n"
    for name in ("beta", "alpha"):
        package(tmp_path, name, {LAUNCHERS: row.format(name)}, f"call = {{'call': ['{name}']}}\n")
    use(monkeypatch, tmp_path)
    states = [(one.name, one.distribution, *plugins.state_of(one)) for one in plugins.list_plugins(LAUNCHERS)]
    assert states == [
        ("fast", "alpha", "used", ""), ("fast", "beta", "taken", "the name fast is taken by alpha"),
        ("srun", "alpha", "taken", "the name srun is taken by safelaunch"),
        ("srun", "beta", "taken", "the name srun is taken by safelaunch")]
    found = plugins.find(LAUNCHERS, "fast")
    assert getattr(found, "call", None) == ("alpha",)


def test_one_that_jobs_do_not_see_is_refused_where_its_code_runs_in_jobs(home: Path, tmp_path: Path,
                                                                        local_env: dict[str, str]) -> None:
    local_env["PYTHONPATH"] = str(home)
    (tmp_path / "train.yaml").write_text("command: x\nnotify: {to: ['plugin:file']}\n")
    done = type_safelaunch(["check", "train.yaml"], tmp_path, local_env)
    assert done.returncode == 2 and "jobs do not see packages of PYTHONPATH" in done.stderr, done.stderr
    assert done.stderr.startswith("train.yaml:2:14: notify.to: plugin \"file\" is broken: ")


def test_a_child_of_a_supervisor_sees_the_packages_of_its_interpreter(tmp_path: Path) -> None:
    source = Path(safelaunch.__file__).parents[1]
    code = (f"import sys; sys.path.insert(0, {str(source)!r}); from safelaunch.extensions.io import plugins\n"
            "plugins.see_packages(); import pytest")
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, timeout=60, cwd=tmp_path)


def test_the_names_of_the_formats_are_those_of_the_table() -> None:
    assert set(BUILT_IN_FORMATS) == set(NAMES)


def test_no_module_and_no_package_of_the_folder_where_a_verb_is_typed_is_loaded(tmp_path: Path) -> None:
    """It may be somebody else's. What is loaded is what the interpreter of `safelaunch` has."""
    mark = f"open({str(tmp_path / 'loaded')!r}, 'a').write(__file__)\n"
    place = tmp_path / "theirs"
    (place / "safelaunch").mkdir(parents=True)
    for name in ("safelaunch/__init__", "click", "json", "yaml", "sitecustomize", "usercustomize"):
        (place / f"{name}.py").write_text(mark)
    package(place, "planted", {RULES: "planted = planted:rules", LAUNCHERS: "planted = planted:call"}, mark)
    (place / "planted.pth").write_text("import planted\n")
    (place / "job.log").write_text("RuntimeError: CUDA out of memory\n")
    program = str(Path(sys.executable).with_name("safelaunch"))
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}   # with no list of runs
    for words, code in ((["plugins"], 0), (["why", "job.log"], 0), (["status"], 2)):
        said = subprocess.run([program, *words], cwd=place, env=env, capture_output=True, text=True, timeout=60)
        assert said.returncode == code and "planted" not in said.stdout, said
    assert not (tmp_path / "loaded").exists()
