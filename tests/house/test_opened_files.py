"""Files are opened by base.io.sharedfile, or are of no shared folder."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.house.source import modules

# Which functions open files to read them beside sharedfile, and what those are.
OTHERS = {
    "this user's own, and the site's": (
        "config/io/configfiles.py:read_text",
        "script/io/sitefiles.py:read_template", "script/io/sitefiles.py:umask",
    ),
    "this node's own disk": (
        "supervisor/io/attempt.py:AttemptProcess._pump_pid", "supervisor/io/attempt.py:AttemptProcess.adopt",
        "supervisor/io/attempt.py:AttemptProcess.poll", "supervisor/io/attempt.py:AttemptProcess.read",
        "supervisor/io/held.py:HeldStep._answers",
        "supervisor/io/attempt.py:AttemptProcess.sruns", "supervisor/io/attempt.py:AttemptProcess.tail",
        "run/io/outbox.py:Outbox.adopt_all",
        "supervisor/loop.py:_read", "supervisor/loop.py:stand_by", "supervisor/ends/takeover.py:_note_taken",
        "supervisor/ends/takeover.py:open_control", "supervisor/leader.py:Leader.check_folder.look",
    ),
    "the package, the kernel, Slurm's configuration": (
        "supervisor/io/attempt.py:AttemptProcess._is_of_it", "run/io/clustername.py:_from_conf",
        "run/io/courier.py:Courier.detach", "run/io/courier.py:main",
        "guard/io/guardcode.py:guard_text", "guard/io/job.py:own_addresses", "run/io/local.py:is_alive",
        "slurm/io/noderound.py:_text",
        "extensions/io/plugins.py:_texts_in", "base/io/probe.py:_close_files_but", "verbs/help/help.py:entries",
        "verbs/help/help.py:show_page",
        "site/io/sitefolder.py:_mount", "watch/io/memory.py:_boot", "watch/io/reading.py:_mount_points",
    ),
    "folders that are no links, by descriptor": ("base/io/removal.py:_in_folder", "base/io/removal.py:open_own"),
    "no file: a URL": ("notify/io/notify.py:_post",),
    "a folder that was made a moment ago to be tried": (
        "site/io/sitefolder.py:_append", "site/io/sitefolder.py:_link", "site/io/sitefolder.py:_rename",
        "site/io/sitefolder.py:_write",
    ),
    "opened to be written, through no link": (
        "run/io/courier.py:_append", "guard/io/joboutput.py:_append", "nodehealth/io/ledger.py:_append",
        "run/io/runfolder.py:request", "run/io/runmaking.py:_take_over",
    ),
    "opened as a dir_fd, or to change its mode, through no link": (
        "base/io/modes.py:set_mode", "base/io/openfolder.py:_walk", "base/io/openfolder.py:inside",
        "run/io/ownership.py:_close",
    ),
    "checkpoints, whose links count; a pipe that a person has named as a log": (
        "checkpoints/io/checkpoints.py:_OpenFile.__init__", "why/io/logfiles.py:_open_stream",
    ),
    "sharedfile itself": ("base/io/sharedfile.py:_open",),
}


# No run folder is opened there: programs for nodes, the administrator's side, code for other people's processes.
ELSEWHERE = ("node/", "sandbox/", "integrations/", "callbacks/", "safelaunch_progress.py", "rankprint.py",
             "streams.py")


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
    texts = [module for module in modules() if not module.path.startswith(ELSEWHERE)
             and ("open" in module.text or "read_" in module.text)]
    found = {f"{module.path}:{where}" for module in texts
             for where, call in calls_in(module.tree) if opens_to_read(call)}
    known = {name for names in OTHERS.values() for name in names}
    assert found - known == set(), "read files of a run folder by base.io.sharedfile; others have a place in OTHERS"
    assert known - found == set(), "these open no file any more"


# Which functions write a file by its name, where a link of somebody else would be followed.
WRITERS = {
    "this node's own disk, in a folder that is this user's alone": (
        "script/io/standins.py:put", "supervisor/io/attempt.py:AttemptProcess.keep_pump",
        "supervisor/io/attempt.py:AttemptProcess.announce", "supervisor/leader.py:hold_token",
        "supervisor/loop.py:main",
        "supervisor/ends/handover.py:Handover.drain", "supervisor/state/diagnosing.py:WholeLog._kernel_logs",
    ),
    "a folder that was made a moment ago to be tried": (
        "site/io/sitefolder.py:_link.work", "site/io/sitefolder.py:_rename.work"),
    "a device or a pipe that a person names": ("verbs/report/reportpage.py:store",),
}


def writes_by_name(call: ast.Call) -> bool:
    """Whether it looks so: write_text(), write_bytes(), path.touch(), open() to write or append."""
    if not isinstance(call.func, (ast.Attribute, ast.Name)):
        return False
    name = call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id
    if name == "touch":
        return "/" in ast.unparse(call.func) or "Path(" in ast.unparse(call.func)
    mode = next((word.value for word in call.args[-1:] if isinstance(word, ast.Constant)), "")
    is_descriptor = call.args and isinstance(call.args[0], (ast.Call, ast.Constant)) and len(call.args) > 1
    return name in ("write_text", "write_bytes") or (
        name == "open" and isinstance(mode, str) and mode[:1] in ("w", "a") and not is_descriptor)


def test_no_file_is_written_by_a_name_that_somebody_else_may_have_given_to_a_link() -> None:
    texts = [module for module in modules() if not module.path.startswith(("node/", "sandbox/", "streams.py"))]
    found = {f"{module.path}:{where}" for module in texts
             for where, call in calls_in(module.tree) if writes_by_name(call)}
    known = {name for names in WRITERS.values() for name in names}
    assert found - known == set(), "write by base.io.durable, or make the file with O_EXCL and O_NOFOLLOW"
    assert known - found == set(), "these write no file any more"
