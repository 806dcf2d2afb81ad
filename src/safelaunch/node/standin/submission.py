"""What the script submits by sbatch: itself, as the next link of this run, or another job.

Standard library, Python 3.9.
"""

from __future__ import annotations

import os
import sys

from safelaunch.node.standin import links as kept
from safelaunch.node.standin import sbatchcall
from safelaunch.node.standin.ownjob import OwnJob, become, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, NoReturn, Optional

MOST_TEXT = 100_000   # bytes of a script: a process can be given 128 KiB (execve(2))
QUESTIONS = {"help", "usage", "version"}   # no submission
SHELLS = ("bash", "sh", "zsh", "source", ".")


def sbatch(own: OwnJob) -> Optional[int]:
    """Take the script itself for the next link of this run; send everything else to Slurm as another job."""
    try:
        call = sbatchcall.parse(own.words, own.facts["takes"], own.facts["letters"])
        args = self_submitted(own, call)
    except sbatchcall.Unreadable:
        call, args = None, None
    if call is None or args is None:
        if call is None or not QUESTIONS & set(call.options):
            say(own, "sbatch %s: another job, which safelaunch does not look after" % " ".join(own.words)[:200])
        return submit_other(own)
    options = call.options
    others = [name for name in sbatchcall.OF_ITS_OWN if name in options]
    when = sbatchcall.waits_for(options.get("dependency", ""), (own.job, *own.link_ids))
    if others or when is None:
        if not QUESTIONS & set(others):
            say(own, "this script is submitted with --%s: a job of its own, which safelaunch does not look after" % (
                others[0] if others else "dependency=" + options["dependency"]))
        return submit_other(own)
    count, link = len(own.links), kept.add(own.links, make_link(own, call, args, when))
    if link is None:
        say(own, "this script has submitted itself already: this one becomes a job of its own, which safelaunch does "
                 "not look after")
        return submit_other(own)
    if len(own.links) > count:
        kept.write(own.links_file, own.links)
        say_link(own, options, when)
    if "quiet" not in options or "parsable" in options:
        print(link["id"] if "parsable" in options else "Submitted batch job %s" % link["id"])
    return 0


def say_link(own: OwnJob, options: Mapping[str, str], when: str) -> None:
    """What becomes of a self-submission."""
    for option in sbatchcall.unfollowed(options, own.facts["options"]):
        say(own, "%s is not followed: the next link has the job options of this run" % option)
    say(own, "%s goes on as the next link of this run%s, not as another job" % (
        own.facts["script"].rpartition("/")[2] or "the script",
        {kept.OK: ", if this one ends well", kept.NOT_OK: ", if this one fails"}.get(when, "")))


def self_submitted(own: OwnJob, call: sbatchcall.SbatchCall) -> Optional[list[str]]:
    """The arguments with which the script submits itself; None: it submits something else."""
    if "wrap" in call.options:
        import shlex

        try:
            words = shlex.split(call.options["wrap"])
        except ValueError:
            return None
        if words[:1] and words[0].rpartition("/")[2] in SHELLS:
            words = words[1:]
        return words[1:] if words[:1] and is_self(own, words[0]) else None
    if call.script is None:
        return [] if is_self_on_stdin(own) else None
    return call.args if is_self(own, call.script) else None


def is_self(own: OwnJob, path: str) -> bool:
    """Whether a file is the script, or the job file around it, by its place or its content."""
    mine = [one for one in ("%s/slurm_script" % own.here, "%s/job.sbatch" % own.here, own.facts["job_file"],
                            own.facts["script"]) if one]
    if os.path.realpath(path) in [os.path.realpath(one) for one in mine]:
        return True
    return path.endswith("/job%s/slurm_script" % own.job) or text_of(path) == text_of("%s/slurm_script" % own.here)


def text_of(path: str) -> bytes:
    """What a file holds; nothing where it cannot be read, or is no script."""
    try:
        with open(path, "rb") as file:
            return file.read(MOST_TEXT)
    except OSError:
        return b""


def new_text(own: OwnJob, path: str) -> dict[str, str]:
    """{"text"} of the script where somebody, or the script itself, has changed its file since the run was submitted."""
    now = text_of("%s/slurm_script" % own.here)
    is_file = os.path.realpath(path) == os.path.realpath(own.facts["script"] or "/")
    text = text_of(path) if is_file else now
    if not text.startswith(b"#!") or len(text) >= MOST_TEXT:
        return {}
    is_changed = own.facts["has_new_text"] or text.strip() != now.strip()
    return {"text": text.decode("utf-8", "surrogateescape")} if is_changed else {}


def is_self_on_stdin(own: OwnJob) -> bool:
    """Whether sbatch would read the script from its stdin; what it holds is kept for the real sbatch."""
    import tempfile

    if sys.stdin is None or sys.stdin.isatty():
        return False
    text = sys.stdin.buffer.read()
    with tempfile.TemporaryFile() as again:
        again.write(text)
        again.seek(0)
        os.dup2(again.fileno(), 0)
    return text_of("%s/slurm_script" % own.here).strip() == text.strip()


def make_link(own: OwnJob, call: sbatchcall.SbatchCall, args: list[str], when: str) -> dict[str, Any]:
    """What the run goes on with."""
    start = read_environ(os.environ.get("SAFELAUNCH_ROOT", ""))
    env, gone = sbatchcall.exported(os.environ, start or os.environ, own.facts["link_env"],
                                    call.options.get("export", "ALL"), own.bin_dir)
    followed = {name: call.options[name] for name in sbatchcall.FOLLOWED if name in call.options}
    return {"id": kept.new_id(own.facts["attempt"], own.links), "kind": "sbatch", "when": when, "args": args,
            **new_text(own, call.script or ""),
            "env": env, "gone": gone, "options": followed, "cwd": os.getcwd(),
            "chdir": os.path.join(os.getcwd(), call.options.get("chdir", "")).rstrip("/") or "/"}


def read_environ(pid: str) -> dict[str, str]:
    """The environment with which a process began."""
    try:
        with open("/proc/%d/environ" % int(pid), "rb") as file:
            pairs = [pair.decode("utf-8", "surrogateescape").partition("=") for pair in file.read().split(b"\0")]
    except (OSError, ValueError):
        return {}
    return {name: value for name, equals, value in pairs if equals}


def submit_other(own: OwnJob) -> NoReturn:
    """Another job has its own fate: nothing of this run's is in its environment."""
    env = sbatchcall.without(os.environ, own.bin_dir, own.facts["added"])
    become(own.real(), sbatchcall.with_own_ids(own.words, own.link_ids, own.job), env)
