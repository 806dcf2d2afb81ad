"""One of Slurm's commands as the script means it. Standard library, Python 3.9.

Whatever goes wrong here, the real command runs as it is.
"""

from __future__ import annotations

import os
import sys
import time

from safelaunch.node.host import is_coerced
from safelaunch.node.light import signal, suppress
from safelaunch.node.standin import links as kept
from safelaunch.node.standin.ownjob import OwnJob, become, find_real, open_own, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Optional

CAUGHT_UP_S, LOOK_S = 2.0, 0.005   # for the pump, which copies the log 20 ms later


def main(argv: Sequence[str]) -> int:
    """The exit code; does not return where the real command takes this process's place."""
    bin_dir, name, words = argv[0], argv[1], list(argv[2:])
    if is_coerced():
        del os.environ["LC_CTYPE"]
    try:
        own = open_own(bin_dir, name, words)
        code = None if own is None else _ACTS[name](own)
        sys.stdout.flush()
    except Exception as error:   # noqa: BLE001 - the script's own command matters more
        if os.environ.get("SAFELAUNCH_STANDIN_DEBUG"):
            sys.stderr.write("safelaunch: %s: %r\n" % (name, error))
        code = None
    return become(find_real(bin_dir, name), words, os.environ) if code is None else code


def sbatch(own: OwnJob) -> Optional[int]:
    """The script itself is the next link of this run; everything else is Slurm's."""
    from safelaunch.node.standin import submission

    return submission.sbatch(own)


def scontrol(own: OwnJob) -> Optional[int]:
    """`show job` as sbatch would have it, `requeue` of this job: it starts again, and a new name of it."""
    from safelaunch.node.standin import scontroltext

    asked = scontroltext.ScontrolWords(own.words)
    if asked.is_batch_script and own.job in asked.ids:
        return write_batch_script(own, asked.words[3:])
    if asked.is_requeue and own.job in asked.ids:
        if not own.links or own.links[0]["kind"] != "requeue":
            link = {"id": kept.new_id(own.facts["attempt"], own.links), "kind": "requeue", "when": kept.ANY}
            kept.write(own.links_file, [link])
        say(own, "scontrol requeue: the script ends, and is started again in this run")
        others = [one for one in asked.ids if one != own.job]
        code = own.ask([*asked.options, "requeue", ",".join(others)])[0] if others else 0
        end_script(int(os.environ["SAFELAUNCH_ROOT"]))
        return code
    if asked.new_name is not None and asked.ids == [own.job]:   # the run is known by its job's name
        own.rename(asked.new_name)
        return own.ask([*asked.options, "update", "jobid=" + own.job, *asked.left])[0] if asked.left else 0
    if not asked.is_jobs or not (not asked.ids or own.job in asked.ids or set(own.link_ids) & set(asked.ids)):
        return None
    await_log(own)
    link_ids = [one for one in asked.ids if one in own.link_ids]
    code, text = own.ask([*asked.options, "show", "job", own.job] if link_ids else own.words)
    change = scontroltext.json_as_sbatch_has_it if asked.is_json else scontroltext.as_sbatch_has_it
    try:
        told = change(text, own.job, own.hidden, own.shown)
        told = scontroltext.of_link(told, own.job, link_ids[0], own.facts["pending"]) if link_ids else told
    except (ValueError, KeyError, TypeError, AttributeError):
        told = text
    write(told)
    return code


def write_batch_script(own: OwnJob, target: Sequence[str]) -> int:
    """The script as it was submitted, where `scontrol write batch_script` puts it: "-" is stdout."""
    path = target[0] if target else "slurm-%s.sh" % own.job
    with open("%s/slurm_script" % own.here, "rb") as script:
        text = script.read()
    if path == "-":
        sys.stdout.buffer.write(text)
        return 0
    with open(path, "wb") as file:
        file.write(text)
    sys.stdout.write("batch script for job %s written to %s\n" % (own.job, path))
    return 0


def await_log(own: OwnJob) -> None:
    """Wait until the log that the script sees has all that was written: it may read it next."""
    end_s = time.monotonic() + CAUGHT_UP_S
    while time.monotonic() < end_s and size_of(own.facts["log"]) < size_of(own.facts["spool"]):
        time.sleep(LOOK_S)


