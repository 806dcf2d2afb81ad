"""Rule packs from files: found, added to the rules, and refused with all their mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from safelaunch.adapters.logs.logfiles import read_logs
from safelaunch.adapters.rulepacks import load_packs
from safelaunch.core.why.judging import judge_log
from safelaunch.core.why.rulebook import RULES
from safelaunch.errors import ConfigError

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
