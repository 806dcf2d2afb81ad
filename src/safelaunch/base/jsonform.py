"""Values of ours in the form of JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def to_json(value: Any) -> Any:
    """One with named fields as an object, in their order; the field `from_` is its "from". Numbers that JSON does not
    have are words: "nan", "inf", "-inf".
    """
    names = getattr(value, "_fields", None) or getattr(value, "__dataclass_fields__", None)
    if names is not None:
        return {name.rstrip("_"): to_json(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {key: to_json(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(inner) for inner in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
