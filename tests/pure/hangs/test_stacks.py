"""Stacks folded into groups, and the verdict on why a job hangs."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safelaunch.base.model import Silent
from safelaunch.errors import ParseError, UsageError
from safelaunch.hangs import nodeticket
from safelaunch.stacks import stacktext
from safelaunch.stacks.activity import classify
from safelaunch.stacks.parallel import Sizes, parse_sizes, sizes_of_command
from safelaunch.stacks.ranks import KernelPlace, ObservedRank, ReportReader, Stack, logical_stack
from safelaunch.stacks.stacks import MOVING, STUCK, UNREADABLE, fold, fold_numbers, label, normalise, tell_groups
from safelaunch.stacks.stacktree import grow, render_tree
from safelaunch.stacks.verdict import judge_hang
from tests.pure.hangs.stack_values import ALL_REDUCE, ASLEEP, BROADCAST, DATA, SEND, USER, WRITE, asleep, rank, reports
from tests.tables import each

SEEDS = [*(rank(n) for n in range(380)), *(rank(n, DATA) for n in range(380, 383)), asleep(383)]


# --- folding ---------------------------------------------------------------------------------------------------------


def test_hundreds_of_ranks_are_told_in_a_line() -> None:
    assert stacktext.headline(fold(SEEDS)) == (
        "380 ranks: broadcast ← _bcast_pipe_scalar ← eval_batch · 3 ranks: _get_data ← DataLoader ← eval_batch · "
        "1 unreadable: D state in write() on /gpfs")


def test_ranks_are_folded_into_ranges_and_never_listed() -> None:
    lines = stacktext.tell(fold(SEEDS), judge_hang(reports(*SEEDS)), reports(*SEEDS), (), lambda nodes: "n[0-47]")
    assert any("ranks 0-379 · n[0-47]" in line for line in lines)
    assert max(map(len, lines)) < 300


@each(
    ("frame", "normal"),
    [
        ("cuStreamSynchronize+0x7f12ab (libcuda.so.550)", "cuStreamSynchronize+* (libcuda.so.550)"),
        ("c10d::Work::wait (libtorch_cuda.so:77)", "c10d::Work::wait (libtorch_cuda.so)"),
        ("train (megatron/training.py:904)", "train (megatron/training.py:904)"),
        ("f (/tmp/tmpab12cd34/train.py:3)", "f (/tmp/*/train.py:3)"),
        ("call (/tmp/torchinductor_u/ab/cabcdefghijklmnopqrstuvwxyz234567abcdefghijklmnopqrs.py:9)",
         "call (/tmp/torchinductor_u/ab/*.py:9)"),
        ("f (/local/job_771234/train.py:3)", "f (/local/job_*/train.py:3)"),
        ("_find_and_load (<frozen importlib._bootstrap>:1178)", "import"),
    ],
    ids=["address", "native line", "python line", "tempfile", "inductor", "job id in a path", "import machinery"],
)
def test_frame_is_written_as_in_any_other_ranks_process(frame: str, normal: str) -> None:
    assert normalise((frame,)) == (normal,)


def test_start_of_the_interpreter_is_no_part_of_the_program() -> None:
    stack = ("nanosleep (libc.so.6:1)", "f (a.py:1)", "<module> (a.py:9)", "0x7f12 (libc.so.6)", "_start (python3.11)")
    assert normalise(stack) == ("nanosleep (libc.so.6)", "f (a.py:1)", "<module> (a.py:9)")


def test_import_machinery_is_one_frame_however_deep_it_is() -> None:
    deep = tuple(f"_load (<frozen importlib._bootstrap>:{line})" for line in range(20))
    assert normalise(("read (a.py:1)", *deep, "<module> (b.py:2)")) == ("read (a.py:1)", "import", "<module> (b.py:2)")


def test_rank_whose_looks_differ_moves_and_its_group_is_what_they_share() -> None:
    (group,) = fold([rank(0, ALL_REDUCE, BROADCAST), rank(1, BROADCAST, ALL_REDUCE)])
    assert (group.kind, group.size, group.stack) == (MOVING, 2, ("<module> (pretrain_gpt.py:249)",))


def test_same_stack_in_a_D_state_is_a_group_of_its_own() -> None:
    groups = fold([rank(0), asleep(1, BROADCAST)])
    assert [(group.kind, group.where) for group in groups] == [(STUCK, ""), (STUCK, "D state in write() on /gpfs")]


def test_D_state_of_one_look_is_ordinary_input_and_output() -> None:
    (group,) = fold([asleep(0, WRITE, states="DS")])
    assert group.where == ""


def test_thread_in_D_state_is_told_beside_the_main_threads_stack() -> None:
    (group,) = fold([rank(0, blocked=(ASLEEP._replace(name="ckpt-writer"),))])
    assert group.where == "D state of thread ckpt-writer in write() on /gpfs" and group.kind == STUCK


frames = st.sampled_from([*BROADCAST, *DATA, "f (/tmp/tmpab12cd34/x.py:1)", "f (/tmp/tmpzz12cd34/x.py:1)",
                          "g+0x12 (a.so:3)", "g+0x34 (a.so:4)"])
stacks = st.lists(frames, min_size=1, max_size=4).map(tuple)
some_ranks = st.lists(st.tuples(st.lists(stacks, max_size=3).map(tuple), st.sampled_from(["SS", "DD", "TT", "Z"])),
                      max_size=24)


@settings(max_examples=200, deadline=None)
@given(some_ranks)
def test_folding_equals_comparing_each_rank_with_each_other(rows: list[tuple[tuple[Stack, ...], str]]) -> None:
    ranks = [rank(n, samples=samples[:1] if states == "Z" else samples, states=states, main=ASLEEP)
             for n, (samples, states) in enumerate(rows)]
    groups = fold(ranks)
    assert sorted(one.number or 0 for group in groups for one in group.ranks) == list(range(len(ranks)))
    still = [one for one in ranks if len({normalise(stack) for stack in one.samples}) < 2]
    assert {frozenset(one.number for one in group.ranks) for group in groups if group.kind != MOVING} == {
        frozenset(other.number for other in still if is_same(one, other)) for one in still}


def is_same(one: ObservedRank, other: ObservedRank) -> bool:
    """Whether two ranks that do not move do the same: the rule, without any table."""
    return one.states == other.states and [normalise(stack) for stack in one.samples[:1]] == [
        normalise(stack) for stack in other.samples[:1]]


def test_order_of_the_ranks_changes_nothing() -> None:
    shuffled = random.Random(7).sample(SEEDS, len(SEEDS))
    assert fold(shuffled) == fold(SEEDS)


@each(
    ("numbers", "text"), [((), ""), ((3,), "3"), ((0, 1, 2, 5, 7, 8), "0-2,5,7-8"), ((2, 1, 1), "1-2")],
    ids=["none", "one", "ranges", "unordered"])
def test_numbers_are_folded(numbers: tuple[int, ...], text: str) -> None:
    assert fold_numbers(numbers) == text


def test_label_leaves_the_plumbing_out() -> None:
    stack = ("wait (threading.py:3)", "all_reduce (torch/distributed/distributed_c10d.py:3)",
             "wrapper (torch/distributed/c10d_logger.py:83)", "Trainer.step (train.py:4)", "main (train.py:9)")
    assert label(stack) == "all_reduce ← step ← main"


def test_stack_of_plumbing_alone_is_shown_as_it_is() -> None:
    assert label(("wait (threading.py:3)", "join (threading.py:9)")) == "wait ← join"


# --- the tree --------------------------------------------------------------------------------------------------------


def test_tree_parts_where_the_ranks_part() -> None:
    (root,) = grow(fold([*(rank(n) for n in range(3)), rank(3, DATA)]))
    assert root.frames == ("<module> (pretrain_gpt.py:249)", "train (megatron/training.py:904)",
                           "evaluate (megatron/training.py:983)")
    assert [branch.count for branch in root.branches] == [3, 1]


def test_counts_of_a_trees_branches_add_up() -> None:
    branches = grow(fold([rank(0), rank(1, DATA), rank(2, USER), rank(3, USER[2:])]))
    assert sum(branch.count for branch in branches) == 4
    assert sum(branch.count for branch in branches[0].branches) == 3, "one ends before the others part"


def test_tree_names_the_ranks_at_its_leaves() -> None:
    text = "\n".join(render_tree(grow(fold([rank(0), rank(1, DATA)]))))
    assert "= 1 standing still · rank 1" in text and "broadcast (torch/distributed" in text


# --- what a stack is at ----------------------------------------------------------------------------------------------


@each(
    ("stack", "kind", "what"),
    [
        (BROADCAST, "collective", "broadcast"), (SEND, "collective", "send"), (DATA, "data", "_try_get_data"),
        (WRITE, "storage", "emit"), (USER, "user", "save_extra (train.py)"), ((), "nothing", ""),
        (("wait (torch/distributed/distributed_c10d.py:1)", "all_gather (torch/distributed/distributed_c10d.py:9)"),
         "collective", "all_gather"),
        (("barrier (torch/distributed/distributed_c10d.py:1)",
          "init_process_group (torch/distributed/distributed_c10d.py:9)"), "rendezvous", "rendezvous"),
        (("ncclAllReduce (libnccl.so.2)", "step (train.py:3)"), "collective", "ncclAllReduce"),
        (("synchronize (torch/cuda/__init__.py:900)", "step (train.py:3)"), "gpu", "synchronize"),
        (("forward (model.py:3)", "_fn (torch/_dynamo/eval_frame.py:600)"), "user", "forward (model.py)"),
        (("wait (torch/utils/file_baton.py:47)", "_jit_compile (torch/utils/cpp_extension.py:2400)"), "lock", "wait"),
        (("compile (triton/compiler/compiler.py:3)", "step (train.py:3)"), "compile", "compile"),
    ],
    ids=["broadcast", "send", "data loader", "log write", "user", "none", "wait of a collective", "rendezvous",
         "native", "cuda", "compiled model that runs", "lock file", "compiler"],
)
def test_stack_is_classified(stack: Stack, kind: str, what: str) -> None:
    assert classify(stack) == (kind, what)


def test_hook_that_runs_for_the_backward_pass_is_where_the_rank_is() -> None:
    main = ("_engine_run_backward (torch/autograd/graph.py:824)", "backward (torch/_tensor.py:5)", "<module> (t.py:9)")
    hook = ("all_gather_into_tensor (torch/distributed/distributed_c10d.py:3)", "_pre_backward (torch/fsdp/x.py:8)")
    logger = ("run (torch/x.py:1)", "Thread._bootstrap (threading.py:3)")
    stack = logical_stack([("log", False, logger), ("MainThread", True, main), ("pt_autograd_0", False, hook)])
    assert stack == hook + main and classify(stack).what == "all_gather_into_tensor"


# --- the verdict -----------------------------------------------------------------------------------------------------


def test_rank_asleep_on_a_mount_is_a_matter_of_storage_and_the_node_is_suspected_when_it_is_alone() -> None:
    verdict = judge_hang(reports(*(rank(n) for n in range(63)), asleep(63)))
    assert (verdict.category, verdict.kind, [odd.number for odd in verdict.odd]) == ("hang", "storage", [63])
    assert verdict.suspects == ("n7",) and "write() on /gpfs" in verdict.summary
    assert "process_state" in verdict.witnesses


def test_filesystem_on_which_all_nodes_sleep_blames_no_node() -> None:
    verdict = judge_hang(reports(*(asleep(n) for n in range(32))))
    assert verdict.kind == "storage" and verdict.suspects == ()


def test_mount_that_does_not_answer_is_a_matter_of_storage_without_any_rank_in_it() -> None:
    found = reports(*(rank(n) for n in range(64)))
    found[2] = found[2]._replace(mounts=(("/gpfs", "late"), ("/home", "ok")),
                                 ranks=tuple(one._replace(mounts=("/gpfs",)) for one in found[2].ranks))
    verdict = judge_hang(found)
    assert verdict.kind == "storage" and verdict.suspects == ("n2",)


def test_dead_mount_that_no_rank_uses_is_told_and_is_no_reason() -> None:
    found = reports(*(rank(n) for n in range(31)), rank(31, USER))
    found[0] = found[0]._replace(mounts=(("/mnt/old", "late"),))
    verdict = judge_hang(found)
    assert (verdict.kind, verdict.folders) == ("deadlock", ())
    assert "/mnt/old does not answer on n0, where no rank has a file open on it" in verdict.evidence


def test_rank_that_waits_for_a_mount_that_does_not_answer_is_odd_in_whatever_state_it_waits() -> None:
    place = KernelPlace(1, "python", "S", "request_wait_answer", "newfstatat", "/home/x", "/home", "fuse")
    found = reports(*(rank(n) for n in range(63)), rank(63, main=place))
    found[7] = found[7]._replace(mounts=(("/home", "late"),))
    (odd,) = judge_hang(found).odd
    assert (odd.number, odd.why) == (63, "waits in newfstatat() on /home, which does not answer (/home/x)")


def test_sleep_in_the_gpu_driver_is_not_storage() -> None:
    place = KernelPlace(1, "python", "D", "nvidia_ioctl", "ioctl", "/dev/nvidia3", "/dev", "devtmpfs")
    verdict = judge_hang(reports(*(rank(n) for n in range(63)), asleep(63, main=place)))
    assert (verdict.kind, verdict.suspects) == ("gpu", ("n7",))


def test_nvidia_smi_that_does_not_come_back_blames_its_node() -> None:
    found = reports(*(rank(n) for n in range(64)))
    found[5] = found[5]._replace(gpus="late")
    assert (judge_hang(found).kind, judge_hang(found).suspects) == ("gpu", ("n5",))


def test_rank_that_skips_the_collective_is_odd_and_its_node_is_not_to_blame() -> None:
    verdict = judge_hang(reports(*(rank(n) for n in range(63)), rank(63, USER)))
    assert (verdict.kind, [odd.number for odd in verdict.odd], verdict.suspects) == ("deadlock", [63], ())
    assert verdict.odd[0].why == "is outside of the collective, in save_extra, train.py:10"
    assert verdict.witnesses == ("still_stacks",)


def test_rank_in_another_collective_is_odd() -> None:
    verdict = judge_hang(reports(*(rank(n) for n in range(63)), rank(63, ALL_REDUCE)))
    assert verdict.kind == "deadlock" and verdict.odd[0].why.startswith("is in another collective: all_reduce")


def test_rank_that_still_works_makes_the_verdict_less_sure() -> None:
    works = judge_hang(reports(*(rank(n) for n in range(63)), rank(63, USER, USER[1:])))
    stands = judge_hang(reports(*(rank(n) for n in range(63)), rank(63, USER)))
    assert works.kind == "deadlock" and works.confidence < stands.confidence
    assert "still works" in works.odd[0].why


def test_ranks_in_their_data_loader_hold_those_in_the_collective() -> None:
    worker = KernelPlace(77, "pt_data_worker", "D", "", "read", "/data/shard", "/data", "lustre")
    loading = [rank(n, DATA, below=(worker,)) for n in range(61, 64)]
    verdict = judge_hang(reports(*(rank(n) for n in range(61)), *loading))
    assert verdict.kind == "data_loading" and [odd.number for odd in verdict.odd] == [61, 62, 63]
    assert "worker 77 is in state D in read() on /data" in verdict.odd[0].why


def test_all_ranks_in_the_same_collective_point_at_the_network() -> None:
    verdict = judge_hang(reports(*(rank(n) for n in range(64))))
    assert (verdict.kind, verdict.odd, verdict.confidence) == ("network", (), 0.5)


def test_flight_recorder_names_the_rank_that_is_behind() -> None:
    verdict = judge_hang(reports(*(rank(n, flight=4480 - (n == 9)) for n in range(64))))
    assert verdict.kind == "network" and [odd.number for odd in verdict.odd] == [9]


def test_idle_gpu_among_spinning_ones_is_a_witness() -> None:
    verdict = judge_hang(reports(*(rank(n, gpu_util=0.0 if n == 0 else 100.0) for n in range(8))))
    assert "gpu_pattern" in verdict.witnesses
    assert "gpu_pattern" not in judge_hang(reports(*(rank(n, gpu_util=100.0) for n in range(8)))).witnesses


def test_absent_rank_is_odd_where_all_nodes_have_answered() -> None:
    verdict = judge_hang(reports(*(rank(n, world=8) for n in range(7))))
    assert (verdict.kind, verdict.odd[0].number) == ("process", 7)
    assert verdict.odd[0].why == "is absent: no node has its process"


def test_node_that_does_not_answer_is_suspected_while_the_others_wait() -> None:
    verdict = judge_hang(reports(*(rank(n, world=64) for n in range(56))), [Silent("n7", "did not answer within 14 s")])
    assert (verdict.kind, verdict.suspects) == ("network", ("n7",))
    assert "silent_nodes" in verdict.witnesses and "n7 did not answer within 14 s" in verdict.evidence


def test_nodes_that_nobody_could_ask_are_not_suspected() -> None:
    mute = [Silent("n7", "could not be asked: Slurm did not answer", is_node_mute=False)]
    verdict = judge_hang(reports(*(rank(n, world=64) for n in range(56))), mute)
    assert verdict.suspects == () and "silent_nodes" not in verdict.witnesses


def test_when_most_nodes_do_not_answer_none_of_them_is_suspected() -> None:
    verdict = judge_hang(reports(rank(0)), [Silent(f"n{n}", "did not answer in time") for n in range(1, 8)])
    assert verdict.kind == "network" and verdict.suspects == ()


def test_stopped_and_dead_ranks_come_before_what_the_others_wait_for() -> None:
    stopped = judge_hang(reports(*(rank(n) for n in range(7)), rank(7, states="TT")))
    dead = judge_hang(reports(*(rank(n) for n in range(7)), rank(7, (), states="Z")))
    assert (stopped.kind, stopped.odd[0].number) == ("process", 7) == (dead.kind, dead.odd[0].number)


@each("states", ["SX", "X", "SZ"])
def test_rank_that_ended_while_it_was_looked_at_is_no_hang_yet(states: str) -> None:
    verdict = judge_hang(reports(*(rank(n) for n in range(7)), rank(7, states=states)))
    assert (verdict.kind, verdict.odd) == ("moving", ()), "its launcher may be about to go on"
    assert verdict.summary == "rank 7 on n0 ended during this look: this is no hang, or not yet"
    assert "process_state" not in verdict.witnesses


def test_ranks_that_move_are_no_hang() -> None:
    verdict = judge_hang(reports(*(rank(n, ALL_REDUCE, USER) for n in range(8))))
    assert verdict.kind == "moving" and "still_stacks" not in verdict.witnesses


def test_rank_that_stands_elsewhere_than_nearly_all_is_odd_in_whatever_they_wait() -> None:
    wait = ("recv (socket.py:706)", "wait_for_all (ring.py:20)", "train_step (train.py:7)")
    verdict = judge_hang(reports(*(rank(n, wait) for n in range(7)), rank(7, USER)))
    assert (verdict.kind, [one.number for one in verdict.odd], verdict.suspects) == ("deadlock", [7], ())
    assert verdict.summary == ("rank 7 on n0 is in save_extra ← train_step ← <module>, while 7 ranks (0-6) stand at "
                               "wait_for_all ← train_step, in no collective that is known here")
    assert verdict.confidence < 0.6, "nobody knows that they wait for it"
    halves = judge_hang(reports(*(rank(n, wait if n % 2 else USER) for n in range(8))))
    assert (halves.kind, halves.odd) == ("unknown", ())


def test_rank_0_that_serves_the_others_stands_where_they_stand() -> None:
    """Seen: three ranks in one recv, rank 0 by another way; the verdict named the two that were alike."""
    recv = ("readinto (socket.py:706)", "receive (train.py:55)")
    served, serves = ((*recv, f"all_reduce (train.py:{line})", "main (train.py:144)") for line in (43, 45))
    verdict = judge_hang(reports(rank(0, serves), rank(1, served), rank(2, served), rank(3, USER)))
    assert [one.number for one in verdict.odd] == [3]
    assert verdict.summary == ("rank 3 on n0 is in save_extra ← train_step ← <module>, while 3 ranks (0-2) stand at "
                               "receive ← all_reduce ← main, in no collective that is known here")


def test_ranks_in_unknown_code_whose_gpus_all_work_wait_for_kernels() -> None:
    on_gpu = ("train_step (train.py:31)", "<module> (train.py:33)")
    verdict = judge_hang(reports(rank(0, on_gpu, gpu_util=100.0), rank(1, on_gpu, gpu_util=98.0)))
    assert verdict.kind == "unknown" and "a kernel does not end, or waits" in verdict.summary
    verdict = judge_hang(reports(rank(0, on_gpu, gpu_util=100.0), rank(1, on_gpu, gpu_util=3.0)))
    assert "kernel" not in verdict.summary


# PyTorch 2.13, DeepSpeed 0.19: whose build was killed leaves the lock file.
BATON: Stack = ("wait (torch/utils/file_baton.py:47)", "_jit_compile (torch/utils/cpp_extension.py:2400)",
                "load (torch/utils/cpp_extension.py:1681)", "jit_load (deepspeed/ops/op_builder/builder.py:542)",
                "build_shm_op (deepspeed/comm/torch.py:20)", "<module> (train.py:9)")


def test_ranks_that_all_wait_for_a_lock_file_are_told_where_it_may_be() -> None:
    verdict = judge_hang(reports(*(rank(n, BATON) for n in range(4))))
    assert (verdict.kind, verdict.suspects, verdict.odd) == ("deadlock", (), ())
    assert verdict.summary.startswith("4 ranks (0-3) wait for a lock file (wait ← _jit_compile ← load)")
    assert "torch_extensions" in verdict.summary and "collective" not in verdict.summary


def test_ranks_that_wait_for_one_that_builds_are_no_deadlock() -> None:
    builds: Stack = ("communicate (subprocess.py:1)", "run (subprocess.py:2)", "_run_ninja_build (cpp_extension.py:3)")
    verdict = judge_hang(reports(rank(0, builds), *(rank(n, BATON, ran=True) for n in range(1, 4))))
    assert (verdict.kind, verdict.odd) == ("unknown", ())
    assert "3 ranks (1-3) wait for a lock file" in verdict.summary and "rank 0 on n0 may hold" in verdict.summary


def test_ranks_that_import_are_said_to_start() -> None:
    """Seen at the start of a torch program: "0 of 6 ranks cannot be read"."""
    path: Stack = ("get_data (<frozen importlib._bootstrap_external>:1)", "<module> (torch/__init__.py:3)")
    other: Stack = ("_find_spec (<frozen importlib._bootstrap>:2)", "<module> (torch/nn/__init__.py:9)")
    verdict = judge_hang(reports(*(rank(n, path, other, cpu=0.1) for n in range(6))))
    assert verdict.summary == "6 ranks (0-5) still import modules: the program starts"
    assert (verdict.kind, verdict.odd, verdict.suspects) == ("unknown", (), ())


def test_ranks_that_were_asleep_at_two_looks_are_not_called_stuck() -> None:
    found = reports(*(rank(n, USER) for n in range(3)))
    lines = stacktext.tell(fold(found[0].ranks), judge_hang(found), found, [], ",".join)
    assert any(line.startswith("3 standing still · ranks 0-2") for line in lines)
    assert not any("stuck" in line for line in lines)


def test_nobody_is_blamed_for_what_could_not_be_read() -> None:
    verdict = judge_hang(reports(*(rank(n, (), why="py-spy is not on this node") for n in range(8))))
    assert (verdict.kind, verdict.odd, verdict.suspects) == ("unknown", (), ())
    assert "8 without a stack: py-spy is not on this node" in verdict.evidence


@each("silent", [[], [Silent("n0", "did not answer")]], ids=["asked nobody", "nobody answered"])
def test_without_any_report_the_verdict_is_unknown(silent: list[Silent]) -> None:
    assert judge_hang([], silent).kind == "unknown"


def test_verdict_does_not_depend_on_the_order_of_nodes() -> None:
    found = reports(*SEEDS)
    backwards = judge_hang(list(reversed(found)))
    assert (backwards.kind, backwards.suspects) == (judge_hang(found).kind, judge_hang(found).suspects)


# --- parallel groups -------------------------------------------------------------------------------------------------


def test_groups_of_megatrons_order() -> None:
    groups = dict(Sizes(tp=2, pp=2).groups(8))
    assert groups["tensor group 1"] == (2, 3)
    assert groups["pipeline 1"] == (1, 5)
    assert groups["data group 1 of stage 0"] == (1, 3)
    assert sum(1 for name in groups if name.startswith("data")) == 4


def test_with_known_sizes_only_ranks_whose_own_group_waits_for_them_are_odd() -> None:
    """Pipeline stages may be in different collectives; within a stage's data group they may not."""
    last = [rank(n, ALL_REDUCE) for n in range(8, 16)]
    found = reports(*(rank(n, USER if n == 3 else BROADCAST) for n in range(8)), *last)
    assert [odd.number for odd in judge_hang(found).odd] == [0, 1, 2, 4, 5, 6, 7, 3]
    (odd,) = judge_hang(found, sizes=Sizes(tp=1, pp=2)).odd
    assert odd.number == 3 and odd.why.endswith("its data group 0 of stage 0 waits for it")


