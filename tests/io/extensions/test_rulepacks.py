"""Rule packs from files: found, added to the rules, and refused with all their mistakes."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from safelaunch.errors import ConfigError
from safelaunch.extensions.io import rulepacks
from safelaunch.extensions.io.rulepacks import load_packs
from safelaunch.why.io import limited
from safelaunch.why.io.logfiles import read_logs
from safelaunch.why.judge.engine import judge_log
from safelaunch.why.rulebook import RULES
from tests.localruns import SubmitLocal
from tests.tables import each

PACK = r"""version: 1
rules:
  - id: site.burst_buffer
    category: storage
    anchor: [burst buffer]
    pattern: 'burst buffer (?P<name>\S+) is full'
    weight: 0.9
    summary: 'the burst buffer {name} is full'
"""


def test_the_users_folder_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "safelaunch" / "rules.d"
    folder.mkdir(parents=True)
    (folder / "site.yaml").write_text(PACK)
    assert [rule.id for rule in load_packs({"XDG_CONFIG_HOME": str(tmp_path)})] == ["site.burst_buffer"]


def test_a_pack_names_a_cause_that_no_rule_knows(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(PACK)
    (tmp_path / "job.log").write_text("step 1 loss 2.0\nbbd: burst buffer bb3 is full\n")
    packs = load_packs({"SAFELAUNCH_RULES": str(tmp_path / "site.yaml")})
    verdict = judge_log(read_logs([tmp_path / "job.log"], (*RULES, *packs)))
    assert (verdict.category, verdict.summary) == ("storage", "the burst buffer bb3 is full")


def test_mistakes_of_all_packs_are_told_at_once(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text("version: 3\nrules: []\n")
    with pytest.raises(ConfigError) as caught:
        load_packs({"SAFELAUNCH_RULES": f"{tmp_path}/a.yaml:{tmp_path}/b.yaml:{tmp_path}/none.yaml"})
    assert [Path(problem.file).name for problem in caught.value.problems] == ["a.yaml", "b.yaml", "none.yaml"]


def test_no_pack_is_no_mistake(tmp_path: Path) -> None:
    assert load_packs({"XDG_CONFIG_HOME": str(tmp_path)}) == ()


@each(("made", "said"), {
    "a pipe": (lambda pack: os.mkfifo(pack), "no regular file"),
    "a device": (lambda pack: pack.symlink_to("/dev/zero"), "no regular file"),
    "a folder": (lambda pack: pack.mkdir(), "no regular file"),
    "a link to itself": (lambda pack: pack.symlink_to(pack.name), "no regular file"),
    "a terabyte": (lambda pack: subprocess.run(["truncate", "-s", "1T", pack], check=True), "larger than 1 MiB"),
    "an object of Python": (lambda pack: pack.write_text('!!python/object/apply:os.system ["false"]'), "tags"),
    "itself in itself": (lambda pack: pack.write_text("version: 1\nrules: &a [*a]\n"), "no &a before it"),
    "aliases of aliases": (lambda pack: pack.write_text("b0: &b0 [x, x]\n" + "".join(
        f"b{n}: &b{n} [{', '.join([f'*b{n - 1}'] * 9)}]\n" for n in range(1, 9))), "aliases expanded"),
    "a summary that reads attributes": (lambda pack: pack.write_text(
        PACK.replace("the burst buffer {name}", "{name.__class__}")), "which the pattern does not have"),
}.values())
def test_what_a_member_can_put_into_a_groups_folder_is_refused_at_once(
    made: Callable[[Path], object], said: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    pack = tmp_path_factory.mktemp("packs") / "site.yaml"
    made(pack)
    started_s = time.process_time()
    with pytest.raises(ConfigError) as caught:
        load_packs({"SAFELAUNCH_RULES": str(pack)})
    assert said in str(caught.value.problems) and time.process_time() - started_s < 1.0


# No look at a pattern tells all that can take for ever: these pass it.
ENDLESS = [(r"abcd((ab)*)*c", "abcd" + "ab" * 40), (r"abcd((a)+)+c", "abcd" + "a" * 40),
           (r"abcd(?:a{1,20}){1,20}c", "abcd" + "a" * 90), (r"abcd(?:a?b?)+c", "abcd" + "ab" * 40),
           (r"abcd.*.*.*.*.*.*=x", "abcd" * 1000)]


@pytest.mark.parametrize(("pattern", "bait"), ENDLESS)
def test_a_pattern_that_takes_for_ever_on_its_own_sample_is_refused_in_time(
    pattern: str, bait: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rulepacks, "LOAD_S", 0.1)
    (tmp_path / "site.yaml").write_text(json.dumps({"version": 1, "rules": [
        {"id": "site.slow", "category": "storage", "anchor": ["abcd"], "pattern": pattern, "sample": bait}]}))
    with pytest.raises(ConfigError, match="takes more than") as caught:
        load_packs({"SAFELAUNCH_RULES": str(tmp_path / "site.yaml")})
    assert Path(caught.value.problems[0].file).name == "site.yaml"


@pytest.mark.parametrize(("pattern", "bait"), ENDLESS)
def test_a_pattern_that_takes_for_ever_on_a_line_keeps_no_other_rule_from_its_finding(
    pattern: str, bait: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(limited.LimitedPattern, "slow", [])
    (tmp_path / "job.log").write_text(f"step 1 loss 2.0\n{bait}\n" * 300 + "torch.cuda.OutOfMemoryError: CUDA out of "
                                      "memory. Tried to allocate 2.00 GiB\nbbd: burst buffer bb3 is full\n")
    packs = [{"id": f"site.slow{number}", "category": "storage", "anchor": ["abcd"], "pattern": pattern, "weight": 1.0}
             for number in range(8)]
    (tmp_path / "site.yaml").write_text(json.dumps({"version": 1, "rules": packs}))
    rules = load_packs({"SAFELAUNCH_RULES": str(tmp_path / "site.yaml")})
    verdict = judge_log(read_logs([tmp_path / "job.log"], (*RULES, *rules)))
    assert verdict.category == "cuda_oom"
    said = capsys.readouterr().err.splitlines()
    assert len(said) == limited.MOST_SLOW and "all rules of rule packs are left out" in said[-1]


COOLING = """version: 1
rules:
  - id: site.cooling
    category: node_failure
    anchor: [our cooling loop]
    pattern: our cooling loop has failed on (?P<host>[a-z0-9]+)
    weight: 0.9
