"""Keeps metrics.prom of the run folder: the run's figures for Prometheus (status.metrics)."""

from __future__ import annotations

from safelaunch.run.io.outbox import PUT
from safelaunch.run.plan import Plan
from safelaunch.status import metrics
from safelaunch.status.metrics import MeteredRun
from safelaunch.supervisor.state.attempt import RunningAttempt
from safelaunch.supervisor.state.clock import Clock, Timer
from safelaunch.supervisor.state.journal import LeaderJournal
from safelaunch.supervisor.state.parts import Here
from safelaunch.supervisor.state.ports import FolderPort

EVERY_S = 60.0   # as often as the journal has a step
FIRST_S = 5.0    # not at the start, when a training waits


def follow(
    plan: Plan, here: Here, clock: Clock, journal: LeaderJournal, files: FolderPort, running: RunningAttempt
) -> None:
    """Write the figures when they are due."""
    clock.start_with(Timer.METRICS, FIRST_S)
    if clock.take_turn(Timer.METRICS, EVERY_S):
        write(plan, here, clock, journal, files, running)


def write(
    plan: Plan, here: Here, clock: Clock, journal: LeaderJournal, files: FolderPort, running: RunningAttempt
) -> None:
    """Hand the figures to the courier; nothing waits for them."""
    attempt = journal.state.attempt
    step, step_t = attempt.step if attempt else None, running.last_step.t
    account = journal.books.until(journal.state, clock.now, step, step_t)
    run = MeteredRun(plan.name, plan.run_id, str(here.run_dir), here.job.cluster,
                     plan.restart.max_restarts, journal.state, account, clock.now)
    files.state.shared.enqueue(PUT, metrics.FILE, metrics.render(metrics.samples(run)).encode())
