"""What the simulation has found, each as the smallest scenario that shows it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("greenlet", reason="the simulation needs greenlet (pip install .[dev])")

from safelaunch.decide.facts.patience import DEAF_S
from safelaunch.guard.io.control import STANDBY_TASK
from tests.simulation import folder, process
from tests.simulation.golden import GOLDEN
from tests.simulation.process import SimServer
from tests.simulation.run import run
from tests.simulation.scenario import Fault, Scenario

_PLAIN = GOLDEN["nothing goes wrong"]
_SPARE = replace(_PLAIN, spare_nodes=1, steps=80)

FOUND: dict[str, tuple[Scenario, str, int]] = {   # how it must end, and in how many attempts at most
    # n2's measurement hangs and is told to end; the rank dies while it still holds its GPU
    "measurements of which one hangs have ended before the next attempt starts": (
        replace(_PLAIN, nodes=3, pool=4, steps=100, step_s=2.0, save_every=20, slow="other", slow_node="n1",
                slow_step=55, slow_then="exclude_next", checks=(("n2", "hangs"),),
                faults=(Fault("rank_dies", 150.0),)), "completed", 2),
    # each life of the requeued job excludes one bad node and gets the other one back
    "a requeued job whose nodes fail their checks in turn ends": (
        replace(_PLAIN, seed=9000029, nodes=2, pool=3, steps=142, step_s=0.5, save_every=10, save_s=1.0, load_s=0.5,
                limit_min=4, fs_latency_s=0.02, watchers=0, via="requeue", site="refuses_sbatch",
                checks=(("n1", "fails"), ("n2", "fails")), has_checks=True), "gave_up", 0),
    # two nodes in all, and sinfo's answer comes late
    "a next job is not kept from nodes that it needs, though sinfo answers late": (
        Scenario(seed=88009561, pool=2, steps=73, load_s=10.0, limit_min=20, fs_late_s=60.0, fs_clock_s=-90.0,
                 net_latency_s=0.01, handles_signal=False, watchers=0, words="26.05", checks=(("n1", "fails"),),
                 has_checks=True, allreduce=True, min_nodes=1, before_resize="hangs", faults=(
                     Fault("gpu_dies", 1.35, 0.0, 61), Fault("away", 10.15, 160.4, 64),
                     Fault("leader_dies", 23.03, 0.0, 44), Fault("worker_cut", 39.84, 186.7, 39),
                     Fault("preempt", 41.06, 0.0, 74), Fault("worker_crashes", 69.6, 695.0, 4),
                     Fault("worker_crashes", 85.77, 396.3, 53))), "completed", 2),
    # three nodes in all; cut off, it takes two for lost, and its batch host crashes before sinfo answers
    "a next job is not kept from a node that it needs, though its supervisor dies before sinfo answers": (
        Scenario(seed=94013417, nodes=3, pool=3, steps=125, save_s=0.1, load_s=0.5, limit_min=20, slurmd_timeout_s=30.0,
                 fs_latency_s=0.02, fs_late_s=60.0, fs_clock_s=-90.0, net_latency_s=0.0002, handles_signal=False,
                 watchers=0, words="26.05", min_nodes=2, before_resize="hangs", notify="hangs", faults=(
                     Fault("one_way_cut", 68.37, 90.4, 83), Fault("worker_crashes", 70.78, 356.0, 72),
                     Fault("batch_crashes", 76.12, 266.2, 19), Fault("preempt", 112.16, 0.0, 77),
                     Fault("slurm_hung", 123.47, 52.0, 44))), "completed", 2),
    # batch_silent spans the end of the hold, in the middle of the handover
    "a job that is held once the hold was lifted stays not held where its supervisor dies": (
        Scenario(seed=94025880, nodes=4, pool=5, steps=59, step_s=0.5, save_every=5, save_s=5.0, load_s=0.5,
                 limit_min=20, slurmd_timeout_s=60.0, fs_latency_s=0.02, net_latency_s=0.01, handles_signal=False,
                 standby=False, via="successor", site="no_sinfo", has_sacct=True, words="26.05", notify="fails",
                 faults=(
                     Fault("preempt", 0.33, 0.0, 43), Fault("worker_cut", 2.9, 16.4, 63), Fault("hold", 16.23, 78.5, 0),
                     Fault("batch_silent", 28.58, 305.6, 4), Fault("batch_silent", 46.29, 11.4, 50))), "completed", 2),
    # no guard has called yet, and nobody makes the next job: that is written down before Slurm's KILL
    "a preemption right after a launch leaves a run that waits for a watch, and no attempt that runs": (
        replace(_PLAIN, steps=60, standby=False, watchers=0, site="no_scontrol", faults=(Fault("preempt", 2.0),)),
        "(restarting)", 1),
    "all-reduces of a supervisor that has gone have no second round": (
        Scenario(seed=94032039, nodes=4, spare_nodes=1, pool=6, steps=79, step_s=0.5, save_s=5.0, load_s=10.0,
                 limit_min=20, net_latency_s=0.01, handles_signal=False, watchers=2, via="resubmit", has_sacct=True,
                 words="26.05", checks=(("n4", "fails_once"), ("n2", "fails_fully"), ("n0", "breaks_pairs")),
                 has_checks=True, allreduce=True, faults=(
                     Fault("gpu_dies", 2.95, 0.0, 20), Fault("leader_dies_at_call", 3.48, 0.0, 69),
                     Fault("gpu_dies", 10.04, 0.0, 73), Fault("preempt", 13.85, 0.0, 92),
                     Fault("rank_dies", 55.44, 0.0, 97))), "completed", 2),
    # a job that stays held never starts, and so never sees that a person has stopped the run
    "a job that waits held is taken back where somebody touches the kill switch": (
        Scenario(seed=94040617, nodes=3, steps=133, step_s=0.5, save_s=5.0, limit_min=4, net_latency_s=0.001,
                 handles_signal=False, watchers=2, faults=(
                     Fault("refuses", 4.49, 35.7, 0), Fault("batch_silent", 13.43, 699.8, 31),
                     Fault("scancel", 21.17, 0.0, 41), Fault("leader_dies", 81.42, 0.0, 52))), "stopped", 1),
    "a cancelled next job that only a leader saw whose words died with it is no person's word": (
        Scenario(seed=94042976, spare_nodes=1, pool=3, steps=58, save_every=5, save_s=0.1, load_s=10.0, limit_min=20,
                 slurmd_timeout_s=60.0, fs_late_s=30.0, net_latency_s=0.01, handles_signal=False, standby=False,
                 words="26.05", checks=(("n2", "fails_once"),), has_checks=True, after_failure="before", min_nodes=1,
                 notify="hangs", faults=(
                     Fault("gpu_dies", 5.44, 0.0, 99), Fault("flaky", 5.65, 53.9, 41),
                     Fault("scancel_successor", 13.31, 0.0, 93), Fault("worker_silent", 15.13, 21.7, 26),
                     Fault("away", 32.73, 370.5, 69), Fault("gpu_dies", 40.53, 0.0, 17),
                     Fault("worker_silent", 49.08, 40.6, 52), Fault("preempt", 60.76, 0.0, 88))), "completed", 3),
    # corrupt, with before_resize: each size converts the broken checkpoint anew
    "a checkpoint of which no conversion loads gives way to an older one": (
        Scenario(seed=94059611, nodes=3, pool=3, steps=65, step_s=2.0, save_every=5, save_s=0.1, limit_min=20,
                 slurmd_timeout_s=60.0, fs_latency_s=0.02, fs_late_s=30.0, net_latency_s=0.0002, ignores_term=True,
                 via="watch", site="no_dependency", preserve_s=120.0, words="26.05", min_nodes=1, before_resize="works",
                 faults=(
                     Fault("worker_crashes", 2.0, 457.3, 3), Fault("release", 9.78, 0.0, 19),
                     Fault("away", 93.44, 505.1, 67), Fault("batch_silent", 98.11, 14.2, 45),
                     Fault("extend", 99.92, 0.0, 59), Fault("batch_cut", 131.16, 259.9, 69),
                     Fault("flaky", 133.24, 38.4, 70), Fault("corrupt", 145.63, 0.0, 89))), "completed", 10),
    "a checkpoint of step 0 is converted for another number of nodes": (
        Scenario(seed=94050159, spare_nodes=1, pool=3, steps=79, step_s=2.0, save_s=0.1, load_s=10.0, limit_min=4,
                 slurmd_timeout_s=30.0, fs_late_s=60.0, fs_clock_s=300.0, net_latency_s=0.01, watchers=0, words="26.05",
                 has_checks=True, after_failure="before", min_nodes=1, before_resize="dies", notify="hangs", faults=(
                     Fault("gpu_dies", 11.41, 0.0, 91), Fault("worker_crashes", 57.97, 412.4, 75),
                     Fault("worker_silent", 72.4, 464.6, 25), Fault("away", 88.16, 79.4, 82),
                     Fault("worker_silent", 146.33, 231.2, 7), Fault("leader_pauses", 166.43, 1.1, 4),
                     Fault("wall_jump", 167.99, 0.0, 57))), "completed", 7),
    "a cancel that a watch could look at once is no person's word": (
        Scenario(seed=94058598, spare_nodes=1, pool=5, steps=104, step_s=0.5, save_every=50, save_s=5.0, load_s=0.5,
                 limit_min=20, slurmd_timeout_s=30.0, fs_late_s=10.0, net_latency_s=0.01, standby=False, words="26.05",
                 checks=(("n0", "fails_once"),), has_checks=True, faults=(
                     Fault("gpu_dies", 7.92, 0.0, 43), Fault("scancel", 10.6, 0.0, 79),
                     Fault("leader_pauses", 30.07, 3.8, 36), Fault("gpu_dies", 34.42, 0.0, 67),
                     Fault("away", 37.97, 540.2, 91), Fault("gpu_dies", 39.45, 0.0, 46))), "completed", 2),
    # leader_dies_at_call right after it asked for a last checkpoint; the ranks leave with 0 at step 6 of 116
    "a stop that only a dead leader's signal has told is no completion": (
        Scenario(seed=94074279, nodes=1, steps=116, save_every=50, save_s=0.1, limit_min=8, fs_latency_s=0.003,
                 net_latency_s=0.0002, ignores_term=True, watchers=2, site="no_scontrol", preserve_s=30.0, faults=(
                     Fault("truncate", 3.89, 0.0, 32), Fault("leader_dies_at_call", 8.49, 0.0, 5),
                     Fault("checkpoint", 8.74, 0.0, 5), Fault("extend", 35.41, 0.0, 39),
                     Fault("preempt", 40.7, 0.0, 58), Fault("loses_links", 63.6, 0.0, 85),
                     Fault("rank_dies", 90.96, 0.0, 56),
                     Fault("release", 117.81, 0.0, 44))), "stopped", 1),
    "a next job that no node may run is let go where a person has stopped the run, too": (
        Scenario(seed=89003379, spare_nodes=1, pool=3, steps=129, step_s=0.5, load_s=0.5, limit_min=20,
                 slurmd_timeout_s=30.0, net_latency_s=0.0002, handles_signal=False, watchers=2, min_nodes=1,
                 before_resize="works", faults=(
                     Fault("slurm_hung", 3.09, 64.2, 83), Fault("batch_crashes", 12.72, 335.4, 89),
                     Fault("preempt", 26.55, 0.0, 24), Fault("worker_silent", 35.69, 11.6, 69),
                     Fault("kill-now", 60.03, 0.0, 95))), "stopped", 1),
    # the spare n3 hangs in its checks, beside a worker that falls silent
    "a spare that failed its checks ends no run that has enough other nodes": (
        Scenario(seed=89009102, nodes=4, spare_nodes=1, pool=6, steps=120, save_every=10, limit_min=4,
                 slurmd_timeout_s=30.0, fs_latency_s=0.003, fs_late_s=3.0, net_latency_s=0.001, via="successor",
                 site="refuses_sbatch", has_sacct=True, words="26.05", checks=(("n3", "hangs"),), has_checks=True,
                 allreduce=True, notify="fails", faults=(
                     Fault("worker_silent", 5.09, 96.1, 68), Fault("gpu_dies", 57.4, 0.0, 17),
                     Fault("flaky", 91.26, 42.2, 13))), "completed", 2),
    # no sbatch: the job is requeued; batch_silent: its old host ends the script late
    "the script of a requeued job that ends late on its old host does not end the new one": (
        Scenario(seed=88009711, nodes=4, pool=5, steps=41, step_s=2.0, load_s=0.5, limit_min=8, slurmd_timeout_s=60.0,
                 fs_latency_s=0.02, net_latency_s=0.001, handles_signal=False, watchers=0, site="no_sbatch",
                 has_sacct=True, notify="mixed", faults=(
                     Fault("batch_silent", 13.41, 188.1, 28), Fault("freeze", 36.64, 23.0, 18),
                     Fault("preempt", 51.66, 0.0, 80), Fault("worker_silent", 69.5, 642.2, 26),
                     Fault("leader_dies_at_call", 79.66, 0.0, 83))), "completed", 2),
    "no attempt begins beside the second round of measurements": (
        Scenario(seed=90004384, nodes=3, spare_nodes=1, pool=5, steps=278, step_s=2.0, save_every=50, save_s=5.0,
                 limit_min=4, slurmd_timeout_s=30.0, fs_latency_s=0.02, fs_late_s=60.0, fs_clock_s=-90.0,
                 net_latency_s=0.01, handles_signal=False, ignores_term=True, via="resubmit", site="no_sbatch",
                 checks=(("n3", "hangs"),), has_checks=True, after_failure="off", slow="other", slow_node="n2",
                 slow_step=96, slow_then="restart", faults=(
                     Fault("gpu_dies", 12.82, 0.0, 68), Fault("batch_silent", 36.33, 20.3, 3),
                     Fault("wall_jump", 46.1, 0.0, 52), Fault("gpu_dies", 51.53, 0.0, 82))), "completed", 9),
    "a standby leaves the run to the new leader whose pulse the old one has overwritten": (
        Scenario(seed=90007321, spare_nodes=1, pool=6, steps=47, step_s=2.0, save_every=50, load_s=10.0, limit_min=4,
                 net_latency_s=0.0002, handles_signal=False, notify="hangs", faults=(
                     Fault("unreadable", 7.92, 25.9, 33), Fault("leader_dies_at_call", 8.77, 0.0, 94),
                     Fault("batch_silent", 9.6, 8.4, 24))), "completed", 2),
    "a job that is left without a script is ended by a next one that hands over at once": (
        Scenario(seed=92017848, steps=131, save_s=0.1, load_s=10.0, limit_min=8, slurmd_timeout_s=60.0, fs_late_s=3.0,
                 fs_clock_s=300.0, net_latency_s=0.01, standby=False, watchers=2, via="resubmit",
                 site="no_dependency", has_sacct=True, has_checks=True, allreduce=True, after_failure="off",
                 checks=(("n1", "hangs"), ("n2", "fails_once"), ("n3", "babbles")), notify="hangs", faults=(
                     Fault("preempt", 5.07, 0.0, 15), Fault("one_way_cut", 29.2, 76.9, 54),
                     Fault("lies_links", 51.53, 0.0, 37), Fault("freeze_one", 98.08, 5.1, 76),
                     Fault("flaky", 119.19, 15.2, 19))), "completed", 2),
    # slow=wrong: another node is named than the one that is slow
    "steps before a drop are no proof that its node was found": (
        Scenario(seed=92013462, nodes=3, pool=6, steps=322, step_s=2.0, save_every=50, save_s=0.1, load_s=0.5,
                 limit_min=4, slurmd_timeout_s=30.0, fs_latency_s=0.003, net_latency_s=0.01, ignores_term=True,
                 via="watch", has_sacct=True, slow="wrong", slow_node="n2", slow_step=88, slow_then="exclude_next",
                 faults=(Fault("truncate", 81.93, 0.0, 56), Fault("all_ranks_fail", 110.77, 0.0, 56))),
        "gave_up", 8),
    # truncate: the newest checkpoint is empty
    "an empty checkpoint in the place of a whole one is none": (
        Scenario(seed=92000212, spare_nodes=1, pool=3, steps=144, load_s=10.0, limit_min=20, slurmd_timeout_s=60.0,
                 fs_latency_s=0.02, net_latency_s=0.0002, min_nodes=1, before_resize="works", notify="works",
                 faults=(Fault("forgets", 0.0), Fault("batch_crashes", 64.23, 212.4, 96),
                         Fault("batch_crashes", 85.7, 452.2, 15), Fault("truncate", 120.5, 0.0, 49),
                         Fault("all_ranks_fail", 139.61, 0.0, 15))), "gave_up", 3),
    "a requeued job that Slurm has lost is no next job of the one that goes on in its place": (
        Scenario(seed=93004586, nodes=4, pool=5, steps=117, step_s=2.0, save_every=50, save_s=5.0, load_s=10.0,
                 limit_min=4, slurmd_timeout_s=30.0, fs_latency_s=0.02, net_latency_s=0.01, watchers=2, via="requeue",
                 site="no_scontrol", words="26.05", min_nodes=2, before_resize="works", notify="fails", faults=(
                     Fault("worker_crashes", 54.46, 60.4, 47), Fault("preempt", 82.24, 0.0, 85),
                     Fault("batch_crashes", 112.3, 443.0, 98), Fault("batch_silent", 149.96, 325.7, 48),
                     Fault("one_way_cut", 181.21, 60.0, 37), Fault("leader_dies_at_call", 232.37, 0.0, 95))),
        "completed", 9),
    "a standby leaves the run to the new leader though the old one goes on to say that it has resigned": (
        Scenario(seed=93004988, spare_nodes=1, pool=5, steps=117, step_s=0.5, save_s=0.1, load_s=0.5, limit_min=20,
                 fs_latency_s=0.02, net_latency_s=0.0002, handles_signal=False, watchers=2, checks=(("n2", "hangs"),),
                 has_checks=True, after_failure="before", nan="always", nan_step=78, notify="fails", faults=(
                     Fault("gpu_dies", 5.43, 0.0, 53), Fault("all_ranks_fail", 10.71, 0.0, 39),
                     Fault("one_way_cut", 49.24, 59.6, 8), Fault("rank_dies", 59.83, 0.0, 93),
                     Fault("unreadable", 61.93, 17.1, 19))), "gave_up", 5),
    # batch_silent while it checks a suspect: another one leads when it wakes
    "a leader that stood still checks no node which another one uses": (
        replace(_PLAIN, seed=84005472, nodes=4, spare_nodes=1, pool=7, steps=63, step_s=2.0, save_every=50,
                save_s=0.1, load_s=0.5, limit_min=20, slurmd_timeout_s=60.0, fs_latency_s=0.003, fs_late_s=3.0,
                net_latency_s=0.01, watchers=1, via="watch", words="26.05", checks=(("n0", "fails_fully"),),
                has_checks=True, after_failure="before", nan="once", nan_step=25, notify="hangs", faults=(
                    Fault("forgets", 0.0, 0.0, 0), Fault("gpu_dies", 4.34, 0.0, 41), Fault("gpu_dies", 7.93, 0.0, 32),
                    Fault("gpu_dies", 8.57, 0.0, 42), Fault("batch_silent", 14.44, 50.3, 85),
                    Fault("lies_links", 51.37, 0.0, 42))), "completed", 5),
    # batch_crashes before the first supervisor has written a word, then scancel
    "the run's first job, which a person cancelled before its supervisor was born, is asked about": (
        Scenario(seed=87033734, spare_nodes=1, pool=3, steps=61, step_s=2.0, limit_min=4, net_latency_s=0.01,
                 handles_signal=False, watchers=2, after_failure="off", faults=(
                     Fault("batch_crashes", 1.48, 488.5, 75), Fault("scancel", 2.67))), "stopped", 0),
    # the follower's batch_silent lies between its question and the answer
    "a run whose next job comes while its follower's host stands still is not taken for lost": (
        Scenario(seed=87018366, nodes=1, steps=150, step_s=2.0, save_s=5.0, load_s=0.5, limit_min=20,
                 slurmd_timeout_s=60.0, fs_latency_s=0.003, net_latency_s=0.01, handles_signal=False, via="resubmit",
                 site="refuses_sbatch", has_sacct=True, words="26.05", before="returns", before_any=True,
                 before_s=71.1, faults=(Fault("batch_silent", 88.41, 95.3, 57),)), "completed", 1),
    # two nodes in all and no dependency: the batch host crashes, and its job keeps both
    "a job without its script is ended at once where no job may wait behind it": (
        replace(_PLAIN, seed=84002429, pool=2, steps=157, save_every=20, save_s=1.0, load_s=2.0, slurmd_timeout_s=60.0,
                standby=False, watchers=2, site="no_dependency", words="26.05", min_nodes=1, before_resize="dies",
                checks=(("n1", "hangs"), ("n0", "breaks_pairs")), has_checks=True, allreduce=True,
                after_failure="before", notify="fails", faults=(Fault("batch_crashes", 17.3, 135.0, 63),)),
        "completed", 1),
    # forgets, with min_nodes=1: the smaller attempt starts at 0 and saves over what the larger one had
    "a checkpoint that fewer nodes have overwritten is theirs": (
        replace(_PLAIN, seed=85000227, nodes=3, pool=3, steps=129, step_s=2.0, save_every=5, save_s=5.0, watchers=0,
                via="successor", site="no_dependency", has_sacct=True, min_nodes=1, before_resize="works",
                notify="fails", faults=(Fault("forgets", 0.0, 0.0, 0), Fault("batch_crashes", 114.0, 168.0, 63),
                                        Fault("preempt", 253.7, 0.0, 63))), "gave_up", 5),
    # one node of three: n0 and n1 fail one after the other, and exclusions must not run out in between
    "the third node trains where the first two fail their checks in turn": (
        replace(_PLAIN, seed=82008487, nodes=1, pool=3, steps=94, save_every=20, save_s=0.1, limit_min=20,
                net_latency_s=0.0002, handles_signal=False, watchers=2, site="no_scontrol", has_checks=True,
                checks=(("n0", "fails_once"), ("n1", "fails")), after_failure="before", faults=(
                    Fault("gpu_dies", 7.72, 0.0, 12), Fault("gpu_dies", 23.94, 0.0, 34))), "completed", 2),
    # wall_jump between the word on n0 and its withdrawal
    "a node that was wrongly called slow is taken back by a host whose clock is behind": (
        replace(_PLAIN, seed=80001911, nodes=3, pool=6, steps=310, step_s=2.0, save_every=20, save_s=0.1, load_s=2.0,
                limit_min=4, slurmd_timeout_s=60.0, net_latency_s=0.001, handles_signal=False,
                ignores_term=True, via="successor", site="no_sinfo", slow="wrong", slow_node="n0", slow_step=101,
                slow_then="restart", notify="fails",
                faults=(Fault("preempt", 5.38, 0.0, 4), Fault("freeze", 8.37, 2.0, 23),
                        Fault("batch_silent", 11.01, 86.4, 20), Fault("wall_jump", 83.8, 0.0, 24),
                        Fault("manners", 137.04, 0.0, 67, ("empty",)))), "completed", 4),
    # one_way_cut keeps TERM from the batch host; a dead GPU makes it hand over meanwhile
    "a cancel that could not reach the script before it handed over ends the run": (
        replace(_PLAIN, seed=81003286, nodes=1, pool=2, steps=70, step_s=0.5, save_every=5, save_s=0.1, load_s=10.0,
                limit_min=20, slurmd_timeout_s=60.0, fs_latency_s=0.003, net_latency_s=0.01, handles_signal=False,
                preserve_s=120.0, words="26.05", checks=(("n0", "fails_once"), ("n1", "breaks_pairs")),
                has_checks=True, allreduce=True, after_failure="before", faults=(
                    Fault("one_way_cut", 13.07, 11.9, 76), Fault("scancel", 14.29, 0.0, 94),
                    Fault("gpu_dies", 15.16, 0.0, 94))), "stopped", 1),
    # scancel at 1.2 s, and no watch
    "a cancel before the script has begun leaves no trace where nobody looks": (
        replace(_PLAIN, seed=80003186, nodes=4, pool=6, steps=131, step_s=0.5, save_every=5, save_s=5.0, load_s=2.0,
                limit_min=4, fs_late_s=10.0, fs_clock_s=-600.0, net_latency_s=0.01, watchers=0, via="requeue",
                site="no_sinfo", handles_signal=True, notify="fails", faults=(
                    Fault("scancel", 1.19, 0.0, 72), Fault("hold", 44.61, 371.2))), "completed", 1),
    # scancel meets a silent batch host, and min_nodes=1
    # two attempts more on one node, whose conversions fail, where the watch asks at other moments
    "a cancel of a job whose batch host stands still, and no other node has a step, leaves none, either": (
        replace(_PLAIN, seed=80002627, pool=2, steps=138, step_s=0.5, save_every=10, save_s=5.0, load_s=0.5,
                limit_min=20, slurmd_timeout_s=30.0, fs_latency_s=0.02, fs_late_s=3.0, fs_clock_s=-600.0, via="watch",
                site="no_scontrol", words="26.05", min_nodes=1, checks=(("n0", "breaks_pairs"),), has_checks=True,
                allreduce=True, after_failure="off", before_resize="fails", notify="works", faults=(
                    Fault("batch_silent", 1.74, 606.2, 58), Fault("scancel", 43.08, 0.0, 1),
                    Fault("worker_crashes", 43.6, 637.4, 20),
                    Fault("manners", 58.18, 0.0, 95, ("empty", "times_out_undone", "garbled")))), "completed", 3),
    # one node of three; n1 and n2 fail their checks
    "three jobs in a row on bad nodes end a run that has no good one": (
        replace(_PLAIN, seed=70005650, nodes=1, pool=3, steps=46, step_s=2.0, save_every=50, save_s=5.0, load_s=2.0,
                limit_min=8, slurmd_timeout_s=30.0, fs_latency_s=0.02, watchers=1, via="watch", site="refuses_sbatch",
                words="26.05", checks=(("n1", "fails"), ("n2", "fails_once")), has_checks=True, after_failure="off",
                notify="hangs", faults=(Fault("preempt", 3.58, 0.0, 9), Fault("gpu_dies", 25.25, 0.0, 99))),
        "gave_up", 1),
    # the moment of scancel
    "a cancel of a job whose script has just handed over is too late for the run": (
        replace(_PLAIN, seed=70002120, pool=5, steps=86, step_s=2.0, save_every=20, save_s=1.0, load_s=2.0,
                limit_min=8, slurmd_timeout_s=60.0, fs_latency_s=0.02, fs_late_s=10.0, net_latency_s=0.01,
                standby=True, watchers=2, words="26.05", handles_signal=True, notify="hangs", faults=(
                    Fault("worker_silent", 59.55, 117.8, 18), Fault("scancel", 76.65, 0.0, 38))), "completed", 2),
    # leader_dies_at_call between its question to Slurm and the run's end
    "a cancel that a supervisor has found is not lost with it": (
        replace(_PLAIN, seed=40006672, nodes=3, spare_nodes=1, pool=6, steps=74, step_s=2.0, save_every=50, load_s=0.5,
                limit_min=8, slurmd_timeout_s=300.0, fs_latency_s=0.02, net_latency_s=0.01, watchers=2, via="watch",
                site="no_scontrol", notify="hangs", faults=(
                    Fault("batch_crashes", 14.23, 89.0, 83), Fault("scancel", 34.57, 0.0, 79),
                    Fault("leader_dies_at_call", 93.68, 0.0, 62))), "stopped", 2),
    # preempt while slurmctld answers late, twice
    "TERM in the middle of a question about the job before is no answer": (
        replace(_PLAIN, seed=2006673, spare_nodes=1, steps=147, save_every=20, save_s=1.0, load_s=2.0,
                site="no_scontrol", has_sacct=True, words="26.05",
                faults=(Fault("batch_crashes", 53.9, 99.0, 55), Fault("away", 136.3, 67.0, 88),
                        Fault("manners", 184.4, 0.0, 78, ("late", "late")), Fault("preempt", 232.5, 0.0, 49))),
        "completed", 3),
    # the leader dies at a call, scancel comes, and only then the standby leads
    "a cancel before a takeover reaches no new leader": (
        replace(_PLAIN, seed=2021418, nodes=3, steps=158, save_every=20, save_s=1.0, load_s=2.0, watchers=0,
                words="26.05", faults=(
                    Fault("loses_links", 9.7, 0.0, 23), Fault("batch_silent", 23.5, 17.0, 20),
                    Fault("leader_dies_at_call", 27.9, 0.0, 77), Fault("scancel", 34.4, 0.0, 20))), "stopped", 1),
    # manners late, refused, empty: the next job is submitted, and the answer is lost
    "a refusal, after an answer that took the time, leaves no job behind the run's end": (
        replace(_PLAIN, seed=2007494, nodes=4, pool=8, steps=91, step_s=0.5, save_every=20, save_s=1.0, load_s=2.0,
                via="successor", words="26.05",
                faults=(Fault("preempt", 12.1, 0.0, 96), Fault("hold", 48.3, 22.0),
                        Fault("manners", 64.6, 0.0, 2, ("late", "refused", "empty")))), "completed", 2),
    "a job whose leader died after it had submitted the next one is ended at once": (
        replace(_PLAIN, seed=2017463, pool=4, steps=65, save_every=20, save_s=1.0, load_s=2.0, fs_latency_s=0.003,
                standby=False, watchers=2, via="resubmit", preserve_s=30.0, words="26.05",
                faults=(Fault("worker_cut", 1.0, 1.0, 63), Fault("batch_crashes", 18.1, 28.0, 92))), "completed", 2),
    "a cancel that reaches the ranks before the supervisor, of a run on hold, is not undone by resume": (
        replace(_PLAIN, seed=700262, nodes=1, pool=3, steps=55, step_s=0.5, save_every=10, save_s=1.0, load_s=10.0,
                limit_min=4, slurmd_timeout_s=30.0, net_latency_s=0.001, handles_signal=True, standby=False, watchers=0,
                has_sacct=False, words="26.05",
                faults=(Fault("hold", 14.36, 279.4), Fault("batch_cut", 26.21, 3.0, 57), Fault("freeze", 32.3, 7.0, 35),
                        Fault("batch_silent", 32.62, 5.6, 12), Fault("scancel", 35.95, 0.0, 40))), "stopped", 1),
    # fs_late_s: the hold file is still there for the client that decides
    "a hold that is taken back, and that a client remembers, keeps no job back for ever": (
        replace(_PLAIN, seed=30393, nodes=3, spare_nodes=1, pool=7, steps=41, step_s=2.0, save_every=5, save_s=1.0,
                load_s=2.0, limit_min=8, fs_late_s=60.0, fs_clock_s=300.0, net_latency_s=0.001, ignores_term=True,
                standby=False, watchers=0,
                faults=(Fault("hold", 47.48, 46.4, 0), Fault("worker_crashes", 70.16, 212.3, 34))), "completed", 3),
    # fs_late_s and a cable that is cut for 10 s: the standby reads an old pulse
    "a pulse that a client remembers is no witness of its leader's death": (
        replace(_PLAIN, seed=845, pool=3, steps=114, step_s=1.0, save_every=20, save_s=1.0, load_s=2.0, fs_late_s=10.0,
                faults=(Fault("worker_cut", 52.3, 10.0, 61),)), "completed", 2),
    # fs_late_s: its forerunner's last lines are not seen yet, and the job's end looks like a cancel
    "a supervisor that is born reads what others have just written, not what its client remembers": (
        replace(_PLAIN, seed=434, nodes=3, steps=124, step_s=2.0, save_every=20, save_s=1.0, load_s=2.0, watchers=1,
                via="requeue", site="no_scontrol", fs_late_s=30.0,
                faults=(Fault("loses_links", 2.7, 0.0, 24), Fault("one_way_cut", 156.1, 24.5, 16))), "completed", 3),
    # fs_late_s: the record that the guard remembers is live
    "a guard that is cut off reads the record as it is, and ends its ranks before their successors write": (
        replace(_SPARE, steps=200, fs_late_s=60.0, watchers=0, faults=(Fault("worker_cut", 15.0, 120.0),)),
        "completed", 2),
    # away for longer than any lease
    "a file server that is away for ten minutes ends nothing": (
        replace(_PLAIN, steps=700, save_every=1000, limit_min=60, fs_late_s=30.0, fs_clock_s=-300.0,
                faults=(Fault("away", 20.0, 600.0),)), "completed", 1),
    # lies_links: the answer to a link that was made is lost
    "a claim that was won although the file server says that it exists is no other supervisor's": (
        replace(_PLAIN, fs_late_s=60.0, faults=(Fault("lies_links", 0.1, 0.0, 2), Fault("rank_dies", 15.0))),
        "completed", 2),
    # forgets: the second attempt starts at 0
    "a training that forgets its checkpoint is ended before it saves again": (
        replace(_PLAIN, steps=60, save_every=10, faults=(Fault("forgets", 1.0), Fault("rank_dies", 35.0))),
        "gave_up", 2),
    # slurm_gone a second before the rank dies: nothing tells who failed
    "an outage of slurmctld at the end of an attempt blames no node": (
        replace(_PLAIN, faults=(Fault("slurm_gone", 14.0, 60.0), Fault("rank_dies", 15.0))), "completed", 3),
    # two nodes in all: the dead one must be used again
    "a dead node that comes back is not kept out of the next job for ever": (
        replace(_PLAIN, faults=(Fault("worker_crashes", 15.0, 300.0),), pool=2, watchers=0), "completed", 3),
    # batch_cut: to its leader all other nodes are silent
    "a batch host that is cut off takes no other node with it": (
        replace(_SPARE, faults=(Fault("batch_cut", 11.0, 60.0),), pool=3, watchers=0), "completed", 3),
    # kill-now falls into batch_silent, and the folder is unreadable as it wakes
    "a kill switch touched while the batch host stood still is seen before the next launch": (
        replace(_SPARE, faults=(Fault("batch_silent", 5.0, 79.0), Fault("kill-now", 13.0),
                                Fault("unreadable", 82.0, 7.0)), nodes=3, standby=False), "stopped", 1),
    # the batch host, which runs the script, is dead when scancel comes
    "a cancel after a takeover is final although only a step was left to say so": (
        replace(_SPARE, faults=(Fault("batch_crashes", 20.0, 600.0), Fault("scancel", 45.0))), "stopped", 2),
    # its folder alone is frozen at its birth; batch_cut makes the standby lead
    "a leader that is superseded while it is born steps down": (
        replace(_SPARE, faults=(Fault("freeze_one", 10.0, 40.0), Fault("leader_dies", 11.0),
                                Fault("batch_cut", 12.0, 60.0))), "completed", 3),
    # unreadable from just before the leader dies
    "a folder that says ESTALE while a supervisor is born kills no supervisor": (
        replace(_PLAIN, faults=(Fault("leader_dies", 10.0), Fault("unreadable", 9.9, 30.0))), "completed", 1),
    # freeze at the standby's start, for longer than a lease
    "a folder that is frozen while the standby starts ends no attempt": (
        replace(_PLAIN, faults=(Fault("freeze", 6.0, 20.0),)), "completed", 1),
    # freeze before the standby's first pong: nobody can have taken over
    "a folder that is frozen before the standby was ever heard ends no attempt, however long": (
        replace(_PLAIN, steps=300, save_every=1000, faults=(Fault("freeze", 3.2, 200.0),)), "completed", 1),
    # the standby is late in the middle of the freeze
    "a folder that is frozen while a living standby is late for once ends no attempt": (
        replace(_PLAIN, steps=300, save_every=1000,
                faults=(Fault("freeze", 20.0, 200.0), Fault("worker_silent", 60.0, 4.0))), "completed", 1),
    # both deaths lie between the signal near the limit and the ranks' exit code 0
    "a leader that dies right after it asked the training to end calls it no completion": (
        replace(_PLAIN, steps=300, limit_min=4, save_every=50, handles_signal=True,
                faults=(Fault("leader_dies", 210.9), Fault("leader_dies", 211.5))), "completed", 3),
    "a pulse's counter goes on where a reborn leader begins": (
        replace(_SPARE, steps=200, faults=(Fault("leader_dies", 100.0), Fault("worker_cut", 109.0, 40.0))),
        "completed", 2),
    # preempt at 1.3 s, before the script has begun
    "a job that dies before any supervisor lives is found by the watch": (
        replace(_PLAIN, faults=(Fault("preempt", 1.3),)), "completed", 1),
    # batch_crashes at 3.5 s: ranks run, no standby yet
    "a batch host that dies before there is a standby is found by its guards or the watch": (
        replace(_PLAIN, faults=(Fault("batch_crashes", 3.5, 900.0),)), "completed", 2),
    # wall_jump: the hosts disagree on which node is excluded now
    "hosts whose clocks are hours apart pass the run from job to job only so often": (
        Scenario(seed=100094, nodes=3, steps=75, step_s=2.0, save_every=50, load_s=10.0, limit_min=8,
                 slurmd_timeout_s=30.0, net_latency_s=0.01, ignores_term=True,
                 faults=(Fault("batch_crashes", 11.08, 69.7, 21), Fault("one_way_cut", 129.48, 109.7, 85),
                         Fault("wall_jump", 150.48, 0.0, 5))), "completed", 3),
    # no scontrol, via=watch
    "a next job that cannot be changed, without scontrol, is not asked about again and again": (
        Scenario(seed=1672, steps=136, step_s=2.0, load_s=10.0, limit_min=20, net_latency_s=0.001, handles_signal=False,
                 watchers=2, via="watch", site="no_scontrol", has_sacct=True,
                 faults=(Fault("freeze", 9.83, 2.2), Fault("unreadable", 12.89, 11.8),
                         Fault("worker_silent", 149.16, 53.4, 81), Fault("corrupt", 177.43))), "completed", 2),
    "a job does not end by its old batch host before the next one is submitted": (
        Scenario(seed=1898, pool=3, steps=144, step_s=2.0, load_s=0.5, limit_min=20, net_latency_s=0.0002,
                 handles_signal=False, watchers=0, via="resubmit", site="refuses_sbatch", has_sacct=True,
                 faults=(Fault("refuses", 3.57, 5.5, 64), Fault("batch_cut", 39.89, 24.1, 34),
                         Fault("preempt", 170.69))), "completed", 3),
    # batch_silent for 76 s, scancel within it, and slurmctld hangs when it asks who cancelled
    "a cancel of a job whose old leader wakes up long after it is final": (
        replace(_PLAIN, seed=381, nodes=3, pool=5, steps=107, step_s=0.5, save_every=50, limit_min=4,
                slurmd_timeout_s=30.0, faults=(
                    Fault("one_way_cut", 8.51, 21.0, 19), Fault("batch_silent", 16.22, 76.0), Fault("scancel", 19.75),
                    Fault("hold", 40.77, 120.5), Fault("slurm_hung", 70.24, 222.3))), "stopped", 1),
    # no dependency: the next job starts beside this one
    "a job whose leader stood still before it could cancel it is ended by the next one's": (
        replace(_PLAIN, seed=757, pool=4, steps=152, save_every=20, via="resubmit", site="no_dependency",
                faults=(Fault("worker_cut", 57.5, 21.0), Fault("batch_crashes", 63.6, 57.0),
                        Fault("worker_silent", 79.9, 33.0, 7))), "completed", 2),
    # freeze_one: the killed ranks stay until the thaw
    "ranks that were killed in D state are no training that goes on in the job before": (
        Scenario(seed=806, pool=5, steps=127, step_s=2.0, save_every=5, limit_min=8, slurmd_timeout_s=30.0,
                 net_latency_s=0.01, watchers=0, site="no_dependency",
                 faults=(Fault("freeze_one", 45.67, 76.0), Fault("worker_cut", 54.28, 17.0))), "completed", 2),
    # scancel while the batch host, which would write it down, is cut off
    "a cancelled job of which no line was written is not requeued": (
        Scenario(seed=2841, nodes=4, spare_nodes=1, pool=7, steps=73, save_every=10, save_s=0.1, limit_min=4,
                 slurmd_timeout_s=60.0, net_latency_s=0.0002, via="resubmit", site="refuses_sbatch", preserve_s=30.0,
                 faults=(Fault("batch_cut", 15.08, 82.0, 13), Fault("scancel", 88.06))), "stopped", 2),
    # sbatch is refused, so the handover tries other ways; scancel comes in between
    "a person's cancel while the run is being handed over is final": (
        Scenario(seed=6564, pool=3, steps=117, save_every=10, load_s=0.5, limit_min=20, slurmd_timeout_s=30.0,
                 fs_latency_s=0.003, net_latency_s=0.01, via="resubmit", site="refuses_sbatch",
                 faults=(Fault("worker_crashes", 6.6, 191.4, 17), Fault("scancel", 32.8))), "stopped", 1),
    "a successor that the site refuses is replaced by another way when the job ends": (
        Scenario(seed=19, pool=3, steps=158, step_s=0.5, limit_min=20, slurmd_timeout_s=30.0, net_latency_s=0.001,
                 watchers=0, via="successor", site="no_sbatch", has_sacct=True,
                 faults=(Fault("leader_dies_at_call", 4.96, 0.0, 5), Fault("manners", 5.23, 0.0, 86, ("lies",)),
                         Fault("slurm_hung", 7.36, 21.0, 95), Fault("worker_crashes", 70.06, 147.9, 17))),
        "completed", 2),
    # the watch's job has generation 0, and stands before older ones
    "a leader that dies in a job that a watch had queued beside another is born again beside no second attempt": (
        replace(_PLAIN, via="watch", steps=900,
                faults=(Fault("preempt", 12.0), Fault("preempt", 700.0), Fault("leader_dies", 740.0))), "completed", 3),
    # slurm_gone at the run's end; the hold keeps the next job in the queue
    "a next job that a person holds is cancelled by a watch where slurmctld was away for long as the run ended": (
        replace(_PLAIN, faults=(Fault("hold", 8.0, 3000.0), Fault("slurm_gone", 20.0, 1200.0))), "completed", 1),
    "a next job that a person cancelled before anybody had written it down is not submitted anew": (
        Scenario(seed=600165, nodes=1, pool=3, steps=82, step_s=0.5, save_every=10, save_s=0.1, load_s=0.5,
                 limit_min=20, slurmd_timeout_s=300.0, fs_latency_s=0.003, net_latency_s=0.01, standby=False,
                 watchers=0, faults=(Fault("batch_silent", 2.61, 135.3), Fault("leader_dies", 9.92),
                                     Fault("scancel_successor", 32.7))), "completed", 2),
    "a cancel that a watch saw just after somebody had acted on the run is not forgotten": (
        Scenario(seed=601074, nodes=1, pool=3, steps=133, step_s=2.0, save_every=50, save_s=5.0, limit_min=8,
                 slurmd_timeout_s=30.0, fs_latency_s=0.02, net_latency_s=0.001, via="successor", site="no_sinfo",
                 faults=(Fault("refuses", 3.85, 39.4, 55), Fault("scancel_successor", 9.34),
                         Fault("manners", 12.02, 0.0, 6, ("times_out_undone", "empty", "times_out_undone")),
                         Fault("preempt", 198.14))), "stopped", 1),
    "a person's cancel of a job whose supervisor was about to cancel it itself is the person's": (
        Scenario(seed=507161, pool=4, steps=51, step_s=2.0, save_every=10, save_s=5.0, limit_min=8,
                 slurmd_timeout_s=30.0, net_latency_s=0.001, watchers=2, via="resubmit", site="refuses_sbatch",
                 faults=(Fault("leader_dies_at_call", 1.55, 0.0, 44), Fault("batch_crashes", 5.29, 366.1, 15),
                         Fault("scancel", 26.96))), "stopped", 1),
    # slurm_hung: Slurm carries out the hold late
    "a hold that comes late, after the run was resumed, holds no job": (
        Scenario(seed=640212, nodes=4, pool=5, steps=129, step_s=2.0, save_every=50, limit_min=4, slurmd_timeout_s=60.0,
                 net_latency_s=0.01, faults=(Fault("all_ranks_fail", 8.85, 0.0, 31), Fault("slurm_hung", 94.17, 66.9),
                                             Fault("hold", 126.79, 36.8))), "completed", 3),
    # scancel 3 s after the preemption, and slurmctld away until it has forgotten
    "a cancel of a job that had no supervisor yet is final although Slurm has forgotten it when a watch looks": (
        replace(_PLAIN, seed=3, steps=60, faults=(
            Fault("preempt", 20.0), Fault("scancel", 23.2), Fault("slurm_gone", 23.8, 600.0))), "stopped", 1),
    # slurm_hung keeps the job alive after scancel, until a guard calls it orphaned
    "a cancel that a watch has noted stays a person's although a node guard cancels that job once more": (
        Scenario(seed=381, nodes=3, pool=5, steps=107, step_s=0.5, save_every=50, limit_min=4, slurmd_timeout_s=30.0,
                 net_latency_s=0.0002, handles_signal=False, faults=(
                     Fault("one_way_cut", 8.51, 20.8, 19), Fault("batch_silent", 16.22, 75.9), Fault("scancel", 19.75),
                     Fault("hold", 40.77, 120.5), Fault("slurm_hung", 70.24, 221.9))), "stopped", 1),
    # one_way_cut hides the job's end from its host; srun alone tells it
    "a job of which srun says that it is over gets no further attempt": (
        replace(_PLAIN, nodes=1, standby=False, watchers=0, steps=60, faults=(
            Fault("one_way_cut", 10.0, 500.0, 2), Fault("preempt", 15.0), Fault("rank_dies", 20.0))), "completed", 3),
    # scancel a second after the batch host's crash
    "a cancel that Slurm tells only once a dead batch host is given up is waited for": (
        Scenario(seed=507601, pool=4, steps=72, step_s=2.0, save_every=50, save_s=0.1, limit_min=20, via="auto",
                 site="no_sbatch", standby=False,
                 faults=(Fault("batch_crashes", 73.43, 506.3), Fault("scancel", 74.56))), "stopped", 1),
    "a leader that wakes in a job which others have ended as orphaned takes that for no person's cancel": (
        Scenario(seed=9400, pool=5, steps=64, step_s=0.5, save_every=50, save_s=5.0, load_s=0.5, limit_min=8,
                 slurmd_timeout_s=300.0, fs_latency_s=0.02, net_latency_s=0.01, watchers=0, via="resubmit",
                 site="no_dependency",
                 faults=(Fault("batch_cut", 5.07, 113.5, 63), Fault("worker_cut", 9.13, 19.3, 84),
                         Fault("worker_silent", 33.38, 420.0, 69))), "completed", 2),
    "a job that is requeued once a hold was lifted is not held, for nobody to release": (
        Scenario(seed=8592, nodes=4, pool=8, steps=128, fs_latency_s=0.003, standby=False, watchers=0,
                 site="refuses_sbatch", has_sacct=True,
                 faults=(Fault("loses_links", 0.9, 0.0, 89), Fault("hold", 3.9, 6.0), Fault("preempt", 42.5, 0.0, 3))),
        "completed", 2),
    "a scancel a moment before a job is requeued is final": (
        Scenario(seed=401673, nodes=2, pool=5, steps=62, net_latency_s=0.0005, watchers=2, via="requeue",
                 site="refuses_sbatch", has_sacct=False, faults=(
                     Fault("hold", 10.6, 2.4), Fault("rank_dies", 12.4, 0.0, 80), Fault("scancel", 13.1, 0.0, 97))),
        "stopped", 1),
    "a cancel that a cut cable kept from the supervisor is not undone by its requeue": (
        Scenario(seed=443069, nodes=3, pool=5, steps=61, fs_latency_s=0.02, site="no_sbatch", has_sacct=True, faults=(
            Fault("hold", 1.7, 5.0), Fault("one_way_cut", 50.4, 35.0, 78), Fault("scancel", 61.4, 0.0, 57))),
        "stopped", 2),
    "a cancel that a cut cable kept from the supervisor is not undone by its next job": (
        Scenario(seed=448056, nodes=2, pool=3, steps=113, standby=False, faults=(
            Fault("batch_cut", 21.7, 25.0, 75), Fault("scancel", 31.1, 0.0, 96))), "stopped", 1),
    "a cancel that cannot reach silent nodes is not taken for a guard's": (
        Scenario(seed=467504, nodes=4, pool=6, steps=138, faults=(
            Fault("batch_silent", 3.3, 148.0, 39), Fault("worker_cut", 11.2, 283.0, 51), Fault("scancel", 54.0))),
        "stopped", 1),
    "a cancel in the moment of a hand-over, where no batch host is left to write it down, is final": (
        Scenario(seed=481657, nodes=4, pool=6, steps=105, net_latency_s=0.01, watchers=0, faults=(
            Fault("batch_cut", 13.8, 26.0, 53), Fault("scancel", 34.9, 0.0, 27))), "stopped", 1),
    "a checkpoint that does not load is left out though no word is left of the steps that made it": (
        Scenario(seed=467243, nodes=3, pool=6, steps=91, step_s=0.5, save_every=5, load_s=0.5, fs_latency_s=0.003,
                 via="requeue", site="no_sbatch", has_sacct=True, faults=(
                     Fault("freeze", 6.7, 36.0, 32), Fault("preempt", 9.5, 0.0, 63), Fault("corrupt", 28.5, 0.0, 75))),
        "completed", 4),
    "two ranks that were killed on two nodes before their first step are no proof": (
        Scenario(seed=403248, nodes=3, pool=4, steps=156, net_latency_s=0.0005, watchers=0, has_sacct=False, faults=(
            Fault("worker_cut", 1.2, 0.8, 42), Fault("rank_dies", 18.62, 0.0, 34))), "completed", 4),
    "a job whose supervisor died as it handed over is ended by the next one": (
        Scenario(seed=413620, nodes=3, pool=6, steps=74, net_latency_s=0.0002, slurmd_timeout_s=30.0, standby=False,
                 watchers=0, site="no_dependency", has_sacct=False, faults=(
                     Fault("manners", 11.6, 0.0, 19, ("times_out_done", "times_out_undone", "refused")),
                     Fault("batch_cut", 11.8, 96.6, 75), Fault("freeze_one", 15.9, 5.0, 96),
                     Fault("hold", 20.4, 118.0))), "completed", 2),
    "a checkpoint that does not load is left out though a preemption came between its two attempts": (
        Scenario(seed=414600, nodes=4, spare_nodes=1, pool=8, steps=54, save_every=5, load_s=0.5, net_latency_s=0.01,
                 watchers=0, via="successor", site="no_dependency", faults=(
                     Fault("worker_crashes", 12.2, 76.0, 94), Fault("corrupt", 22.43, 0.0, 75),
                     Fault("preempt", 38.4, 0.0, 99))), "completed", 6),
    # The fourth attempt is without the node whose rank fails first each time (decide.budget.alone).
    "a clock that is set back by two hours during a pause costs the run no two hours": (
        Scenario(seed=430543, nodes=4, pool=7, steps=43, load_s=10.0, limit_min=8, net_latency_s=0.0005, standby=False,
                 watchers=0, has_sacct=False, faults=(
                     Fault("all_ranks_fail", 10.9, 0.0, 84), Fault("wall_jump", 56.5, 0.0, 15))), "gave_up", 4),
    "a step of a dead node that ended as by scancel is no person's cancel": (
        Scenario(seed=93022505, nodes=3, spare_nodes=1, pool=5, steps=155, step_s=2.0, load_s=10.0, limit_min=4,
                 net_latency_s=0.001, via="watch", site="refuses_sbatch", words="26.05", min_nodes=2,
                 before_resize="works", notify="fails", faults=(
                     Fault("batch_crashes", 35.67, 136.3, 5), Fault("worker_crashes", 58.25, 637.9, 27),
                     Fault("preempt", 289.07, 0.0, 55))), "completed", 6),
    "a checkpoint that a smaller attempt has overwritten right before its leader died is not for all nodes": (
        Scenario(seed=93016003, pool=2, steps=44, step_s=0.5, save_s=5.0, load_s=10.0, limit_min=20,
                 net_latency_s=0.0002, handles_signal=False, via="watch", site="no_dependency", preserve_s=120.0,
                 min_nodes=1, before_resize="works", nan="once", nan_step=37, faults=(
                     Fault("forgets", 0.0), Fault("worker_silent", 3.37, 5.4, 85), Fault("extend", 6.1, 0.0, 49),
                     Fault("batch_silent", 27.91, 123.6, 11), Fault("worker_crashes", 108.21, 150.2, 95))),
        "gave_up", 5),
}


@pytest.mark.parametrize("name", FOUND)
def test_found_by_simulation(name: str) -> None:
    scenario, how, attempts = FOUND[name]
    outcome = run(scenario)
    assert outcome.violations == []
    assert outcome.how == how
    assert outcome.attempts <= attempts


def _call(scenario: Scenario, what: str) -> int:
    """The number of the first outside call of that name."""
    return next(number for number, call in enumerate(run(scenario).outside_calls, start=1) if call.startswith(what))


def test_launch_that_slept_starts_nothing_beside_the_attempt_of_whoever_took_over() -> None:
    scenario = replace(_SPARE, faults=(Fault("rank_dies", 15.0),))
    number = _call(scenario, "launch 2")
    for call in range(number - 3, number + 1):
        outcome = run(replace(scenario, at_calls=((call, "stands_still"),)))
        assert outcome.violations == []
        assert outcome.how == "completed"


def test_job_that_is_cancelled_while_it_asks_about_the_one_before_writes_that_down_itself() -> None:
    outcome = run(replace(_PLAIN, seed=507601, pool=4, steps=72, step_s=2.0, save_every=50, site="no_sbatch",
                          standby=False, faults=(Fault("batch_crashes", 73.4, 700.0), Fault("preempt", 74.6),
                                                 Fault("scancel", 436.0))), is_verbose=True)
    stopped = [line.split()[:2] for line in outcome.timeline if '"event":"stopped"' in line]
    assert outcome.violations == []
    assert [where for _, where in stopped] == ["n1"]
    assert float(stopped[0][0]) < 436.0 + 5.0


def test_next_job_that_a_person_holds_is_cancelled_once_slurmctld_that_was_away_answers() -> None:
    outcome = run(replace(_PLAIN, watchers=0, faults=(Fault("hold", 8.0, 3000.0), Fault("slurm_gone", 20.0, 120.0))))
    assert outcome.violations == []
    assert outcome.how == "completed"
    assert "scancel 102" in outcome.outside_calls


def test_pulse_names_the_next_job_as_soon_as_there_is_one() -> None:
    """A guard that ends an orphaned job frees the next one by that number, else it waits for a dead node (drill)."""
    calls = run(_PLAIN).outside_calls
    queued = next(number for number, call in enumerate(calls) if call.startswith("sbatch"))
    told = calls.index("write slurm-101.out", queued)   # that it waits in the queue
    assert "write pulse.json" in calls[told:calls.index("ask", told)], "before the leader looks at the folder again"


def test_leader_that_only_stood_still_costs_no_node_however_slow_the_guards_call() -> None:
    outcome = run(replace(_PLAIN, seed=5, steps=150, net_latency_s=0.3, faults=(Fault("leader_pauses", 20.0, 30.0),)))
    assert outcome.violations == []
    assert (outcome.how, outcome.attempts, outcome.jobs) == ("completed", 2, 2)   # the other one was queued behind it


def test_ranks_that_sleep_in_a_frozen_folder_blame_no_node_and_the_same_job_goes_on() -> None:
    outcome = run(replace(_PLAIN, seed=5, steps=100, save_every=20, faults=(Fault("freeze", 8.0, 200.0),)))
    assert outcome.violations == []
    assert (outcome.how, outcome.attempts, outcome.jobs) == ("completed", 2, 2)   # the other one was queued behind it


def test_job_whose_supervisors_are_dead_is_ended_although_its_ranks_ended_before() -> None:
    """Their guards left with them, and the job kept its nodes until its limit, 1,800 s."""
    outcome = run(replace(_PLAIN, nodes=3, pool=6, watchers=0, faults=(
        Fault("worker_crashes", 9.0, 900.0, 1), Fault("batch_crashes", 9.0, 900.0))), is_verbose=True)
    ended_s = next(float(line.split()[0]) for line in outcome.timeline if "job 101 ends" in line)
    assert outcome.violations == []
    assert (outcome.how, outcome.attempts) == ("completed", 2)
    assert 150.0 < ended_s < 250.0


@pytest.mark.parametrize("frozen_s", [10.3, 10.45, 11.2, 11.35, 12.0])
def test_old_leader_takes_the_end_of_its_job_by_the_new_one_for_no_persons_word(frozen_s: float) -> None:
    """Its folder thawed as it asked why the job ends, and it ended the run beside the next job's leader."""
    faults = (Fault("batch_silent", 20.0, 10.0), Fault("freeze_one", 25.0, frozen_s))
    for seed in range(4):
        outcome = run(replace(_PLAIN, seed=seed, pool=4, steps=60, watchers=0, faults=faults))
        assert outcome.violations == []
        assert outcome.how == "completed"


