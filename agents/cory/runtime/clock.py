"""Wall-clock seconds by phase of an iteration."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter

OnPhase = Callable[[str], None]
"""Called with the name of a phase as it begins."""


@dataclass
class Clock:
    """Accumulator of seconds by phase name."""

    seconds: dict[str, float] = field(default_factory=dict)
    on_phase: OnPhase = lambda name: None

    wait: Callable[[], None] = lambda: None
    """Waits for what was begun: called before a time is read."""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time spent in the block to `name`."""
        self.on_phase(name)
        self.wait()
        start = perf_counter()
        yield
        self.wait()
        self.seconds[name] = self.seconds.get(name, 0.0) + perf_counter() - start
