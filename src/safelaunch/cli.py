"""argv → verb → exit code. Every verb's module is imported only when it is the one that was typed."""

from __future__ import annotations

import gc
import importlib
import io
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from safelaunch import __version__, streams
from safelaunch.base.plaintext import clean, clean_lines
from safelaunch.errors import ConfigError, SafelaunchError, UsageError

if TYPE_CHECKING:
    import click

BUG, UNABLE, UNWRITABLE = 70, 71, 74   # EX_SOFTWARE, EX_OSERR, EX_IOERR: sysexits.h

# verb → module that defines a click command of that name (in `command`), and its line in --help.
VERBS: dict[str, tuple[str, str]] = {
    "submit": ("safelaunch.verbs.submit.submit", "Submit a training instead of sbatch, and keep it alive"),
    "doctor": ("safelaunch.verbs.site.doctor", "Say what at this site can harm a run, and what to set"),
    "check": ("safelaunch.verbs.submit.check", "Check a train.yaml; needs no Slurm"),
    "script": ("safelaunch.verbs.submit.script", "Print the sbatch script of a train.yaml"),
    "config": ("safelaunch.verbs.submit.config", "Show the resolved config and where each value came from"),
    "schema": ("safelaunch.verbs.submit.schema", "Print the JSON Schema of train.yaml"),
    "init": ("safelaunch.verbs.submit.init", "Write a first train.yaml, also from an sbatch script"),
    "policy": ("safelaunch.verbs.site.policy", "Print what follows which failure"),
    "status": ("safelaunch.verbs.status.status", "Show how a run is doing"),
    "top": ("safelaunch.verbs.top.top", "Show all runs on a screen that stays, and steer them"),
    "why": ("safelaunch.verbs.why.why", "Find the first cause of a failure, in a run or in any log"),
    "stacks": ("safelaunch.verbs.jobs.stacks", "Show what all ranks of a job do, and who holds the others"),
    "logs": ("safelaunch.verbs.logs.logs", "Show the training's log across attempts"),
    "progress": ("safelaunch.verbs.logs.progress", "Show which steps are read in a log, and try a pattern for them"),
    "events": ("safelaunch.verbs.logs.events", "Show the journal: all that happened, and why"),
    "report": ("safelaunch.verbs.report.report", "Write what became of a run into one HTML file"),
    "checkpoints": ("safelaunch.verbs.status.checkpoints", "List the checkpoints, and which one is resumed from"),
    "metrics": ("safelaunch.verbs.status.metrics", "Print the figures of runs for Prometheus"),
    "save": ("safelaunch.verbs.control.save", "Ask a training to save now and go on"),
    "restart": ("safelaunch.verbs.control.restart", "Start the next attempt now, after an edit or instead of a pause"),
    "stop": ("safelaunch.verbs.control.stop", "End a run for good"),
    "hold": ("safelaunch.verbs.control.hold", "Start no new attempt of a run for now"),
    "resume": ("safelaunch.verbs.control.resume", "Continue a run that is on hold"),
    "extend": ("safelaunch.verbs.control.extend", "Keep nodes for inspection for longer"),
    "change": ("safelaunch.verbs.control.change", "Give the later jobs of a run another time or partition"),
    "release": ("safelaunch.verbs.control.release", "Give back nodes that are held for inspection"),
    "clean": ("safelaunch.verbs.control.clean", "Delete old runs; shows a plan first"),
    "wait": ("safelaunch.verbs.control.wait", "Wait until a run has ended, and exit with its code"),
    "attach": ("safelaunch.verbs.jobs.attach", "Watch a job that safelaunch did not submit"),
    "watch": ("safelaunch.verbs.jobs.watch", "Look after all runs from outside their jobs; --once for cron"),
    "notify": ("safelaunch.verbs.site.notify", "Send a test message to those whom notify names"),
    "shell": ("safelaunch.verbs.jobs.shell", "Open a shell on a node of a run"),
    "nodes": ("safelaunch.verbs.nodes.nodes", "Show suspected nodes and why; suspect, clear or check some"),
    "plugins": ("safelaunch.verbs.site.plugins", "List what installed packages add to safelaunch"),
    "completion": ("safelaunch.verbs.help.completion", "Print what makes bash, zsh or fish complete all of this"),
    "sandbox": ("safelaunch.verbs.site.sandbox", "A real Slurm of N nodes on this machine"),
    "demo": ("safelaunch.verbs.site.demo", "See five failures and what becomes of them, here, in a minute"),
}


