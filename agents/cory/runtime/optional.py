"""Optional packages, imported where a setting needs them."""

import logging
from importlib import import_module
from typing import Any


def import_bitsandbytes(setting: str) -> Any:
    """Import bitsandbytes without its advice; ImportError names the extra that `setting` needs."""
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    try:
        import_module("bitsandbytes.optim")
        return import_module("bitsandbytes")
    except ImportError as error:
        raise ImportError(f"{setting} needs bitsandbytes; pip install 'cory[quant]'") from error
