"""Engines train the runs of a study: processes of this machine, or tasks of a Ray cluster."""

import difflib

from cory.study.engines.base import Engine, Outcome

ENGINES = ("local", "ray")

__all__ = ["ENGINES", "Engine", "Outcome", "load_engine"]


def load_engine(name: str) -> type[Engine]:
    """The engine of a name; ValueError for an unknown one, ImportError if its package is not installed."""
    if name not in ENGINES:
        near = difflib.get_close_matches(name, ENGINES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(ENGINES)}"
        raise ValueError(f"there is no engine {name!r}; {hint}")
    if name == "local":
        from cory.study.engines.local import LocalEngine

        return LocalEngine
    from cory.study.engines.ray_cluster import RayEngine

    return RayEngine
