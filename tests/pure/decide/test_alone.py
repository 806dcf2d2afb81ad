"""Who is to blame: faults of a node, the program, the environment, storage and network, early and late, beside a spare
and without one. Each goes through the real reading of its log, the verdict, the journal's fold and the decisions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from safelaunch.base.model import Event, Exit
from safelaunch.decide.budget import alone
from safelaunch.decide.budget.blame import Failure, blame, culprits_of
from safelaunch.decide.ends.advice import what_follows
from safelaunch.decide.facts.actions import Finish, HandOver, Launch, Wait
from safelaunch.decide.facts.seen import Live, Observation
from safelaunch.decide.turn import rows
from safelaunch.nodehealth.ledger import NodeEvidence, exclusions
from safelaunch.nodehealth.ledgerlines import node_excluded
from safelaunch.run.fold.folding import fold
from safelaunch.run.fold.state import State
from safelaunch.why.categories import TABLE
from safelaunch.why.evidence import know
from safelaunch.why.findings import EndFacts, TaskExit
from safelaunch.why.show.ticket import is_for_site, render_ticket
from safelaunch.why.verdict import Verdict
from tests.pure.decide.situations import PLAN
from tests.pure.why.judged import judge_text
from tests.tables import each

PARTITION = tuple(f"n{number}" for number in range(8))
PEERS = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.1.2.3]:41234"
STEP = 59


def raised(error: str, frame: str = "train.py") -> str:
    return f'Traceback (most recent call last):\n  File "/home/u/{frame}", line 41, in step\n    work()\n{error}'


class Fault(NamedTuple):
    """What goes wrong: the lines, on which nodes, and whether before the first step. `at`: a node; "all"; "rank 1"."""

    name: str
    said: str
    category: str
    at: str = "n1"
    late: bool = False
    code: int = 1
    signal: int | None = None
    echoes: bool = True     # the others' ranks print that their peer has gone
    place: str = "0"        # "node": setup's words, or the launcher's own


def fails_on(fault: Fault, nodes: tuple[str, ...]) -> tuple[str, ...]:
    if fault.at == "all":
        return nodes
    if fault.at.startswith("rank "):
        return (nodes[int(fault.at[5:])],)
    return tuple(node for node in nodes if node in fault.at.split(","))


def log_of(fault: Fault, nodes: tuple[str, ...], bad: tuple[str, ...]) -> str:
    steps = [f"[{nodes[0]}:0]:step {number} loss 0.5" for number in range(40, STEP + 1)] if fault.late else []
    own = [f"[{node}:{fault.place}]:{line}" for node in bad for line in fault.said.splitlines() if line]
    gone = [f"[{node}:0]:{line}" for node in nodes if node not in bad and fault.echoes
            for line in raised(PEERS).splitlines()]
    return "\n".join([*steps, *own, *gone])


class Played(NamedTuple):
    """How a run with the fault went."""

    state: State
    used: tuple[tuple[str, ...], ...]      # the nodes of each attempt
    jobs: int
    verdicts: tuple[Verdict, ...]
    evidence: tuple[NodeEvidence, ...]


def play(fault: Fault, *, spare: bool, partition: tuple[str, ...] = PARTITION,
         most_restarts: int = PLAN.restart.max_restarts) -> Played:
    """The run until it completes, or is given up. Tasks are reported in an order that hides who was first."""
    plan = PLAN._replace(spare_nodes=int(spare), restart=PLAN.restart._replace(max_restarts=most_restarts))
    size, jobs, t = plan.nodes + spare, 1, 1000.0
    nodes, used = partition[:size], list[tuple[str, ...]]()
    verdicts, evidence, said = list[Verdict](), tuple[NodeEvidence, ...](), list[Event]()
    state = State()

    def tell(event: str, **data: Any) -> None:
        nonlocal state
        said.append(Event(t, 1, len(said), "n0", event, data))
        state = fold(said[-1:], state)

    tell("submitted", job="11")
    tell("job_started", job="11", nodes=nodes)
    for _ in range(40):
        t += 10.0
        seen = Observation(now=t, nodes=nodes, partition=partition)
        action = rows.decide(state, seen, plan).action
        if isinstance(action, Wait):
            t = action.until
        elif isinstance(action, HandOver):
            jobs += 1
            left = [node for node in partition if node not in action.exclude]
            nodes = tuple((left if len(left) >= size else partition)[:size])
            tell("job_started", job=str(10 + jobs), nodes=nodes)
        elif isinstance(action, Launch):
            number, bad = len(used) + 1, fails_on(fault, action.nodes)
            used.append(action.nodes)
            tell("attempt_started", attempt=number, job=str(10 + jobs), nodes=action.nodes)
            if fault.late or not bad:
                tell("progress", attempt=number, step=STEP)
            if not bad:
                tell("attempt_ended", attempt=number, how="completed")
                continue
            t += 30.0
            order = [node for node in action.nodes if node not in bad] + list(bad)   # the echo comes first
            exits = tuple(TaskExit(node, action.nodes.index(node), fault.code if node in bad else 1,
                                   fault.signal if node in bad else None) for node in
                          (order if fault.echoes and not fault.signal else bad))
            verdict = judge_text(log_of(fault, action.nodes, bad), evidence=know(EndFacts("failed"), exits))
            found = culprits_of(verdict.spoken_by, verdict.echoed_by, Live(number, action.nodes, tuple(
                Exit(one.host, one.task, one.code, one.signal) for one in exits)))
            verdicts.append(verdict)
            mark = verdict.fingerprint or f"{verdict.category}::{verdict.summary}"
            tell("verdict", attempt=number, category=verdict.category, summary=verdict.summary, node=verdict.host,
                 confidence=verdict.confidence, fingerprint=mark, suspects=verdict.suspects or found.nodes,
                 first_only=not verdict.suspects and found.is_first_only)
            evidence = (*evidence, *blame(Failure(
                "r1", "alice", t, number, action.nodes, verdict.category, verdict.confidence, verdict.summary,
                verdict.suspects or found.nodes, fingerprint=mark)))
            for one in exclusions(evidence, t, plan.suspects, nodes=2, spares=1, run="r1", among=partition):
                if one.node not in state.excluded:
                    tell("node_excluded", **node_excluded(one))
            tell("attempt_ended", attempt=number, how="failed", exit_code=fault.code)
        else:
            assert isinstance(action, Finish), action
            tell(action.how, exit_code=action.exit_code, why=action.why)
            return Played(state, tuple(used), jobs, tuple(verdicts), evidence)
    raise AssertionError(f"no end: {used}")


EIO = raised("OSError: [Errno 5] Input/output error: '/local/data/shard-0042.tar'")
KEY = raised("KeyError: 'label'")
DNS = raised("socket.gaierror: [Errno -2] Name or service not known")
MODULE = raised("ModuleNotFoundError: No module named 'flash_attn'")

OF_A_NODE = [
    Fault("KeyError", KEY, "user_code"),
    Fault("KeyError late", KEY, "user_code", late=True),
    Fault("I/O error", EIO, "storage"),
    Fault("I/O error late", EIO, "storage", late=True),
    Fault("module", MODULE, "environment"),
    Fault("module late", MODULE, "environment", late=True),
    Fault("setup", "launch: line 4: /opt/site/venv/bin/activate: No such file or directory\n"
          "safelaunch: setup failed with exit code 1 on n1", "environment", echoes=False, place="node"),
    Fault("name", DNS, "network"),
    Fault("name late", DNS, "network", late=True),
    Fault("name of the first node", "[W socket.cpp:697] [c10d] The IPv4 network addresses of (n0, 29500) cannot be "
          "retrieved (gai error: -2 - Name or service not known).\n" + raised("torch.distributed.DistNetworkError: The "
          "client socket has failed to connect to any network address of (n0, 29500)."), "network"),
    Fault("device", raised("RuntimeError: No CUDA GPUs are available"), "gpu_hardware"),
    Fault("local disk full", raised("OSError: [Errno 28] No space left on device: '/local/tmp/x'"), "storage"),
    Fault("local disk full late", raised("OSError: [Errno 28] No space left on device: '/local/tmp/x'"), "storage",
          late=True),
    Fault("read-only disk", raised("OSError: [Errno 30] Read-only file system: '/local/tmp'"), "storage", late=True),
    Fault("stale handle", raised("OSError: [Errno 116] Stale file handle: '/data/x'"), "storage", late=True),
    Fault("remote I/O error late", raised("OSError: [Errno 121] Remote I/O error: '/scratch/x'"), "storage", late=True),
    Fault("I/O error of a loader late", raised("OSError: Caught OSError in DataLoader worker process 0.\nOriginal "
          "Traceback (most recent call last):\n  File \"/opt/torch/utils/data/_utils/worker.py\", line 351, in "
          "_worker_loop\n    data = fetcher.fetch(index)\nOSError: [Errno 5] Input/output error"), "storage",
          late=True),
    Fault("I/O error of a command", "cat: /local/list.txt: Input/output error", "storage", echoes=False,
          place="node"),
    Fault("I/O error of a command late", "cp: error reading '/local/shard.tar': Input/output error", "storage",
          late=True),
    Fault("bus error late", "Fatal Python error: Bus error\n\nCurrent thread 0x00007f2c (most recent call first):\n"
          "  File \"/home/u/train.py\", line 41 in step", "native_crash", late=True, code=135, signal=7),
    Fault("bus error of the shell late", "launch: line 4: 2313 Bus error               (core dumped) python train.py",
          "native_crash", late=True, code=135),
    Fault("no python", "launch: line 1: python: command not found", "environment", code=127, echoes=False,
          place="node"),
    Fault("library", raised("ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory"),
          "environment"),
    Fault("glibc", "/opt/tool: /lib64/libc.so.6: version `GLIBC_2.34' not found (required by /opt/tool)",
          "environment"),
    Fault("no data there", raised("FileNotFoundError: [Errno 2] No such file or directory: '/local/train.bin'"),
          "config"),
    Fault("torn image late", raised("PIL.UnidentifiedImageError: cannot identify image file '/local/a.jpg'"), "data",
          late=True),
    Fault("permission", raised("PermissionError: [Errno 13] Permission denied: '/local/cache'"), "config"),
    Fault("silent", "", "unknown", code=3, echoes=False),
    Fault("silent, others echo", "", "network", code=3),
    Fault("silent late", "", "network", late=True, code=3),
    Fault("crash late", "", "native_crash", late=True, code=139, signal=11),
    Fault("GPU memory late", raised("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has "
                                    "a total capacity of 79.15 GiB of which 1.10 GiB is free."), "cuda_oom", late=True),
    Fault("assertion", raised("AssertionError: shard 3 has 17 rows, not 18"), "user_code"),
]
OF_ALL = [
    Fault("KeyError of all", KEY, "user_code", at="all"),
    Fault("KeyError of all late", KEY, "user_code", at="all", late=True),
    Fault("module of all", MODULE, "environment", at="all"),
    Fault("name of all", DNS, "network", at="all"),
    Fault("I/O error of all", EIO, "storage", at="all"),
    Fault("I/O error of all late", EIO, "storage", at="all", late=True),
    Fault("syntax", '  File "/home/u/train.py", line 3\n    def f(:\n          ^\nSyntaxError: invalid syntax',
          "user_code", at="all"),
    Fault("arguments", "usage: train.py [-h] [--steps N]\ntrain.py: error: unrecognized arguments: --stepz 400",
          "config", at="all", code=2),
    Fault("silent, all", "", "unknown", at="all", code=3, late=True),
    Fault("data of all", raised("FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'"), "config",
          at="all"),
]
OF_A_RANK = [
    Fault("KeyError of a rank", KEY, "user_code", at="rank 1"),
    Fault("KeyError of a rank late", KEY, "user_code", at="rank 1", late=True),
    Fault("data of a rank", raised("FileNotFoundError: [Errno 2] No such file or directory: '/data/b.bin'"), "config",
          at="rank 1"),
    Fault("first rank late", KEY, "user_code", at="rank 0", late=True),
]


def called(fault: Fault) -> str:
    return fault.name


def failures(played: Played) -> Iterator[Any]:
    return (one for one in played.state.attempts if one.has_failed)


@each("fault", OF_A_NODE, ids=called)
def test_what_one_node_alone_shows_ends_no_run_beside_a_spare(fault: Fault) -> None:
    played = play(fault, spare=True)
    assert played.state.ended is not None and played.state.ended.how == "completed", played.state.ended
    assert played.jobs == 1 and played.used == (("n0", "n1"), ("n0", "n2")), played.used
    assert {one.category for one in played.verdicts} == {fault.category}, played.verdicts[0].summary
    assert all(one.blamed == ("n1",) for one in failures(played)), [one.blamed for one in failures(played)]
    assert ", without n1 (attempt 2)" in what_follows(played.state, played.state.attempts[0], PLAN)
    assert played.state.excluded == (), "a guess about one node is no evidence for other runs"


@each("fault", OF_A_NODE, ids=called)
def test_what_one_node_alone_shows_is_tried_in_the_next_job_where_there_is_no_spare(fault: Fault) -> None:
    played = play(fault, spare=False)
    assert played.state.ended is not None and played.state.ended.how == "completed", played.state.ended
    assert played.jobs == 2 and "n1" not in played.used[-1], played.used


@each("fault", [one for one in OF_A_NODE if not TABLE[one.category].is_bad_node], ids=called)
def test_where_no_other_node_can_be_had_the_end_names_the_node_and_clears_none(fault: Fault) -> None:
    played = play(fault, spare=False, partition=("n0", "n1"))
    ended = played.state.ended
    assert ended is not None and ended.how == "gave_up" and played.jobs == 1
    assert "on n1 alone" in ended.why and "no node is to blame" not in ended.why, ended.why


@each("fault", OF_A_NODE, ids=called)
def test_a_trial_without_the_node_is_a_restart_and_counts_as_one(fault: Fault) -> None:
    for most in range(2):
        ended = (played := play(fault, spare=True, most_restarts=most)).state.ended
        completes = most == 1
        assert ended is not None and ended.how == ("completed" if completes else "gave_up"), ended
        assert len(played.used) == most + 1, played.used


@each("fault", OF_ALL, ids=called)
def test_what_all_nodes_show_at_once_is_the_programs(fault: Fault) -> None:
    for spare in (True, False):
        played = play(fault, spare=spare)
        assert played.state.ended is not None and played.state.ended.how == "gave_up", played.state.ended
        assert played.jobs == 1 and set(played.used) == {("n0", "n1")}, played.used
        assert not alone.left_out(played.state) and not played.state.excluded and not played.evidence
        assert len(played.used) <= 3


@each("fault", OF_A_RANK, ids=called)
def test_what_follows_the_rank_is_proven_the_programs_on_another_node(fault: Fault) -> None:
    played = play(fault, spare=True)
    ended = played.state.ended
    assert ended is not None and ended.how == "gave_up" and "no node is to blame" in ended.why, ended
    assert len(played.used) == len(set(played.used)) == 2, played.used
    assert not played.state.excluded and not alone.left_out(played.state)


@each("fault", OF_A_RANK, ids=called)
def test_without_a_spare_the_third_attempt_is_on_other_nodes_and_proves_it(fault: Fault) -> None:
    played = play(fault, spare=False)
    ended = played.state.ended
    assert ended is not None and "no node is to blame" in ended.why and played.jobs == 2, ended
    assert len(played.used) == 3 and played.used[0] == played.used[1] != played.used[2], played.used


@each("fault", OF_A_NODE, ids=called)
def test_a_ticket_names_the_node_that_spoke_and_asks_for_what_can_help(fault: Fault) -> None:
    verdict = play(fault, spare=True).verdicts[0]
    text = render_ticket(verdict)
    assert text.startswith("Subject: node n1: "), text
    if fault.name.startswith("name"):
        assert "n1 cannot resolve" in verdict.summary, verdict.summary
        assert is_for_site(verdict) and "port, cable" not in text and "getent hosts" in text, text