@each(("command", "sizes"), [
    ("--tensor-model-parallel-size 4 --pipeline-model-parallel-size 12", Sizes(tp=4, pp=12)),
    ("--tensor-model-parallel-size=2 --context-parallel-size=2 --sequence-parallel", Sizes(tp=2, cp=2)),
    ("--parallelism.tensor_parallel_degree 8 --parallelism.pipeline_parallel_degree=2", Sizes(tp=8, pp=2)),
    ("trainer.devices=8 model.tensor_model_parallel_size=4 model.pipeline_model_parallel_size=2", Sizes(tp=4, pp=2)),
    ("--model-parallel-size 8", Sizes(tp=8)),
    ("--tensor-model-parallel-size 1 --expert-model-parallel-size 8", None),
    ("--parallelism.tensor_parallel_degree auto --model_parallel_seed 3", None),
    ("", None),
], ids=["Megatron", "with =", "torchtitan", "NeMo", "fairseq", "no size above 1", "no numbers", "nothing"])
def test_sizes_are_read_off_a_ranks_command_line(command: str, sizes: Sizes | None) -> None:
    assert sizes_of_command(command) == sizes


def test_sizes_of_the_ranks_own_command_line_are_used_and_those_of_a_person_go_before() -> None:
    told = "--pipeline-model-parallel-size 2"
    last = [rank(n, ALL_REDUCE, parallel=told) for n in range(8, 16)]
    found = reports(*(rank(n, USER if n == 3 else BROADCAST) for n in range(8)), *last)
    verdict = judge_hang(found)
    assert [odd.number for odd in verdict.odd] == [3]
    assert f"parallel groups as the ranks' command line says: {told}" in verdict.evidence
    assert verdict.summary.startswith("rank 3 on n0 is in save_extra"), "and not where those are that are not odd"
    assert len(judge_hang(found, sizes=Sizes(tp=3)).odd) == 8, "which does not divide 16: no group is known"


