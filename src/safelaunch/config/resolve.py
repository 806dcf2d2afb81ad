"""texts of the layers ▸ the resolved config, or every problem in them at once.

    sources ▸ yamltext (nodes with places) ▸ slurmkeys (one spelling) ▸ layers (one tree) ▸ values (${VAR})
            ▸ kinds (by the table in keys) ▸ rules (keys that depend on keys) ▸ Settings

Not by a library of models: importing one and building the models takes as long as a whole submission.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.base.nearest import nearest_word
from safelaunch.base.yaml.yamlnodes import DEFAULT, ListNode, MappingNode, Node, Origin, Scalar
from safelaunch.base.yaml.yamltext import parse_document, parse_json
from safelaunch.config.guessfolder import tell_missing
from safelaunch.config.handed import BASHS_OWN
from safelaunch.config.keys import KEYS, OPEN_SECTIONS, ROWS, Key, dump
from safelaunch.config.kinds.kinds import WrongValue, expected, handed
from safelaunch.config.layers import (
    COMMAND_LINE,
    default_layer,
    default_node,
    merge_layers,
    name_from_file,
    parse_overrides,
    put,
)
from safelaunch.config.rules import complete
from safelaunch.config.scripts.sbatchvariables import read_environment, told_variables
from safelaunch.config.scripts.slurmkeys import canonical_slurm, literal, parse_flags, read_slurm, told_unknown
from safelaunch.config.shell.innerlaunchers import inner_problems
from safelaunch.config.shell.scriptpath import STDIN, is_script, why_no_script
from safelaunch.config.sweeps import SweepPoint, is_key_of, sweep_points, with_point
from safelaunch.config.unexpanded import unexpanded
from safelaunch.config.values import expand
from safelaunch.errors import ConfigError, Problem
from safelaunch.extensions.plugins import no_plugins
from safelaunch.launch.jobnumbers import settle_numbers
from safelaunch.launch.settings import Settings, read_settings
from safelaunch.slurm.sbatchoptions import OPTIONS, GivenOption

if TYPE_CHECKING:
    from safelaunch.extensions.pluginvalues import FindPlugin

__all__ = ["ConfigLayer", "Origin", "Resolved", "resolve"]


class ConfigLayer(NamedTuple):
    """One layer's text, such as ("file", "train.yaml", "command: …")."""

    layer: str  # site | user | file
    name: str
    text: str
    is_json: bool = False   # of a program: it has no lines that anybody has seen


class Resolved(NamedTuple):
    """Complete settings; `origins` by dotted key."""

    settings: Settings
    origins: dict[str, Origin]
    notes: tuple[str, ...] = ()   # what people are to be told of it
    point: SweepPoint | None = None   # which point of a sweep this is

    @property
    def config(self) -> dict[str, Any]:
        """The settings under train.yaml's keys, as JSON has them."""
        return dump(self.settings)


def resolve(
    sources: Sequence[ConfigLayer],
    overrides: Sequence[str],
    environ: Mapping[str, str],
    raw_sbatch: Sequence[str] = (),
    base_dir: str = "",
    find_plugin: FindPlugin = no_plugins,
) -> Resolved:
    """The config that these layers make, lowest first, of a sweep that of its first point; raises ConfigError with
    every problem.

    `base_dir` is the folder of train.yaml, which a relative run_dir starts at.
    """
    return next(resolve_each(sources, overrides, environ, raw_sbatch, base_dir, find_plugin))


