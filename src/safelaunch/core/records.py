"""typing's NamedTuple at a tenth of the time that each class of it takes. typing compiles every annotation to check it,
which mypy has done. And collections.namedtuple compiles a constructor, which most classes need later or never:
`safelaunch submit` makes some sixty of them at its start, and few instances of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import replace as replace
    from typing import NamedTuple as NamedTuple
else:
    from collections import _tuplegetter, namedtuple

    def replace(known, /, **changes):
        """As dataclasses.replace, for classes that compute nothing at their making, and at a tenth of its time where
        there are 50 fields: a journal's fold makes two such copies for each event.
        """
        made = object.__new__(type(known))
        fields = made.__dict__
        fields.update(known.__dict__)
        count = len(fields)
        fields.update(changes)
        if len(fields) != count:
            raise TypeError(f"no fields of {type(known).__name__}: {sorted(changes.keys() - known.__dict__.keys())}")
        return made

    FEW = 3

    class _Record(tuple):
        """A record before its class has a constructor of its own: what collections.namedtuple would give it."""

        __slots__ = ()

        def __new__(cls, /, *values, **named):
            made = next(one for one in cls.__mro__ if "_fields" in vars(one))
            fields, made._made = made._fields, made._made + 1
            known = {**made._field_defaults, **dict(zip(fields, values, strict=False)), **named}
            is_sound = known.keys() == set(fields) and len(values) <= len(fields) and named.keys().isdisjoint(
                fields[:len(values)])
            if is_sound and made._made <= FEW:
                return tuple.__new__(cls, [known[field] for field in fields])
            full = namedtuple(made.__name__, fields, defaults=made._field_defaults.values())
            made.__new__ = vars(full)["__new__"]   # quick, and the one that says what is wrong
            return made.__new__(cls, *values, **named)

        @classmethod
        def _make(cls, values):
            return cls(*values)

        def _replace(self, /, **named):
            made = tuple.__new__(type(self), map(named.pop, self._fields, self))
            if named:
                raise ValueError(f"no fields of {type(self).__name__}: {', '.join(named)}")
            return made

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def __getnewargs__(self):
            return tuple(self)

        def __repr__(self):
            return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._asdict().items())})"

    class _RecordMaker(type):
        def __new__(cls, name, bases, space):
            fields = tuple(space.get("__annotations__", ()))   # text in their order: from __future__ import annotations
            given = {field: space[field] for field in fields if field in space}
            getters = {field: _tuplegetter(number, "") for number, field in enumerate(fields)}
            return type(name, (_Record,), {**space, **getters, "__slots__": (), "__match_args__": fields,
                                           "_fields": fields, "_field_defaults": given, "_made": 0})

    NamedTuple = type.__new__(_RecordMaker, "NamedTuple", (), {})
