"""safelaunch help: a page of the documents, and man pages of all verbs; cli.py, which knows the verbs, calls it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from safelaunch import __version__
from safelaunch.config.keys import KEYS
from safelaunch.errors import UsageError
from safelaunch.verbs.common import talk
from safelaunch.verbs.help import helpsearch
from safelaunch.verbs.help.completion import Verbs
from safelaunch.verbs.help.helpsearch import Entry
from safelaunch.why.categories import TABLE
from safelaunch.why.rulebook import RULES

PACKAGE = Path(__file__).parents[2]
# In an installed package, and in a checkout.
FOLDERS = (PACKAGE / "docs", PACKAGE.parent.parent / "docs")
MOST_WORDS = 80   # letters of the line that a rule of `why` knows
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


def search(words: Sequence[str], verbs: Mapping[str, tuple[str, str]]) -> bool:
    """Print where these words stand; False: nowhere."""
    found = helpsearch.search(entries(verbs), words)
    if not found:
        return False
    click.echo(f"Found for '{talk.clean(' '.join(words))}':")
    for one in found:
        where = f" › {one.heading}" if one.heading and one.heading != one.name else ""
        click.echo(f"\n{one.kind:<8}{one.name}{where}")
        text = helpsearch.shown(one, words)
        if text != one.heading:
            click.echo(textwrap.fill(text, WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 8))
    click.echo("\nRead on: safelaunch help PAGE, safelaunch VERB --help, safelaunch why --explain MESSAGE")
    return True


def entries(verbs: Mapping[str, tuple[str, str]]) -> Iterator[Entry]:
    """All places that can be found."""
    yield from (Entry(helpsearch.VERB, name, "", line) for name, (_, line) in verbs.items())
    for name, key in KEYS.items():
        written = key.default if isinstance(key.default, str) else ", ".join(key.default or ())
        default = f" (default: {written})" if written else ""
        yield Entry(helpsearch.KEY, name, "", f"{key.doc}{default}")
    for name, path in pages().items():
        yield from helpsearch.read_page(name, path.read_text())
    for name, row in TABLE.items():
        yield Entry(helpsearch.MESSAGE, name, "", f"{row.because} {row.to_do}")
    for rule in RULES:
        if rule.explain or rule.do:
            line = rule.sample.rpartition("\n")[2][:MOST_WORDS]
            yield Entry(helpsearch.MESSAGE, rule.id, line, f"{rule.explain} {rule.do}".strip())


def write_man_pages(verbs: Mapping[str, tuple[str, str]], folder: str) -> None:
    """Write safelaunch.1 and a page for each verb there, or into its man1, where man looks; raises UsageError."""
    target = Path(folder) if Path(folder).name == "man1" else Path(folder) / "man1"
    try:
        from click_man.core import write_man_pages as write
    except ImportError as error:
        raise UsageError("--man needs click-man: pip install 'safelaunch[man]'") from error
    try:
        target.mkdir(parents=True, exist_ok=True)
        group = Verbs(verbs)
        for verb in verbs:   # all of them, for once: click-man reads a group's own list
            group.add_command(group.load(verb), verb)
        write("safelaunch", group, version=__version__, target_dir=str(target))
    except OSError as error:
        raise UsageError(f"--man {folder}: {error.strerror}") from error
    written = len(list(target.glob("safelaunch*.1")))
    talk.say(f"wrote {written} pages into {target}; man finds them if MANPATH has {target.parent}")
