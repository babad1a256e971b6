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
        typer.Argument(metavar="RUN", help="Run folder of `besselnet train`, to try its network."),
    ] = None,
    images: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH",
            help="With RUN: image or folder to review instead of the images of the run. Can be repeated.",
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the web page; 0 for any free port.")
    ] = 8765,
) -> None:
    """Rotate images in your browser and watch the predictions.

    Draw a digit or open an image, then rotate it. The page compares a rotation-equivariant network with a
    plain CNN and shows their feature maps. With RUN, it also shows the images that the network is least
    sure of or got wrong. View filters and saliency maps, rotate the images and label them.

    The networks run in the browser. Only this machine can open the page (127.0.0.1). Stop it with Ctrl-C.
    The first call downloads onnxruntime-web (33 MB); later calls work offline.

    Examples:

        besselnet play

        besselnet play runs/photos

        besselnet play runs/photos --images new/
    """
    if images and run_folder is None:
        raise ValueError("--images requires a RUN")
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
            typer.echo("downloading onnxruntime-web from the npm registry (once)", err=True)
        files |= {f"runtime/{name}": path for name, path in runtime_files().items()}
        typer.echo(f"open {server.address} in a browser; stop with Ctrl-C")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            raise KeyboardInterrupt("playground stopped") from None
