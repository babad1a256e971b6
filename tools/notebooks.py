"""Run the notebooks of examples/ and write what they show into them: `make notebooks`.

Needs the group `examples` of the root pyproject.toml. A first cell that finds besselnet installs nothing.
"""

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[1] / "examples"


def run_notebook(path: Path, folder: Path) -> nbformat.NotebookNode:
    """The notebook with what its cells show, run in `folder`; an error of a cell is raised."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(folder)}})
    # tqdm, which scikit-image brings, would like to draw a bar.
    client.execute(env={**os.environ, "PYTHONWARNINGS": "ignore:IProgress"})
    for cell in notebook.cells:
        # When each cell ran is of no interest, and would differ each time.
        cell.metadata = nbformat.NotebookNode()
    return notebook


def main() -> None:
    """Run all notebooks, or those that are named."""
    for path in map(Path, sys.argv[1:]) if sys.argv[1:] else sorted(EXAMPLES.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(run_notebook(path, Path(folder)), path)
        print(path)


if __name__ == "__main__":
    main()