"""


def test_rules_of_the_submitter_s_packs_are_the_supervisor_s_as_well(
    submit_local: SubmitLocal, tmp_path: Path, local_env: dict[str, str],
) -> None:
    (tmp_path / "pack.yaml").write_text(COOLING)
    local_env["SAFELAUNCH_RULES"] = str(tmp_path / "pack.yaml")
    run = submit_local("", "command=echo our cooling loop has failed on rack7; exit 5", "restart.max_restarts=0",
                       "resume.by=training")
    run.wait_end()
    verdict = run.events("verdict")[0].data
    assert (verdict["category"], verdict["node"]) == ("node_failure", "local0"), run.story()


@pytest.mark.parametrize("kept", [None, 3, [3], [{}], [{"anchor": [1], "pattern": "x"}], [{"anchor": ["abcd"],
                                  "pattern": "(", "id": "a.b", "category": "x"}]], ids=str)
def test_odd_rules_in_run_json_are_left_out(kept: object) -> None:
    assert rulepacks.undump(kept) == ()


def test_rules_come_back_as_they_were_kept_without_their_samples() -> None:
    bare = tuple(replace(rule, sample="", counter_sample="") for rule in RULES)
    assert rulepacks.undump(json.loads(json.dumps(rulepacks.dump(RULES)))) == bare
