"""A headless Chromium, spoken to through its DevTools protocol over two pipes: the standard library is enough."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
)
CODES = {"Backspace": 8, "Tab": 9, "Enter": 13, "Escape": 27, " ": 32}  # keys whose effect hangs on their number
CODES |= {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
MODIFIERS = {"Alt": 1, "Control": 2, "Meta": 4, "Shift": 8}
PATIENCE = 120.0  # seconds for an answer, on a machine that is busy


def find_chromium() -> str | None:
    """The browser's program, if there is one."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Chromium:
    """One browser with one page. What the page logs and asks the network for is kept."""

    def __init__(self, program: str) -> None:
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        commands, self._write = os.pipe()
        self._read, answers = os.pipe()

        # the browser reads from the third and writes to the fourth file that it is born with
        shell = f'exec 3<&{commands} 4>&{answers}; exec "$0" "$@"'
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", shell, program, *FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"],
            pass_fds=(commands, answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        self._rest, self._count, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)  # no window has the focus here

    def __enter__(self) -> Chromium:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)
        self._profile.cleanup()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one command and wait for its answer."""
        number = self._send(method, **parameters)
        answer = self._wait(lambda received: received.get("id") == number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error'].get('message')}")
        result: dict[str, Any] = answer["result"]
        return result

    def _send(self, method: str, **parameters: Any) -> int:
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        return self._count

    def open(
        self, page: Path | str, *, width: int = 1000, height: int = 800, media: str = "", dark: bool = False
    ) -> None:
        """Show a file or an address of this machine in a window of this size; `media` may be "print"."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self._load("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())

    def reload(self) -> None:
        """Load the open page again."""
        self._load("Page.reload")

    def _load(self, method: str, **parameters: Any) -> None:
        self.events.clear()
        answer = self.call(method, **parameters)
        if method == "Page.navigate" and "loaderId" not in answer:  # only the part behind # is new
            self._wait_event("Page.navigatedWithinDocument")
            self.call("Page.reload")
        self._wait_event("Page.loadEventFired")

    def _wait_event(self, name: str) -> None:
        if not any(event["method"] == name for event in self.events):
            self._wait(lambda received: received.get("method") == name)

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description", "the script failed"))
        return answer["result"].get("value")

    def move(self, x: float, y: float) -> None:
        """Put the pointer somewhere in the window."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, x: float, y: float, *modifiers: str) -> None:
        """Click with the left button, while keys such as Shift are held."""
        self.drag([(x, y)], *modifiers)

    def drag(self, places: Sequence[tuple[float, float]], *modifiers: str) -> None:
        """Press the left button at the first place, move through the others, let go at the last."""
        held = sum(MODIFIERS[key] for key in modifiers)
        kinds = ["mousePressed", *["mouseMoved"] * (len(places) - 1), "mouseReleased"]
        self.move(*places[0])
        for kind, (x, y) in zip(kinds, [*places, places[-1]], strict=True):
            self.call(
                "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1, modifiers=held
            )

    def press(self, key: str, *modifiers: str) -> None:
        """Press a key, by its name or its character, while keys such as Control are held."""
        text = "\r" if key == "Enter" else key if len(key) == 1 and "Control" not in modifiers else ""
        about: dict[str, Any] = {"key": key, "code": key, "windowsVirtualKeyCode": CODES.get(key, 0)}
        about["modifiers"] = sum(MODIFIERS[each] for each in modifiers)
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **about)
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def write(self, text: str) -> None:
        """Write into the field that has the focus."""
        self.call("Input.insertText", text=text)

    def wait_for(self, script: str) -> Any:
        """The value of a JavaScript expression as soon as it is true."""
        end = time.monotonic() + PATIENCE
        while not (value := self.evaluate(script)):
            if time.monotonic() > end:
                raise TimeoutError(f"This never became true: {script}")
            time.sleep(0.02)
        return value

    def complaints(self) -> list[str]:
        """Errors and warnings of the page that is open: of its scripts, and of the browser about it."""
        found = []
        for event in self.events:
            parameters = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(parameters["exceptionDetails"].get("text")))
            elif event["method"] == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
                found.append(str(parameters["entry"]["text"]))
            elif event["method"] == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
                found.append(str(parameters["args"]))
        return found

    def requests(self) -> list[str]:
        """The addresses that the open page asked for, itself and the data inside of it left out."""
        sent = [event["params"] for event in self.events if event["method"] == "Network.requestWillBeSent"]
        urls = [event["request"]["url"] for event in sent if event.get("type") != "Document"]
        return [url for url in urls if not url.startswith("data:")]

    def screenshot(self, clip: Sequence[float] | None = None) -> bytes:
        """The window as PNG, or a part of the page: left, top, width, height."""
        area: dict[str, Any] = {}
        if clip is not None:
            left, top, width, height = clip
            area = {"clip": {"x": left, "y": top, "width": width, "height": height, "scale": 1}}
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=clip is not None, **area)
        return base64.b64decode(shot["data"])

    def pdf(self) -> bytes:
        """The page as it prints."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=False, preferCSSPageSize=True)["data"])

    def _wait(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Keep events until the wanted message is there."""
        end = time.monotonic() + PATIENCE
        while True:
            message, found, rest = self._rest.partition(b"\0")
            if not found:
                if not select.select([self._read], [], [], max(0.0, end - time.monotonic()))[0]:
                    raise TimeoutError("Chromium does not answer.")
                part = os.read(self._read, 1 << 20)
                if not part:
                    raise RuntimeError(f"Chromium ended with exit code {self._process.wait()}.")
                self._rest += part
                continue
            self._rest = rest
            received: dict[str, Any] = json.loads(message)
            if "method" in received:
                self.events.append(received)
            if received.get("method") == "Page.javascriptDialogOpening":  # a page that asks whether to leave it
                self._send("Page.handleJavaScriptDialog", accept=True)
            if wanted(received):
                return received
