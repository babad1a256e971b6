"""A local server for a fixed set of files."""

import errno
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer

HOST = "127.0.0.1"
_KINDS = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".wasm": "application/wasm",
}


class Server(ThreadingTCPServer):
    """Serves `files`, contents or paths by their addresses, on 127.0.0.1; "" stands for index.html."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, files: Mapping[str, bytes | Path], port: int) -> None:
        self.files = files
        super().__init__((HOST, port), _Handler)

    @property
    def port(self) -> int:
        """The port in use; one that is free if 0 was asked for."""
        return int(self.server_address[1])

    @property
    def address(self) -> str:
        """Where a browser finds the page."""
        return f"http://{HOST}:{self.port}/"


def open_server(files: Mapping[str, bytes | Path], port: int) -> Server:
    """Return a :class:`Server` of `files`; raise `ValueError` if the port is in use."""
    try:
        return Server(files, port)
    except OSError as error:
        reasons = {errno.EADDRINUSE: "is in use", errno.EACCES: "is reserved"}
        if error.errno not in reasons:
            raise
        text = f"--port {port} {reasons[error.errno]}: choose another, or 0 for any free port"
        raise ValueError(text) from None


class _Handler(BaseHTTPRequestHandler):
    """Answers GET for the server's files, and nothing else."""

    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        # A page elsewhere could reach this machine by a name of its own; such a request names that host.
        if self.headers.get("Host") not in [f"{h}:{self.server.port}" for h in (HOST, "localhost")]:
            self.send_error(HTTPStatus.FORBIDDEN)
            return
        name = self.path.partition("?")[0].removeprefix("/") or "index.html"
        found = self.server.files.get(name)
        if found is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        content = found.read_bytes() if isinstance(found, Path) else found
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", _KINDS.get(Path(name).suffix, "application/octet-stream"))
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Nothing: the terminal has the address, and the browser says what it misses."""
