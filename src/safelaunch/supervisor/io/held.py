"""The next attempt's step, started while an attempt runs (restart.warm), and waiting for a word.

srun passes its input to every task. Each waits for lines that end with "." (node/held.sh): the words of a launch that
are known only then. No such line ever comes where this process has ended, and the tasks end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from safelaunch.supervisor.io.attempt import AttemptProcess, step_argv, step_env

ANSWER_S = 1.0       # of all tasks, at a launch: milliseconds, and more on a busy node
LOOK_S = 0.002
KEPT_S = 120.0   # between two attempts: longer than restart.backoff, and no memory is held for people who look
READY = b"safelaunch-held\n"
# What may differ from the start of the step to the word; all else must be known at the start.
KNOWN_LATER = frozenset(("SAFELAUNCH_MASTER_PORT", "SAFELAUNCH_RESUME_PATH", "SAFELAUNCH_RESUME_STEP",
                         "SAFELAUNCH_RESIZED"))


class HeldStep:
    """One; its processes carry no attempt's mark."""

    def __init__(self, local: Path, number: int, tasks: int, mark: str, living: str, env: Mapping[str, str],
                 is_careful: bool) -> None:
        self.local, self.number, self.tasks, self.mark, self.env = local, number, tasks, mark, dict(env)
        self.why = "its nodes or its number are others"   # ... than those of the launch
        self.spool = local / f"held-{number:04d}.log"
        self.own = {"exit_file": f"attempt-{number:04d}.{os.getpid()}-{time.monotonic_ns()}.exit"}
        process = AttemptProcess(local, number, self.own)
        more = {"SAFELAUNCH_HELD": living, **({"SAFELAUNCH_CARE": "yes"} if is_careful else {})}
        descriptor = os.open(self.spool, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        try:
            self.child = subprocess.Popen(
                step_argv(local), env={**step_env(process, env), **more}, cwd=env.get("SAFELAUNCH_CWD", "/"),
                stdin=subprocess.PIPE, stdout=descriptor, stderr=descriptor, start_new_session=True)
        finally:
            os.close(descriptor)

    @property
    def has_ended(self) -> bool:
        """Whether nothing waits any more."""
        return self.child.poll() is not None

    def _answers(self) -> int:
        with contextlib.suppress(OSError):
            return self.spool.read_bytes().count(READY)
        return 0

    def release(self, words: Sequence[str], env: Mapping[str, str], facts: Mapping[str, Any]) -> AttemptProcess | None:
        """The attempt, launched; None: it cannot be launched so, and nothing of this is left that could."""
        lines = self._lines(words, env)
        if lines is None:
            return None
        if self.has_ended or self._answers() != self.tasks or not self._write(b"?\n"):
            self.why = "it has not begun on each node"
            return None
        end_s = time.monotonic() + ANSWER_S
        while self._answers() < 2 * self.tasks:
            if time.monotonic() > end_s:
                self.why = f"not all of its tasks have answered within {ANSWER_S:.0f} s"
                return None
            time.sleep(LOOK_S)
        process = AttemptProcess(self.local, self.number, {**facts, **self.own}, self.child)
        process.announce()
        os.truncate(self.spool, 0)
        self.spool.rename(process.spool)
        if not self._write(lines):
            self.why = "its srun takes no input"
            process.forget()
            return None
        assert self.child.stdin is not None
        self.child.stdin.close()
        return process

    def _lines(self, words: Sequence[str], env: Mapping[str, str]) -> bytes | None:
        """What differs, a variable or argument a line; None: it cannot be said so."""
        changed = {name for name in {*env, *self.env} if env.get(name) != self.env.get(name)}
        set_ = {name: env[name] for name in sorted(changed) if name in env}
        others = sorted(changed - KNOWN_LATER)
        if others or any("\n" in word or "\0" in word for word in (*words, *set_.values())):
            self.why = f"the launch differs in {', '.join(others) or 'a word of several lines'}"
            return None
        set_["SAFELAUNCH_MARK"] = self.mark
        set_["MASTER_PORT"] = env["SAFELAUNCH_MASTER_PORT"]
        lines = [*(f"={name}={value}" for name, value in set_.items()),
                 *(f"-{name}" for name in sorted(changed - set(env))), *(f"+{word}" for word in words), "."]
        return os.fsencode("\n".join(lines) + "\n")

    def _write(self, data: bytes) -> bool:
        assert self.child.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            self.child.stdin.write(data)
            self.child.stdin.flush()
            return True
        return False

    def drop(self) -> None:
        """End it. Its shell first, which would leave an exit code for the attempt."""
        with contextlib.suppress(ProcessLookupError):
            if self.child.poll() is None:
                os.kill(self.child.pid, signal.SIGKILL)
        with contextlib.suppress(OSError, ValueError):
            assert self.child.stdin is not None
            self.child.stdin.close()   # srun's tasks end by that, and srun with them
        with contextlib.suppress(OSError):
            self.spool.unlink()
        self.child.wait()


class HeldNext:
    """At most one, for one number and these nodes."""

    def __init__(self) -> None:
        self.step: HeldStep | None = None
        self.nodes: tuple[str, ...] = ()
        self.tried = 0       # the last attempt beside which one was started: one try each
        self.idle_s: float | None = None   # since when no attempt lives
        self.why = ""        # the last one was of no use

    def begin(self, number: int, nodes: tuple[str, ...], start: Callable[[], HeldStep]) -> None:
        """Start one beside attempt `number`."""
        self.drop()
        self.tried, self.nodes = number, nodes
        self.step = start()

    def take(self, number: int, nodes: tuple[str, ...], words: Sequence[str], env: Mapping[str, str],
             facts: Mapping[str, Any]) -> AttemptProcess | None:
        """The attempt, launched by it. None: there is none that could, and none is left."""
        step, self.step, self.why = self.step, None, ""
        if step is None:
            return None
        fits = (step.number, self.nodes) == (number, nodes)
        process = step.release(words, env, facts) if fits else None
        if process is None:
            self.why = step.why
            step.drop()
        return process

    def follow(self, is_alive: bool, nodes: tuple[str, ...], now_s: float) -> None:
        """Drop one that nobody will need."""
        self.idle_s = None if is_alive else self.idle_s if self.idle_s is not None else now_s
        is_late = self.idle_s is not None and now_s - self.idle_s > KEPT_S
        if self.step is not None and (self.step.has_ended or is_late or (is_alive and nodes != self.nodes)):
            self.drop()

    def drop(self) -> None:
        """End it."""
        if self.step is not None:
            self.step.drop()
            self.step = None
