"""Job ids and a run's name that no other process of tests uses: the collector looks for them in all of /proc."""

from __future__ import annotations

import os

JOB = f"99{os.getpid()}"
OTHER_JOB = f"{JOB}1"
RUN = f"run{os.getpid()}"