@each("text", ["tp", "tp=0", "tp=x", "xp=3"], ids=str)
def test_sizes_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_sizes(text)


# --- reading reports -------------------------------------------------------------------------------------------------


def line_of(**fields: object) -> str:
    row = {"rank": 3, "pid": 12, "state": "S", "states": "SS", "samples": [[["MainThread", 12, 1, 0, 0]]], "why": "",
           "cpu": [[1.0, 2.0], [2.0, 2.5]], "switches": [4, 4], "world": 8, "step": "0", "mounts": {"/gpfs": 2}}
    report = {"v": 1, "node": "n1", "ranks": [{**row, **fields}], "frames": list(USER), "stacks": [[0, 1, 2]],
              "mounts": {"/gpfs": "ok"}, "gpus": {"answer": "ok", "gpus": [
                  {"index": "0", "util": 100.0, "pids": [12]}, {"index": "1", "util": 0.0, "pids": [13]}]}}
    return json.dumps(report)


def test_report_is_read() -> None:
    report = ReportReader().read(line_of())
    (one,) = report.ranks
    assert (one.number, one.node, one.samples, one.cpu, one.ran) == (3, "n1", (USER,), 0.5, False)
    assert one.gpu_util == 100.0 and report.idle_gpus == ("1",)


def test_equal_stacks_of_two_nodes_become_one_object() -> None:
    reader = ReportReader()
    first, second = reader.read(line_of()).ranks[0], reader.read(line_of(), "n2").ranks[0]
    assert first.samples[0] is second.samples[0] and second.node == "n2"


