"""The block that a transformer repeats, compiled by `torch.compile` once for all layers and policies.

Learning and scoring passes use the compiled block; decoding does not, since its cache has another length at
every token. Knows no games.

Shapes: B rows, L tokens.
"""

import os
import shutil
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

LARGE = 50_000_000
"""Weights from which `policy.compile` auto compiles. Compiling takes up to a minute of one core; below this
size a run has hardly more to gain."""
VERSIONS = 128
"""Versions of a block that dynamo keeps before it gives up: each adapter has its own, with and without
gradient. Its own limit is 8."""
ROWS, LENGTH, LENGTH_OF_ONE_ROW = 7, 23, 149
"""Shape of the pass that a block is compiled for, whatever the first batch is: a resumed run, whose first
batch is another, then computes with the same code. Primes, since dynamo takes sizes for one that are equal,
such as rows and the width of an attention head; few tokens, since the pass keeps all activations."""


def missing(device: torch.device) -> str | None:
    """What `torch.compile` lacks on this machine to compile for `device`, None where it lacks nothing."""
    if device.type != "cpu":
        return None if find_spec("triton") is not None else "the package triton"
    compiler = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    if shutil.which(compiler) is None:
        return f"a C++ compiler ({compiler})"
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return f"the C headers of Python {sys.version_info.major}.{sys.version_info.minor} (Python.h)"
    return None


def worthwhile(policy: object) -> bool:
    """Whether `policy.compile` auto compiles the blocks of a policy, on a machine that can."""
    model = getattr(policy, "model", None)
    if model is None or getattr(policy, "gradient_checkpointing", True):
        return False
    return model.num_parameters() >= LARGE and bool(repeated_blocks(model))


def repeated_blocks(model: Any) -> list[nn.Module]:
    """The modules of the class that transformers never splits between devices, where a model has several."""
    names = set(model._no_split_modules or ())
    modules = [module for module in model.base_model.modules() if type(module).__name__ in names]
    inner = {part for module in modules for part in module.modules() if part is not module}
    outer = [module for module in modules if module not in inner]
    count = Counter(type(module) for module in outer)
    return [module for module in outer if count[type(module)] > 1]


class CompiledBlocks:
    """The compiled blocks of one policy's model; policies with one model, or of one class, share the code."""

    def __init__(self, model: Any) -> None:
        """ValueError for a model that marks no repeated blocks."""
        blocks = repeated_blocks(model)
        if not blocks:
            raise ValueError(
                f"{type(model).__name__} marks no repeated blocks that could be compiled; set policy.compile "
                "to no"
            )
        dynamo: Any = torch._dynamo.config
        dynamo.recompile_limit = max(dynamo.recompile_limit, VERSIONS)
        for block in blocks:
            block.compile(dynamic=True)
        self._window: int = getattr(model.config, "max_position_embeddings", None) or LENGTH_OF_ONE_ROW
        self._compiled: set[tuple[object, ...]] = set()

    @contextmanager
    def used_for(
        self, inputs: dict[str, Any], run: Callable[..., object], active: tuple[str, ...]
    ) -> Iterator[None]:
        """A context for one pass over `inputs`: decoding is eager, any other pass compiled.

        Before the first pass of its kind `run` computes one of a fixed shape. `active` names the adapters.
        """
        if inputs.get("use_cache", True):
            with torch.compiler.set_stance("force_eager"):
                yield
            return
        ids_BL: Tensor = inputs["input_ids"]
        single = ids_BL.shape[0] == 1, ids_BL.shape[1] == 1  # sizes of 1 have code of their own
        kind = (torch.is_grad_enabled(), *single, active)
        if kind not in self._compiled:
            self._compile(single, ids_BL.device, run)
            self._compiled.add(kind)
        yield

    def _compile(self, single: tuple[bool, bool], device: torch.device, run: Callable[..., object]) -> None:
        one_row, one_token = single
        rows = 1 if one_row else ROWS
        length = 1 if one_token else min(LENGTH_OF_ONE_ROW if one_row else LENGTH, self._window)
        try:
            run(input_ids=torch.zeros(rows, length, dtype=torch.long, device=device), use_cache=False)
        except torch._dynamo.exc.TorchDynamoException as error:
            from torch._inductor.runtime.cache_dir_utils import cache_dir

            reason = " ".join(str(error).split("\n")[:2])
            raise ValueError(
                f"torch.compile cannot compile this model here ({reason}); set policy.compile to no, or "
                f"remove torch's cache {cache_dir()} if a process was killed while it compiled"
            ) from error
