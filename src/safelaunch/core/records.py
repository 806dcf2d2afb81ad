"""typing's NamedTuple at a tenth of the time that each class of it takes. typing compiles every annotation to check it,
which mypy has done. And collections.namedtuple compiles a constructor, which most classes need only later, or never:
`safelaunch submit` makes some sixty of them at its start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    from operator import itemgetter

    try:
        from _collections import _tuplegetter as _getter  # CPython's own, twice as fast as a property
    except ImportError:
        def _getter(index, doc):
            return property(itemgetter(index), doc=doc)

    FEW = 3   # of most classes a program makes no more

    def _first_new(name, fields, given):
        """A constructor of the first few records, which then compiles the real one and leaves its place to it."""
        left, made = FEW, None

        def new(cls, /, *values, **named):
            nonlocal left
            left -= 1
            known = {**given, **dict(zip(fields, values, strict=False)), **named}
            is_sound = len(known) == len(fields) and len(values) + len(named) <= len(fields)
            if left >= 0 and is_sound and named.keys().isdisjoint(fields[:len(values)]):
                return tuple.__new__(cls, [known[field] for field in fields])
            words = ", ".join(fields)
            real = eval(   # noqa: S307 - names of fields
                f"lambda _cls, {words}: _new(_cls, ({words},))", {"_new": tuple.__new__, "__builtins__": {}})
            real.__defaults__, real.__annotations__ = tuple(given.values()), made.__annotations__
            real.__name__, real.__qualname__ = "__new__", f"{name}.__new__"
            made.__new__ = staticmethod(real)
            return real(cls, *values, **named)

        def belongs_to(cls):
            nonlocal made
            made = cls

        new.__name__ = "__new__"
        return new, belongs_to

    def _make(cls, values):
        """A record of these values in their order."""
        made = tuple.__new__(cls, values)
        if len(made) != len(cls._fields):
            raise TypeError(f"expected {len(cls._fields)} values, got {len(made)}")
        return made

    def _replace(self, /, **named):
        made = self._make(map(named.pop, self._fields, self))
        if named:
            raise ValueError(f"no such fields: {list(named)!r}")
        return made

    def _asdict(self):
        return dict(zip(self._fields, self, strict=True))

    def _getnewargs(self):
        return tuple(self)

    def _repr(self):
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._asdict().items())})"

    class _RecordMaker(type):
        def __new__(cls, name, bases, space):
            fields = tuple(space.get("__annotations__", ()))   # text in their order: from __future__ import annotations
            given = {field: space[field] for field in fields if field in space}
            new, belongs_to = _first_new(name, fields, given)
            made = type(name, (tuple,), {
                "__doc__": f"{name}({', '.join(fields)})", "__slots__": (), "_fields": fields, "_field_defaults": given,
                "__match_args__": fields, "__new__": new, "_make": classmethod(_make), "_replace": _replace,
                "__replace__": _replace, "_asdict": _asdict, "__repr__": _repr, "__getnewargs__": _getnewargs, **space,
                **{field: _getter(index, f"field {index}") for index, field in enumerate(fields)}})
            belongs_to(made)
            return made

    NamedTuple = type.__new__(_RecordMaker, "NamedTuple", (), {})