@pytest.mark.parametrize("how", ["worker_crashes", "worker_silent"])
def test_job_whose_new_leader_dies_before_the_old_one_is_let_in_is_ended(how: str) -> None:
    """No guard was left, and the old leader was no watcher that the new one knew: nothing happened until the limit."""
    outcome = run(replace(_PLAIN, steps=100, pool=6, watchers=0, faults=(
        Fault("leader_pauses", 20.0, 60.0), Fault(how, 28.5, 900.0))), is_verbose=True)
    ended_s = next(float(line.split()[0]) for line in outcome.timeline if "job 101 ends" in line)
    assert outcome.violations == []
    assert outcome.how == "completed"
    assert 180.0 < ended_s < 300.0


def test_step_elsewhere_lives_on_when_slurm_gives_a_node_up() -> None:
    """The simulation ended it; slurmctld does not (step_mgr.c, kill_step_on_node)."""
    outcome = run(replace(_SPARE, pool=4, slurmd_timeout_s=30.0, faults=(Fault("worker_crashes", 15.0, 300.0),)))
    assert outcome.violations == []
    assert (outcome.how, outcome.attempts) == ("completed", 2)


@pytest.mark.parametrize("after_s", [30.0, 55.0, 61.0, 66.0, 75.0, 100.0, 150.0])
def test_standby_that_was_cut_off_for_long_leads_beside_nobody(after_s: float) -> None:
    """Forgotten by its leader, it took over from one that the folder, frozen there alone, told nothing of it."""
    outcome = run(replace(_PLAIN, nodes=2, spare_nodes=1, steps=400, faults=(
        Fault("pair_cut", 15.0, 300.0), Fault("freeze_one", 15.0 + after_s, 60.0))))
    assert outcome.violations == []
    assert outcome.how == "completed"


