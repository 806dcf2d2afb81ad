"""How times, spans and node lists stand in texts for people."""

from __future__ import annotations

from safelaunch.slurm import nodefold
from safelaunch.status.speech import Speech
from safelaunch.verbs.common import talk

SPEECH = Speech(talk.moment, talk.span, nodefold.fold)


def speech_at(now: float) -> Speech:
    """The same, times of that day without the date."""
    return SPEECH._replace(clock=lambda t: talk.moment(t, now))
