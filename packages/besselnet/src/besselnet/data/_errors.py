"""Say which file is at fault."""

import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def reading(path: Path | str) -> Iterator[None]:
    """Turn whatever a damaged or unexpected file makes its reader raise into one line naming it.

    A missing file stays a `FileNotFoundError`.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, EOFError, IndexError, SyntaxError) as error:
        raise ValueError(_one_line(path, error)) from error
    except (zipfile.BadZipFile, zlib.error, struct.error, RuntimeError) as error:
        raise ValueError(_one_line(path, error)) from error


def _one_line(path: Path | str, error: Exception) -> str:
    reason = " ".join(str(error).split()) or type(error).__name__
    return reason if str(path) in reason else f"{path}: {reason}"