def resolve_each(
    sources: Sequence[ConfigLayer],
    overrides: Sequence[str],
    environ: Mapping[str, str],
    raw_sbatch: Sequence[str] = (),
    base_dir: str = "",
    find_plugin: FindPlugin = no_plugins,
) -> Iterator[Resolved]:
    """The config of each point of the sweep, else the one that there is; raises ConfigError as `resolve` does."""
    layers, problems, notes, own, own_name, is_readable = _read_layers(sources, overrides, raw_sbatch, environ)
    environ = dict(environ)   # decoded once: each point adds its own to it
    file = next((source.name for source in reversed(sources) if source.layer == "file"), "train.yaml")
    if not is_readable:
        raise _config_error(problems, sources)
    merged = merge_layers(default_layer(name_from_file(file)), layers)
    notes = [*told_variables(layers, merged, environ), *notes]
    if own:
        notes += _unread_arguments(merged, own["path"] or STDIN)
        if merged.entries.get("name") != own_name:
            del own["job_name"]   # named elsewhere
    points: list[SweepPoint | None] = [*sweep_points(merged, _TOP_KEYS)]
    known: dict[str, tuple[Node, Any]] = {}
    for point in points or [None]:
        reading = _ConfigReading(known)
        found = _read_point(merged, point, environ, reading)
        faulty = frozenset(problem.key for problem in found)
        origins = reading.origins
        settings, faults = complete(reading.settings(point, own), origins, environ=environ, base_dir=base_dir,
                                    file=file, faulty=faulty, find_plugin=find_plugin)
        found += faults
        if not found and MAY_LAUNCH.search(f"{settings.setup}\n{settings.command}"):
            found += inner_problems(settings, origins, {source.name: source.text for source in sources})
        if problems or found:
            raise _config_error([*problems, *found], sources)
        settings, settled = settle_numbers(settings, origins)
        if not settings.is_script and re.search(r"\$\{?[a-z]", f"{settings.setup}\n{settings.command}"):
            settled += unexpanded(settings, origins, _TOP_KEYS, environ)
        if settings.is_script and (point is None or point.number == 1):
            from safelaunch.config.scripts.scripthints import script_hints  # few configs are scripts

            settled += script_hints(settings.command, origins["command"].file, settings.slurm)
        yield Resolved(settings, origins, (*_no_folder(settings, origins), *settled, *notes), point)


def _no_folder(settings: Settings, origins: Mapping[str, Origin]) -> list[str]:
    """What follows without resume.dir, where the command or script seems to save somewhere."""
    if settings.resume.dir is not None or not MAY_SAVE.search(settings.command):
        return []
    told = tell_missing(settings.command, settings.restart.max_without_progress,
                        origins["command"].file or STDIN if settings.is_script else "")
    return [] if told is None else [told]


def _read_point(
    merged: MappingNode, point: SweepPoint | None, environ: Mapping[str, str], reading: _ConfigReading
) -> list[Problem]:
    """Read the tree with what the point sets; the problems."""
    faults: list[Problem] = []
    if point is not None:
        for key, node in with_point(merged, point, _TOP_KEYS):
            layer, found = canonical_slurm(put(MappingNode({}, node.origin), key, node))
            merged, faults = merge_layers(merged, [layer]), [*faults, *found]
        environ = {**environ, **{name: text for name, text in point.texts.items() if not is_key_of(name, _TOP_KEYS)}}
    tree, unresolved = expand(merged, environ)
    reading.read(tree)
    return [*faults, *unresolved, *reading.problems]


class _Layers(NamedTuple):
    """All layers' trees, lowest first, one spelling of slurm: each; what is wrong in them, and what is to be said."""

    trees: list[MappingNode]
    problems: list[Problem]
    notes: list[str]
    own: dict[str, str]          # what a script asks of its own job (OwnScript)
    own_name: Node | None        # its name, unless a layer above has another one
    is_readable: bool


def _read_layers(
    sources: Sequence[ConfigLayer], overrides: Sequence[str], raw_sbatch: Sequence[str], environ: Mapping[str, str]
) -> _Layers:
    script = next((source.text for source in sources if source.layer == "file" and is_script(source.text)), None)
    if script is not None:   # few configs are scripts
        is_typed = not any(source.is_json for source in sources)
        read = _read_with_script(script, sources, overrides, raw_sbatch, environ, is_typed)
    else:
        read = _read_files(sources)
        from_environment, faults, said = read_environment(environ)
        override_trees, override_faults = parse_overrides(overrides)
        flag_tree, flag_faults = parse_flags(raw_sbatch, COMMAND_LINE)
        read.trees.extend([from_environment, *override_trees, flag_tree])
        read.problems.extend([*faults, *override_faults, *flag_faults])
        read.notes.extend([*said, *told_unknown(flag_tree)])
    layers = []
    for tree in read.trees:
        layer, faults = canonical_slurm(tree)
        layers.append(layer)
        read.problems.extend(faults)
    return read._replace(trees=layers)


def _read_with_script(script: str, sources: Sequence[ConfigLayer], overrides: Sequence[str], raw_sbatch: Sequence[str],
                      environ: Mapping[str, str], is_typed: bool) -> _Layers:
    """`is_typed`: on a command line, where words are arguments, too."""
    from safelaunch.config.scripts import scriptarguments, scriptgiven

    words = scriptarguments.CommandWords(list(overrides), list(raw_sbatch), [])
    if is_typed:
        words = scriptarguments.sort_words(overrides, raw_sbatch)
    above = scriptgiven.read_above(script, environ, words.flags)
    read = _read_files(sources, above.options)
    override_trees, faults = parse_overrides(words.keys)
    name, own = read.own_name, read.own
    for layer in (above.environment, above.command_line):
        read.problems.extend(layer.problems)
        read.notes.extend(layer.notes)
        own, name = own | layer.own, layer.layer.entries.get("name", name)
    read.problems.extend(faults)
    read.notes.extend(scriptarguments.describe_words(words, scriptarguments.first_reading(script) is not None))
    arguments = [_arguments(words.arguments)] if words.arguments else []
    return read._replace(own=own, own_name=name, trees=[
        above.kept, *read.trees, above.environment.layer, *override_trees, above.command_line.layer, *arguments])


