"""The archives: what is in them, and that an installed safelaunch does what the checkout does."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import filelock
import pytest

from safelaunch.script import scriptparts

ROOT = Path(__file__).parent.parent
TEMPLATES = [f"templates/slurm/{name}.sh" for name in scriptparts.ALL]
YAML = """\
name: bloom
cluster: slurm
run_dir: /scratch/runs/bloom
command: python train.py ${RESUME_ARGS}
slurm: {nodes: 2, gpus_per_node: 8}
launch: {with: torchrun}
"""
# Offline, pip cannot get the build backend into its own venv.
NO_BACKEND = re.compile(r"No matching distribution found for hatchling|Failed to establish a new connection|ProxyError")


def run(*argv: object, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "SAFELAUNCH_"))}
    return subprocess.run([str(word) for word in argv], cwd=cwd, env=kept | env, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=900)


@dataclass(frozen=True)
class Archives:
    """An sdist, and the wheel made from it."""

    sdist: Path
    wheel: Path

    def sdist_files(self) -> dict[str, bytes]:
        """name below the top folder → content; links have none."""
        with tarfile.open(self.sdist) as tar:
            return {member.name.partition("/")[2]: (file.read() if (file := tar.extractfile(member)) else b"")
                    for member in tar.getmembers() if not member.isdir()}

    def wheel_files(self) -> dict[str, bytes]:
        """name → content."""
        with zipfile.ZipFile(self.wheel) as archive:
            return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Archives:
    """Built as for a release: the sdist from the checkout, the wheel from the sdist; by one worker for all (40 s)."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "dist"
    folder.mkdir(exist_ok=True)
    with filelock.FileLock(f"{folder}.lock"):
        if not list(folder.glob("*.whl")):
            build(folder)
    return Archives(next(folder.glob("*.tar.gz")), next(folder.glob("*.whl")))


def build(folder: Path) -> None:
    done = run(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    if done.returncode and NO_BACKEND.search(done.stdout + done.stderr):
        pytest.skip("the build backend cannot be had: no package registry is reachable")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def installed(archives: Archives) -> Path:
    """A fresh venv's bin folder with the wheel, one for all workers; the dependencies are those of the tests."""
    folder = archives.wheel.parent / "venv"
    with filelock.FileLock(f"{folder}.lock"):
        if not (folder / "bin" / "safelaunch").exists():
            folder.mkdir()
            fresh_venv(folder, "--no-compile", archives.wheel)   # most of its modules are not imported
    return folder / "bin"


def fresh_venv(folder: Path, *what: object) -> Path:
    done = run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    assert done.returncode == 0, done.stderr
    site = next(folder.glob("lib/python*/site-packages"))
    # The dependencies and the build backend wherever the tests have them; the checkout itself must not come with them.
    others = [path for path in sys.path if Path(path).is_dir() and not (Path(path) / "safelaunch" / "cli.py").exists()]
    (site / "zz_dependencies.pth").write_text("\n".join(others) + "\n")
    # `archives` is built as users build it, in an environment of its own, which takes 5 s of processor time.
    done = run(sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "--quiet", "--no-deps",
               "--ignore-installed", "--no-build-isolation", *what, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "bin"


def script(python: Path, folder: Path, **env: str) -> str:
    """`safelaunch script`, without the two lines that name the interpreter and where the package lies."""
    (folder / "train.yaml").write_text(YAML)
    done = run(python, "-m", "safelaunch", "script", "train.yaml", cwd=folder, **env)
    assert done.returncode == 0, done.stderr
    return re.sub("(?m)^SL_(PYTHON|LIBRARY)=.*$", r"SL_\1=", done.stdout)


def test_the_installed_wheel_writes_the_script_that_the_checkout_writes(installed: Path, tmp_path: Path) -> None:
    of_checkout = script(Path(sys.executable), tmp_path, PYTHONPATH=str(ROOT / "src"))
    assert script(installed / "python", tmp_path) == of_checkout
    assert "torchrun --nnodes" in of_checkout


def test_the_installed_wheel_is_what_runs(installed: Path, tmp_path: Path) -> None:
    done = run(installed / "python", "-c", "import safelaunch; print(safelaunch.__file__)", cwd=tmp_path)
    assert done.stdout.startswith(str(installed.parent))
    assert run(installed / "safelaunch", "--version", cwd=tmp_path).returncode == 0


def test_an_editable_install_uses_the_checkouts_template_and_leaves_no_copy(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    venv.mkdir()
    bin_dir = fresh_venv(venv, "--editable", ROOT)
    assert not list(venv.glob("lib/python*/site-packages/safelaunch"))
    assert script(bin_dir / "python", tmp_path) == script(Path(sys.executable), tmp_path, PYTHONPATH=str(ROOT / "src"))


def test_the_wheel_holds_the_template_and_what_the_demo_plays(archives: Archives) -> None:
    files = archives.wheel_files()
    for template in TEMPLATES:
        assert files[f"safelaunch/{template}"] == (ROOT / template).read_bytes()
    for name in ("README.md", "train.py", "train.yaml"):
        assert files[f"safelaunch/examples/stories/{name}"] == (ROOT / "examples" / "stories" / name).read_bytes()


def test_the_wheel_holds_every_module_and_nothing_else(archives: Archives) -> None:
    source = ROOT / "src"
    modules = {path.relative_to(source).as_posix() for path in source.rglob("*.py")}
    others = {name for name in archives.wheel_files() if name not in modules}
    assert modules <= set(archives.wheel_files())
    assert {name for name in others if ".dist-info/" not in name} == {
        "safelaunch/py.typed",
        *(f"safelaunch/node/{name}.sh" for name in ("command", "guarded", "held", "script", "srun")),
        "safelaunch/supervisor/births.sh", "safelaunch/why/weigh/words.bin",
        *(f"safelaunch/{template}" for template in TEMPLATES),
        *(f"safelaunch/templates/report/{name}" for name in ("month.html", "page.html", "run.html", "style.css")),
        *(f"safelaunch/docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
        *(f"safelaunch/examples/stories/{name}" for name in ("README.md", "train.py", "train.yaml"))}


def test_the_sdist_holds_the_template_under_both_of_its_names(archives: Archives) -> None:
    files = archives.sdist_files()
    for template in TEMPLATES:
        assert files[template] == files[f"src/safelaunch/{template}"] == (ROOT / template).read_bytes()


def test_the_sdist_holds_what_the_tests_need_and_no_leftovers(archives: Archives) -> None:
    names = set(archives.sdist_files())
    assert {"pyproject.toml", "README.md", "LICENSE", "tests/test_package.py", "examples/ddp/train.yaml",
            "progress/safelaunch_callbacks/lightning.py"} <= names
    assert "tests/pure/script/golden/minimal.sbatch" in names
    stray = {"__pycache__", ".venv", ".git", "runs", ".mypy_cache"}
    assert not {name for name in names if stray & set(PurePosixPath(name).parts)}


def test_the_templates_folder_of_the_package_is_a_committed_symlink() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    link = ROOT / "src" / "safelaunch" / "templates"
    assert os.readlink(link) == "../../templates"
    said = run("git", "ls-files", "--stage", "src/safelaunch/templates", cwd=ROOT).stdout
    assert said.startswith("120000 ")


def test_what_earlier_job_scripts_import_is_there() -> None:
    """A job in the queue was rendered by the release before, and starts with the package of its day."""
    for name in ("safelaunch.loop", "safelaunch.adapters.courier"):
        assert callable(importlib.import_module(name).main)
