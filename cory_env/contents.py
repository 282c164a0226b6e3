"""What functions and objects consist of, as plain values, by which those of a session are told apart."""

import dis
import hashlib
import re
from collections.abc import Mapping
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

DEPTH = 5
"""How far the parts of parts are looked at."""

CONSTANTS = (str, bytes, int, float, tuple, list, set, frozenset)
"""Types of the globals of a function that count as part of it."""

ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""The place of an object in memory, as its `repr` has it."""


def digest(value: Any) -> str:
    """A hash of what a function or an object consists of, the same in every process."""
    text = ADDRESS.sub("", repr(_parts(value, DEPTH)))
    return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:8]


def _parts(value: Any, depth: int) -> Any:
    """The code of a function and what it holds or is called with; an object's attributes.

    Of a script's class also its methods.
    """
    if isinstance(value, CodeType):
        return value.co_code, value.co_names, [_parts(one, depth) for one in value.co_consts]
    if isinstance(value, ModuleType):
        return value.__name__
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))  # its own order differs between processes
    if not depth:
        return value
    if isinstance(value, FunctionType):
        held = [cell.cell_contents for cell in value.__closure__ or ()]
        defaults = (*(value.__defaults__ or ()), value.__kwdefaults__)
        parts = (value.__code__, *held, *defaults, *_globals(value))
        return [_parts(one, depth - 1) for one in parts]
    if isinstance(value, partial):
        return [_parts(one, depth - 1) for one in (value.func, value.args, value.keywords)]
    if isinstance(value, MethodType):
        return value.__name__, _parts(value.__self__, depth - 1)
    if hasattr(value, "__array__") and not isinstance(value, type):
        return _array(value, depth)
    if isinstance(value, str | bytes | int | float):
        return value
    if isinstance(value, list | tuple):
        return [_parts(item, depth - 1) for item in value]
    if isinstance(value, Mapping):
        return [(name, _parts(item, depth - 1)) for name, item in value.items()]
    state = value.state_dict() if hasattr(value, "state_dict") and not isinstance(value, type) else None
    own = {**getattr(value, "__dict__", {})}
    kind = type(value)
    of_kind = _parts(kind, depth - 1) if kind.__module__ == "__main__" else kind.__qualname__
    return [of_kind, _parts(own, depth), _parts(state, depth)] if own else value


def _globals(function: FunctionType) -> list[Any]:
    """The constants, functions and classes of its module that a function uses; none that it assigns."""
    codes = [function.__code__]
    for code in codes:
        codes += [one for one in code.co_consts if isinstance(one, CodeType)]
    names = dict.fromkeys(name for code in codes for name in code.co_names)
    steps = (step for code in codes for step in dis.get_instructions(code))
    assigned = {step.argval for step in steps if step.opname == "STORE_GLOBAL"}
    used = [function.__globals__[name] for name in names if name in function.__globals__.keys() - assigned]
    own = function.__module__
    return [one for one in used if isinstance(one, CONSTANTS) or getattr(one, "__module__", "") == own]


def _array(value: Any, depth: int) -> Any:
    """Type, shape and hash of the numbers of an array, tensor or table; the items of one of objects."""
    held = value.detach().cpu() if hasattr(value, "detach") else value
    kind = str(getattr(held, "dtype", ""))
    array = np.asarray(held.float() if kind == "torch.bfloat16" else held)
    if array.dtype.hasobject:
        return _parts(array.tolist(), depth - 1)
    return kind, array.shape, hashlib.sha256(array.tobytes()).hexdigest()
