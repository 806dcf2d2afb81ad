"""What safelaunch's launchers put before a line: "[host:rank]:"."""

from __future__ import annotations

import re

PREFIX = re.compile(rb"(\[([^\[\]\s:]{1,255}):(\d{1,9})\]:) ?")
