"""typing's NamedTuple at a third of the time that each class of it takes: typing compiles every annotation to check it,
which mypy has done. `safelaunch submit` makes some sixty of them at its start.
"""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    class _RecordMaker(type):
        def __new__(cls, name, bases, space):
            fields = space.get("__annotations__", {})   # in their order, as text: from __future__ import annotations
            made = namedtuple(name, fields, defaults=[space[key] for key in fields if key in space],
                              module=space["__module__"])
            made.__annotations__ = made.__new__.__annotations__ = fields
            for key, value in space.items():
                if key not in fields and key not in ("__annotations__", "__module__"):
                    setattr(made, key, value)
            return made

    NamedTuple = type.__new__(_RecordMaker, "NamedTuple", (), {})
