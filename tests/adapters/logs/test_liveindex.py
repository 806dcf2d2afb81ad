"""The index of a log that grows: kept by children, and no different from reading the log whole."""

from __future__ import annotations

import ctypes
import json
import os
import random
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from safelaunch.adapters import rulepacks
from safelaunch.adapters.diagnosis import diagnose
from safelaunch.adapters.logs import liveindex, logfiles, logindex
from safelaunch.adapters.logs.liveindex import LiveIndex
from safelaunch.core.why import rulebook
from safelaunch.core.why.findings import Evidence, Log
from safelaunch.core.why.judging import judge_log
from tests.core.why.judged import COMPILED
from tests.localruns import LocalRun, SubmitLocal

OOM = b"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a capacity of 79 GiB.\n"
TRACE = b'Traceback (most recent call last):\n  File "/home/u/train.py", line 7, in f\n    f()\n'
STEP = b" iteration %8d/ 500000 | consumed samples: 1 | elapsed time per iteration (ms): 401.0 | lm loss: 2.5E+00 |\n"


def steps(first: int, count: int) -> bytes:
    return b"".join(STEP % number for number in range(first, first + count))


def wait_for_child(index: LiveIndex, size: int) -> bytes | None:
    """What `keep` gives once its child has ended."""
    end_s = time.monotonic() + 60
    while time.monotonic() < end_s:
        text = index.keep(size, time.monotonic())
        if index._pid == 0:
            return text
        time.sleep(0.01)
    raise AssertionError("the child did not end")


def said(log: Log) -> list[tuple[str, int, int | None, str]]:
    return [(one.rule, one.offset, one.line_number, one.text) for one in log.findings]


def test_a_child_keeps_the_index_of_a_growing_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveindex, "STEP", 1000)
    log = tmp_path / "a.log"
    index = LiveIndex(log, tmp_path / "a.index")
    for turn in range(3):
        with log.open("ab") as stream:
            stream.write(steps(turn * 100, 100) + OOM)
        index._next_s = 0.0
        index.keep(log.stat().st_size, time.monotonic())
        wait_for_child(index, log.stat().st_size)
        known = logindex.load(index.file)
        assert known is not None and known.position == log.stat().st_size
        assert known.lines == log.read_bytes().count(b"\n")


def test_a_short_log_costs_no_child(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(OOM)
    index = LiveIndex(log, tmp_path / "a.index")
    index.keep(liveindex.STEP - 1, 0.0)
    assert index._pid == 0


def test_after_a_child_there_is_rest_in_proportion_to_what_it_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(liveindex, "STEP", 1000)
    log = tmp_path / "a.log"
    log.write_bytes(steps(0, 1000))
    index = LiveIndex(log, tmp_path / "a.index")
    index.keep(log.stat().st_size, 100.0)
    os.waitid(os.P_PID, index._pid, os.WEXITED | os.WNOWAIT)
    index.keep(log.stat().st_size, 100.1)
    assert index.cpu_s > 0
    index.keep(log.stat().st_size * 2, 100.0 + index.cpu_s / liveindex.SHARE - 0.01)
    assert index._pid == 0


def test_a_child_that_takes_for_ever_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveindex, "STEP", 10)
    monkeypatch.setattr(liveindex, "update", lambda log, file: time.sleep(600))
    log = tmp_path / "a.log"
    log.write_bytes(OOM)
    index = LiveIndex(log, tmp_path / "a.index")
    index.keep(log.stat().st_size, 0.0)
    pid = index._pid
    index.keep(log.stat().st_size, liveindex.DEADLINE_S + 1)
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)   # on a slow machine it was not collected yet; it has been killed in any case


def test_the_index_is_published_as_the_log_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveindex, "STEP", 1000)
    monkeypatch.setattr(liveindex, "PUBLISH_EVERY", 1000)
    log = tmp_path / "a.log"
    log.write_bytes(steps(0, 100))
    index = LiveIndex(log, tmp_path / "a.index")
    assert index.keep(log.stat().st_size, time.monotonic()) is None
    text = wait_for_child(index, log.stat().st_size)
    assert text is not None and json.loads(text)["position"] == log.stat().st_size


