"""Keeps metrics.prom of the run folder: the run's figures for Prometheus (status.metrics)."""

from __future__ import annotations

from safelaunch.run.io.outbox import PUT
from safelaunch.status import metrics
from safelaunch.status.metrics import MeteredRun
from safelaunch.supervisor.leader import Leader
from safelaunch.supervisor.state.clock import Timer

EVERY_S = 60.0   # as often as the journal has a step
FIRST_S = 5.0    # not at the start, when a training waits


def follow(lead: Leader) -> None:
    """Write the figures when they are due."""
    lead.clock.start_with(Timer.METRICS, FIRST_S)
    if lead.clock.take_turn(Timer.METRICS, EVERY_S):
        write(lead)


def write(lead: Leader) -> None:
    """Hand the figures to the courier; nothing waits for them."""
    attempt = lead.state.attempt
    step, step_t = attempt.step if attempt else None, lead.running.last_step.t
    account = lead.journal.books.until(lead.state, lead.now, step, step_t)
    run = MeteredRun(lead.plan.name, lead.plan.run_id, str(lead.run_dir), lead.job.cluster,
                     lead.plan.restart.max_restarts, lead.state, account, lead.now)
    lead.shared.enqueue(PUT, metrics.FILE, metrics.render(metrics.samples(run)).encode())
