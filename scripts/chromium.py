"""Find Chromium for the browser tests; on a Debian machine of its own, CI installs it: `python -m scripts.chromium`."""

import os
import shutil
import subprocess
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome", "microsoft-edge")
VARIABLE = "TIDEMILL_TEST_CHROMIUM"


def find_chromium() -> str | None:
    """Return the path of a browser: the one that the environment names, one of the system, or one of Playwright's."""
    if (named := os.environ.get(VARIABLE)) is not None:
        return named
    if (system := next(filter(None, map(shutil.which, NAMES)), None)) is not None:
        return system
    downloads = Path.home() / ".cache/ms-playwright"
    return next(map(str, sorted(downloads.glob("chromium-*/chrome-linux*/chrome"), reverse=True)), None)


def main() -> None:
    """Say which browser the tests use; install Debian's if there is none and this user may."""
    if find_chromium() is None and shutil.which("apt-get") is not None and os.geteuid() == 0:
        print("Installing Chromium for the browser tests", flush=True)
        subprocess.run(["apt-get", "update", "-qq"], check=True)
        subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"], check=True)
    if (browser := find_chromium()) is None:
        raise SystemExit(
            f"The browser tests need Chromium, and this machine has none. Install it, or name one with {VARIABLE}"
        )
    print(f"Browser: {browser}")


if __name__ == "__main__":
    main()