# No "n7: " before a single line: whether that is a host is told by how many lines have it, and in a part all may.
LINES = st.lists(st.sampled_from([
    OOM, b"[rank1]: " + OOM, TRACE + OOM, TRACE + b"ValueError: no\n", b"[n1:3]:" + TRACE.replace(b"\n", b"\n[n1:3]:")
    + b"KeyError: 8\n", steps(1, 3), steps(50, 2), b"NVRM: Xid (PCI:0000:90:00): 79, GPU has fallen off the bus.\n",
    b"2024-05-01 12:30:00 WARNING slow\n", b"\n", b"hello\r\nworld\n", b"\xff\x00\n",
    b"slurmstepd: error: *** STEP 8.0 ON n1 CANCELLED AT 2024-05-01T12:30:10 ***\n",
    b"[rank5]: torch.distributed.DistBackendError: NCCL communicator was aborted\n",
]), max_size=30)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=LINES, cuts=st.lists(st.integers(0, 6000), max_size=5), torn=st.booleans())
def test_an_index_and_the_tail_say_what_the_whole_log_says(
    tmp_path: Path, lines: list[bytes], cuts: list[int], torn: bool,
) -> None:
    text = b"".join(lines)
    text = text[:-3] if torn else text
    log, file = tmp_path / "a.log", tmp_path / "a.index"
    file.unlink(missing_ok=True)
    for cut in sorted(cuts):
        log.write_bytes(text[:cut])
        liveindex.update(log, file)
    log.write_bytes(text)
    known = logindex.load(file)
    whole = logfiles.read_logs([log], rulebook.RULES, compiled=COMPILED)
    bits = logfiles.read_logs([log], rulebook.RULES, compiled=COMPILED, indexes={log: known} if known else None)
    assert said(bits) == said(whole)
    assert bits.lines == whole.lines and bits.last == whole.last
    assert judge_log(bits).category == judge_log(whole).category


def punch(path: Path, start: int, end: int) -> None:
    """Give back the blocks of a part of a file, as the pump does."""
    with path.open("r+b") as stream:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.fallocate(stream.fileno(), 0x3, ctypes.c_longlong(start), ctypes.c_longlong(end - start)):
            pytest.skip("no holes on this file system")


