"""What others can write is bounded: docs/security.md has the code's figures, and each holds at the bound and beyond."""

from __future__ import annotations

import json
import math
import os
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from safelaunch.base.io import program, sharedfile
from safelaunch.base.yaml.yamltext import TEXT_MAX_BYTES
from safelaunch.checkpoints import inside, tree
from safelaunch.checkpoints.formats import safetensors
from safelaunch.config.handed import SCRIPT_MAX_BYTES
from safelaunch.errors import ConfigError
from safelaunch.extensions.io import rulepacks
from safelaunch.guard.io import control
from safelaunch.node.guard import protocol
from safelaunch.nodehealth.io import ledger
from safelaunch.nodehealth.ledgerlines import render_line
from safelaunch.notify.io import notify
from safelaunch.run import journal
from safelaunch.run.io import journal as folder
from safelaunch.run.io import registry
from safelaunch.run.io.attemptfacts import MOST_BYTES as FACTS_BYTES
from safelaunch.run.io.runfolder import REQUESTS
from safelaunch.slurm.io import slurm
from safelaunch.supervisor import observe
from safelaunch.supervisor.state import listening, suspicion
from safelaunch.verbs.overview import livecheckpoint
from safelaunch.verbs.report import reportcurves
from safelaunch.verbs.submit import submitplan
from safelaunch.why import rulepacks as packs
from safelaunch.why.io import limited, logbounds
from safelaunch.why.read.scan import MAX_LINE
from tests.io.nodehealth.test_ledger import evidence
from tests.pure.run.test_journal import line

PAGE = (Path(__file__).parent.parent / "docs" / "security.md").read_text()


def size(most: int) -> str:
    """As the page writes it: 16 MiB."""
    power = min(3, int(math.log2(most)) // 10)
    return f"{most / 1024 ** power:.4g} {('bytes', 'KiB', 'MiB', 'GiB')[power]}"


# input → the figures of its row, in the order in which they stand there
BOUNDS: dict[str, tuple[str, ...]] = {
    "train.yaml, a script": (size(TEXT_MAX_BYTES), f"{SCRIPT_MAX_BYTES / (1 << 20):.3f} MiB"),
    "run.json": (size(sharedfile.MOST_BYTES), f"{sharedfile.MOST_CONTAINERS:,} objects and lists"),
    "journal of another user's run, for people": (
        f"{size(folder.MOST_SHOWN_BYTES)} in all, {size(journal.MAX_LINE_BYTES)} a line",
        f"{folder.MOST_SHOWN_PARTS:,} values", f"{journal.MOST_OF_KIND:,} events of a kind",
        f"{journal.MOST_ODD_SHOWN:,} odd lines of a file"),
    "journal, for its supervisor": (f"{size(folder.MAX_JOURNAL_BYTES)} a file",),
    "control": (f"{len(REQUESTS)} names", "1 s"),
    "claims, pulse": (size(sharedfile.CLAIM_BYTES), size(sharedfile.HEARTBEAT_BYTES),
                      f"{folder.CLAIM_DIGITS} digits", f"{folder.MOST_CLAIMS:,} claims a look"),
    "exit.json, verdicts, cores": (size(FACTS_BYTES), f"{sharedfile.MOST_CONTAINERS:,} objects and lists"),
    "ledger": (
        f"{size(ledger.FILE_MAX_BYTES)} a file", f"{size(ledger.USER_MAX_BYTES)} an owner", size(ledger.ALL_MAX_BYTES),
        f"{ledger.USER_MAX_FILES} files an owner", f"{ledger.MOST_PLACES:,} nodes", f"{ledger.MOST_TOLD:,} witnesses",
        f"{suspicion.JUDGED_WITHIN_S:.0f} s", f"{submitplan.LEDGER_S:.0f} s"),
    "list of runs": (size(registry.MOST_BYTES), f"{registry.KEPT_RUNS:,} runs"),
    "checkpoints": (
        size(safetensors.MOST_PARSED_BYTES), f"{inside.MOST_OPS:,} opcodes", f"{tree.MOST_CONTAINERS:,} objects",
        f"{livecheckpoint.DEADLINE_S:.0f} s"),
    "logs, for the supervisor": (size(observe.CHUNK_BYTES), f"{listening.LISTEN_S:.1f} s"),
    "logs, for people": (
        f"{size(MAX_LINE)} of a line", size(reportcurves.MOST_LOG_BYTES), f"{logbounds.MOST_EXTENTS:,} parts",
        f"{reportcurves.MOST_KEPT:,} points"),
    "rule packs": (size(TEXT_MAX_BYTES), f"{rulepacks.MOST_PACKS} packs", f"{packs.MOST_RULES} rules",
                   f"{rulepacks.LOAD_S:g} s of processor time", f"{limited.SEARCH_S:g} s of a rule",
                   f"{limited.MOST_SLOW} slow"),
    "answers of squeue and other programs": (size(program.MOST_BYTES), f"{slurm.DEADLINE_S:.0f} s"),
    "replies to notify": ("0 bytes", f"{notify.DEADLINE_S:.0f} s"),
    "the supervisor's endpoint": (
        size(protocol.MAX_GREETING), size(protocol.MAX_LINE), f"{control.MAX_STRANGERS:,} strangers",
        f"{control.AT_ONCE} a turn", f"{control.GREETING_S:.0f} s"),
}


def test_the_page_has_a_row_with_the_figures_of_each_bound() -> None:
    table = PAGE.partition("## Bounds")[2].partition("\n## ")[0]
    rows = {found[1]: found[0] for found in re.finditer(r"^\| ([^|]+) \|.*$", table, re.MULTILINE)}
    assert [*rows][1:] == [*BOUNDS]
    for name, figures in BOUNDS.items():
        at = 0
        for figure in figures:
            place = re.compile(rf"(?<![\d.,]){re.escape(figure)}\b").search(rows[name], at)
            assert place, (name, figure, rows[name][at:])
            at = place.end()


# --- at the bound, and beyond ---------------------------------------------------------------------------------------


def test_more_containers_than_a_file_of_a_run_may_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharedfile, "MOST_CONTAINERS", 5)
    assert sharedfile.parse_json(b"[[], [], {}, []]") == [[], [], {}, []]
    with pytest.raises(ValueError, match="more than 5 objects and lists"):
        sharedfile.parse_json(b"[[], [], {}, [], []]")


