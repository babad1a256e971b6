"""A real browser for tests: Chromium without a window, by its DevTools protocol over a pipe."""

import base64
import json
import os
import select
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
_OPTIONS = (
    *(
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
    ),
    # Nothing but the page: a new profile would greet, update itself and call home.
    *("--no-first-run", "--disable-background-networking", "--disable-sync"),
    *("--disable-component-update", "--remote-debugging-pipe"),
)
_KEYS = {
    "ArrowRight": 39, "ArrowLeft": 37, "ArrowUp": 38, "Home": 36, "Enter": 13, " ": 32, "Tab": 9,
}  # fmt: skip


class Page:
    """A browser with one page, to be used in a `with` statement.

    Attributes:
        failures: what the page logged as an error, and the requests that failed or left this machine.
    """

    def __init__(self) -> None:
        assert PROGRAM is not None
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        ours, theirs = os.pipe(), os.pipe()
        devnull = os.open(os.devnull, os.O_RDWR)
        command = [PROGRAM, *_OPTIONS, f"--user-data-dir={self._profile.name}"]
        # The protocol is read from 3 and written to 4.
        places = {devnull: (1, 2), ours[0]: (3,), theirs[1]: (4,)}
        actions = [(os.POSIX_SPAWN_DUP2, fd, number) for fd, n in places.items() for number in n]
        # As a group of its own, of which nothing is left behind.
        self._process = os.posix_spawn(
            PROGRAM, command, os.environ, file_actions=actions, setpgroup=0
        )
        for fd in (devnull, ours[0], theirs[1]):
            os.close(fd)
        self._write, self._read = ours[1], theirs[0]
        self._buffer = b""
        self._last = 0
        self._session: str | None = None
        self.failures: list[str] = []

    def __enter__(self) -> "Page":
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        os.close(self._write)
        os.close(self._read)
        self._profile.cleanup()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The answer to a command of the protocol."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return dict(answer["result"])

    def _receive(self, seconds: float = 60) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], seconds)[0]:
                raise TimeoutError("the browser does not answer")
            piece = os.read(self._read, 1 << 16)
            if not piece:
                raise RuntimeError("the browser has ended")
            self._buffer += piece
        text, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(text)
        self._note(message.get("method"), message.get("params", {}))
        return dict(message)

    def _note(self, event: str | None, about: dict[str, Any]) -> None:
        if event == "Runtime.exceptionThrown":
            self.failures.append(json.dumps(about["exceptionDetails"])[:500])
        elif event == "Log.entryAdded" and about["entry"]["level"] == "error":
            self.failures.append(f"{about['entry']['text']} {about['entry'].get('url', '')}")
        elif event == "Network.requestWillBeSent":
            address = about["request"]["url"]
            if not address.startswith(("http://127.0.0.1:", "data:", "blob:")):
                self.failures.append(f"asked for {address}")

    def open(self, address: str) -> None:
        self.call("Page.navigate", url=address)

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression, awaited if it is a promise."""
        answer = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description", script))
        return answer["result"].get("value")

    def wait(self, condition: str, seconds: float = 60) -> None:
        """Until a JavaScript expression is true."""
        end = time.monotonic() + seconds
        while not self._holds(condition):
            assert time.monotonic() < end, f"never: {condition}"
            time.sleep(0.02)

    def _holds(self, condition: str) -> bool:
        """Whether an expression is true; not while another page is about to open."""
        try:
            return bool(self.run(condition))
        except RuntimeError as error:
            if "navigated" in str(error):
                return False
            raise

    def size(self, width: int, height: int, *, touch: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=touch,
        )  # fmt: skip
        self.call("Emulation.setTouchEmulationEnabled", enabled=touch)

    def media(self, **features: str) -> None:
        """Such as ``prefers_color_scheme="dark"``."""
        named = [{"name": k.replace("_", "-"), "value": v} for k, v in features.items()]
        self.call("Emulation.setEmulatedMedia", features=named)

    def key(self, key: str) -> None:
        text = {"Enter": "\r", " ": " "}.get(key)
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            code = {"windowsVirtualKeyCode": _KEYS[key]}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **code, **more)

    def box(self, selector: str) -> tuple[float, float, float, float]:
        """Left, top, width and height of an element, scrolled into view."""
        left, top, width, height = self.run(
            f"(() => {{const e = document.querySelector({selector!r}); e.scrollIntoView({{block: 'center'}});"
            "const b = e.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]})()"
        )
        return left, top, width, height

    def click(self, selector: str) -> None:
        left, top, width, height = self.box(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent",
                type=kind, x=left + width / 2, y=top + height / 2, button="left", clickCount=1,
            )  # fmt: skip

    def stroke(self, selector: str, shares: list[tuple[float, float]], *, touch: bool) -> None:
        """A line through places, as shares of an element's sides, by mouse or by finger."""
        left, top, width, height = self.box(selector)
        points = [(left + x * width, top + y * height) for x, y in shares]
        for number, (x, y) in enumerate(points):
            if touch:
                kind = "touchMove" if number else "touchStart"
                self.call("Input.dispatchTouchEvent", type=kind, touchPoints=[{"x": x, "y": y}])
            else:
                kind = "mouseMoved" if number else "mousePressed"
                self.call(
                    "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1
                )
        if touch:
            self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        else:
            x, y = points[-1]
            self.call(
                "Input.dispatchMouseEvent",
                type="mouseReleased",
                x=x,
                y=y,
                button="left",
                clickCount=1,
            )

    def upload(self, selector: str, path: Path) -> None:
        """Choose a file in an `<input type="file">`."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", files=[str(path)], nodeId=node)

    def screenshot(self, path: Path) -> None:
        taken = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(taken["data"]))
