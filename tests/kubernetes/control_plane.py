"""A real control plane for tests: etcd and kube-apiserver on loopback, started here and stopped here.

It has no scheduler and no kubelet: pods stay as they are until a test, or its kubelet, writes their status.
`python -m scripts.kube_apiserver` builds the two programs.
"""

import base64
import shutil
import signal
import socket
import subprocess
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from scripts.kube_apiserver import find_programs
from tests.kubernetes.cluster import Cluster

ADMIN = "token-of-the-administrator"
PATIENCE = 60.0  # seconds for a start before a test fails
MOMENT = 0.02  # seconds between two looks


class ControlPlane:
    """etcd and kube-apiserver; their ports and their data outlive restarts."""

    def __init__(self) -> None:
        programs = find_programs()
        assert programs is not None, "there is no kube-apiserver: run `python -m scripts.kube_apiserver`"
        self._programs = programs
        self._etcd_port, self._peer_port, self._port = _free_ports(3)
        self._folder = Path(tempfile.mkdtemp(prefix="tidemill-kubernetes-"))
        self._etcd: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[bytes] | None = None
        (self._folder / "tokens.csv").write_text(f'{ADMIN},administrator,1,"system:masters"\n')
        (self._folder / "accounts.key").write_bytes(_new_key())

    @property
    def cluster(self) -> Cluster:
        """How an administrator reaches it."""
        return Cluster(f"https://127.0.0.1:{self._port}", ADMIN, self._folder / "certificates/apiserver.crt")

    def start(self) -> None:
        """Start both, and wait until the API server is ready."""
        self.start_etcd()
        self.start_server()

    def start_etcd(self) -> None:
        """Start etcd with the data that it has."""
        client, peer = (f"http://127.0.0.1:{port}" for port in (self._etcd_port, self._peer_port))
        self._etcd = self._run(
            "etcd",
            f"--data-dir={self._folder}/etcd",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        )

    def start_server(self) -> None:
        """Start the API server, and wait until it is ready."""
        self._server = self._run(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
            "--insecure-port=0",
            f"--cert-dir={self._folder}/certificates",
            f"--token-auth-file={self._folder}/tokens.csv",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://tidemill.test",
            f"--service-account-key-file={self._folder}/accounts.key",
            f"--service-account-signing-key-file={self._folder}/accounts.key",
            "--disable-admission-plugins=ServiceAccount",  # no controller makes the accounts that it looks for
            "--etcd-compaction-interval=0",  # history goes only when a test says so
        )
        self._await_ready()

    def kill_server(self) -> None:
        """Kill the API server, as -9 does."""
        _kill(self._server)
        self._server = None

    def kill_etcd(self) -> None:
        """Kill etcd, as -9 does."""
        _kill(self._etcd)
        self._etcd = None

    def pause_server(self) -> None:
        """Freeze the API server: connections stay open, and nothing is answered."""
        assert self._server is not None
        self._server.send_signal(signal.SIGSTOP)

    def continue_server(self) -> None:
        """Let a frozen API server go on."""
        assert self._server is not None
        self._server.send_signal(signal.SIGCONT)

    def compact(self) -> int:
        """Forget the history of all objects up to now; return the revision of now."""
        with httpx.Client(base_url=f"http://127.0.0.1:{self._etcd_port}", trust_env=False) as client:
            key = base64.b64encode(b"/").decode()
            found = client.post("/v3/kv/range", json={"key": key}).raise_for_status()
            revision = int(found.json()["header"]["revision"])
            client.post("/v3/kv/compaction", json={"revision": revision, "physical": True}).raise_for_status()
        return revision

    def remove(self) -> None:
        """Stop everything, and leave nothing behind."""
        self.kill_server()
        self.kill_etcd()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a program that dies with the thread that started it, so with this process at the latest."""
        with (self._folder / f"{name}.log").open("ab") as log:
            command = ["setpriv", "--pdeathsig", "KILL", str(self._programs / name), *arguments]
            return subprocess.Popen(command, stdout=log, stderr=log, cwd=self._folder, start_new_session=True)

    def _await_ready(self) -> None:
        assert self._server is not None
        for _ in range(int(PATIENCE / MOMENT)):
            with suppress(subprocess.TimeoutExpired):
                self._server.wait(MOMENT)
                break
            if self._is_ready():
                return
        log = (self._folder / "kube-apiserver.log").read_text("utf-8", "replace")
        raise AssertionError(f"kube-apiserver is not ready:\n{log[-4000:]}")

    def _is_ready(self) -> bool:
        headers = {"Authorization": f"Bearer {ADMIN}"}
        with suppress(httpx.TransportError), httpx.Client(verify=False, headers=headers, trust_env=False) as client:
            return client.get(f"{self.cluster.url}/readyz").status_code == httpx.codes.OK
        return False


def _kill(process: subprocess.Popen[bytes] | None) -> None:
    if process is not None:
        process.kill()
        process.wait(PATIENCE)


def _new_key() -> bytes:
    """Return a new private key, with which the API server signs the tokens of service accounts."""
    return rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _free_ports(count: int) -> list[int]:
    """Return ports that are free now; they are held together, so that no two are the same."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
