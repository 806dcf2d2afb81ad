"""The words of notify.when, apart from what each means (core.notify.words): every submission imports them."""

from __future__ import annotations

NAMES = ("gave_up", "completed", "stopped", "hang", "suspect_node", "restarted", "took_over", "lost_progress",
         "preserved", "held")
DEFAULT = ("gave_up", "hang", "suspect_node", "completed", "held")
