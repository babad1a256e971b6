"""Connect to an existing Ray cluster, with a clear error message if that fails."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

__all__ = ["check_address", "connected"]

_SECONDS_TO_ANSWER = 10.0
# Ray speaks gRPC, which is HTTP/2: a client opens with these bytes and an empty frame of settings, and
# the first frame of a server holds its settings. The fourth byte of a frame is its type.
_HTTP2_OPENING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_HTTP2_SETTINGS = 4


@contextmanager
def connected(address: str, install: str, **options: Any) -> Iterator[Any]:
    """Context manager that returns the module `ray`, connected to a cluster until the block ends.

    Args:
        address: as in `ray.init`: "auto", "HOST:6379", "ray://HOST:10001".
        install: requirement for pip if Ray is missing.
        options: options of `ray.init`.
    """
    try:
        import ray
    except ImportError:
        raise ValueError(f"--cluster needs Ray: pip install '{install}'") from None
    check_address(address)
    try:
        ray.init(address=address, namespace="besselnet", log_to_driver=False, **options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ValueError(f"no Ray cluster at {address!r}: {error}") from None
    try:
        yield ray
    finally:
        ray.shutdown()


def check_address(address: str) -> None:
    """Raise ``ValueError`` if a host is not a Ray cluster; `ray.init` would wait for many minutes."""
    try:
        place = urlsplit(address if "://" in address else f"//{address}")
        if not place.hostname or not place.port:
            return
        target = (place.hostname, place.port)
        with socket.create_connection(target, timeout=_SECONDS_TO_ANSWER) as connection:
            if os.environ.get("RAY_USE_TLS", "0") != "0":
                return
            connection.sendall(_HTTP2_OPENING)
            with connection.makefile("rb") as answers:
                answer = answers.read(4)
    except (OSError, ValueError) as error:
        raise ValueError(f"no Ray cluster at {address!r}: {error}") from None
    if len(answer) < 4 or answer[3] != _HTTP2_SETTINGS:
        raise ValueError(f"no Ray cluster at {address!r}: another service uses this address")