@pytest.mark.parametrize("module", [tree])
def test_more_than_a_checkpoints_index_may_hold_is_not_checked(module: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CONTAINERS", 3)
    assert tree.parse_json(b"[[], {}]") == [[], {}]
    with pytest.raises(ValueError, match="not checked: it holds more than 3"):
        tree.parse_json(b"[[], {}, []]")


def test_a_file_of_exactly_the_most_bytes_is_read_and_one_more_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(b" " * 99 + b"1")
    assert sharedfile.read_json(path, 100) == 1
    with pytest.raises(sharedfile.OddFile, match="larger than 99 bytes"):
        sharedfile.read_json(path, 99)


@pytest.mark.parametrize("odd", [b"{", b"\0", b'{"v":1,}', b"garbage", b'{"v":1,"t":{}}'])
def test_lines_behind_thousands_that_are_none_are_read_and_few_of_those_are_listed(odd: bytes) -> None:
    for count in (journal.MOST_ODD - 1, journal.MOST_ODD, 5 * journal.MOST_ODD):
        for most in (None, folder.MOST_SHOWN_PARTS):
            read = journal.merge({"f": (odd + b"\n") * count + line(1)}, most)
            assert [event.seq for event in read.events] == [1]
            assert len(read.problems) == min(count, journal.MOST_ODD)


def test_nearly_right_lines_end_what_people_are_shown_and_not_what_a_supervisor_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journal, "MOST_ODD_SHOWN", 1000)
    data = b'{"v":1,}\n' * 1001 + line(1)
    shown = journal.merge({"f": data}, folder.MOST_SHOWN_PARTS)
    assert shown.events == () and shown.problems[-1] == "f: the rest was not read"
    assert len(journal.merge({"f": data}).events) == 1
    assert len(journal.merge({"f": data[9:]}, folder.MOST_SHOWN_PARTS).events) == 1


