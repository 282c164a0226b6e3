"""Named configurations. A preset is a whole run; any field can still be changed by a flag."""

from dataclasses import replace

from agents.config import Config

POCKET = Config()
"""Two pocket LMs continue openings of movie reviews; laptop CPU, minutes."""

PRESETS = {
    "pocket": POCKET,
    "pocket-ppo": replace(POCKET, seats=1),
}
"""In pairs: CORY, and single-agent PPO with the same number of updates per policy."""


def get(name: str) -> Config:
    """The preset called `name`."""
    if name not in PRESETS:
        raise ValueError(f"no preset called {name!r}; there are {', '.join(PRESETS)}")
    return PRESETS[name]
