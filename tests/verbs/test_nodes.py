"""safelaunch nodes: what is known against nodes, and people's word on them."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from safelaunch.base.io.owners import name_of
from safelaunch.cli import run
from safelaunch.nodehealth.io import ledger
from safelaunch.nodehealth.ledger import NodeEvidence
from safelaunch.nodehealth.nodeuse import NodeUse
from safelaunch.verbs.common import runs, talk
from tests.frozen import FuseMount
from tests.handmade import fake_command

ME = name_of(os.geteuid())


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One's own ledger, on a machine where Slurm knows n0 to n9."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("SAFELAUNCH_SITE_CONFIG", raising=False)
    # What scontrol of Slurm 22.05 says.
    fake_command(tmp_path / "bin", "scontrol", """\
for name in ${4//,/ }; do
    [[ $name =~ ^n(.|\\[.*\\])$ ]] && echo "NodeName=$name" || { echo "Node $name not found"; bad=1; }
done; exit ${bad:-0}""")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    return tmp_path / "state" / "safelaunch" / "nodes"


def known(folder: Path, *found: tuple[str, str, int], ago_s: float = 60.0, why: str = "why", cause: str = "") -> None:
    """Write (node, kind, attempt) down, as a leader does."""
    ledger.append(folder, [NodeEvidence(node, kind, time.time() - ago_s, why, ME, "1a2b3c4d", attempt, cause)
                           for node, kind, attempt in found])


def as_json(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert run(["nodes", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_without_evidence_no_node_is_kept_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["nodes"]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"no node is excluded (ledger: {folder})\n")


def test_a_node_is_shown_with_its_score_end_reason_owner_and_runs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known(folder, ("n1", "short_cycle", 1), ("n1", "short_cycle", 2), why="task 8 on n1: exit code 3")
    assert run(["nodes"]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["node", "score", "excluded", "until", "evidence", "owner", "runs", "failures", "last"]
    assert row.startswith("n1    1.2    ")
    assert "(1 d 20 h)  short_cycle ×2  " + ME in row
    assert row.endswith("1a2b3c4d  -         task 8 on n1: exit code 3 (1 min ago)")


def test_little_evidence_is_shown_on_request(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known(folder, ("n1", "gpu", 1), ("n2", "network", 1))
    assert run(["nodes"]) == 0
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == ["node", "n1"]
    assert err == "1 more with too little evidence: --all\n"
    assert run(["nodes", "--all"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["node", "n1", "n2"]


def test_evidence_of_the_same_cause_elsewhere_is_called_void(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known(folder, ("n1", "network", 1), ("n2", "network", 2), cause="f")
    assert run(["nodes", "--all"]) == 0
    assert capsys.readouterr().out.count("the same cause elsewhere, too: void") == 2


def test_json_has_all_nodes_and_their_evidence(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known(folder, ("n1", "gpu", 1), ("n1", "first_to_fail", 1), ("n2", "network", 2), why="Xid 79")
    told = as_json(capsys)
    assert (told["v"], told["ledger"], told["forget_after_s"]) == (1, str(folder), 7 * 86400)
    first, second = told["nodes"]
    assert (first["node"], first["owners"], first["runs"], first["void"]) == ("n1", [ME], ["1a2b3c4d"], False)
    assert first["excluded_until_t"] == pytest.approx(told["now_t"] - 60 + 7 * 86400, abs=2)
    assert {one["kind"]: one["counts"] for one in first["evidence"]} == {"first_to_fail": False, "gpu": True}
    assert (second["node"], second["excluded_until_t"]) == ("n2", None)


def test_what_a_teammate_wrote_cannot_write_to_the_terminal(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known(folder, ("n1", "gpu", 1), why="\x1b[2Jall is well\r\nn9    2.0")
    assert run(["nodes"]) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 2 and "\x1b" not in out and r"\x1b[2Jall is well; n9" in out


def test_a_terminal_gets_a_table(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(talk, "is_for_person", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    known(folder, ("jean-zay-iam37", "lost", 1), why="[red]no answer[/red] from its guard for 10 s " * 3)
    assert run(["nodes"]) == 0
    out = capsys.readouterr().out
    assert "jean-zay-iam37" in out and "[red]" in out and max(map(len, out.splitlines())) <= 80


def test_a_narrow_terminal_gets_a_block_for_each_node(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns for all leave 14 letters a line to the reason at 80 columns: eight lines a node."""
    monkeypatch.setattr(talk, "is_for_person", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    known(folder, ("n1", "lost", 1), ("n2", "gpu", 1), why="Slurm says that the node is down, and its guard is silent")
    assert run(["nodes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 2 * 4 and max(map(len, lines)) <= 80
    assert lines[0].startswith(("n1  score 2.0, excluded until 2", "n2  score 2.0, excluded until 2"))
    assert "Slurm says that the node is down" in lines[1]


# --- people's word ------------------------------------------------------------------------------------------------


def test_a_suspected_node_is_kept_out_for_a_half_life(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["nodes", "suspect", "n[1-2]", "--why", "Xid 79 twice, ticket 4711"]) == 0
    assert [line[:34] for line in capsys.readouterr().err.splitlines()] == [
        "n1 is excluded from new attempts u", "n2 is excluded from new attempts u"]
    told = as_json(capsys)["nodes"]
    assert [(one["node"], one["score"], one["why"]) for one in told] == [
        (node, 2.0, "a person said so: Xid 79 twice, ticket 4711") for node in ("n1", "n2")]


def test_suspecting_what_is_kept_out_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known(folder, ("n1", "gpu", 1), ago_s=86400.0)
    assert run(["nodes", "suspect", "n1", "--why", "again"]) == 0
    assert capsys.readouterr().err.startswith("n1 stays excluded, now until ")


def test_a_cleared_node_is_as_good_as_new(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known(folder, ("n1", "gpu", 1), ("n1", "lost", 2), ("n2", "gpu", 3))
    assert run(["nodes", "clear", "n1,n7", "--why", "new GPU"]) == 0
    assert capsys.readouterr().err == ("n1 is cleared: 2 pieces of evidence are taken back (its score was 4.0)\n"
                                       "n7: there is no evidence against it\n")
    assert [one["node"] for one in as_json(capsys)["nodes"]] == ["n2"]


def test_clearing_reaches_evidence_of_a_clock_that_is_ahead(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known(folder, ("n1", "gpu", 1), ago_s=-120.0)
    assert run(["nodes", "clear", "n1", "--why", "new GPU"]) == 0
    assert as_json(capsys)["nodes"] == []


def test_what_comes_after_a_clearing_counts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known(folder, ("n1", "gpu", 1))
    assert run(["nodes", "clear", "n1", "--why", "new GPU"]) == 0
    assert run(["nodes", "suspect", "n1", "--why", "not better"]) == 0
    assert [one["score"] for one in as_json(capsys)["nodes"]] == [2.0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("suspect", "n1"), "Missing option '--why'"),
        (("clear", "n1"), "Missing option '--why'"),
        (("suspect", "n1", "--why", " \n"), "--why is missing"),
        (("suspect", "n[1-", "--why", "x"), "not a node list"),
        (("suspect", "", "--why", "x"), "is not a node's name"),
        (("suspect", "../n1", "--why", "x"), "is not a node's name"),
        (("suspect", "@all", "--why", "x"), "not a node list"),
        (("suspect", "n[0-99999999]", "--why", "x"), "more than 10000 nodes"),
        (("suspect", "n1,typo", "--why", "x"), "Slurm knows no node typo"),
        (("suspect", "n1", "--why", "x", "--ledger", "/nonexistent"), "is not a folder"),
        (("clear", "--why", "x"), "Missing argument 'NODES'"),
        (("blame", "n1"), "No such command"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_what_cannot_be_obeyed_is_refused_and_changes_nothing(
    words: tuple[str, ...], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["nodes", *words]) == 2
    assert message in capsys.readouterr().err
    assert not folder.exists()


def test_where_slurm_gives_no_answer_a_persons_word_stands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    says = "slurm_load_node error: Unable to contact slurm controller (connect failure)"
    fake_command(tmp_path / "bin", "scontrol", f"echo '{says}' >&2; exit 1")
    assert run(["nodes", "suspect", "n1", "--why", "it burns"]) == 0
    assert "n1 is excluded" in capsys.readouterr().err


def test_a_long_reason_of_several_lines_is_one_short_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["nodes", "suspect", "n1", "--why", "é\n\x1b[2J " * 5000]) == 0
    (why,) = [one["why"] for one in as_json(capsys)["nodes"]]
    assert "\n" not in why and "\x1b" not in why and len(why) < 600


# --- which ledger -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["before", "after"])
def test_another_ledger_can_be_named(place: str, tmp_path: Path, folder: Path) -> None:
    (tmp_path / "team").mkdir()
    named = ["--ledger", str(tmp_path / "team")]
    words = ["suspect", "n1", "--why", "x"]
    assert run(["nodes", *named, *words] if place == "before" else ["nodes", *words, *named]) == 0
    assert [one.node for one in ledger.read(tmp_path / "team")] == ["n1"]
    assert not folder.exists()


@pytest.mark.parametrize("layer", ["user", "site"])
def test_the_ledger_of_the_config_is_the_one(
    layer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / ("config/safelaunch/config.yaml" if layer == "user" else "site.yaml")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"suspects: {{ledger: {tmp_path}/team, forget_after: 1d}}\n")
    if layer == "site":
        monkeypatch.setenv("SAFELAUNCH_SITE_CONFIG", str(file))
    assert run(["nodes", "suspect", "n1", "--why", "x"]) == 0
    told = as_json(capsys)
    assert (told["ledger"], told["forget_after_s"]) == (f"{tmp_path}/team", 86400)
    assert told["nodes"][0]["excluded_until_t"] == pytest.approx(time.time() + 86400, abs=60)


@pytest.mark.root
@pytest.mark.parametrize("words", [(), ("suspect", "n1", "--why", "x")], ids=["read", "written"])
def test_a_frozen_ledger_is_said_to_be_frozen(
    words: tuple[str, ...], fuse_mount: FuseMount, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runs, "FOLDER_DEADLINE_S", 0.5)
    monkeypatch.setenv("XDG_STATE_HOME", str(fuse_mount.path))
    fuse_mount.freeze()
    assert run(["nodes", *words]) == 2
    assert "does not answer" in capsys.readouterr().err


def test_minutes_of_use_are_no_powers_of_ten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known(folder, ("n1", "lost", 1))
    ledger.append_use(folder, NodeUse(("n0", "n1"), time.time() - 30, 9.0, "1a2b3c4d", 1))
    assert run(["nodes"]) == 0
    assert "1 in under 1 min, 0.5 expected" in capsys.readouterr().out


def test_a_node_shows_its_failures_node_days_and_what_was_expected(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known(folder, ("n1", "lost", 1))
    nodes = tuple(f"n{number}" for number in range(4))
    ledger.append_use(folder, NodeUse(nodes, time.time() - 30, 2 * 86400.0, "1a2b3c4d", 1))
    found = as_json(capsys)
    (node,), fleet = found["nodes"], found["fleet"]
    assert (node["rate"]["failures"], node["rate"]["node_days"]) == (1, 2.0) and fleet["nodes"] == 4
    assert 0 < node["rate"]["probability"] < 0.95 and node["rate"]["expected"] == pytest.approx(1 / 6, abs=0.01)
    assert (fleet["failures"], fleet["node_days"]) == (1, pytest.approx(8.0, abs=0.01))
    assert run(["nodes"]) == 0
    assert "1 in 2 d, 0.17 expected" in capsys.readouterr().out


def test_a_node_that_fails_again_and_again_is_excluded_when_its_evidence_alone_would_have_faded(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now, nodes = time.time(), tuple(f"n{number}" for number in range(10))
    for number in range(10):   # every eighth day: each witness of 0.6 has faded to less than half by the next
        end_t = now - 86400 * (1 + 8 * number)
        ledger.append_use(folder, NodeUse(nodes, end_t + 60, 8 * 86400.0, "1a2b3c4d", number))
        ledger.append(folder, [NodeEvidence("n1", "gpu_maybe", end_t, "why", ME, "1a2b3c4d", number, f"c{number}")])
    (node,) = as_json(capsys)["nodes"]
    assert node["rate"]["probability"] > 0.95 and node["excluded_until_t"] > now
    assert "rate" in {one["kind"] for one in node["evidence"]} and "10 failures in 80 d of use" in node["why"]
    assert run(["nodes", "clear", "n1", "--why", "a new GPU"]) == 0 and not as_json(capsys)["nodes"]