def test_reborn_leader_reckons_with_a_standby_that_only_its_forerunner_has_let_in() -> None:
    """Another one answered it, so that it was sure of itself while that one, cut off from it alone, took over."""
    scenario = replace(_PLAIN, nodes=2, spare_nodes=1, steps=400, faults=(
        Fault("pair_cut", 15.0, 300.0), Fault("leader_dies", 60.0)))
    second_s = max(float(line.split()[0]) for line in run(scenario, is_verbose=True).timeline
                   if '"standby_started"' in line)
    assert second_s > 60.0
    frozen = Fault("freeze_one", second_s - 0.5, 90.0)   # it greets before it is said to stand by
    outcome = run(replace(scenario, faults=(*scenario.faults, frozen)), is_verbose=True)
    doubted_s, launched_s = (min(float(line.split()[0]) for line in outcome.timeline if words in line)
                             for words in ("it may lead by now", "attempt 2 on"))
    assert doubted_s < launched_s
    assert outcome.violations == []


def test_standby_is_there_four_seconds_after_the_first_attempt() -> None:
    outcome = run(_PLAIN, is_verbose=True)
    started_s = [float(line.split()[0]) for line in outcome.timeline
                 if '"attempt_started"' in line or '"standby_started"' in line]
    assert started_s[1] - started_s[0] < 4.0


