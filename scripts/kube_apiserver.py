"""Build a real kube-apiserver for the Kubernetes tests from Debian's source: `python -m scripts.kube_apiserver`.

No package registry has a kube-apiserver. Debian 12 has the whole source of Kubernetes 1.20, the Go that compiles it,
and etcd. This script downloads them with apt and compiles the server, all below `build/kubernetes`: it installs
nothing, changes no setting of the machine, and needs no rights of root. The programs are built once and used again.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "TIDEMILL_TEST_KUBERNETES_PROGRAMS"
MIRROR_VARIABLE = "TIDEMILL_TEST_DEBIAN_MIRROR"
FOLDER = Path(__file__).parent.parent / "build" / "kubernetes"
PROGRAMS = ("kube-apiserver", "etcd")

RELEASE = "bookworm"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
PACKAGES = ("golang-1.19-go", "golang-1.19-src", "etcd-server", "rsync", "libpopt0", "libxxhash0")
TOOLS = {"apt-get": "apt", "dpkg-deb": "dpkg", "bash": "bash", "make": "make", "tar": "tar"}
GIGABYTES = 5  # of which the compiler's cache, which goes at the end, has most

# Without it, the build asks git for the version.
VERSION_FILE = """\
KUBE_GIT_COMMIT=debian
KUBE_GIT_TREE_STATE=archive
KUBE_GIT_VERSION=v1.20.2
KUBE_GIT_MAJOR=1
KUBE_GIT_MINOR=20
"""


def find_programs() -> Path | None:
    """Return the folder with kube-apiserver and etcd: the one that the environment names, or the one built here."""
    folder = Path(os.environ.get(VARIABLE, FOLDER / "bin"))
    return folder if all((folder / name).exists() for name in PROGRAMS) else None


def main() -> None:
    """Say where the programs are; build them if they do not exist yet."""
    if (found := find_programs()) is None:
        if VARIABLE in os.environ:
            raise SystemExit(f"{VARIABLE} names {os.environ[VARIABLE]}, which has not both of {', '.join(PROGRAMS)}")
        _check_machine()
        build(FOLDER)
        found = FOLDER / "bin"
    print(f"Kubernetes: {found}")


def build(folder: Path) -> None:
    """Download and compile everything into a folder, which keeps the two programs only."""
    work = folder / "work"
    if work.exists():  # an earlier build was interrupted
        _remove(work)
    packages, source = download(work)
    _step("Compiling kube-apiserver (5 to 10 minutes)")
    server = compile_server(work, packages, source)
    binaries = folder / "bin"
    binaries.mkdir(parents=True, exist_ok=True)
    for program in (server, packages / "usr/bin/etcd"):
        program.replace(binaries / program.name)
    _remove(work)


def download(work: Path) -> tuple[Path, Path]:
    """Fetch Debian's packages and the source of Kubernetes; return the folders into which both are unpacked."""
    _step("Downloading Go, etcd and the source of Kubernetes from Debian 12 (140 MB)")
    archives, packages = work / "archives", work / "packages"
    packages.mkdir(parents=True)
    apt = _private_apt(work, archives)
    _run([*apt, "update", "-qq"], archives)
    _run([*apt, "download", "-qq", *PACKAGES], archives)
    _run([*apt, "source", "-qq", "--download-only", "--only-source", "kubernetes"], archives)
    for archive in archives.glob("*.deb"):
        _run(["dpkg-deb", "--extract", str(archive), str(packages)], work)
    source = work / "go/src/k8s.io/kubernetes"
    source.mkdir(parents=True)
    archive = next(archives.glob("kubernetes_*.orig.tar.*"))
    _run(["tar", "--extract", f"--file={archive}", "--strip-components=1"], source)
    return packages, source


