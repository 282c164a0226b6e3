"""Folders in which an example keeps what it has computed, so that it goes on where it was stopped."""

import json
from dataclasses import asdict
from typing import Any

FREE = ("out", "test", "test_every", "threads", "save_every", "device", "compiled", "penalties")
"""Settings that change nothing of what is kept."""


def begin(config: Any) -> None:
    """Make the folder `config.work`; ValueError if it was begun with other settings, a dataclass."""
    settings = {key: str(value) for key, value in asdict(config).items() if key not in ("work", *FREE)}
    path = config.work / "settings.json"
    if path.exists():
        begun = json.loads(path.read_text(encoding="utf-8"))
        if unlike := sorted(key for key in begun | settings if begun.get(key) != settings.get(key)):
            raise ValueError(
                f"{config.work} was begun with {unlike[0]} {begun.get(unlike[0])}, now it is "
                f"{settings.get(unlike[0])}; name another folder, or remove this one"
            )
    config.work.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
