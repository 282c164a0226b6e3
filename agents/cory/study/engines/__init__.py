"""Engines train the runs of a study: processes of this machine, or tasks of a Ray cluster."""

from cory.study.engines.base import Engine, Outcome
from cory_env.nearest import did_you_mean

ENGINES = ("local", "ray")

__all__ = ["ENGINES", "Engine", "Outcome", "load_engine"]


def load_engine(name: str) -> type[Engine]:
    """The engine of a name; ValueError for an unknown one, ImportError if its package is not installed."""
    if name not in ENGINES:
        hint = did_you_mean(name, ENGINES) or f"; there are {', '.join(ENGINES)}"
        raise ValueError(f"there is no engine {name!r}{hint}")
    if name == "local":
        from cory.study.engines.local import LocalEngine

        return LocalEngine
    from cory.study.engines.ray_cluster import RayEngine

    return RayEngine
