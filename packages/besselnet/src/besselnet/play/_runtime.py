"""onnxruntime-web, which runs networks in a browser: downloaded once from the npm registry."""

import tarfile
from pathlib import Path

from besselnet.atomic import write_together
from besselnet.data import Download, cache_folder, fetch_file

VERSION = "1.30.0"
# The checksum is the registry's own ("integrity").
_PACKAGE = Download(
    f"onnxruntime-web-{VERSION}.tgz",
    (f"https://registry.npmjs.org/onnxruntime-web/-/onnxruntime-web-{VERSION}.tgz",),
    "sha512:ab4cbe26baedba45d2cec05610c71c55fa97db92d19a8b171c5f8269126683ca590a5cdc57bb2f35ce2b2"
    "98de32f4d956fb42644c0ecd528a0a91e025c07ca61",
)
# Of some 300 files in the package: the one for the CPU, without threads, and its program.
_FILES = ("ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm")


def runtime_files() -> dict[str, Path]:
    """Return the two files of onnxruntime-web for the page, by name; download them on first use."""
    if not runtime_is_kept():
        archive = fetch_file(_PACKAGE, _folder())
        write_together(_folder(), _unpacked(archive))
        archive.unlink()
    return _places()


def runtime_is_kept() -> bool:
    """Return whether :func:`runtime_files` works offline."""
    return all(path.exists() for path in _places().values())


def _folder() -> Path:
    return cache_folder() / "onnxruntime-web" / VERSION


def _places() -> dict[str, Path]:
    return {name: _folder() / name for name in _FILES}


def _unpacked(archive: Path) -> dict[str, bytes]:
    contents = {}
    with tarfile.open(archive) as package:
        for name in _FILES:
            file = package.extractfile(f"package/dist/{name}")
            if file is None:
                raise ValueError(f"{archive} has no file dist/{name}")
            contents[name] = file.read()
    return contents
