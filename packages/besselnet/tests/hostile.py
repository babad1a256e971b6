"""Files that are none, or claim what they do not hold."""

import os
import resource
import socket
import struct
import subprocess
import sys
import zlib

import pytest

# Of a process that has torch loaded; what a refused file claims is far above it.
MOST_MEMORY = 1_000_000_000


def make_special(path, kind):
    """A FIFO, a socket, or a link to a device, called `path`."""
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        # Names of sockets are short, so the folder is entered.
        before = os.getcwd()
        os.chdir(path.parent)
        try:
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(path.name)
        finally:
            os.chdir(before)
    return path


def png(width, height, rows=1):
    """A grey PNG that claims a size and holds the first `rows` of its rows."""

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = zlib.compress(bytes(width + 1) * rows)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
    )


def refused(call, *names):
    """The one line of the `ValueError` that `call()` raises; it has all of these names in it."""
    with pytest.raises(ValueError, match=r"\S") as found:
        call()
    line = str(found.value)
    assert "\n" not in line
    assert len(line) < 1000
    for name in names:
        assert name in line
    return line


def peak_memory(program):
    """Bytes of memory that a Python program has had at most; it must end well."""
    # Of this program alone: `getrusage` counts what the tests had when they started it.
    source = f"""{program}
with open("/proc/self/status") as file:
    print(next(line for line in file if line.startswith("VmHWM")).split()[1])
"""
    # Beyond this the program ends, rather than the machine.
    limit = 16 * MOST_MEMORY
    done = subprocess.run(
        [sys.executable, "-c", source],
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    assert done.returncode == 0, done.stderr
    return 1024 * int(done.stdout.split()[-1])
