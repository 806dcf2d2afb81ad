"""What a package needs to extend safelaunch by an entry point: docs/plugins.md. These names are kept stable."""

from __future__ import annotations

from safelaunch.checkpoints.model import Candidate, CheckpointTree
from safelaunch.extensions.pluginvalues import CheckPlugin, CheckpointFormat, LauncherPlugin, Notifier
from safelaunch.notify.message import Message
from safelaunch.notify.targets import NotSent

__all__ = ["Candidate", "CheckPlugin", "CheckpointFormat", "CheckpointTree", "LauncherPlugin", "Message", "NotSent",
           "Notifier"]
