"""Messages that are sent from here: a test message to the targets of a run or of a train.yaml."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from safelaunch.base.io import owners
from safelaunch.config.io.configfiles import read_config
from safelaunch.errors import UsageError
from safelaunch.notify.io.notify import Delivery
from safelaunch.notify.message import Message, trial
from safelaunch.notify.targets import NotifyTarget, targets
from safelaunch.run import plan as plans
from safelaunch.run.plan import Plan
from safelaunch.verbs.common import runs

POLL_S = 0.02


def find_plan(what: str | None) -> Plan:
    """Of a train.yaml, which is any file, or of a run; raises ConfigError and UsageError."""
    if what is not None and os.path.isfile(what):   # noqa: PTH113 - False also for a name that no file can have
        return plans.of_settings(read_config(what).settings, "")
    run = runs.load(what)
    if runs.owner_of(run.dir) != owners.name_of(os.geteuid()):
        raise UsageError(f"{run.dir} is another user's run: only its owner can send its messages")
    return run.plan


def send(plan: Plan) -> dict[str, str]:
    """For each target why it did not take the message; "" = it did. Raises UsageError where there is none."""
    to = targets(plan.notify.to, plan.notify.command)
    if not to:
        raise UsageError(f"{plan.name} tells nobody: notify.to and notify.command are empty",
                         hint="see docs/notify.md, such as notify: {to: [mailto:me@example.org]}")
    return deliver(to, trial(plan.name), plan.notify.smtp)


def deliver(to: Sequence[NotifyTarget], message: Message, smtp: str | None) -> dict[str, str]:
    """Send a message from here, and wait for that: for each target why it did not take it; "" = it did."""
    delivery = Delivery(to, message, smtp, os.environ)
    while (results := delivery.poll()) is None:
        time.sleep(POLL_S)
    return results
