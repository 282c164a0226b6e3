"""Run the notebooks and save their outputs: python docs/run_notebooks.py [part of a name]."""

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent / "notebooks"
CELL_SECONDS = 900
"""Time limit of a cell."""


def execute(path: Path, folder: Path) -> nbformat.NotebookNode:
    """Return the notebook with the outputs of a new run, whose working directory is `folder`.

    Warnings and progress on stderr, and the times of cells, are left out. Raises CellExecutionError
    if a cell fails.
    """
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=CELL_SECONDS, kernel_name="python3", resources=resources).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
    notebook.metadata.language_info = {"name": "python"}
    return notebook


def main(part: str = "") -> None:
    """Run every notebook with `part` in its name in a folder that is removed, and save it."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        if part in path.name:
            with tempfile.TemporaryDirectory() as folder:
                nbformat.write(execute(path, Path(folder)), path)
            print(path.name)


if __name__ == "__main__":
    main(*sys.argv[1:])
