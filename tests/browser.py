"""Chromium without a window, for pages that the project writes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path


def find_browser() -> str | None:
    """Debian's Chromium; None = there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


def dump_dom(browser: str, page: Path, home: Path) -> subprocess.CompletedProcess[str]:
    """The page as the browser has read it, on stdout; what its console says is on stderr."""
    argv = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            f"--user-data-dir={home / 'profile'}", "--enable-logging=stderr", "--dump-dom", f"file://{page}"]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, env={**os.environ, "HOME": str(home)})
