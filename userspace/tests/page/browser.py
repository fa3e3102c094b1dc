"""Drives a headless Chromium over a pipe, by the DevTools protocol: nothing but Python's own library is needed."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time

NAMES = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"]


def find():
    """The browser's path, or None."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    def __init__(self, path):
        to_read, self.to_browser = os.pipe()
        self.from_browser, to_write = os.pipe()
        self.profile = tempfile.TemporaryDirectory()

        # The browser reads commands from descriptor 3 and writes answers to 4. Both go by way of high numbers first, so
        # that neither is overwritten.
        def descriptors():
            high = [os.dup2(to_read, 100), os.dup2(to_write, 101)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(
            [
                path,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
                "--remote-debugging-pipe",
                f"--user-data-dir={self.profile.name}",
            ],
            preexec_fn=descriptors,
            pass_fds=(3, 4),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self.number = 0
        self.received = b""
        self.events = []

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.to_browser)
        os.close(self.from_browser)
        try:
            self.profile.cleanup()
        except OSError:
            pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def message(self):
        while b"\0" not in self.received:
            more = os.read(self.from_browser, 1 << 16)
            if not more:
                raise RuntimeError("the browser has ended")
            self.received += more
        one, self.received = self.received.split(b"\0", 1)
        return json.loads(one)

    def send(self, method, session=None, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.to_browser, data) :]
        while True:
            answer = self.message()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)


class Page:
    """One page, of a size, light or dark."""

    def __init__(self, browser, url, width, height=900, dark=False, scripts=True):
        self.browser = browser
        target = browser.send("Target.createTarget", url="about:blank")["targetId"]
        self.target = target
        self.session = browser.send("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ["Page", "Runtime", "Network", "Log"]:
            self.send(f"{domain}.enable")
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = "dark" if dark else "light"
        self.send(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        if not scripts:
            self.send("Emulation.setScriptExecutionDisabled", value=True)
        self.begun = time.monotonic()
        self.url = url
        self.send("Page.navigate", url=url)

    def send(self, method, **parameters):
        return self.browser.send(method, session=self.session, **parameters)

    def close(self):
        self.browser.send("Target.closeTarget", targetId=self.target)

    def run(self, script):
        """The value of a JavaScript expression; promises are awaited."""
        result = self.send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in result:
            raise RuntimeError(
                result["exceptionDetails"].get("exception", {}).get("description", result)
            )
        return result["result"].get("value")

    def until(self, script, seconds=30):
        """Waits until an expression is true."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.run(f"Boolean({script})"):
                return
            time.sleep(0.05)
        raise RuntimeError(f"{self.url}: not so within {seconds} s: {script}")

    def faults(self):
        """Errors and warnings on the console, and all that was asked of a network."""
        found = []
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            method, told = event["method"], event["params"]
            if method == "Runtime.exceptionThrown":
                found.append(f"exception: {told['exceptionDetails']}")
            elif method == "Runtime.consoleAPICalled" and told["type"] in (
                "error",
                "warning",
                "assert",
            ):
                found.append(f"console: {told['args']}")
            elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
                found.append(f"log: {told['entry']['text']}")
            elif method == "Network.requestWillBeSent":
                url = told["request"]["url"]
                if url.split("#")[0] != self.url.split("#")[0] and not url.startswith(
                    ("data:", "blob:")
                ):
                    found.append(f"network: {url}")
        return found

    def picture(self, file, whole=True):
        clip = {}
        if whole:
            size = self.send("Page.getLayoutMetrics")["cssContentSize"]
            clip = {
                "captureBeyondViewport": True,
                "clip": {
                    "x": 0,
                    "y": 0,
                    "width": size["width"],
                    "height": min(size["height"], 12000),
                    "scale": 1,
                },
            }
        data = self.send("Page.captureScreenshot", format="png", **clip)["data"]
        with open(file, "wb") as out:
            out.write(base64.b64decode(data))
