"""Files are opened by adapters.sharedfile, or are of no shared folder."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.house.source import modules

# Which functions open files to read them beside sharedfile, and what those are.
OTHERS = {
    "this user's own, and the site's": (
        "adapters/configfiles.py:read_text", "adapters/registry.py:_compact", "adapters/registry.py:with_resume",
        "adapters/sitefiles.py:read_template", "adapters/sitefiles.py:umask",
        "watch/memory.py:load",
    ),
    "this node's own disk": (
        "adapters/attempt.py:AttemptProcess._pump_pid", "adapters/attempt.py:AttemptProcess.adopt",
        "adapters/attempt.py:AttemptProcess.poll", "adapters/attempt.py:AttemptProcess.read",
        "adapters/attempt.py:AttemptProcess.sruns", "adapters/attempt.py:AttemptProcess.tail",
        "adapters/outbox.py:Outbox.adopt_all",
        "supervisor/loop.py:_read", "supervisor/loop.py:stand_by", "supervisor/takeover.py:_note_taken",
        "supervisor/takeover.py:open_control", "supervisor/leader.py:Leader.check_folder.look",
    ),
    "the package, the kernel, Slurm's configuration": (
        "adapters/attempt.py:AttemptProcess._is_of_it", "adapters/clustername.py:_from_conf",
        "adapters/courier.py:Courier.detach", "adapters/courier.py:main",
        "adapters/guardcode.py:guard_text", "adapters/job.py:own_addresses", "adapters/local.py:is_alive",
        "adapters/noderound.py:_text",
        "adapters/plugins.py:_texts_in", "adapters/probe.py:_close_files_but", "commands/help.py:entries",
        "commands/help.py:show_page",
        "adapters/sitefolder.py:_mount", "watch/memory.py:_boot", "watch/reading.py:_mount_points",
    ),
    "folders that are no links, by descriptor": ("adapters/removal.py:_in_folder", "adapters/removal.py:open_own"),
    "no file: a URL": ("adapters/notify.py:_post",),
    "a folder that was made a moment ago to be tried": (
        "adapters/sitefolder.py:_append", "adapters/sitefolder.py:_link", "adapters/sitefolder.py:_rename",
        "adapters/sitefolder.py:_write",
    ),
    "opened to be written, through no link": (
        "adapters/courier.py:_append", "adapters/joboutput.py:_append", "adapters/ledger.py:_append",
        "adapters/runfolder.py:request", "adapters/runmaking.py:_take_over",
    ),
    "opened as a dir_fd, or to change its mode, through no link": (
        "adapters/modes.py:set_mode", "adapters/openfolder.py:_walk", "adapters/openfolder.py:inside",
        "adapters/ownership.py:_close",
    ),
    "checkpoints, whose links count; a pipe that a person has named as a log": (
        "adapters/checkpoints.py:_OpenFile.__init__", "adapters/logs/logfiles.py:_open_stream",
    ),
    "sharedfile itself": ("adapters/sharedfile.py:_open",),
}


def calls_in(node: ast.AST, where: tuple[str, ...] = ()) -> Iterator[tuple[str, ast.Call]]:
    """(function that holds it, call)."""
    for child in ast.iter_child_nodes(node):
        named = isinstance(child, (ast.FunctionDef, ast.ClassDef))
        inner = (*where, child.name) if named else where   # type: ignore[attr-defined]
        if isinstance(child, ast.Call):
            yield ".".join(inner), child
        yield from calls_in(child, inner)


def opens_to_read(call: ast.Call) -> bool:
    """Whether it looks so: open(), path.open(), os.open(), read_text(), read_bytes(), and nothing that makes a file."""
    is_method = isinstance(call.func, ast.Attribute)
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    mode = next((word.value for word in call.args[-1:] if isinstance(word, ast.Constant)), "r")
    makes = "O_CREAT" in ast.unparse(call) or (isinstance(mode, str) and mode[:1] in ("w", "x", "a"))
    return (is_method and name in ("read_text", "read_bytes")) or (name == "open" and not makes)


def test_files_are_opened_by_sharedfile_or_are_of_no_shared_folder() -> None:
    rooms = ("adapters", "adapters/logs", "commands", "supervisor", "views", "watch")
    texts = [module for module in modules() if module.path.rpartition("/")[0] in rooms
             and ("open" in module.text or "read_" in module.text)]
    found = {f"{module.path}:{where}" for module in texts
             for where, call in calls_in(module.tree) if opens_to_read(call)}
    known = {name for names in OTHERS.values() for name in names}
    assert found - known == set(), "read files of a run folder by adapters.sharedfile; others have a place in OTHERS"
    assert known - found == set(), "these open no file any more"
