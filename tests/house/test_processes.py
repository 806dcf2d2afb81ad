"""Processes are started in few places."""

from __future__ import annotations

import re

from tests.house.source import modules

STARTS = re.compile(r"\bsubprocess\.(?:Popen|run|call|check_\w+)\(|\bos\.(?:fork|posix_spawn\w*|system|killpg)\(|"
                    r"\bPopen\(|\bmultiprocessing\.get_context\(")
# Outside of node/, which has its own. What is started for its output is a ProgramRun, or a function in a fork.
STARTERS = {
    "base/io/program.py": "programs: a deadline, bounded output, a session that ends",
    "base/io/probe.py": "functions, in forks: what may hang is touched there",
    "run/io/shared.py": "the courier, which ends with its leader",
    "supervisor/io/held.py": "the step of the next attempt, which waits for its launch",
    "supervisor/io/attempt.py": "an attempt and its log pump, which outlive their supervisor",
    "run/io/local.py": "a job of the local cluster, which outlives submit",
    "why/io/linenumbers.py": "wc, which counts the lines of gigabytes that are moved into its pipe",
    "why/io/logfiles.py": "the workers that search one large log",
    "site/io/sitefolder.py": "writers that race for one file, within a probe",
    "notify/io/notify.py": "a program within a probe, whose session ends with it",
    "sandbox/accounting.py": "MariaDB, a daemon",
    "sandbox/namespaces.py": "Slurm's daemons",
    "sandbox/login.py": "a user's command, with pipes for who runs it",
}


def test_processes_are_started_in_few_places() -> None:
    found = {module.path for module in modules()
             if not module.path.startswith("node/") and STARTS.search(module.text)}
    assert found == set(STARTERS)
