"""Slurm's commands take turns: slurmctld is everybody's."""

from __future__ import annotations

import time

import pytest

from safelaunch.slurm.io.slurm import Command, Pace


def test_commands_that_waited_while_their_process_stood_still_start_two_a_second() -> None:
    pace = Pace()
    assert [pace.take(100.0), pace.take(100.0), pace.take(100.2), pace.take(100.4)] == [True, True, False, False]
    assert [pace.take(140.0), pace.take(140.0), pace.take(140.0)] == [True, True, False]
    assert pace.wait_s(140.4) == pytest.approx(0.6)
    assert pace.take(141.0)


def test_what_a_restart_waits_for_starts_at_once_and_the_next_command_waits_for_it() -> None:
    pace = Pace()
    assert [pace.take(100.0), pace.take(100.0), pace.take(100.5)] == [True, True, False]
    assert pace.take(100.5, at_once=True)
    assert [pace.take(101.0), pace.take(101.4), pace.take(101.5)] == [True, False, True]


def test_third_command_starts_a_second_after_the_first() -> None:
    pace, begun_s = Pace(), time.monotonic()
    commands = [Command(("true",), {"PATH": "/usr/bin:/bin"}, pace=pace) for _ in range(3)]
    assert [command.wait().returncode for command in commands] == [0, 0, 0]
    assert time.monotonic() - begun_s >= 1.0