def compile_server(work: Path, packages: Path, source: Path) -> Path:
    """Generate the code that the source leaves out, then compile; return the program.

    GOMAXPROCS=1 leaves the other cores of the machine alone.
    """
    version = work / "version"
    version.write_text(VERSION_FILE)
    environment = os.environ | {
        "GOROOT": str(packages / "usr/lib/go-1.19"),
        "GOPATH": str(work / "go"),
        "GOCACHE": str(work / "cache"),
        "CGO_ENABLED": "0",
        "KUBE_GIT_VERSION_FILE": str(version),
        "PATH": os.pathsep.join([f"{packages}/usr/lib/go-1.19/bin", f"{packages}/usr/bin", os.environ["PATH"]]),
        "LD_LIBRARY_PATH": os.pathsep.join(map(str, (packages / "usr/lib").glob("*-linux-gnu"))),
    }
    _run(["make", "generated_files"], source, environment | {"GOFLAGS": "-mod=vendor"})  # its make reads one flag only
    program = work / "kube-apiserver"
    command = ["go", "build", "-ldflags", "-s -w", "-o", str(program), "./cmd/kube-apiserver"]
    _run(command, source, environment | {"GOFLAGS": "", "GO111MODULE": "off"})
    return program


def _private_apt(work: Path, archives: Path) -> list[str]:
    """Return the command of an apt with lists and sources of its own, which leaves those of the machine alone."""
    (archives / "partial").mkdir(parents=True)
    (work / "lists/partial").mkdir(parents=True)
    sources = work / "debian.sources"
    sources.write_text(
        f"Types: deb deb-src\nURIs: {_find_archive()}\nSuites: {RELEASE}\nComponents: main\nSigned-By: {KEYRING}\n"
    )
    options = {
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": work / "lists",
        "Dir::Cache": work,
        "APT::Sandbox::User": "root",  # the account of apt's downloads cannot write into this folder
    }
    return ["apt-get", *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]


def _find_archive() -> str:
    """Return the address of Debian's archive: the one that the environment names, or the one that this machine uses."""
    if MIRROR_VARIABLE in os.environ:
        return os.environ[MIRROR_VARIABLE]
    command = ["apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Created-By: Packages"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    addresses = [address for release, _, address in (line.partition(" ") for line in found) if release == RELEASE]
    if not addresses:
        raise SystemExit(f"apt of this machine knows no archive of Debian {RELEASE}: name one with {MIRROR_VARIABLE}")
    return addresses[0]


def _check_machine() -> None:
    """Refuse a machine on which the build cannot work; name everything that it lacks at once."""
    missing = [f"{tool} (Debian package {package})" for tool, package in TOOLS.items() if shutil.which(tool) is None]
    if not KEYRING.exists():
        missing.append(f"{KEYRING} (Debian package debian-archive-keyring)")
    FOLDER.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(FOLDER).free < GIGABYTES * 10**9:
        missing.append(f"{GIGABYTES} GB of free disk space at {FOLDER}")
    if missing:
        raise SystemExit(
            "The Kubernetes tests build kube-apiserver from Debian 12's source, and this machine lacks:\n"
            + "".join(f"  {one}\n" for one in missing)
            + f"Install that, name a folder that has {' and '.join(PROGRAMS)} with {VARIABLE}, "
            "or run the tests against a cluster: see docs/how-to/run-tasks-on-kubernetes.md"
        )


def _run(command: list[str], folder: Path, environment: Mapping[str, str] | None = None) -> None:
    """Run a command; what it prints goes to a log, of which a failure shows the end."""
    log = FOLDER / "build.log"
    with log.open("ab") as output:
        ended = subprocess.run(command, cwd=folder, env=environment, stdout=output, stderr=output, check=False)
    if ended.returncode:
        last = "\n".join(log.read_text("utf-8", "replace").splitlines()[-20:])
        raise SystemExit(f"{last}\n`{' '.join(command)}` ended with code {ended.returncode}. The log is {log}")


def _remove(folder: Path) -> None:
    """Remove a folder that may hold read-only ones, such as Go's cache of modules."""
    for path in folder.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
    shutil.rmtree(folder)


def _step(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