@each("line", ["", "{}", "[]", '{"v": 2, "node": "n", "ranks": []}', line_of()[:-40]],
                         ids=["nothing", "empty", "list", "another version", "cut off"])
def test_line_that_is_no_report_is_an_error_and_never_a_guess(line: str) -> None:
    with pytest.raises(ParseError):
        ReportReader().read(line, "n1")


def test_public_object_says_what_the_screen_says() -> None:
    found = reports(*SEEDS)
    said = stacktext.to_public(fold(SEEDS), judge_hang(found), found, [], 1.5)
    assert said["v"] == 1 and said["ranks"] == 384
    assert [group["count"] for group in said["groups"]] == [380, 3, 1]
    assert json.loads(json.dumps(said)) == said


def test_hints_that_differ_in_their_pid_alone_are_one_line() -> None:
    ranks = [rank(n, (), why="ptrace refused", hint=f"root can look: sudo py-spy dump --pid {1000 + n}")
             for n in range(300)]
    told = stacktext.tell(fold(ranks), judge_hang(reports(*ranks)), reports(*ranks), [], ",".join)
    hints = [line for line in told if line.startswith("hint")]
    assert hints == ["hint       root can look: sudo py-spy dump --pid 1000 (300 ranks alike)"]


def test_unreadable_group_says_why() -> None:
    (group,) = fold([rank(0, (), why="ptrace refused: kernel.yama.ptrace_scope is 1")])
    assert group.kind == UNREADABLE and tell_groups([group]) == ["1 unreadable: ptrace refused"]


