"""What a package needs to extend safelaunch by an entry point: docs/plugins.md. These names are kept stable."""

from __future__ import annotations

from safelaunch.core.checkpoints.model import Candidate, CheckpointTree
from safelaunch.core.notify.message import Message
from safelaunch.core.notify.targets import NotSent
from safelaunch.core.pluginvalues import CheckPlugin, CheckpointFormat, LauncherPlugin, Notifier

__all__ = ["Candidate", "CheckPlugin", "CheckpointFormat", "CheckpointTree", "LauncherPlugin", "Message", "NotSent",
           "Notifier"]
