"""`besselnet play`."""

from pathlib import Path
from typing import Annotated

import typer

from besselnet.play import (
    open_server,
    page_files,
    run_files,
    runtime_files,
    runtime_is_kept,
)
from besselnet.train import load_run


def play(
    run_folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="[RUN]", help="Folder that `train` filled, to play with its network."
        ),
    ] = None,
    images: Annotated[
        list[Path] | None,
        typer.Option(
            help="With RUN: image files or a folder to review, in place of its own images."
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Of the page; 0 for any that is free.")
    ] = 8765,
) -> None:
    """Rotate images in your browser and watch networks answer.

    Draw a digit, or open an image, and rotate it. A rotation-equivariant network and a plain CNN answer side
    by side, with their feature maps. With RUN, the page also shows the images that its network is least sure
    of or got wrong: look at filters and saliency, rotate the images, and label them.

    The networks run in the browser. The page is for this machine alone (127.0.0.1), and Ctrl-C ends it. The
    first time, it downloads onnxruntime-web (33 MB); after that it works without a connection.

    Examples:

        besselnet play

        besselnet play runs/photos

        besselnet play runs/photos --images new/
    """
    if images and run_folder is None:
        raise ValueError("--images is for a RUN")
    for path in images or ():
        if not path.exists():
            raise ValueError(f"{path}: no such file or folder")
    run = None if run_folder is None else load_run(run_folder)
    files = page_files()
    # Before anything that takes time.
    with open_server(files, port) as server:
        if run is not None:
            typer.echo(f"preparing {run_folder}", err=True)
            files |= page_files(run_files(run, images or ()))
        if not runtime_is_kept():
            typer.echo("fetching onnxruntime-web from the npm registry, once", err=True)
        files |= {f"runtime/{name}": path for name, path in runtime_files().items()}
        typer.echo(f"open {server.address} in a browser; Ctrl-C ends it")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            raise KeyboardInterrupt("the playground has ended") from None