def size_of(path: str) -> int:
    """Bytes of a file; 0 where there is none."""
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def squeue(own: OwnJob) -> Optional[int]:
    """The own job by the script's own name, without the run's next one."""
    from safelaunch.node.standin import squeuetext

    query = squeuetext.Query(own.words, os.environ)
    if query.is_other:
        return None
    shown = {"j": own.shown["JobName"], "o": own.shown["Command"]}
    code, text = own.ask(query.ask(own.shown["JobName"], own.hidden, own.link_ids))
    if code:   # what it did not take may be ours
        return None
    if query.is_json:
        from safelaunch.node.standin import scontroltext

        told = scontroltext.json_as_sbatch_has_it(text, own.job, own.hidden, own.shown)
    elif query.columns:
        cells = {own.hidden: own.shown["JobName"], own.facts["job_file"]: own.shown.get("Command", "")}
        told = squeuetext.columns_as_sbatch_has_them(text, own.job, own.hidden, cells, query)
    else:
        told = squeuetext.as_sbatch_has_it(text, own.job, own.hidden, shown, query)
    write(told)
    return code


def sacct(own: OwnJob) -> Optional[int]:
    """The own job by the script's own name."""
    from safelaunch.node.standin import squeuetext

    code, text = own.ask(squeuetext.with_hidden_name(own.words, own.shown["JobName"], own.hidden))
    write(squeuetext.names_as_sbatch_has_them(text, own.hidden, own.shown["JobName"]))
    return code


def scancel(own: OwnJob) -> Optional[int]:
    """Take back a next link, or end this job, which is no person's cancel; other jobs are Slurm's."""
    if own.words == [own.job]:
        kept.write(own.links_file, [*own.links, {"id": "", "kind": "cancel", "when": "cancel"}])
        end_script(int(os.environ["SAFELAUNCH_ROOT"]))
        return 0
    taken = set(own.words) & set(own.link_ids)
    if not taken:
        return signal_script(own)
    kept.write(own.links_file, [link for link in own.links if link["id"] not in taken])
    left = [word for word in own.words if word not in taken]
    return own.ask(left)[0] if any(not word.startswith("-") for word in left) else 0


def signal_script(own: OwnJob) -> Optional[int]:
    """`scancel --batch --signal=USR1` of this job is for the script's shell, not for the supervisor's."""
    is_batch = any("--batch".startswith(word) if word[:2] == "--" else word[:1] == "-" and "b" in word
                   for word in own.words if len(word) > 1)
    name = value_of(own.words, "--signal", "s").upper()
    if not is_batch or own.job not in own.words or not name:
        return None
    number = int(name) if name.isdecimal() else int(getattr(signal, "SIG" + name[3 * name.startswith("SIG"):]))
    pid, root = os.getpid(), int(os.environ["SAFELAUNCH_ROOT"])
    while (parent := parent_of(pid)) != root:
        if parent <= 1:
            return None
        pid = parent
    os.kill(pid, number)
    return 0


def value_of(words: Sequence[str], option: str, letter: str) -> str:
    """The value of an option in any of its spellings; "" where it does not stand there."""
    for number, word in enumerate(words):
        behind = [*words[number + 1:], ""][0]
        name, equals, value = word.partition("=")
        if len(name) > 3 and option.startswith(name):
            return value if equals else behind
        if word[:1] == "-" and word[1:2] != "-" and letter in word:
            return word.partition(letter)[2] or behind
    return ""


def parent_of(pid: int) -> int:
    """The parent of a process; 0 where it has ended."""
    try:
        with open("/proc/%d/stat" % pid) as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def end_script(root: int) -> None:
    """TERM to all that the script has started on this node, and to the script, as scancel does."""
    mine, todo, found = os.getpid(), [root], []
    while todo:
        pid = todo.pop()
        with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
            born = [int(word) for word in file.read().split()]
        found += born
        todo += born
    for pid in found:   # the script first: the end of what it waits for must not lead it on
        with suppress(ProcessLookupError):
            if pid != mine:
                os.kill(pid, signal.SIGTERM)


def write(text: str) -> None:
    """To stdout, byte for byte."""
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))


_ACTS = {"sbatch": sbatch, "scontrol": scontrol, "squeue": squeue, "sacct": sacct, "scancel": scancel}