def _read_files(sources: Sequence[ConfigLayer], above: Sequence[GivenOption] = ()) -> _Layers:
    """The layers of the files alone. `above`: options that count more than a script's own."""
    read = _Layers([], [], [], {}, None, True)
    for source in sources:
        tree: MappingNode | None
        if source.layer == "file" and is_script(source.text):
            from safelaunch.config.scripts.scriptlayer import RESTARTS, read_script  # few configs are scripts

            tree, faults, said, own = read_script(source.text, source.layer, source.name, above)
            read = read._replace(own=own, own_name=tree.entries["name"])
            read.notes.extend([*said, RESTARTS])
        else:
            parse = parse_json if source.is_json else parse_document
            tree, faults = parse(source.text, layer=source.layer, file=source.name)
            if faults and source.layer == "file" and "\n#SBATCH " in f"\n{source.text}":   # YAML's words would not help
                tree, faults = None, [Problem(source.name, 1, 1, "", why_no_script(source.text))]
        read.problems.extend(faults)
        if tree is None:
            read = read._replace(is_readable=False)
        else:
            read.trees.append(tree)
    return read


def _arguments(words: Sequence[str]) -> MappingNode:
    return put(MappingNode({}, COMMAND_LINE), "args",
               ListNode(tuple(literal(word, COMMAND_LINE) for word in words), COMMAND_LINE))


def _unread_arguments(merged: MappingNode, file: str) -> list[str]:
    """What is to be said where a script reads its arguments, and none are given."""
    from safelaunch.config.scripts.scriptarguments import first_reading

    args, command = merged.entries.get("args"), merged.entries.get("command")
    if (isinstance(args, ListNode) and args.items) or not isinstance(command, Scalar):
        return []
    if (found := first_reading(command.text)) is None:
        return []
    return [f"{file}:{found[0]}: reads {found[1]}, an argument of the script, and none are given: safelaunch submit "
            f"{file} -- VALUE …"]


def _config_error(problems: Sequence[Problem], sources: Sequence[ConfigLayer]) -> ConfigError:
    """The problems in the order of the layers and lines, one for each key and place: the first is the cause."""
    order = {source.name: number for number, source in enumerate(sources)}
    ranked = sorted(problems, key=lambda one: (order.get(one.file, len(order)), one.line, one.column))
    first: dict[tuple[str, int, int, str], Problem] = {}
    for problem in ranked:
        first.setdefault((problem.file, problem.line, problem.column, problem.key), problem)
    return ConfigError(list(first.values()))


def _usual(key: Key) -> Any:
    """A key's default, as its values are read; None where it has none."""
    node = default_node(key.default)
    return None if node is None else key.kind.read(node)


