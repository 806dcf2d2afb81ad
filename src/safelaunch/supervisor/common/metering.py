"""Keeps metrics.prom of the run folder: the run's figures for Prometheus (status.metrics)."""

from __future__ import annotations

from safelaunch.run.io.outbox import PUT
from safelaunch.status import metrics
from safelaunch.status.metrics import MeteredRun
from safelaunch.supervisor.state.attempt import RunningAttempt
from safelaunch.supervisor.state.clock import Clock, Timer
from safelaunch.supervisor.state.journal import LeaderJournal
from safelaunch.supervisor.state.ports import FolderPort, Here

EVERY_S = 60.0   # as often as the journal has a step
FIRST_S = 5.0    # not at the start, when a training waits


def follow(here: Here, clock: Clock, journal: LeaderJournal, files: FolderPort, running: RunningAttempt) -> None:
    """Write the figures when they are due."""
    clock.start_with(Timer.METRICS, FIRST_S)
    if clock.take_turn(Timer.METRICS, EVERY_S):
        write(here, clock, journal, files, running)


def write(here: Here, clock: Clock, journal: LeaderJournal, files: FolderPort, running: RunningAttempt) -> None:
    """Hand the figures to the courier; nothing waits for them."""
    attempt = journal.state.attempt
    step, step_t = attempt.step if attempt else None, running.last_step.t
    account = journal.books.until(journal.state, clock.now, step, step_t)
    run = MeteredRun(here.plan.name, here.plan.run_id, str(here.run_dir), here.job.cluster,
                     here.plan.restart.max_restarts, journal.state, account, clock.now)
    files.state.shared.enqueue(PUT, metrics.FILE, metrics.render(metrics.samples(run)).encode())