HELP = ("-h", "--help", "help")
# What other programs call it.
ALIASES = {
    **dict.fromkeys(("ls", "list", "ps", "jobs", "queue", "squeue", "show", "info", "sacct"), "status"),
    **dict.fromkeys(("cancel", "kill", "scancel", "abort", "end", "terminate", "quit"), "stop"),
    **dict.fromkeys(("tail", "cat", "log", "output", "follow"), "logs"),
    **dict.fromkeys(("run", "launch", "start", "sbatch", "srun"), "submit"),
    **dict.fromkeys(("validate", "verify", "lint", "plan"), "check"), **dict.fromkeys(("new", "create"), "init"),
    **dict.fromkeys(("ssh", "exec", "enter", "login"), "shell"), **dict.fromkeys(("history", "journal"), "events"),
    **dict.fromkeys(("diagnose", "explain", "reason"), "why"), **dict.fromkeys(("dashboard", "ui", "tui"), "top"),
    **dict.fromkeys(("continue", "unpause", "unhold"), "resume"), **dict.fromkeys(("email", "mail"), "notify"),
    **dict.fromkeys(("bt", "backtrace", "pystack", "trace"), "stacks"), "ckpt": "checkpoints", "steps": "progress",
    "pause": "hold", "monitor": "watch", "exclude": "nodes", "drain": "nodes", "rm": "clean", "delete": "clean",
}


def _help() -> str:
    width = max(map(len, VERBS)) + 2
    rows = "\n".join(f"  {verb:<{width}}{line}" for verb, (_, line) in VERBS.items())
    return (
        "Usage: safelaunch VERB [ARGS]...\n\n"
        "  sbatch for long trainings: supervises the job, finds why it failed, and\n"
        "  restarts it from its last checkpoint.\n\n"
        f"Verbs:\n{rows}\n\n"
        "  safelaunch VERB --help    what a verb takes\n"
        "  safelaunch help PAGE      a page of the documents\n"
        "  safelaunch help WORDS     search pages, keys, verbs and messages\n"
        "  safelaunch help --pages   the names of all pages\n"
        "  safelaunch help --man DIR man pages of all verbs\n"
        "  safelaunch --version\n"
    )


def main(argv: list[str] | None = None) -> None:
    """Run the verb of `argv` and exit; the only place where an exception becomes an exit code."""
    streams.secure()
    try:
        code = run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except streams.ReaderGone:   # `| head`: nothing is left to say, nor anybody to say it to
        code = 0
    except streams.Unwritable as error:
        sys.stderr.write(f"safelaunch: the output cannot be written: {error}\n")
        code = UNWRITABLE
    except (OSError, MemoryError) as error:   # the machine's doing: a folder that is gone, a full disk, no memory
        sys.stderr.write(f"safelaunch: {_of_the_machine(error)}\n")
        code = UNABLE
    except Exception:   # noqa: BLE001 - whatever it is, it is ours, and has an exit code of its own
        import traceback

        traceback.print_exc()
        sys.stderr.write("safelaunch: this is a bug in safelaunch; please report what was typed and the lines above\n")
        code = BUG
    streams.silence()
    gc.freeze()   # or the interpreter's end searches all modules for cycles: 14 of submit's 106 ms (docs/benchmarks.md)
    sys.exit(code)