class _ConfigReading:
    """Nodes to values by the table of keys. `known`: what the point before this one has read."""

    def __init__(self, known: dict[str, tuple[Node, Any]]) -> None:
        self._known = known
        self._values: dict[str, Any] = {}
        self.origins: dict[str, Origin] = {}
        self.problems: list[Problem] = []

    def settings(self, point: SweepPoint | None, own: Mapping[str, str]) -> Settings:
        """What was read, as a point of the sweep where it is one; `own`: what a script asks of its job."""
        launch, sweep = {**self._values["launch"]}, None if point is None else point.texts
        launch["with"] = launch["with"] or ""   # the rules choose
        return read_settings({**self._values, "command": self._values["command"] or "", "launch": launch,
                              "sweep": sweep, "own": own or None})

    def read(self, tree: MappingNode) -> None:
        """Read values and origins; a value with a problem counts as its default: the rules between keys read it."""
        self._refuse_unknown(tree, "")
        for path, section, name, _, key in ROWS:
            holder = self._values.setdefault(section, {}) if section else self._values
            inside = tree.entries.get(section) if section else tree
            node = inside.entries.get(name) if isinstance(inside, MappingNode) else None
            self.origins[path] = DEFAULT if node is None else node.origin
            try:
                holder[name] = _usual(key) if node is None else self._value(path, key, node)
                self._keep_places(path, node)
            except WrongValue as fault:
                self._note(self.origins[path], path, str(fault))
                holder[name] = _usual(key)
        self._read_env(tree.entries.get("env"))
        self._read_slurm(tree.entries.get("slurm"))

    def _value(self, path: str, key: Key, node: Node) -> Any:
        before = self._known.get(path)
        if before is None or before[0] != node:
            before = self._known[path] = (node, key.kind.read(node))
        return before[1]

    def _keep_places(self, path: str, node: Node | None) -> None:
        """Of a value with names in it, such as restart.policy: each may come from another layer."""
        if isinstance(node, MappingNode):
            self.origins.update({f"{path}.{name}": inner.origin for name, inner in node.entries.items()})

    def _refuse_unknown(self, mapping: MappingNode, section: str) -> None:
        known = _KEYS_OF.get(section, frozenset())
        for key, node in mapping.entries.items():
            path = f"{section}.{key}" if section else key
            place = mapping.key_origins.get(key, node.origin)
            if key not in known:
                self._note(place, path, f"unknown key{_guess(key, section, known)}")
            elif path not in KEYS and not isinstance(node, MappingNode):
                self._note(node.origin, path, str(expected("a section of keys", node)))
            elif path not in KEYS and path not in OPEN_SECTIONS and isinstance(node, MappingNode):
                self._refuse_unknown(node, path)

    def _read_env(self, node: Node | None) -> None:
        env: dict[str, str] = {}
        for name, value in node.entries.items() if isinstance(node, MappingNode) else ():
            try:
                env[name] = _env_value(name, value)
                self.origins[f"env.{name}"] = value.origin
            except WrongValue as fault:
                self._note(value.origin, f"env.{name}", str(fault))
        self._values["env"] = env

    def _read_slurm(self, node: Node | None) -> None:
        section = node if isinstance(node, MappingNode) else MappingNode({}, DEFAULT)
        values, problems = read_slurm(section)
        self._values["slurm"] = values
        self.problems += problems
        for name, value in section.entries.items():
            self.origins[f"slurm.{name.removeprefix('--')}"] = value.origin

    def _note(self, origin: Origin, key: str, text: str) -> None:
        self.problems.append(Problem(origin.file, origin.line, origin.column, key, text))


MAY_SAVE = re.compile(r"(?i)save|ckpt|checkpoint|snapshot|out|resume|_?dir")   # config.guessfolder
# A piece of each name in innerlaunchers.INNER.
MAY_LAUNCH = re.compile(r"run|launch|mpiexec|deepspeed|composer|colossalai|lightning|fabric|axolotl|torchx|\bray\b"
                        r"|swift|megatron|xtuner|llamafactory|accelerate_cli|sbatch|salloc")
_TOP_KEYS = frozenset(path.partition(".")[0] for path in (*KEYS, *OPEN_SECTIONS))
_KEYS_OF = {"": _TOP_KEYS} | {section: frozenset(key for before, _, key in (path.partition(".") for path in KEYS)
                                                 if before == section and key) for section in _TOP_KEYS}
# Fresh for every attempt: a port in use is a known failure.
_OURS = frozenset(("MASTER_ADDR", "MASTER_PORT", "RESUME_ARGS"))


def _env_value(name: str, node: Node) -> str:
    """A variable's value as text, `1.10` and `true` as they were written."""
    if not (name.isascii() and name.isidentifier()):
        raise WrongValue("not a name that an environment variable can have")
    if name in BASHS_OWN:
        raise WrongValue("bash sets this variable itself, and does not hand yours to the training")
    if name in _OURS or name.startswith("SAFELAUNCH_"):
        raise WrongValue("safelaunch sets this variable for each attempt")
    if not isinstance(node, Scalar):
        raise expected("text", node)
    return handed(node.text, name)


def _guess(key: str, section: str, known: frozenset[str]) -> str:
    """The rest of "unknown key…": a key of another section first, as `nodes: 4` at the top is sbatch's habit."""
    word = key.replace("-", "_")
    elsewhere = (path for path in _all_paths() if path.rpartition(".")[2] == word and path != word)
    near = word if word in known else next(elsewhere, None) or nearest_word(word, known)
    if near:
        return f'; did you mean "{near}"?'
    return f"; known here: {', '.join(sorted(known))}" if section else ""


def _all_paths() -> Iterator[str]:
    yield from (f"slurm.{name.replace('-', '_')}" for name in OPTIONS)
    yield from KEYS

