"""`safelaunch report`: one file, inert whatever the job has written, without secrets."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from safelaunch import cli
from tests.browser import dump_dom, find_browser
from tests.handmade import Made, make_run, make_running

SECRET = "hf_abcdefghij0123456789"
HOSTILE = f"</pre><script>document.title='owned'</script><img src=http://127.0.0.1:9/x>\x1b]52;c;aGk=\x07 {SECRET}"
YAML = f"""\
name: bloom
command: python train.py --token {SECRET}
env: {{WANDB_API_KEY: "local-0123456789abcdef"}}
slurm: {{nodes: 4, gpus_per_node: 8}}
launch: {{with: srun}}
"""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """A run with a failed and a completed attempt whose job has written hostile lines."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    made = make_run(tmp_path / "bloom", YAML)
    (made.dir / "job.sbatch").write_text(f"#!/bin/bash\n#SBATCH --nodes=4\nSL_COMMAND='train --token {SECRET}'\n"
                                         "SL_ENV=('WANDB_API_KEY=local-0123456789abcdef')\n# <<< values\n")
    made.event("submitted", gen=0, host="login", job="12", ago_s=1000)
    made.event("job_started", job="12", nodes=["n0", "n1"], batch_host="n0", ago_s=950)
    made.event("attempt_started", attempt=1, job="12", nodes=["n0", "n1"], ago_s=900)
    for ago_s, step in ((800, 10), (700, 20), (600, 30)):
        made.event("progress", attempt=1, step=step, ago_s=ago_s)
    made.event("verdict", attempt=1, category="cuda_oom", summary=HOSTILE, confidence=0.9, node="n1", suspects=["n1"],
               follows=HOSTILE, ago_s=590)
    made.event("attempt_ended", attempt=1, how="failed", exit_code=1, ago_s=590)
    made.event("attempt_started", attempt=2, job="12", nodes=["n0", HOSTILE], resume_step=20, ago_s=500)
    made.event("progress", attempt=2, step=60, ago_s=300)
    made.event("attempt_ended", attempt=2, how="completed", exit_code=0, ago_s=290)
    made.event("completed", exit_code=0, why=HOSTILE, ago_s=290)
    lines = "".join(f"step {step} loss: {9 / step:.3f} step_time: 0.5 {HOSTILE}\n" for step in range(1, 61))
    log = made.log(1, lines.encode())
    evidence = [{"file": "attempts/0001/main.log", "line_number": 7, "text": HOSTILE, "role": "cause"},
                {"file": "attempts/0001/main.log", "line_number": 8, "text": HOSTILE, "role": "symptom"}]
    (log.parent / "verdict.json").write_text(json.dumps({"verdict": {"evidence": evidence, "changes": HOSTILE}}))
    check = log.parent / "stacks" / "2026-11-01T120000+0100"
    check.mkdir(parents=True)
    groups = [{"count": 3, "kind": "python", "stack": [HOSTILE], "ranks": "0-2", "nodes": ["n0", HOSTILE]}]
    (check / "verdict.json").write_text(json.dumps({"verdict": {"kind": "hang", "summary": HOSTILE}, "groups": groups}))
    return made


