"""A real Chromium that opens a page, and how it gets here.

It is Debian's chromium with the driver of the same version. Nothing that pip installs has a Chromium for this purpose
inside (the web engines of PyQt6 and PySide6 are 60 to 120 MB, need the same system libraries, and no driver speaks to
them), so where it is missing and the session is root, `apt-get` installs it: 20 s, once a machine. Where neither is the
case these tests fail and say what to install; they are never skipped.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

PACKAGES = ("chromium", "chromium-driver")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--hide-scrollbars")  # fmt: skip
READY_S = 30.0


@dataclass
class Browser:
    """driver: Chrome's. open: shows a page, and returns the seconds until all of it was drawn."""

    driver: webdriver.Chrome

    def open(self, page: Path, width: int = 1280, height: int = 900, *, dark: bool = False) -> float:
        self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        begun = time.monotonic()
        self.driver.get(page.as_uri())
        self.until("return document.documentElement.dataset.ready")
        return time.monotonic() - begun

    def until(self, script: str) -> Any:
        """What the script returns, as soon as it returns anything."""
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            if value := self.driver.execute_script(script):  # type: ignore[no-untyped-call]
                return value
            time.sleep(0.02)
        raise AssertionError(f"never true: {script}; the console says {self.said()}")

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)  # type: ignore[no-untyped-call]

    def said(self) -> list[str]:
        """Everything on the console since the page was opened, warnings and refusals too."""
        return [f"{line['level']}: {line['message']}" for line in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]


@contextmanager
def started() -> Iterator[Browser]:
    """A Chromium of its own, without a profile before or after."""
    chromium, driver = _installed()
    with tempfile.TemporaryDirectory() as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        chrome = webdriver.Chrome(options=options, service=Service(driver))
        try:
            yield Browser(chrome)
        finally:
            chrome.quit()


def _installed() -> tuple[str, str]:
    """(chromium, chromedriver). Installed first where that is possible; one process at a time."""
    with (Path(tempfile.gettempdir()) / "killpoint-chromium.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _found() is None and os.geteuid() == 0 and shutil.which("apt-get"):
            quiet = {"check": True, "capture_output": True, "env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}}
            try:
                subprocess.run(["apt-get", "update", "-qq"], **quiet)
                subprocess.run(["apt-get", "install", "-qq", "-y", "--no-install-recommends", *PACKAGES], **quiet)
            except subprocess.CalledProcessError as error:
                pytest.fail(f"Chromium is missing and could not be installed: {error.stderr.decode()[-400:]}")
    found = _found()
    if found is None:
        pytest.fail(f"these tests open the page in a real Chromium: install {' and '.join(PACKAGES)}")
    return found


def _found() -> tuple[str, str] | None:
    paths = shutil.which("chromium"), shutil.which("chromedriver")
    return None if paths[0] is None or paths[1] is None else (paths[0], paths[1])
