"""Makes a release: `make release`. Builds twice and compares, checks, and tags the commit; uploads only with a token.

The tag and the upload are the only traces outside of `dist`; nothing is pushed.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
CHECKERS = {"twine": "twine==6.2.0", "check-wheel-contents": "check-wheel-contents==0.6.3"}
"""Programs that only a release needs, so they are not among the requirements."""
TOKEN = "TWINE_PASSWORD"


def fail(problem: str) -> None:
    """End with a sentence."""
    raise SystemExit(f"release: {problem}")


def run(*words: str | Path, env: dict[str, str] | None = None) -> str:
    """Run a program; return what it prints."""
    ended = subprocess.run([str(one) for one in words], cwd=ROOT, env=env, check=False, capture_output=True, text=True)
    if ended.returncode:
        fail(f"{' '.join(map(str, words))} failed:\n{ended.stdout}{ended.stderr}")
    return ended.stdout.strip()


def read_version() -> str:
    """Return the version of this clone."""
    text = (ROOT / "src" / "tidemill" / "kernel" / "version.py").read_text(encoding="utf-8")
    (version,) = re.findall(r'^VERSION = "(.*)"$', text, re.MULTILINE)
    return str(version)


def changelog_problem(text: str, version: str) -> str | None:
    """Return why a changelog does not describe a version: its section is missing, has no date, or new lines wait."""
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    if not sections or not sections[0].startswith("[Unreleased]"):
        return "CHANGELOG.md has no section [Unreleased] on top"
    if sections[0].strip() != "[Unreleased]":
        return f"CHANGELOG.md has lines under [Unreleased]: move them under [{version}]"
    if len(sections) < 2 or not re.match(rf"\[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d\n", sections[1]):
        return f"the newest section of CHANGELOG.md is not [{version}] with a date"
    return None


def build(folder: Path, epoch: str) -> dict[str, str]:
    """Build both archives into a folder; return their digests by name. The same commit gives the same bytes."""
    shutil.rmtree(folder, ignore_errors=True)
    run(sys.executable, "-m", "hatchling", "build", "-d", folder, env={**os.environ, "SOURCE_DATE_EPOCH": epoch})
    return {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in sorted(folder.iterdir())}


def check(archives: list[Path]) -> None:
    """Let the tools of the package index look at the archives."""
    tool = (sys.executable, "-m", "uv", "tool", "run", "--from")
    run(*tool, CHECKERS["twine"], "twine", "check", "--strict", *archives)
    wheels = [one for one in archives if one.suffix == ".whl"]
    run(*tool, CHECKERS["check-wheel-contents"], "check-wheel-contents", *wheels)


def main() -> None:
    """Make the release of this commit."""
    version, tag = read_version(), f"v{read_version()}"
    if not os.environ.get("RELEASE_REPOSITORY"):
        fail("name the repository, for the links of the package: make release REPOSITORY=https://host/owner/name")
    if run("git", "status", "--porcelain"):
        fail("commit or remove these first: git status")
    if problem := changelog_problem((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version):
        fail(problem)
    head, tagged = run("git", "rev-parse", "HEAD"), run("git", "tag", "--list", tag)
    if tagged and run("git", "rev-parse", f"{tag}^{{commit}}") != head:
        fail(f"{tag} is another commit: raise the version, or delete the tag")
    epoch = run("git", "show", "-s", "--format=%ct", "HEAD")
    digests = build(DIST, epoch)
    if build(ROOT / "build" / "again", epoch) != digests:
        fail("a second build has other bytes")
    check([DIST / name for name in digests])
    if not tagged:
        run("git", "tag", "--annotate", tag, "--message", f"Tidemill {version}")
    for name, digest in digests.items():
        print(f"{digest}  dist/{name}")
    if os.environ.get(TOKEN):
        run(sys.executable, "-m", "uv", "tool", "run", "--from", CHECKERS["twine"], "twine", "upload", *DIST.iterdir())
        print(f"uploaded, and tagged {tag}: git push origin {tag}")
    else:
        print(f"tagged {tag}; not uploaded, because {TOKEN} has no token: git push origin {tag}")


if __name__ == "__main__":
    main()
