"""Models on the Hugging Face hub: one request with a short timeout, and the local cache where it fails."""

import logging
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

TIMEOUT = 3.0
"""Seconds within which the hub must respond."""


def located(name: str | Path) -> str | Path:
    """Return where to load a model from: a folder or, while the hub responds, its name on the hub.

    While the hub does not respond, it is the folder of the model in the hub's cache; ValueError if there is
    none. The hub gets no further request then: its client would retry every file for minutes.
    """
    if Path(name).is_dir() or is_reachable():
        return name
    from huggingface_hub import constants

    if not (folder := cached(str(name))):
        raise ValueError(
            f"{name} is neither a folder nor a model in the hub's cache, and the hub ({constants.ENDPOINT}) "
            "cannot be reached; name a model folder, or go online"
        )
    return folder


def cached(name: str) -> str:
    """The folder of a hub model in the cache, of the commit that was last loaded; empty for none."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return snapshot_download(name, local_files_only=True)
    except (HFValidationError, LocalEntryNotFoundError):
        return ""


def can_only_be_a_path(name: str | Path) -> bool:
    """Whether a name is none on the hub, `name` or `owner/name`: then a missing folder is a mistake."""
    path = Path(name)
    in_a_folder = len(path.parts) == 2 and path.parent.is_dir()
    return str(name)[:1] in "./~" or len(path.parts) > 2 or in_a_folder or path.suffix == ".gguf"


def is_reachable() -> bool:
    """Whether the hub responds within `TIMEOUT` seconds, with whatever status; asked once a minute."""
    return _reachable(int(time.monotonic() // 60))


@lru_cache(maxsize=1)
def _reachable(_minute: int) -> bool:
    responses: queue.Queue[bool] = queue.Queue()
    # A thread, since looking up the host's name has no timeout of its own.
    threading.Thread(target=lambda: responses.put(_responds()), daemon=True).start()
    try:
        return responses.get(timeout=TIMEOUT + 1)
    except queue.Empty:
        return False


def _responds() -> bool:
    from huggingface_hub import constants, get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=TIMEOUT)
    except Exception:  # the HTTP library, and with it its errors, differs between versions of huggingface_hub
        return False
    return True


@contextmanager
def quiet() -> Iterator[None]:
    """Silence bars, reports and warnings of loading a model in the block; errors are raised."""
    from transformers.utils import logging as transformers_logging

    loggers = [logging.getLogger(name) for name in ("huggingface_hub", "transformers")]
    before, bars = [logger.level for logger in loggers], transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
        if bars:
            transformers_logging.enable_progress_bar()