@pytest.mark.parametrize("kind", ["batch_crashes", "batch_silent"])
@pytest.mark.parametrize("fs_latency_s", [0.02, 0.1])
def test_standby_takes_over_from_the_moment_it_is_said_to_stand_by(kind: str, fs_latency_s: float) -> None:
    """It had only greeted its leader, whose first ping with the pulse's counter came a look at the folder too late."""
    scenario = replace(_SPARE, net_latency_s=0.01, fs_latency_s=fs_latency_s, steps=200)
    started_s = min(float(line.split()[0]) for line in run(scenario, is_verbose=True).timeline
                    if '"standby_started"' in line)
    outcome = run(replace(scenario, faults=(Fault(kind, started_s + 0.001, 900.0),)), is_verbose=True)
    assert outcome.violations == []
    assert any("the standby takes over" in line for line in outcome.timeline)


@pytest.mark.parametrize("kind", ["freeze", "refuses"])
def test_attempt_of_which_only_the_claim_is_left_keeps_its_number(kind: str) -> None:
    """The journal's last lines waited on the disk of the batch host, which died."""
    scenario = GOLDEN["the batch host dies"]
    number = _call(scenario, "launch 1")
    for call in range(number - 7, number + 2):
        outcome = run(replace(scenario, at_calls=((call, kind),)))
        assert outcome.violations == []
        assert outcome.how == "completed"