def test_a_log_whose_beginning_the_pump_has_given_back_is_known_by_its_index(tmp_path: Path) -> None:
    log, file = tmp_path / "a.log", tmp_path / "a.index"
    log.write_bytes(OOM + steps(0, 100) + OOM * 3 + b"x" * 20000 + b"\n")
    liveindex.update(log, file)
    with log.open("ab") as stream:
        stream.write(b"NCCL WARN Timeout waiting for RX\n")
    punch(log, 0, log.stat().st_size // 4096 * 4096)
    found = diagnose(log, Evidence(), file)
    assert found is not None and found["verdict"]["category"] == "cuda_oom"


def test_without_an_index_what_the_pump_has_left_is_read(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(steps(0, 200) + b"x" * 20000 + b"\n" + OOM)
    punch(log, 0, 20480)
    found = diagnose(log, Evidence(), tmp_path / "none")
    assert found is not None and found["verdict"]["category"] == "cuda_oom"


def test_what_was_gone_before_a_child_could_read_it_is_read_in_a_copy_that_has_it(tmp_path: Path) -> None:
    log, file, copy = tmp_path / "a.log", tmp_path / "a.index", tmp_path / "main.log"
    log.write_bytes(steps(0, 100))
    liveindex.update(log, file)
    with log.open("ab") as stream:
        stream.write(b"x" * 9000 + b"\n" + OOM + b"x" * 9000 + b"\n" + b"the last line\n" * 400)
    shutil.copy(log, copy)
    punch(log, 0, (log.read_bytes().index(OOM) + len(OOM)) // 4096 * 4096 + 4096)
    known = logindex.load(file)
    assert known is not None
    logindex.save(logindex.update(known, log, rulebook.RULES), file)
    index = logindex.load(file)
    assert index is not None
    read = logfiles.read_logs([copy], rulebook.RULES, indexes={copy: index})
    assert judge_log(read).category == "cuda_oom"


def test_what_becomes_a_hole_while_it_is_read_is_not_taken_for_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(steps(0, 100) + b"x" * 9000 + b"\n" + OOM)

    def read_late(*words: object) -> object:
        punch(log, 0, 8192)
        return scan(*words)   # type: ignore[arg-type]

    scan = logindex._read
    monkeypatch.setattr(logindex, "_read", read_late)
    index = logindex.update(None, log, rulebook.RULES)
    assert index.position == 0
    monkeypatch.setattr(logindex, "_read", scan)
    index = logindex.update(index, log, rulebook.RULES)
    assert index.holes and index.holes[0][1] >= 8192 and index.position == log.stat().st_size


@pytest.mark.parametrize("key", ["findings", "progress", "counts", "marks", "lines", "position", "holes", "recent"])
@pytest.mark.parametrize("value", [None, "x", [[1, 2]], {"a": "b"}, [["a", 1, 2, 3, 4]], -1.5], ids=str)
def test_an_index_of_odd_values_is_none_or_does_no_harm(tmp_path: Path, key: str, value: object) -> None:
    log, file = tmp_path / "a.log", tmp_path / "a.index"
    log.write_bytes(steps(0, 10) + OOM)
    liveindex.update(log, file)
    kept = json.loads(file.read_text())
    file.write_text(json.dumps({**kept, key: value}))
    known = logindex.load(file)
    if known is not None:
        judge_log(logfiles.read_logs([log], rulebook.RULES, indexes={log: known}))


def test_a_living_run_keeps_an_index_that_its_verdict_and_why_go_on_from(
    submit_local: SubmitLocal, tmp_path: Path,
) -> None:
    numbers = random.Random(3).sample(range(10**9), 4000)
    noise = "".join(f"loader {number} has brought shard {number}\n" * 3 for number in numbers)
    (tmp_path / "noise.txt").write_text(noise)
    (tmp_path / "train.py").write_text(TRAINER)
    run: LocalRun = submit_local("", f"command={sys.executable} -u {tmp_path}/train.py {tmp_path}",
                                 "restart.max_restarts=0", "resume.by=training")
    run.wait_end()
    folder = run.run_dir / "attempts" / "0001"
    known = logindex.load(folder / "index.json")
    assert known is not None, run.story()
    log = folder / "main.log"
    assert logindex.is_of(known, log, rulebook.RULES)
    size = log.stat().st_size
    assert liveindex.STEP <= known.position <= size
    whole = logfiles.read_logs([log], rulebook.RULES)
    bits = logfiles.read_logs([log], rulebook.RULES, indexes={log: known})
    assert judge_log(bits).category == judge_log(whole).category == "cuda_oom"
    assert run.events("verdict")[0].data["category"] == "cuda_oom"
    done = run.type("why", "--json")
    said = json.loads(done.stdout)["verdict"]
    assert said["category"] == "cuda_oom" and said["evidence"][0]["line_number"] == log.read_bytes().count(b"\n", 0, (
        log.read_bytes().rindex(b"torch.cuda.OutOf"))) + 1


TRAINER = '''
import json, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
noise = (folder / "noise.txt").read_text()
step = 0
print("starting", flush=True)
while True:
    for _ in range(8):
        sys.stdout.write(noise)
        step += 1
        print(f" iteration {step:8d}/ 500000 | elapsed time per iteration (ms): 401.0 | lm loss: 2.5E+00 |")
    sys.stdout.flush()
    time.sleep(0.05)
    written = step * len(noise)
    if written > 40 << 20 and any(json.loads(file.read_text())["position"] for file in folder.rglob("*.index")):
        break
    if written > 400 << 20:
        break
raise type("OutOfMemoryError", (RuntimeError,), {"__module__": "torch.cuda"})(
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a capacity of 79 GiB.")
'''


PACK = """version: 1
rules:
  - id: site.cooling
    category: node_failure
    anchor: [our cooling loop]
    pattern: our cooling loop has failed on (?P<host>[a-z0-9]+)
    weight: 0.9
"""


def test_rules_of_the_submitter_s_packs_are_the_supervisor_s_as_well(
    submit_local: SubmitLocal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, local_env: dict[str, str],
) -> None:
    (tmp_path / "pack.yaml").write_text(PACK)
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


def test_rules_come_back_as_they_were_kept() -> None:
    assert rulepacks.undump(json.loads(json.dumps(rulepacks.dump(rulebook.RULES)))) == tuple(rulebook.RULES)
