"""A real browser for tests: Chromium over its debugging pipe, which needs no package and no port.

Messages are JSON, ended by a zero byte, on the file descriptors 3 (in) and 4 (out) of the browser.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, TypeVar

Tab = TypeVar("Tab", bound="Page")
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
TIMEOUT = 60.0  # seconds: the machine may be slow, and what is wrong fails by itself

# Puts two pipes where the browser looks for them, then becomes the browser.
_LAUNCH = (
    "import fcntl, os, sys; a, b = (fcntl.fcntl(int(n), fcntl.F_DUPFD, 10) for n in sys.argv[1:3]); "
    "os.dup2(a, 3); os.dup2(b, 4); os.execv(sys.argv[3], sys.argv[3:])"
)
_KEYS = {  # name: (code of the key, text that it types)
    "Tab": (9, ""), "Enter": (13, "\r"), " ": (32, " "), "Escape": (27, ""), "End": (35, ""), "Home": (36, ""),
    "ArrowLeft": (37, ""), "ArrowUp": (38, ""), "ArrowRight": (39, ""), "ArrowDown": (40, ""),
}  # fmt: skip
_UNTIL = """new Promise((resolve, reject) => {
  const end = performance.now() + %d;
  const look = () => {
    let found;
    try { found = (() => (%s))(); } catch (error) { return reject(error); }
    if (found) resolve(found);
    else if (performance.now() > end) reject(new Error("it did not come about"));
    else setTimeout(look, 15);
  };
  look();
})"""


class Browser:
    """One Chromium; `page` opens a tab with nothing kept from the others."""

    def __init__(self, profile: Path) -> None:
        assert BROWSER is not None
        theirs_in, self._to = os.pipe()
        self._from, theirs_out = os.pipe()
        command = [
            sys.executable, "-I", "-S", "-c", _LAUNCH, str(theirs_in), str(theirs_out), BROWSER, "--headless=new",
            "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", f"--user-data-dir={profile}",
            "--remote-debugging-pipe",
        ]  # fmt: skip
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(command, pass_fds=(theirs_in, theirs_out), stdout=quiet, stderr=quiet)
        os.close(theirs_in)
        os.close(theirs_out)
        self._number = 0
        self._rest = b""
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]
        end = time.monotonic() + TIMEOUT
        while True:
            reply = self._receive(end)
            if reply.get("id") != number:
                self.events.append(reply)
            elif "error" in reply:
                raise RuntimeError(f"{method}: {reply['error']['message']}")
            else:
                return dict(reply["result"])

    def event(self, method: str, session: str) -> dict[str, Any]:
        """The first event of this name that nobody has taken yet, waited for if need be."""
        end = time.monotonic() + TIMEOUT
        while True:
            for event in self.events:
                if event["method"] == method and event.get("sessionId") == session:
                    self.events.remove(event)
                    return dict(event["params"])
            self.events.append(self._receive(end))

    def _receive(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            if not select.select([self._from], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            data = os.read(self._from, 1 << 16)
            if not data:
                raise RuntimeError("the browser has gone")
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(message))

    def page(self, kind: type[Tab]) -> Tab:
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return kind(self, session, context)

    def close(self) -> None:
        try:
            self.call("Browser.close")
        finally:
            os.close(self._to)
            os.close(self._from)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


class Page:
    """One of the browser's tabs: go somewhere, wait for conditions, press keys, and look at what happened."""

    def __init__(self, browser: Browser, session: str, context: str) -> None:
        self.browser, self.session, self.context = browser, session, context
        for domain in ("Page", "Runtime", "Network", "Log", "DOM"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self.browser.call(method, self.session, **params)

    def go(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.browser.event("Page.loadEventFired", self.session)

    def value(self, expression: str) -> Any:
        """What a JavaScript expression gives; a promise is awaited."""
        reply = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in reply:
            details = reply["exceptionDetails"]
            raise AssertionError(f"{details.get('exception', {}).get('description', details['text'])} in {expression}")
        return reply["result"].get("value")

    def until(self, condition: str, seconds: float = TIMEOUT - 5) -> Any:
        """Wait until an expression is true."""
        try:
            return self.value(_UNTIL % (1000 * seconds, condition))
        except AssertionError as error:
            shown = self.value("document.body.innerText")
            raise AssertionError(f"{error} never became true of: {condition}\nThe page shows:\n{shown}") from None

    def text(self, selector: str) -> str:
        return str(self.value(f"document.querySelector({json.dumps(selector)}).textContent"))

    def shown(self, selector: str) -> bool:
        return bool(self.value(f"document.querySelector({json.dumps(selector)}).checkVisibility()"))

    def click(self, selector: str) -> None:
        self.value(f"document.querySelector({json.dumps(selector)}).click()")

    def press(self, key: str, times: int = 1, modifiers: int = 0) -> None:
        code, text = _KEYS[key]
        common = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": code}
        for _ in range(times):
            kind = "keyDown" if text else "rawKeyDown"
            self.call(
                "Input.dispatchKeyEvent", type=kind, modifiers=modifiers, **common, **({"text": text} if text else {})
            )
            self.call("Input.dispatchKeyEvent", type="keyUp", modifiers=modifiers, **common)

    def give(self, selector: str, file: Path) -> None:
        """Choose a file in a file field."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(file)])

    def drop(self, x: float, y: float, file: Path) -> None:
        data = {"items": [], "files": [str(file)], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.call("Input.dispatchDragEvent", type=kind, x=x, y=y, data=data)

    def size(self, width: int, height: int, *, touch: bool = False) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=touch)

    def prefer(self, **features: str) -> None:
        """prefer(color_scheme="dark", reduced_motion="reduce")"""
        named = [{"name": f"prefers-{name.replace('_', '-')}", "value": value} for name, value in features.items()]
        self.call("Emulation.setEmulatedMedia", features=named)

    def screenshot(self, file: Path | None = None) -> bytes:
        """The whole page as a PNG."""
        data = base64.b64decode(self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"])
        if file:
            file.write_bytes(data)
        return data

    def of(self, method: str) -> list[dict[str, Any]]:
        """All events of this name so far."""
        self.value("0")  # whatever was sent before has arrived when this is answered
        mine = [event for event in self.browser.events if event.get("sessionId") == self.session]
        return [event["params"] for event in mine if event["method"] == method]

    @property
    def requests(self) -> list[str]:
        return [sent["request"]["url"] for sent in self.of("Network.requestWillBeSent")]

    @property
    def complaints(self) -> list[str]:
        """What the console shows in red or yellow."""
        said = [
            str(call["args"]) for call in self.of("Runtime.consoleAPICalled") if call["type"] in ("error", "warning")
        ]
        thrown = [str(event["exceptionDetails"]) for event in self.of("Runtime.exceptionThrown")]
        entries = [event["entry"] for event in self.of("Log.entryAdded")]
        logged = [
            f"{entry['text']} {entry.get('url', '')}" for entry in entries if entry["level"] in ("error", "warning")
        ]
        return said + thrown + logged

    def forget(self) -> None:
        """Drop the events so far."""
        self.browser.events = [event for event in self.browser.events if event.get("sessionId") != self.session]

    def close(self) -> None:
        self.browser.call("Target.disposeBrowserContext", browserContextId=self.context)
        self.forget()
