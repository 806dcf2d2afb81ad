"""A real leader's door, and another user of its host: in the middle, and at the door with all that he has.

SAFELAUNCH_LONG=1 gives the figures of docs/security.md; -s shows them.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import resource
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.drills.proofs import IS_LONG
from tests.localruns import ROOT, LocalRun, SubmitLocal

ENDLESS = "--steps 1000000 --step-time 0.05 --handle-usr2 --save-every 1000000"
MALLORY = 60002 if os.geteuid() == 0 else None   # no account: a kernel needs none
KILL_S = 6.0 if IS_LONG else 100.0   # beside others each command waits for a processor; the grace is 15 minutes
DESCRIPTORS = 12_000
HARMS = 150 if IS_LONG else 3   # at least, however slow the machine is
MOST_TURNS = 5   # a leader that is born late has its guards call at its own door


@contextlib.contextmanager
def another_user(*words: str) -> Iterator[subprocess.Popen[str]]:
    """`python -m WORDS`, run by one who owns nothing here; it ends once its stdin does."""
    def allow_many_descriptors() -> None:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        many = max(DESCRIPTORS, most) if MALLORY else most
        resource.setrlimit(resource.RLIMIT_NOFILE, (many, many))

    process = subprocess.Popen(
        ["setpriv", f"--reuid={MALLORY}", f"--regid={MALLORY}", "--clear-groups", sys.executable, "-m", *words]
        if MALLORY else [sys.executable, "-m", *words],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=allow_many_descriptors)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def say(process: subprocess.Popen[str], text: object) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{text}\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str], run: LocalRun) -> str:
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], 300)[0], f"it says nothing\n{run.story()}"
    return process.stdout.readline().strip()


def door(run: LocalRun) -> int:
    """The port that the attempt's record names."""
    return int(json.loads((run.run_dir / "attempts" / "0001" / "record.json").read_text())["endpoint"][1])


@contextlib.contextmanager
def in_the_middle(run: LocalRun) -> Iterator[subprocess.Popen[str]]:
    """Another user takes the port of a leader that dies, before it is born again, and its guards call there."""
    port = door(run)
    with another_user("tests.relay", str(port), "1", str(HARMS)) as relay:
        births = len(run.events("took_over"))
        with run.leader_dies():
            assert hear(relay, run) == "taken"
        run.wait_for(lambda: len(run.events("took_over")) > births, 60, "nobody took over")
        run.wait_for(lambda: door(run) != port, 60, "the record names the old port")
        say(relay, door(run))
        yield relay


def test_who_stands_between_a_leader_and_its_guards_is_believed_by_neither(submit_local: SubmitLocal) -> None:
    """Of lines that are repeated, swapped, left out, altered, made up, of other connections, and turned back."""
    nodes, span_s = (12, 120.0) if IS_LONG else (3, 6.0)
    run = submit_local(ENDLESS, nodes=nodes)
    run.wait_ranks(nodes)
    ranks = sorted(run.ranks())

    done: collections.Counter[str] = collections.Counter()
    for turn in range(1, MOST_TURNS + 1):
        with in_the_middle(run) as relay:
            time.sleep(span_s)   # nothing can be waited for: all that happens is to have no effect
            say(relay, "harm no more")
            told = json.loads(hear(relay, run))
            done.update(told["done"])
            print(f"\nin the middle: {done.total()} harms to {nodes} guards' lines; believed: {told['kept']}; {done}")
            assert told["kept"] == [], told
            assert sorted(run.ranks()) == ranks and len(run.state().attempts) == 1, run.story()
            assert len(run.events("took_over")) == turn, f"a leader died of it\n{run.story()}"
            if done.total() >= HARMS:
                took_s = check_guards_and_kill_switch(run, nodes)
                break
    else:
        pytest.fail(f"{done} in {MOST_TURNS} turns\n{run.story()}")
    print(f"and the kill switch took {took_s:.1f} s")


# Kind → how often, in the whole test run and in the long form.
FLOODS = {"hold": (600, 10_000), "loris": (300, 3_000), "churn": (2_000, 100_000), "greet": (150, 3_000),
          "proved": (50, 3_000)}


@pytest.mark.parametrize("kinds", [(kind,) for kind in FLOODS] if IS_LONG else [tuple(FLOODS)], ids="-".join)
def test_floods_cost_no_guard_no_supervisor_and_no_kill_switch(
    submit_local: SubmitLocal, kinds: tuple[str, ...], local_env: dict[str, str],
) -> None:
    """Connections that are held, or say a byte now and then, or come and go, or greet oddly; and odd words of one who
    has the token.
    """
    nodes = 2
    run = submit_local(ENDLESS, nodes=nodes)
    run.wait_ranks(nodes)
    leader, ranks, port = run.leader(), sorted(run.ranks()), door(run)
    (control,) = Path(local_env["SAFELAUNCH_LOCAL_DIR"]).glob("safelaunch-*/*/control.json")
    token = json.loads(control.read_text())["token"]

    with contextlib.ExitStack() as stack:
        floods = {kind: stack.enter_context(another_user("tests.flood", kind, str(port), str(FLOODS[kind][IS_LONG])))
                  for kind in kinds}
        if "proved" in floods:
            say(floods["proved"], token)
        begin_s = time.monotonic()
        told = {kind: json.loads(hear(flood, run)) for kind, flood in floods.items()}
        span_s = time.monotonic() - begin_s
        assert (run.leader(), sorted(run.ranks())) == (leader, ranks), run.story()
        assert not run.events("took_over") and len(run.state().attempts) == 1, run.story()
        assert [flood.poll() for flood in floods.values()] == [None] * len(floods), "a flood has ended"
        took_s = check_guards_and_kill_switch(run, nodes)
    print(f"\n{told} in {span_s:.1f} s; and the kill switch took {took_s:.1f} s")
    assert not any(one["accepted"] for one in told.values()), told


def check_guards_and_kill_switch(run: LocalRun, nodes: int) -> float:
    """Every guard hears of a stop, and nothing is left; seconds of it."""
    begin_s = time.monotonic()
    (run.run_dir / "control" / "kill").touch()
    ended = run.wait_end()
    took_s = time.monotonic() - begin_s
    assert (ended.how, ended.exit_code) == ("stopped", 12), run.story()
    assert run.stopped() == nodes, run.story()
    assert took_s <= KILL_S, run.story()
    return took_s