def test_values_of_a_journal_are_counted_and_the_small_files_come_first() -> None:
    files = {"a": b"".join(line(n, gen=1) for n in range(100)), "b": line(1, gen=2)}
    parts = sum(map(journal._parts, (one + b"\n" for one in b"".join(files.values()).splitlines())))
    whole = journal.merge(files, parts)
    assert (len(whole.events), whole.problems) == (101, ())
    cut = journal.merge(files, parts - 1)
    assert len(cut.events) == 100 and cut.events[-1].gen == 2
    assert cut.problems == (f"a: only its begin was read: it has more than {parts - 1} values",)


def test_of_each_kind_the_newest_events_are_shown_and_all_steps() -> None:
    most = journal.MOST_OF_KIND
    for more in (0, 7):
        data = b"".join(line(n, event="job_started") + line(2 * most + n) for n in range(most + more))
        read = journal.merge({"f": data}, folder.MOST_SHOWN_PARTS)
        jobs = [event.seq for event in read.events if event.event == "job_started"]
        assert jobs == [*range(more, most + more)] and len(read.events) == 2 * most + more
        assert len(read.problems) == (more > 0)


def test_a_supervisor_gets_the_newest_witnesses_of_each_owner_and_all_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = time.time()
    own = tuple(replace(evidence(attempt=n), t=now - 1000 + n, owner="ann") for n in range(3))
    others = tuple(replace(evidence(attempt=n), t=now - 900 + n, owner=who)
                   for who in ("eve", "bob") for n in range(20))
    monkeypatch.setattr(ledger, "MOST_TOLD", 12)
    told = ledger._newest_of_each((*own, *others), frozenset(own))
    assert set(own) <= set(told)
    assert {who: [one.attempt for one in told if one.owner == who] for who in ("eve", "bob")} == {
        "eve": [16, 17, 18, 19], "bob": [16, 17, 18, 19]}
    assert ledger._newest_of_each(others[:12], frozenset()) == [*others[:12]]


def test_of_a_ledger_of_empty_files_few_are_opened(tmp_path: Path) -> None:
    for number in range(ledger.USER_MAX_FILES + 50):
        (tmp_path / f"{os.geteuid()}-h{number}-2026-10.jsonl").touch()
    (tmp_path / f"{os.geteuid()}-n1-2026-11.jsonl").write_bytes(render_line(evidence()))
    assert len(ledger._files(tmp_path)) == ledger.USER_MAX_FILES
    assert len(ledger.read(tmp_path)) == 1


def test_of_a_long_list_of_runs_the_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for number in range(9):
        assert registry.register(tmp_path / f"run{number}", f"r{number}", "1a", "1")
    monkeypatch.setattr(registry, "MOST_BYTES", 5 + sum(map(len, registry.file().read_bytes().splitlines(True)[-2:])))
    assert {entry.name for entry in registry.listed()} == {"r8", "r7"}


def test_more_rule_packs_than_are_read_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rulepacks, "MOST_PACKS", 2)
    paths = [tmp_path / f"p{number}.yaml" for number in range(3)]
    for path in paths:
        path.write_text("version: 1\nrules: []\n")
    assert rulepacks.load_packs({"SAFELAUNCH_RULES": ":".join(map(str, paths[:2]))}) == ()
    with pytest.raises(ConfigError, match="more than 2 rule packs"):
        rulepacks.load_packs({"SAFELAUNCH_RULES": ":".join(map(str, paths))})


def test_a_pipe_in_the_place_of_a_rule_pack_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        rulepacks.load_packs({"SAFELAUNCH_RULES": str(tmp_path / "p.yaml")})


def test_a_longer_header_of_tensors_is_not_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safelaunch.checkpoints.io.checkpoints import RealFolder

    head = json.dumps({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + b"x")
    monkeypatch.setattr(safetensors, "MOST_PARSED_BYTES", len(head))
    assert safetensors.judge_file(RealFolder(str(tmp_path)), "model.safetensors") is None
    monkeypatch.setattr(safetensors, "MOST_PARSED_BYTES", len(head) - 1)
    assert "not checked" in str(safetensors.judge_file(RealFolder(str(tmp_path)), "model.safetensors"))
