"""YAML files from anybody, read as data of a limited size."""

from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from cory_env.nearest import did_you_mean_path

MAX_NODES = 100_000
"""Values that a file may hold once its aliases are written out."""


def read_yaml(path: Path) -> Any:
    """The content of a YAML file, None for an empty one.

    ValueError with the reason for a file that cannot be read, is no YAML, gives a key twice, or is larger
    than `MAX_NODES` once its aliases are written out.
    """
    try:
        loader = yaml.SafeLoader(path.read_text(encoding="utf-8"))
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _size(node, {})
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except (OSError, yaml.YAMLError) as error:
        raise ValueError(str(error)) from error


def read_mapping(path: Path, what: str) -> dict[str, Any]:
    """The `name: value` lines of a YAML file, which errors call `what`; ValueError also for anything else."""
    if not path.is_file():
        raise ValueError(f"there is no {what} {path}{did_you_mean_path(path)}")
    try:
        content = read_yaml(path)
    except ValueError as error:
        raise ValueError(f"the {what} {path} cannot be read ({error}); give YAML") from error
    if not isinstance(content, dict):
        raise ValueError(f"the {what} {path} does not hold `name: value` lines")
    return content


def _size(node: yaml.Node, sizes: dict[int, int | None]) -> int:
    """Number of values in a node with its aliases written out; ValueError for what `read_yaml` refuses."""
    if id(node) in sizes:
        if (known := sizes[id(node)]) is None:
            raise ValueError(f"an alias stands inside of what it stands for,{node.start_mark}")
        return known
    sizes[id(node)] = None
    size = 1
    if isinstance(node, yaml.MappingNode):
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if twice := next((key for key, count in Counter(keys).items() if count > 1), None):
            raise ValueError(f"the key {twice!r} is given twice,{node.start_mark}")
        size += sum(_size(part, sizes) for pair in node.value for part in pair)
    elif isinstance(node, yaml.SequenceNode):
        size += sum(_size(part, sizes) for part in node.value)
    if size > MAX_NODES:
        raise ValueError(f"with its aliases written out it holds more than {MAX_NODES:,} values")
    sizes[id(node)] = size
    return size
