"""Downloads against a server on this machine that can break off, ignore ranges, and lie."""

import dataclasses
import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from besselnet.data import Download, cache_folder, data_source, fetch_data
from besselnet.data import _download as download
from besselnet.data import _registry as registry
from besselnet.data._download import fetch_file, verify

CONTENT = bytes(range(256)) * 4096
SHA256 = "sha256:" + hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves CONTENT at every path but /gone; `breaks` answers stop after six chunks and a bit."""

    daemon_threads = True
    breaks = 0
    ranges = True
    asked: list[str | None]

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/file.bin"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        wanted = self.headers.get("Range")
        self.server.asked.append(wanted)
        if self.path == "/gone":
            self.send_error(404)
            return
        start = 0
        if wanted and self.server.ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(CONTENT):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(CONTENT)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT) - start))
        self.end_headers()
        rest = CONTENT[start:]
        if self.server.breaks > 0:
            self.server.breaks -= 1
            rest = rest[: 6 * download._CHUNK + 100]
        self.wfile.write(rest)

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def server():
    with Server(("127.0.0.1", 0), Handler) as running:
        running.asked = []
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(download, "_pause", lambda _: None)


def test_a_file_arrives_whole_and_only_once(server, tmp_path):
    wanted = Download("file.bin", (server.url,), SHA256)
    path = fetch_file(wanted, tmp_path / "new")
    assert path.read_bytes() == CONTENT
    assert fetch_file(wanted, tmp_path / "new") == path
    assert len(server.asked) == 1
    assert verify(wanted, tmp_path / "new") == path


def test_a_broken_connection_is_taken_up_where_it_broke(server, tmp_path):
    server.breaks = 2
    path = fetch_file(Download("file.bin", (server.url,), SHA256), tmp_path)
    assert path.read_bytes() == CONTENT
    assert server.asked[0] is None
    assert server.asked[1] == f"bytes={6 * download._CHUNK}-"
    assert server.asked[2] == f"bytes={12 * download._CHUNK}-"


def test_the_next_call_goes_on_from_the_part(server, tmp_path):
    server.breaks = 4
    wanted = Download("file.bin", (server.url,), SHA256)
    with pytest.raises(OSError, match=r"file\.bin.*connection lost after"):
        fetch_file(wanted, tmp_path)
    assert not (tmp_path / "file.bin").exists()
    assert (tmp_path / "file.bin.part").stat().st_size == 24 * download._CHUNK
    assert fetch_file(wanted, tmp_path).read_bytes() == CONTENT
    assert server.asked[-1] == f"bytes={24 * download._CHUNK}-"
    assert not (tmp_path / "file.bin.part").exists()


def test_a_server_without_ranges_starts_again(server, tmp_path):
    server.ranges = False
    (tmp_path / "file.bin.part").write_bytes(b"other bytes")
    path = fetch_file(Download("file.bin", (server.url,), SHA256), tmp_path)
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("extra", [b"", b"too long"])
def test_a_part_that_is_whole_or_too_long(server, tmp_path, extra):
    (tmp_path / "file.bin.part").write_bytes(CONTENT + extra)
    path = fetch_file(Download("file.bin", (server.url,), SHA256), tmp_path)
    assert path.read_bytes() == CONTENT


def test_a_wrong_checksum_leaves_nothing(server, tmp_path):
    wanted = Download("file.bin", (server.url,), "sha256:" + "0" * 64)
    with pytest.raises(ValueError, match=r"file\.bin.*does not match the published checksum"):
        fetch_file(wanted, tmp_path)
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".lock"] == []


def test_a_wrong_part_is_found_out_and_forgotten(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(b"x" * 1000)
    wanted = Download("file.bin", (server.url,), SHA256)
    with pytest.raises(ValueError, match="checksum"):
        fetch_file(wanted, tmp_path)
    assert fetch_file(wanted, tmp_path).read_bytes() == CONTENT


def test_mirrors_are_tried_in_order(server, tmp_path):
    gone = server.url.replace("file.bin", "gone")
    path = fetch_file(Download("file.bin", (gone, server.url), SHA256), tmp_path)
    assert path.read_bytes() == CONTENT


def test_no_server_and_no_file_are_one_line(server, tmp_path):
    closed = "http://127.0.0.1:9/file.bin"
    gone = server.url.replace("file.bin", "gone")
    with pytest.raises(OSError, match=r"cannot download file\.bin") as error:
        fetch_file(Download("file.bin", (closed, gone), SHA256), tmp_path)
    assert str(error.value).endswith(f"{closed} (no connection); {gone} (HTTP 404)")


def test_fetching_again_checks_what_is_there(server, cache, monkeypatch):
    wanted = Download("file.bin", (server.url,), SHA256)
    source = dataclasses.replace(data_source("mnist"), downloads=(wanted,))
    monkeypatch.setitem(registry._SOURCES, "mnist", source)
    (path,) = fetch_data("mnist")
    assert path == cache_folder() / "mnist" / "file.bin" == cache / "mnist" / "file.bin"
    assert fetch_data("mnist") == [path]
    path.write_bytes(CONTENT[:-1])
    with pytest.raises(ValueError, match=r"file\.bin: does not match the published checksum"):
        fetch_data("mnist")


def test_a_set_without_downloads_says_how_to_get_it():
    with pytest.raises(ValueError, match="pip install --no-deps firstgalaxydata"):
        fetch_data("radio-galaxies")
