"""safelaunch check: files, layers on disk, and what it prints."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from safelaunch.cli import run

DOCS = Path(__file__).parents[2] / "docs" / "train-yaml.md"


@pytest.fixture(autouse=True)
def _a_home_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    site = tmp_path / "site.yaml"
    site.touch()
    monkeypatch.setenv("SAFELAUNCH_SITE_CONFIG", str(site))
    monkeypatch.chdir(tmp_path)


def write(name: str, data: str | bytes) -> str:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_bytes(data if isinstance(data, bytes) else data.encode())
    return name


def test_a_sound_file_is_one_line_on_stdout(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = "command: x $SAFELAUNCH_RESUME_PATH\nslurm: {nodes: 16, gpus_per_node: 8}\nlaunch: {with: torchrun}\n"
    text += "resume: {dir: ckpt}\n"
    assert run(["check", write("gpt.yaml", text)]) == 0
    line = f"gpt.yaml: ok, 16 nodes × 8 GPUs, torchrun × 8, resumes from ckpt, run folder {tmp_path}/runs/gpt\n"
    assert capsys.readouterr() == (line, "")


def test_problems_go_to_stderr_with_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", write("t.yaml", "comand: x\nslurm: {nodes: four}\n")]) == 2
    assert capsys.readouterr() == (
        "",
        "t.yaml: command: missing; it says what to train with, such as command: python train.py\n"
        't.yaml:1:1: comand: unknown key; did you mean "command"?\n'
        't.yaml:2:16: slurm.nodes: expected an integer ≥ 1, got "four"\n',
    )


def test_json_lists_the_problems_with_their_fields(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "--json", write("t.yaml", "command: x\nversion: 2\n")]) == 2
    problem = {"file": "t.yaml", "line": 2, "column": 10, "key": "version", "text": "expected 1, got 2"}
    assert json.loads(capsys.readouterr().out) == {"v": 1, "ok": False, "file": "t.yaml", "problems": [problem]}


def test_json_of_a_sound_file_says_what_it_is(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["check", write("t.yaml", "command: x\n"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "v": 1, "ok": True, "file": "t.yaml", "name": "t", "run_dir": f"{tmp_path}/runs/t", "notes": [],
    }  # fmt: skip


def test_what_works_otherwise_in_a_script_is_said_on_stderr_and_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    file = write("job.slurm", "#!/bin/bash\n#SBATCH -N 1\nOUT=out/$(date +%F)\nsrun python a.py --dir $OUT\n")
    assert run(["check", file]) == 0
    printed = capsys.readouterr()
    assert run(["check", file, "--json"]) == 0
    notes = json.loads(capsys.readouterr().out)["notes"]
    assert [note for note in notes if note not in printed.err] == [] and "ok, 1 node" in printed.out
    assert any(note.startswith("job.slurm:3: the date") for note in notes)


def test_overrides_and_flags_are_checked_with_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    file = write("t.yaml", "command: x\n")
    assert run(["check", file, "slurm.nodes=3", "--", "--qos", "high", "-N4"]) == 0
    assert ": ok, 4 nodes, srun" in capsys.readouterr().out
    assert run(["check", file, "slurm.nodes=x", "--", "-Z"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[:2] for line in said] == [["command line", "-Z"], ["command line", "slurm.nodes"]]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "t.yaml: no such file"),
        (b"command: caf\xe9\n", "t.yaml:1:13: not UTF-8 text (byte 0xe9); save the file as UTF-8"),
        ("a: ü\nb: é".encode() + b"\xff", "t.yaml:2:5: not UTF-8 text"),
        (b"command: x\0\n", "t.yaml:1:11: a character that no text file may hold (U+0000)"),
        (b"#" * (1 << 20) + b"#", "t.yaml: larger than 1 MiB"),
    ],
    ids=["missing", "latin 1", "later line", "NUL", "too large"],
)
def test_a_file_that_is_no_text_says_so(data: bytes | None, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    if data is not None:
        write("t.yaml", data)
    assert run(["check", "t.yaml"]) == 2
    assert capsys.readouterr().err.startswith(said)


def test_a_folder_or_a_pipe_is_refused_instead_of_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("pipe")
    assert run(["check", "."]) == 2
    assert run(["check", "pipe"]) == 2
    assert capsys.readouterr().err == ".: not a regular file\npipe: not a regular file\n"


def test_the_sites_and_the_users_files_lie_below_train_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    write("site.yaml", "slurm: {nodes: 2, gpus_per_node: 8}\n")
    write(".config/safelaunch/config.yaml", "slurm: {nodes: 3}\n")
    assert run(["check", write("t.yaml", "command: x\n")]) == 0
    assert "ok, 3 nodes × 8 GPUs" in capsys.readouterr().out


def test_the_users_file_follows_xdg_config_home(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    write("xdg/safelaunch/config.yaml", "slurm: {nodes: 5}\n")
    assert run(["check", write("t.yaml", "command: x\n")]) == 0
    assert "ok, 5 nodes" in capsys.readouterr().out


def test_a_site_file_that_was_named_must_exist(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAFELAUNCH_SITE_CONFIG", "nowhere.yaml")
    assert run(["check", write("t.yaml", "command: x\n")]) == 2
    assert capsys.readouterr().err == "nowhere.yaml: no such file\n"


def test_a_fault_in_the_sites_file_is_shown_in_the_sites_file(capsys: pytest.CaptureFixture[str]) -> None:
    write("site.yaml", "slurm: {nodes: x}\n")
    assert run(["check", write("t.yaml", "command: x\n")]) == 2
    assert re.match(r"/.*/site\.yaml:1:16: slurm\.nodes: ", capsys.readouterr().err)


def test_what_a_container_lacks_on_this_host_is_said_and_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    box = "container: {runtime: podman-hpc, image: /no/image, mounts: [/no/data:/data, /]}\n"
    assert run(["check", write("t.yaml", f"command: x\n{box}")]) == 0
    said = capsys.readouterr().err
    for words in ("image: /no/image is not there", "mounts: /no/data is not there", "podman-hpc is not on PATH"):
        assert words in said
    assert said.count("container.") == 3


@pytest.mark.parametrize("text", re.findall(r"```yaml\n(.*?)```", DOCS.read_text(), re.DOTALL))
def test_every_example_of_the_docs_is_sound(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["check", write("t.yaml", text)])
    assert (code, capsys.readouterr().err) == (0, "")


def test_flags_of_sbatch_stand_before_the_file_behind_it_or_in_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    file = write("job.slurm", "#!/bin/bash\n#SBATCH -N 1\ntrue\n")
    assert run(["config", "-N", "2", "--qos=high", "--origin", file, "a", "--", "-p", "debug", "b", "--", "c"]) == 0
    shown = capsys.readouterr().out
    assert all(line in shown for line in (
        "  nodes: 2 ", "  qos: high ", "  partition: debug ", 'args: [a, b, "--", c] '))
    monkeypatch.setenv("SBATCH_TIMELIMIT", "7")
    assert run(["check", file, "--", "-N", "2"]) == 0
    printed = capsys.readouterr()
    assert "ok, 2 nodes" in printed.out and "SBATCH_TIMELIMIT=7 in your environment: slurm.time\n" in printed.err
    assert run(["config", "--origin", file]) == 0
    assert "  time: 7  # SBATCH_TIMELIMIT (environment)\n" in capsys.readouterr().out


@pytest.mark.parametrize(("words", "said"), [
    (["job.slurm", "-N", "2"], "FILE -- --qos=high"), (["--wrap", "hostname"], "safelaunch submit -"),
    (["--wrap=hostname"], "safelaunch submit -"), (["--frob", "job.slurm"], "No such option"),
    (["-n", "job.slurm"], "no FILE is named behind -n job.slurm")],
    ids=["behind", "wrap", "wrap=", "unknown", "no file"])
def test_words_that_sbatch_would_take_and_check_does_not_are_answered(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    write("job.slurm", "#!/bin/bash\n#SBATCH -N 1\ntrue\n")
    assert run(["check", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_script_is_taken_from_standard_input(tmp_path: Path) -> None:
    script = write("job.slurm", "#!/bin/bash\n#SBATCH -N 2\necho $1\n")
    checked = [sys.executable, "-m", "safelaunch", "check"]
    for words, text, code, said in ((["-", "a"], "", 0, "arguments of the script: a"), ([], "", 0, "ok, 2 nodes"),
                                    ([], "\n", 2, "stdin:1:1: holds nothing"),
                                    ([], "echo\n", 2, "stdin:1:1: does not begin with #!")):
        Path("given").write_text(text or Path(script).read_text())
        with Path("given").open() as stream:
            done = subprocess.run([*checked, *words], stdin=stream, capture_output=True, text=True, check=False)
        assert (done.returncode, said in done.stdout + done.stderr) == (code, True), done


@pytest.mark.parametrize(("size", "said"), [(400_000, "ok, 1 node"), (5 << 20, "Slurm takes no larger job script")])
def test_a_script_may_be_as_long_as_slurm_takes_it(size: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = write("job.slurm", "#!/bin/bash\n#SBATCH -N 1\ncat <<X\n" + "x" * size + "\nX\n")
    run(["check", file])
    assert said in "".join(capsys.readouterr())
