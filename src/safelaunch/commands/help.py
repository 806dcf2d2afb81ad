"""safelaunch help: a page of the documents, and man pages of all verbs; cli.py, which knows the verbs, calls it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from safelaunch import __version__
from safelaunch.commands.completion import Verbs
from safelaunch.errors import UsageError
from safelaunch.views import talk

PACKAGE = Path(__file__).parent.parent
# In an installed package, and in a checkout.
FOLDERS = (PACKAGE / "docs", PACKAGE.parent.parent / "docs")
WIDTH = 100   # of a page on a wide terminal


def pages() -> dict[str, Path]:
    """The pages by name; {} where they are not installed."""
    folder = next((folder for folder in FOLDERS if folder.is_dir()), None)
    return {path.stem: path for path in sorted(folder.glob("*.md"))} if folder is not None else {}


def show_page(topic: str) -> bool:
    """Print a page, on a terminal laid out and through a pager; False: there is none of that name."""
    path = pages().get(topic)
    if path is None:
        return False
    text = path.read_text()
    if not talk.is_for_person():
        click.echo(text, nl=False)
        return True
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console(width=min(WIDTH, Console().width))
    with console.capture() as laid_out:
        console.print(Markdown(text, hyperlinks=False))   # they lead to files that a terminal cannot open
    click.echo_via_pager(laid_out.get())
    return True


def write_man_pages(verbs: Mapping[str, tuple[str, str]], folder: str) -> None:
    """Write safelaunch.1 and a page for each verb there; raises UsageError."""
    try:
        from click_man.core import write_man_pages as write
    except ImportError as error:
        raise UsageError("--man needs click-man: pip install 'safelaunch[man]'") from error
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        group = Verbs(verbs)
        for verb in verbs:   # all of them, for once: click-man reads a group's own list
            group.add_command(group.load(verb), verb)
        write("safelaunch", group, version=__version__, target_dir=folder)
    except OSError as error:
        raise UsageError(f"--man {folder}: {error.strerror}") from error
    written = len(list(Path(folder).glob("safelaunch*.1")))
    talk.say(f"wrote {written} pages; man finds them if MANPATH has {Path(folder).parent}")
