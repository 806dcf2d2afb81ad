"""The files a config comes from: the site's, the user's, and train.yaml."""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from safelaunch.base.io import sharedfile
from safelaunch.base.yaml.yamltext import TEXT_MAX_BYTES
from safelaunch.config.handed import SCRIPT_MAX_BYTES
from safelaunch.config.resolve import ConfigLayer, Resolved, resolve_each
from safelaunch.config.shell.scriptpath import STDIN, is_script, script_path, why_no_script
from safelaunch.config.sweeps import shared_folders
from safelaunch.errors import ConfigError, Problem, UsageError
from safelaunch.extensions.io import plugins
from safelaunch.launch.containers import RUNTIMES, ContainerPlan, split_mount
from safelaunch.launch.settings import Settings
from safelaunch.run.io import resumefolder

if TYPE_CHECKING:
    from safelaunch.extensions.pluginvalues import CheckPlugin, LauncherPlugin

MAPPING = "config"   # what a config is called that stands in no file
SITE_FILE = "/etc/safelaunch/site.yaml"


def read_config(
    file: str,
    overrides: Sequence[str] = (),
    raw_sbatch: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Resolved:
    """The resolved config of a train.yaml and the layers below it; raises ConfigError with every problem."""
    return read_each(file, overrides, raw_sbatch, environ)[0]


def read_each(
    file: str, overrides: Sequence[str] = (), raw_sbatch: Sequence[str] = (), environ: Mapping[str, str] | None = None,
) -> list[Resolved]:
    """The same of each point, where it is a sweep, else of the one run."""
    environ = os.environ if environ is None else environ
    sources = read_sources(file, environ)
    base_dir = str(Path(file).absolute().parent)
    found = _check_apart(list(resolve_each(sources, overrides, environ, raw_sbatch, base_dir, find_plugin)))
    notes = (*found[0].notes, *_missing_here(found[0].settings.container), *_in_called_files(found[0].settings))
    return [one._replace(notes=notes) for one in found]


def _check_apart(points: list[Resolved]) -> list[Resolved]:
    """The points, a script's path absolute; raises ConfigError where two would write their checkpoints into one folder.
    """
    if own := points[0].settings.own:   # one for all points
        own = own._replace(path=str(Path(own.path).absolute()) if own.path else "")
        points = [one._replace(settings=one.settings.with_(own=own)) for one in points]
    if len(points) == 1:
        return points
    folders = [resumefolder.of_settings(one.settings, str(Path.cwd())) for one in points]
    if (pair := shared_folders(folders)) is not None:
        place = points[0].origins["resume.dir"]
        raise ConfigError([Problem(
            place.file, place.line, place.column, "resume.dir", f"points {pair[0]} and {pair[1]} of the sweep would "
            "write their checkpoints into one folder; write a folder for each, such as ckpt/${name}, or resume.shared: "
            "true")])
    folders = [one.settings.run_dir for one in points]
    if (pair := shared_folders(folders)) is not None:
        place = points[0].origins["run_dir"]
        raise ConfigError([Problem(place.file, place.line, place.column, "run_dir", f"points {pair[0]} and {pair[1]} "
                                   "of the sweep would be one run; write a folder for each, such as runs/${name}")])
    return points


def read_mapping(
    config: Mapping[str, object], overrides: Sequence[str], raw_sbatch: Sequence[str]
) -> list[Resolved]:
    """`read_each` of a program's values; a relative run_dir starts at this folder. Raises ConfigError, UsageError."""
    own = ConfigLayer("file", MAPPING, _yaml_of(config, MAPPING), is_json=True)
    sources = [*read_sources(None, os.environ), *_read_script_of(own, Path.cwd(), os.environ), own]
    return _check_apart(list(resolve_each(sources, overrides, os.environ, raw_sbatch, str(Path.cwd()), find_plugin)))


def find_plugin(group: str, name: str) -> CheckPlugin | LauncherPlugin | None:
    """The plugin that a config names; raises NoPlugin."""
    return plugins.find(group, name)


def override_words(values: Mapping[str, object]) -> list[str]:
    """KEY=VALUE words, as `submit` takes them, of values; raises UsageError for one that YAML cannot hold."""
    return [f"{key}={_yaml_of(value, key)}" for key, value in values.items()]


def _yaml_of(value: object, what: str) -> str:
    """A value as YAML, of which JSON is a part; a path is its text."""
    try:
        return json.dumps(value, ensure_ascii=False, default=os.fspath)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{what}: not a value that train.yaml can hold: {error}") from error


def read_sources(file: str | None, environ: Mapping[str, str]) -> list[ConfigLayer]:
    """The texts of the layers, lowest first; None = no train.yaml. A site or user file that nobody named may be
    missing.
    """
    site = environ.get("SAFELAUNCH_SITE_CONFIG")
    wanted = [
        ("site", site or SITE_FILE, bool(site)),
        ("user", user_file(environ), False),
        *([("file", file, True)] if file is not None else ()),
    ]
    sources: list[ConfigLayer] = []
    problems: list[Problem] = []
    for layer, name, must_exist in wanted:
        try:
            source = ConfigLayer(layer, name if name != "-" else STDIN, read_text(name))
            if layer == "file":
                sources += _read_script_of(source, Path(name).absolute().parent, environ)
            sources.append(source)
        except FileNotFoundError:
            if must_exist:
                problems.append(Problem(name, 0, 0, "", "no such file"))
        except OSError as error:
            problems.append(Problem(name, 0, 0, "", f"cannot be read: {error.strerror or error}"))
        except ConfigError as error:
            problems.extend(error.problems)
    if problems:
        raise ConfigError(problems)
    return sources


def _missing_here(container: ContainerPlan) -> list[str]:
    """What a container needs and this host has not; no error, because a node may have it."""
    if not container.runtime:
        return []
    program = (*RUNTIMES[container.runtime].start, "")[0]
    paths = [("image", container.image), *(("mounts", split_mount(text)[0]) for text in container.mounts)]
    found = [f"container.{key}: {path} is not there on this host; each node must have it, or the run fails at its start"
             for key, path in paths if path.startswith("/") and not Path(path).exists()]
    if program and shutil.which(program) is None:
        found.append(f"container.runtime: {program} is not on PATH here; each node must have it (the job gets this "
                     "shell's environment, so load its module before you submit)")
    return found


def _in_called_files(settings: Settings) -> list[str]:
    """What is to be said of launchers in the shell files that the command calls, from the folder of the submission."""
    if settings.is_script or not any(piece in settings.command for piece in ("/", "sh ", ". ")):
        return []
    from safelaunch.config.shell import calledfiles

    texts: dict[str, str] = {}
    for name in calledfiles.called_files(settings.command):
        path = Path(name).expanduser() if name.startswith("~/") else Path(name)
        try:
            with os.fdopen(sharedfile.open_log(path), "rb") as file:
                content = file.read(calledfiles.MAX_BYTES + 1)
            if len(content) <= calledfiles.MAX_BYTES:
                texts[name] = content.decode("utf-8")
        except (OSError, UnicodeDecodeError, RuntimeError):
            continue   # it may be there on the nodes alone
    return calledfiles.hidden_launchers(settings, texts)


def _read_script_of(source: ConfigLayer, folder: Path, environ: Mapping[str, str]) -> list[ConfigLayer]:
    """The layer of the script that a train.yaml names by `script:`; raises ConfigError where it cannot be read."""
    if is_script(source.text) or (path := script_path(source.text, source.name, environ)) is None:
        return []
    name = str(Path(path).expanduser())
    name = name if name.startswith("/") else os.path.relpath(folder / name)
    try:
        text = read_text(name)
    except (OSError, ValueError) as error:   # ValueError: a NUL in the name
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigError([Problem(source.name, 0, 0, "script", f"{name} cannot be read: {why}")]) from error
    if is_script(text):
        return [ConfigLayer("file", name, text)]
    raise ConfigError([Problem(name, 1, 1, "", why_no_script(text))])


def user_file(environ: Mapping[str, str]) -> str:
    """Where the user's own defaults are (XDG Base Directory Specification)."""
    base = environ.get("XDG_CONFIG_HOME", "")
    if not base.startswith("/"):
        base = f"{environ.get('HOME') or '/nonexistent'}/.config"
    return f"{base}/safelaunch/config.yaml"


def read_text(name: str) -> str:
    """A file's text; `-` is standard input. A pipe could block for ever, and has no folder for run_dir to start at.
    """
    if name == "-":
        return _decode(sys.stdin.buffer.read(SCRIPT_MAX_BYTES + 1), STDIN)
    if not stat.S_ISREG(Path(name).stat().st_mode):
        raise ConfigError([Problem(name, 0, 0, "", "not a regular file")])
    with Path(name).open("rb") as stream:
        return _decode(stream.read(SCRIPT_MAX_BYTES + 1), name)


def _decode(data: bytes, name: str) -> str:
    """The text; raises ConfigError where there is too much of it, or it is none."""
    if data.startswith(b"#!") and len(data) > SCRIPT_MAX_BYTES:
        raise ConfigError([Problem(name, 0, 0, "", f"larger than {SCRIPT_MAX_BYTES >> 10} KiB; Slurm takes no larger "
                                   "job script (slurm.conf(5), max_script_size); put its data into a file beside it")])
    if not data.startswith(b"#!") and len(data) > TEXT_MAX_BYTES:
        raise ConfigError(
            [Problem(name, 0, 0, "", f"larger than {TEXT_MAX_BYTES >> 20} MiB; a config is a page or two")]
        )
    if name == STDIN and not data.startswith(b"#!"):
        why = (why_no_script(data.decode(errors="replace")) if data.strip() else
               "holds nothing; give the name of a file, or a script: safelaunch submit < job.slurm")
        raise ConfigError([Problem(name, 1, 1, "", why)])
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line, column = before.count(b"\n") + 1, len(before.rpartition(b"\n")[2].decode("utf-8")) + 1
        text = f"not UTF-8 text (byte 0x{data[error.start]:02x}); save the file as UTF-8"
        raise ConfigError([Problem(name, line, column, "", text)]) from error