# --- what is told beside the stacks ----------------------------------------------------------------------------------

LEFT: dict[str, Any] = {"pid": 4711, "user": "bob", "whose": "others", "state": "S", "name": "python", "job": "12",
                        "cmd": "python train.py", "mark": "", "rss_mb": 900, "gpus": ["2"], "gpu_mb": 71000.0,
                        "ended": None, "why": ""}


@each(
    ("changes", "text"),
    [
        ({}, "n3: pid 4711 of bob (python train.py) holds 71000 MB of GPU 2"),
        ({"whose": "ours", "gpus": [], "ended": True},
         "n3: pid 4711 of an earlier attempt of this run (python train.py) holds 900 MB of memory; it was ended"),
        ({"whose": "ours", "gpus": [], "rss_mb": None, "ended": False, "why": "no KILL ends it"},
         "n3: pid 4711 of an earlier attempt of this run (python train.py); it could not be ended; no KILL ends it"),
        ({"whose": "nobody", "user": "", "cmd": "", "name": "", "why": "no process"},
         "n3: pid 4711 of nobody who is known holds 71000 MB of GPU 2; no process"),
    ],
    ids=["a stranger", "ours, ended", "ours, in D state", "a process that is gone"])
def test_leftover_is_told_in_a_line(changes: dict[str, Any], text: str) -> None:
    assert stacktext.tell_left("n3", {**LEFT, **changes}) == text