def report(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What the verb prints; its exit code is 0."""
    assert cli.run(["report", "bloom", *words]) == 0
    return capsys.readouterr().out


def test_nothing_that_a_job_has_written_is_markup_or_a_control_code(made: Made,
                                                                    capsys: pytest.CaptureFixture[str]) -> None:
    page = report(capsys, "-o", "-")
    assert "<script" not in page and "<img" not in page and "\x1b" not in page and "\x07" not in page
    assert page.count("&lt;script&gt;") > 5, "the hostile lines are shown, as text"


def test_no_secret_and_no_value_of_env_is_in_a_report(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["-o", "-"], ["--json"]):
        text = report(capsys, *words)
        assert SECRET not in text and "local-0123456789abcdef" not in text and "WANDB_API_KEY" in text


def test_a_page_refers_to_nothing_outside_of_itself(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    page = report(capsys, "-o", "-")
    tags = re.findall(r"<[a-zA-Z][^>]*>", page)
    refers = [tag for tag in tags if re.search(r"\s(?:src|href|action|srcset|data|poster)=", tag)]
    assert refers == ['<link rel="icon" href="data:,">'] and len(tags) > 100
    assert "url(" not in page and "@import" not in page


def test_the_object_has_what_the_page_shows(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(report(capsys, "--json"))
    assert found["v"] == 1 and found["step"] == 60 and found["lost_steps"] == 10
    assert [one["category"] for one in found["verdicts"]] == ["cuda_oom"]
    assert [(one["file"], one["line_number"]) for one in found["verdicts"][0]["evidence"]] == [
        ("attempts/0001/main.log", 7), ("attempts/0001/main.log", 8)], "as they are in the run folder"
    assert len(found["curves"]["loss"][0]["points"]) == 60
    assert abs(sum(found["seconds"].values()) - (found["until_t"] - found["since_t"])) < 1


def test_a_line_of_ten_megabytes_and_a_log_that_is_no_text_do_no_harm(made: Made,
                                                                      capsys: pytest.CaptureFixture[str]) -> None:
    made.log(2, b"loss: " + b"9" * (10 << 20) + b"\nstep 61 loss: 0.1\n" + os.urandom(1 << 16))
    page = report(capsys, "-o", "-")
    assert len(page) < 1_000_000
    found = json.loads(report(capsys, "--json"))
    assert [61, 0.1] in found["curves"]["loss"][1]["points"]


def test_the_file_is_whole_or_not_there_and_others_cannot_read_it(made: Made,
                                                                  capsys: pytest.CaptureFixture[str]) -> None:
    report(capsys)
    path = Path("bloom-report.html")
    assert path.read_text().rstrip().endswith("</html>") and path.stat().st_mode & 0o027 == 0
    assert cli.run(["report", "bloom", "-o", "missing/folder/page.html"]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_a_pipe_or_a_device_gets_the_page_and_stays_what_it_is(made: Made, tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(os.devnull)
    reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE)
    assert cli.run(["report", "bloom", "-o", str(pipe)]) == cli.run(["report", "bloom", "-o", str(link)]) == 0
    assert reader.communicate()[0].rstrip().endswith(b"</html>")
    assert pipe.is_fifo() and link.is_symlink() and link.is_char_device()


def test_steps_that_the_journal_has_only_from_the_end_of_an_attempt_give_no_goodput(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    made = make_running(tmp_path, monkeypatch)
    made.event("progress", attempt=1, step=120)
    made.completed()
    found = json.loads(report(capsys, "--json"))
    assert found["goodput"] is None and "too short to tell start-up from steps" in found["notes"][0]


def test_a_run_that_has_not_started_has_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                 capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "bloom")
    page = report(capsys, "-o", "-")
    assert "not ended when this report was made" in page


def test_submit_and_the_library_do_not_load_the_templates(made: Made) -> None:
    program = ("import sys, safelaunch, safelaunch.api, safelaunch.verbs.submit.submit; "
               "sys.exit('jinja2' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


def test_a_browser_shows_every_part_and_asks_for_nothing(made: Made, tmp_path: Path) -> None:
    browser = find_browser()
    if browser is None:
        if os.environ.get("SAFELAUNCH_REQUIRE_SLURM") == "1" and platform.freedesktop_os_release()["ID"] == "debian":
            pytest.fail("there is no Chromium, which scripts/install-test-deps installs")
        pytest.skip("there is no Chromium")
    assert cli.run(["report", "bloom", "-o", "page.html"]) == 0
    done = dump_dom(browser, tmp_path / "page.html", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "<title>bloom · safelaunch report</title>" in done.stdout, "no script has changed it"
    for part in ("goodput", "steps", "timeline", "verdicts", "stacks", "curves", "nodes", "attempts", "events",
                 "config", "script"):
        assert f'<section id="{part}">' in done.stdout
    assert "CONSOLE" not in done.stderr, "the page asked for something that its policy forbids, or is broken"
