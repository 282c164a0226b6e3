"""The nearest name that exists, at the end of an error about one that does not."""

import difflib
from collections.abc import Iterable
from pathlib import Path


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` with the name among `known` that is nearest, empty if none is near."""
    near = difflib.get_close_matches(str(name), [str(one) for one in known], n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def did_you_mean_path(path: str | Path) -> str:
    """`; did you mean x?` with the nearest path, empty if this one exists or none is near.

    The first part that does not exist is compared with what lies beside it.
    """
    path = Path(path).expanduser()
    try:
        missing = next(one for one in (*reversed(path.parents), path) if not one.exists())
        near = difflib.get_close_matches(missing.name, [one.name for one in missing.parent.iterdir()], n=1)
    except (StopIteration, OSError):  # nothing is missing, or the folder cannot be listed
        return ""
    if not near:
        return ""
    beside = missing.with_name(near[0])
    whole = beside / path.relative_to(missing)
    return f"; did you mean {whole if whole.exists() else beside}?"