def test_leftovers_and_rass_complaints_stand_beside_the_verdict() -> None:
    found = reports(rank(0), left=(LEFT,), ras="Errors\n======\n\nINCOMPLETE\n  Missing data from 1 process\n")
    lines = stacktext.tell(fold([rank(0)]), judge_hang(found), found, [], ",".join)
    assert "left over  n0: pid 4711 of bob (python train.py) holds 71000 MB of GPU 2" in lines
    assert "NCCL RAS   INCOMPLETE" in lines


def test_ras_without_complaints_says_nothing() -> None:
    assert stacktext.ras_lines("Job summary\n===========\n  Nodes\n  4\n") == []


def test_folders_of_files_that_ranks_sleep_on_are_named() -> None:
    assert judge_hang(reports(asleep(0), rank(9))).folders == ("/gpfs",)


def test_ticket_says_what_the_administrators_need_to_know() -> None:
    text = nodeticket.render("n3", "ranks have not ended", [asleep(5, kernel=("rpc_wait", "nfs_write"))],
                             job="4711", run="bloom", user="alice", when="2026-11-22T00:00:00+0000")
    assert text.splitlines()[0] == "Subject: node n3: 1 process that no SIGKILL ends"
    assert "pid 1005, rank 5, state D, wchan rpc_wait, in write(), /gpfs/log, mount /gpfs (gpfs)" in text
    assert "kernel: rpc_wait ← nfs_write" in text and "file system on /gpfs" in text and "4711 (bloom) of alice" in text


def test_ticket_about_a_gpus_driver_asks_for_the_gpu() -> None:
    place = KernelPlace(1, "python", "D", "nv_wait", "ioctl", "/dev/nvidia3", "", "")
    text = nodeticket.render("n3", "why", [rank(0)._replace(states="DD", main=place)], job="1", run="r", user="u",
                             when="now")
    assert "check the GPUs" in text
