"""The table of keys ▸ pydantic models ▸ JSON Schema (draft 2020-12).

The check itself does not use them (resolve.py says why); a test holds both to the same answers. A schema cannot
know what ${VAR} will be, whether a regular expression is one, or which keys need each other: that is for the check.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Optional, Union

from pydantic import BaseModel, ConfigDict, Field, create_model

from safelaunch.core.config.keys import KEYS, OPEN_SECTIONS
from safelaunch.core.config.kinds import (
    AutoOrDuration,
    Choice,
    Duration,
    Flag,
    Integer,
    Kind,
    PolicyTable,
    Share,
    Shell,
    SignalName,
    Text,
    Words,
    ZeroOrOne,
)
from safelaunch.core.config.sbatchoptions import OPTIONS, REFUSED
from safelaunch.core.config.values import DURATION_MAX_S

_REFERENCE: Any = Annotated[str, Field(pattern=r"\$\{")]
_DURATION_PATTERN = r"^([0-9]+(\.[0-9]+)?(ms|[smhdw]))+$"
_STRICT = ConfigDict(extra="forbid", strict=True)


def train_schema() -> dict[str, Any]:
    """The JSON Schema of train.yaml."""
    schema = train_model().model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "train.yaml of safelaunch"}


def train_model() -> type[BaseModel]:
    """A pydantic model of train.yaml, made from the table."""
    sections: dict[str, dict[str, Any]] = {}
    for path, key in KEYS.items():
        section, _, name = path.rpartition(".")
        field = Field(alias=name, description=key.doc, **_default(path, key.default))
        sections.setdefault(section, {})[f"{name}_"] = (_type_of(key.kind), field)
    top = sections.pop("")
    for section, fields in sections.items():
        model = create_model(section.title().replace("_", ""), __config__=_STRICT, **fields)
        top[f"{section}_"] = (Optional[model], Field(default=None, alias=section))  # noqa: UP045 (at run time)
    variable = Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$")]
    env = Optional[dict[variable, Union[str, int, float, bool, None]]]  # noqa: UP007, UP045
    top["env_"] = (env, Field(default=None, alias="env", description=OPEN_SECTIONS["env"]))
    slurm = Field(default=None, alias="slurm", description=OPEN_SECTIONS["slurm"])
    top["slurm_"] = (Optional[_slurm_model()], slurm)  # noqa: UP045
    return create_model("Train", __config__=_STRICT, **top)


def _default(path: str, default: str | tuple[str, ...] | None) -> dict[str, Any]:
    if path == "command":
        return {}
    return {"default": list(default) if isinstance(default, tuple) else default}


def _type_of(kind: Kind) -> Any:
    """The type of one key; null goes back to the default, and ${VAR} may stand for any single value."""
    if isinstance(kind, Shell):
        return Optional[str]  # noqa: UP045
    if isinstance(kind, Words):
        word = Literal[kind.words] if kind.words else str
        return Optional[list[Union[word, _REFERENCE]]]  # type: ignore[valid-type]  # noqa: UP007, UP045
    if isinstance(kind, PolicyTable):
        return _policy_type(kind)
    return Union[_scalar_type(kind), _REFERENCE, None]  # noqa: UP007


def _policy_type(kind: PolicyTable) -> Any:
    category: Any = Literal[kind.categories]
    word: Any = Annotated[str, Field(pattern=f"^({kind.pattern})$|\\$\\{{")]
    return Optional[dict[category, Optional[word]]]  # noqa: UP045


def _scalar_type(kind: Kind) -> Any:
    if isinstance(kind, Integer):
        return Annotated[int, Field(ge=kind.min, le=kind.max)]
    if isinstance(kind, ZeroOrOne):
        return Union[bool, Literal[0, 1]]  # noqa: UP007
    if isinstance(kind, Flag):
        return bool
    if isinstance(kind, Share):
        return Union[Annotated[int, Field(ge=0, lt=1_000_000)], Annotated[str, Field(pattern=f"^({kind.pattern})$")]]  # noqa: UP007
    if isinstance(kind, Choice):
        return Literal[kind.words]
    if isinstance(kind, SignalName):
        return Literal[(*kind.names, *(name.removeprefix("SIG") for name in kind.names))]
    if isinstance(kind, AutoOrDuration):
        return Union[Literal["auto"], _scalar_type(Duration())]  # noqa: UP007
    if isinstance(kind, Duration):
        number = Annotated[float, Field(ge=0, le=DURATION_MAX_S)]
        return Union[number, Annotated[str, Field(pattern=_DURATION_PATTERN)]]  # noqa: UP007
    if isinstance(kind, Text) and kind.pattern is not None:
        return Union[Annotated[str, Field(pattern=f"^{kind.pattern}$")], int]  # noqa: UP007
    return Union[str, int, float]  # noqa: UP007


def _slurm_model() -> type[BaseModel]:
    """sbatch's options in both spellings; an unknown one may be of a newer Slurm."""
    fields: dict[str, Any] = {}
    for name, option in OPTIONS.items():
        if name in REFUSED:
            continue
        value: Any = Union[str, int, float, bool, None]  # noqa: UP007
        value = Union[list[str], value] if option.is_list else value  # noqa: UP007
        for number, spelling in enumerate(dict.fromkeys((name, name.replace("-", "_")))):
            fields[f"option{number}_{name.replace('-', '_')}"] = (value, Field(default=None, alias=spelling))
    refused: list[Any] = sorted({*REFUSED, *(name.replace("-", "_") for name in REFUSED)})
    extra: dict[str, Any] = {"propertyNames": {"not": {"enum": refused}}}
    return create_model("Slurm", __config__=ConfigDict(extra="allow", strict=True, json_schema_extra=extra), **fields)
