"""The server of `besselnet play`: its files and no others, to this machine alone, one line at the end."""

import http.client
import signal
import socket
import subprocess
import sys
import threading

import pytest

from besselnet.cli import main
from besselnet.play import open_server, runtime_is_kept

FILES = {"index.html": b"<p>page</p>", "runtime/program.wasm": b"\0asm"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    (tmp_path_factory.getbasetemp() / "secret.txt").write_text("secret")
    with open_server(FILES, 0) as opened:
        threading.Thread(target=opened.serve_forever, daemon=True).start()
        yield opened
        opened.shutdown()


def ask(server, path, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer, content


def test_files_come_with_their_types(server):
    for path, name, kind in (
        ("/", "index.html", "text/html"),
        ("/index.html?again", "index.html", "text/html"),
        ("/runtime/program.wasm", "runtime/program.wasm", "application/wasm"),
    ):
        answer, content = ask(server, path)
        assert (answer.status, content) == (200, FILES[name])
        assert answer.headers["Content-Type"].startswith(kind)


@pytest.mark.parametrize(
    "path",
    [
        *("/../secret.txt", "/runtime/../../secret.txt", "/%2e%2e/secret.txt", "//etc/passwd"),
        *("/runtime", "/runtime/", "/missing", "/index.html/", "/file:///etc/passwd"),
    ],
)
def test_nothing_else_is_served(server, path):
    answer, content = ask(server, path)
    assert answer.status == 404
    assert b"secret" not in content


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_can_be_sent(server, method):
    assert ask(server, "/", method)[0].status == 501


def test_other_hosts_and_machines_are_refused(server):
    assert server.server_address[0] == "127.0.0.1"
    assert ask(server, "/", Host=f"localhost:{server.port}")[0].status == 200
    for host in ("example.org", f"example.org:{server.port}", "127.0.0.1"):
        assert ask(server, "/", Host=host)[0].status == 403


def one_error(arguments, capsys):
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    assert end.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_a_port_in_use_is_one_line(capsys):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        line = one_error(["play", "--port", port], capsys)
    assert line.startswith(f"besselnet: --port {port} is in use")


def test_wrong_arguments_are_one_line(capsys, tmp_path):
    assert "not a run folder" in one_error(["play", tmp_path], capsys)
    assert "--images" in one_error(["play", "--images", tmp_path], capsys)
    assert "no such file" in one_error(["play", tmp_path, "--images", tmp_path / "none"], capsys)
    assert "port" in one_error(["play", "--port", "70000"], capsys)


@pytest.mark.skipif(not runtime_is_kept(), reason="onnxruntime-web was not downloaded")
def test_ctrl_c_ends_it_in_one_line():
    command = [sys.executable, "-m", "besselnet", "play", "--port", "0"]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **streams) as playing:
        try:
            said = playing.stdout.readline()
            assert said.startswith("open http://127.0.0.1:")
            playing.send_signal(signal.SIGINT)
            _, error = playing.communicate(timeout=30)
        finally:
            playing.kill()
    assert playing.returncode == 130
    (line,) = error.splitlines()
    assert line.startswith("besselnet: ")