def _of_the_machine(error: OSError | MemoryError) -> str:
    if isinstance(error, MemoryError):
        return "no memory is left for it on this machine (ulimit -v, or a small cgroup?)"
    named = f": {clean(str(error.filename))}" if error.filename else ""
    return f"this machine does not let it go on: {error.strerror or clean(error)}{named}"


def run(argv: list[str]) -> int:
    """Exit code of one command line; prints help itself so that it needs no parser."""
    asked = os.environ.get("_SAFELAUNCH_COMPLETE", "")
    if asked in ("bash_complete", "zsh_complete", "fish_complete"):   # by the function of `safelaunch completion`
        from safelaunch.verbs.help import completion

        return completion.complete(VERBS, asked)
    if argv[:1] == ["help"] and len(argv) > 1 and argv[1] not in HELP:
        return _run_help(argv[1:])
    if not argv or argv[0] in HELP:
        sys.stdout.write(_help())
        return 0
    if argv[0] == "--version":
        sys.stdout.write(f"safelaunch {__version__}\n")
        return 0
    verb, rest = argv[0], argv[1:]
    if verb not in VERBS:
        return _refuse("verb", verb, VERBS, "safelaunch --help")
    return _run_verb(verb, rest)


def _refuse(kind: str, word: str, known: Iterable[str], where: str) -> int:
    import difflib

    called = ALIASES.get(word, "")
    near = [called] if called in [*known] else difflib.get_close_matches(word, known, n=1)
    guess = f" Did you mean '{near[0]}'?" if near else ""
    sys.stderr.write(f"safelaunch: no {kind} '{clean(word)}'.{guess} See {where}\n")
    return 2


def _run_help(words: list[str]) -> int:
    """`help VERB`, `help PAGE`, `help --page PAGE`, `help WORDS`, `help --pages`, `help --man FOLDER`."""
    from safelaunch.verbs.help import help as pages

    if words[0] == "--man":
        try:
            pages.write_man_pages(VERBS, words[1] if len(words) > 1 else "man1")
        except UsageError as error:
            sys.stderr.write(f"safelaunch: {clean(error.message)}\n")
            return 2
        return 0
    if words == ["--pages"]:
        sys.stdout.write("".join(f"{name}\n" for name in pages.pages()))
        return 0
    topic = words[-1]
    if words == [topic] and topic in VERBS:
        code = _run_verb(words[0], ["--help"])
        if topic in pages.pages():
            sys.stdout.write(f"\nThe page about it: safelaunch help --page {topic}\n")
        return code
    if words[0] == "--page" or words == [topic]:
        if pages.show_page(topic):
            return 0
        if words[0] == "--page":
            return _refuse("page", topic, pages.pages(), "safelaunch help --pages")
    if pages.search(words, VERBS):
        return 0
    return _refuse("verb, page, key or message about", " ".join(words), [*VERBS, *pages.pages()],
                   "safelaunch --help, safelaunch help --pages")


def _run_verb(verb: str, rest: list[str]) -> int:
    gc.disable()   # nothing of what importing makes is garbage; looking for some costs 5 ms
    import click

    module = importlib.import_module(VERBS[verb][0])
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)   # by 700, a verb over a long journal looks for garbage a quarter of its time
    gc.enable()
    command: click.Command = module.command
    try:
        result: Any = command.main(args=rest, prog_name=f"safelaunch {verb}", standalone_mode=False)
    except click.exceptions.Abort:
        return 130
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.ClickException as wrong:
        said = io.StringIO()
        wrong.show(said)
        sys.stderr.write(clean_lines(said.getvalue()))   # it repeats what was typed
        return wrong.exit_code
    except KeyboardInterrupt:
        return 130
    except SafelaunchError as error:
        prefix = "" if isinstance(error, ConfigError) else "safelaunch: "   # its lines begin with file:line:column
        sys.stderr.write(f"{prefix}{clean_lines(error.message)}\n")
        if error.hint:
            sys.stderr.write(f"  {clean_lines(error.hint)}\n")
        return error.exit_code
    return result if isinstance(result, int) else 0