@pytest.mark.parametrize("more", [(), (Fault("worker_silent", 60.0, 4.0),), (Fault("rank_dies", 60.0),)],
                         ids=["while ranks train", "after a doubt", "between two attempts"])
def test_standby_hears_its_leader_each_two_seconds_however_long_the_folder_is_frozen(
    more: tuple[Fault, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped FUSE server lets each child be killed, so that each look waits anew; one at checkpoints took 49 s."""
    monkeypatch.setattr(folder, "MAX_STUCK", 1_000_000)
    pinged_s: list[float] = []

    class Heard(SimServer):
        def _ping(self, guard: Any, connection: Any, now_s: float) -> None:
            if guard.task == STANDBY_TASK:
                pinged_s.append(self._supervisor.sim.clock.t)
            super()._ping(guard, connection, now_s)

    monkeypatch.setattr(process, "SimServer", Heard)
    outcome = run(replace(_PLAIN, steps=300, save_every=1000, faults=(Fault("freeze", 20.0, 120.0), *more)))
    assert outcome.violations == [] and outcome.how == "completed"
    assert max(later - sooner for sooner, later in itertools.pairwise(pinged_s)) < 2.01


def test_a_node_that_dies_between_sruns_start_and_its_guards_first_word_is_missed_before_slurm_misses_it() -> None:
    outcome = run(replace(_SPARE, faults=(Fault("worker_crashes", 1.7, 600.0),)))
    assert (outcome.how, outcome.violations) == ("completed", [])
    assert outcome.launched_t[1] - outcome.launched_t[0] < 60 < _SPARE.slurmd_timeout_s


@pytest.mark.parametrize("kind", ["worker_silent", "worker_crashes"])
def test_a_worker_that_falls_silent_is_fenced_within_18_seconds(kind: str) -> None:
    """Its lease runs since a ping that it owes an answer; with a ping each second until it is lost it took 24.8 s."""
    outcome = run(replace(_SPARE, faults=(Fault(kind, 20.0, 600.0),)))
    assert (outcome.how, outcome.violations) == ("completed", [])
    assert outcome.launched_t[1] - 20.0 <= 18.0


@pytest.mark.parametrize("x", [0, 4], ids=["back by two hours", "ahead by one"])
def test_a_wall_clock_that_steps_makes_no_grace_longer_or_shorter(x: int) -> None:
    """It stepped back in the grace of a kill switch: the training went on to its end, 49 minutes later."""
    outcome = run(Scenario(seed=1, steps=3000, limit_min=60, save_every=100_000, handles_signal=False,
                           faults=(Fault("kill", 60.0), Fault("wall_jump", 68.0, 0.0, x))), is_verbose=True)
    asked_s, over_s = (next(float(line[:9]) for line in outcome.timeline if words in line)
                       for words in ("asking the training to end", "still running"))
    assert (outcome.how, outcome.violations) == ("stopped", [])
    assert over_s - asked_s == pytest.approx(DEAF_S, abs=2.0)


@pytest.mark.parametrize("x", [0, 4], ids=["back by two hours", "ahead by one"])
def test_a_wall_clock_that_steps_keeps_a_site_for_as_long_as_was_asked_for(x: int) -> None:
    """It stepped back while the site of a failure was kept: the nodes were kept for two hours more."""
    outcome = run(Scenario(seed=1, steps=3000, limit_min=60, save_every=100_000, preserve_s=120.0, standby=False,
                           watchers=0, faults=(Fault("all_ranks_fail", 5.0), Fault("rank_dies", 6.0),
                                               Fault("wall_jump", 240.0, 0.0, x))), is_verbose=True)
    kept_s, over_s = (next(float(line[:9]) for line in outcome.timeline if words in line)
                      for words in ('"event":"preserved"', "the run has ended"))
    assert (outcome.how, outcome.violations) == ("gave_up", [])
    assert kept_s < 240.0 and over_s - kept_s == pytest.approx(120.0, abs=2.0)
    assert sum('"event":"clock_stepped"' in line for line in outcome.timeline) == 1
