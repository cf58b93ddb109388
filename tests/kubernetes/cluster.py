"""Access to an API server of Kubernetes, whichever it is: an address, an identity, and whom to trust."""

import base64
import re
import ssl
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import yaml

Rule = dict[str, Any]
"""A rule of a role: groups, resources, verbs."""

GUIDE = Path(__file__).parents[2] / "docs/how-to/run-tasks-on-kubernetes.md"


class Cluster(NamedTuple):
    """An API server, and an identity there."""

    url: str
    token: str | None = None
    authority: Path | None = None
    """The certificate that the server's own must derive from; None for a server without TLS."""
    certificate: tuple[Path, Path] | None = None
    """The certificate and the key of an identity without a token."""

    def client(self, timeout: float = 20.0) -> httpx.AsyncClient:
        """Return an HTTP client that is signed in."""
        headers = {"Authorization": f"Bearer {self.token}"} if self.token is not None else {}
        verify = self._tls()
        return httpx.AsyncClient(base_url=self.url, headers=headers, verify=verify, timeout=timeout, trust_env=False)

    def as_identity(self, token: str) -> "Cluster":
        """Return the same server for another identity."""
        return self._replace(token=token, certificate=None)

    def write_kubeconfig(self, path: Path, namespace: str) -> Path:
        """Write the file that clients of Kubernetes read."""
        server: dict[str, Any] = {"server": self.url}
        if self.authority is not None:
            server["certificate-authority"] = str(self.authority)
        user: dict[str, Any] = {"token": self.token} if self.token is not None else {}
        if self.certificate is not None:
            user["client-certificate"], user["client-key"] = map(str, self.certificate)
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": server}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": namespace}}],
            "current-context": "test",
        }
        path.write_text(yaml.safe_dump(document))
        return path

    def _tls(self) -> ssl.SSLContext | bool:
        if self.authority is None and self.certificate is None:
            return True
        context = ssl.create_default_context(cafile=self.authority)
        if self.certificate is not None:
            context.load_cert_chain(*self.certificate)
        return context


def read_kubeconfig(path: Path, folder: Path) -> Cluster:
    """Return the cluster of a kubeconfig's current context; certificates that it holds go to files of a folder."""
    document = yaml.safe_load(path.read_text())
    context = _named(document, "context", document["current-context"])
    server, user = _named(document, "cluster", context["cluster"]), _named(document, "user", context["user"])
    token = user.get("token")
    if token is None and "tokenFile" in user:
        token = Path(user["tokenFile"]).read_text().strip()
    pair = (_file(user, "client-certificate", path, folder), _file(user, "client-key", path, folder))
    certificate = (pair[0], pair[1]) if pair[0] is not None and pair[1] is not None else None
    assert token is not None or certificate is not None, (
        f"user {context['user']} of {path} has neither a token nor a certificate. These tests run no sign-in plugin: "
        "write a kubeconfig with a token, for example one of `kubectl create token`"
    )
    return Cluster(server["server"], token, _file(server, "certificate-authority", path, folder), certificate)


def _named(document: Mapping[str, Any], kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one[kind] for one in document[f"{kind}s"] if one["name"] == name)
    return found


def _file(entry: Mapping[str, Any], key: str, path: Path, folder: Path) -> Path | None:
    """Return the file that an entry names, relative to its kubeconfig, or holds."""
    if (data := entry.get(f"{key}-data")) is not None:
        made = folder / key
        made.write_bytes(base64.b64decode(data))
        return made
    return path.parent / entry[key] if key in entry else None


async def create_namespace(client: httpx.AsyncClient) -> str:
    """Create a namespace with a name of its own, and the service account that its pods need; return the name."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "tidemill-test-"}}
    answer = await client.post("/api/v1/namespaces", json=body)
    name = str(answer.raise_for_status().json()["metadata"]["name"])
    account = await client.post(f"/api/v1/namespaces/{name}/serviceaccounts", json={"metadata": {"name": "default"}})
    if account.status_code != httpx.codes.CONFLICT:  # a controller of the cluster was faster
        account.raise_for_status()
    return name


async def delete_namespace(client: httpx.AsyncClient, namespace: str) -> None:
    """Delete a namespace with everything in it, unless that goes on already; it goes on after this has returned."""
    answer = await client.delete(f"/api/v1/namespaces/{namespace}")
    if answer.status_code not in (httpx.codes.NOT_FOUND, httpx.codes.CONFLICT):
        answer.raise_for_status()


async def create_identity(client: httpx.AsyncClient, namespace: str, name: str, rules: Sequence[Rule]) -> str:
    """Create a service account that may do what the rules of a role say; return a token of it."""
    base = f"/api/v1/namespaces/{namespace}"
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    for path, body in (
        (f"{base}/serviceaccounts", {}),
        (f"{rbac}/roles", {"rules": rules}),
        (f"{rbac}/rolebindings", {"subjects": subjects, "roleRef": role}),
    ):
        (await client.post(path, json={"metadata": {"name": name}, **body})).raise_for_status()
    answer = await client.post(f"{base}/serviceaccounts/{name}/token", json={"spec": {"expirationSeconds": 3600}})
    return str(answer.raise_for_status().json()["status"]["token"])


def documented_rules() -> list[Rule]:
    """Return the rules of the role that the documentation gives to a server."""
    for block in re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL):
        document = yaml.safe_load(block)
        if document.get("kind") == "Role":
            rules: list[Rule] = document["rules"]
            return rules
    raise AssertionError(f"{GUIDE} has no role")


def without_verb(rules: Iterable[Rule], resource: str, verb: str) -> list[Rule]:
    """Return rules without one of their rights."""
    return [
        {**rule, "verbs": [one for one in rule["verbs"] if (rule["resources"], one) != ([resource], verb)]}
        for rule in rules
    ]
