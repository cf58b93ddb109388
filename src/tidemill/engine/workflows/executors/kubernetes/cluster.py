"""The API server of a cluster: the few calls that the executor makes, and its errors, told apart by what to do."""

import asyncio
import logging
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, TypeVar, cast

import httpx2
from lightkube import ApiError, AsyncClient, KubeConfig
from lightkube.core.exceptions import ConfigError
from lightkube.resources.core_v1 import Pod, Secret
from msgspec import ValidationError

from tidemill.engine.workflows.executors.kubernetes.configuration import KubernetesConfig
from tidemill.engine.workflows.executors.kubernetes.pod_merge import field_paths
from tidemill.engine.workflows.executors.remote.interface import ClusterUnavailableError
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import OperationError

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

TRIES = 5
_BACKOFF = Backoff(0.2, 5.0)
_SLACK = 1.0
"""Seconds by which a call outlasts the client's timeout: that one closes the connection, to cancel may leak it."""
_LONGEST_WAIT = 30.0  # seconds that the API server may ask a caller to wait
_PAGE = 500
_TAIL_LINES = 40
_TAIL_CHARACTERS = 4096

_MISSING_RIGHT = re.compile(r'User "[^"]+" cannot \w+ resource')
"""In the message of a role that lacks a verb; admission rules have other messages."""

_CLIENT_ERRORS = (httpx2.HTTPError, ConfigError, OSError, ValueError, KeyError)
"""What the client raises: KeyError for an error without a content type, ValueError for an answer that is not JSON.

ConfigError and OSError are those of the program that a kubeconfig names to sign in, and of files that it names; and
TimeoutError is an OSError.
"""


class UnavailableError(ClusterUnavailableError):
    """The API server does not answer, or not now: the call may be repeated."""


class RejectedError(OperationError):
    """The API server rejects an object, and would again."""


class ExistsError(OperationError):
    """There is an object of this name."""


class GoneError(OperationError):
    """The API server has forgotten what happened since the last list."""


class _NotFoundError(OperationError):
    """There is no object of this name."""


class Cluster:
    """One Kubernetes cluster. Calls are bounded in number and time, and repeated while that may help."""

    def __init__(self, config: KubernetesConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._client = AsyncClient(_read_kubeconfig(config), timeout=httpx2.Timeout(config.request_timeout))
        self._slots = asyncio.Semaphore(config.concurrent_requests)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def create_pod(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Create a pod; return it as the cluster stores it."""
        try:
            pod = cast("Pod", Pod.from_dict(dict(manifest)))
        except ValidationError as error:
            raise RejectedError(f"the pod has a value of the wrong type: {error}") from error
        if unknown := sorted(set(field_paths(manifest)) - set(field_paths(pod.to_dict()))):
            raise RejectedError(f"a pod has no field {', '.join('.'.join(one) for one in unknown)}")
        return _to_dict(await self._call("create pods", lambda: self._client.create(pod)))

    async def get_pod(self, namespace: str, name: str) -> dict[str, Any] | None:
        """Return a pod; None if there is none of this name."""
        try:
            return _to_dict(await self._call("get pods", lambda: self._client.get(Pod, name, namespace=namespace)))
        except _NotFoundError:
            return None

    async def put_secret(self, manifest: Mapping[str, Any]) -> None:
        """Create a Secret, or replace the one of its name."""
        secret = cast("Secret", Secret.from_dict(dict(manifest)))
        try:
            await self._call("create secrets", lambda: self._client.create(secret))
        except ExistsError:
            await self._call("update secrets", lambda: self._client.replace(secret))

    async def delete_pod(self, namespace: str, name: str, grace: int | None = None) -> None:
        """Delete a pod, with its own grace by default; one that is gone already is a success."""
        try:
            await self._call(
                "delete pods", lambda: self._client.delete(Pod, name, namespace=namespace, grace_period=grace)
            )
        except _NotFoundError:
            return

    async def list_pods(self, namespace: str, labels: Mapping[str, str]) -> tuple[list[dict[str, Any]], str]:
        """Return the pods with these labels, and the version of the list, from which a watch continues."""

        async def read_list() -> tuple[list[dict[str, Any]], str]:
            pages = self._client.list(Pod, namespace=namespace, chunk_size=_PAGE, labels=dict(labels))
            pods = [pod.to_dict() async for pod in pages]
            return pods, pages.resourceVersion

        return await self._call("list pods", read_list)

    async def watch_pods(
        self, namespace: str, labels: Mapping[str, str], version: str, timeout: int
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Yield changes of pods since a version; GoneError when the API server has forgotten it."""
        stream = self._client.watch(
            Pod, namespace=namespace, labels=dict(labels), resource_version=version, server_timeout=timeout
        )
        try:
            async with aclosing(cast("Any", stream)) as changes:
                async for kind, pod in changes:
                    if kind != "BOOKMARK":
                        yield kind, pod.to_dict()
        except _CLIENT_ERRORS as error:
            raise _explain(error, "watch pods") from error

    async def read_log_tail(self, namespace: str, name: str, container: str) -> str:
        """Return the end of what a container has printed; empty if there is none."""

        async def read_lines() -> list[str]:
            lines = self._client.log(name, namespace=namespace, container=container, tail_lines=_TAIL_LINES)
            return [line async for line in lines]

        try:
            return "".join(await self._call("get pods/log", read_lines, tries=1))[-_TAIL_CHARACTERS:]
        except OperationError as error:
            logger.debug("the log of a pod cannot be read", extra={"pod": name, "error": str(error)})
            return ""

    async def _call(self, what: str, call: Callable[[], Awaitable[Answer]], tries: int = TRIES) -> Answer:
        """Make a call in one of the slots; repeat it with growing delays while the API server is not available."""
        for failures in range(1, tries + 1):
            try:
                async with self._slots, asyncio.timeout(self._config.request_timeout + _SLACK):
                    return await call()
            except _CLIENT_ERRORS as error:
                explained = _explain(error, what)
                if failures == tries or not isinstance(explained, UnavailableError):
                    raise explained from error
                await self._clock.sleep(_delay(error, failures))
        raise AssertionError("unreachable: the last try returns or raises")


def _to_dict(pod: Pod) -> dict[str, Any]:
    return cast("dict[str, Any]", pod.to_dict())


def _read_kubeconfig(config: KubernetesConfig) -> Any:
    """Return where the cluster is and who calls: of the file that is configured, the pod, or the user."""
    try:
        found = KubeConfig.from_env() if config.kubeconfig is None else KubeConfig.from_file(config.kubeconfig)
        single = found.get(config.context)
        if single is not None and single.user is None:
            raise ConfigError(f"the context {single.context_name} of the kubeconfig names no user that it has")
        return single
    except (ConfigError, KeyError, OSError, ValueError) as error:
        raise OperationError(
            f"the executor 'kubernetes' finds no cluster: {error}; set kubeconfig in the file of kubernetes_config"
        ) from error


def _delay(error: Exception, failures: int) -> float:
    """Return the seconds until the next try: what the API server asks for, or a growing time with jitter."""
    response = getattr(error, "response", None)
    asked = "" if response is None else response.headers.get("Retry-After", "")
    if asked.isdigit():
        return min(float(asked), _LONGEST_WAIT)
    return _BACKOFF.delay(failures) * random.uniform(0.5, 1.0)


def _explain(error: Exception, what: str) -> OperationError:
    """Return an error of the client as one that says what to do."""
    message = f"Kubernetes, {what}: {_message(error)}"
    match _status_code(error):
        case 404 if _missing_kind(error) != "namespaces":
            return _NotFoundError(message)
        case 409 if _reason(error) == "AlreadyExists":
            return ExistsError(message)
        case 410:
            return GoneError(message)
        case 403 if "exceeded quota" in str(error) or "being terminated" in str(error):
            return OperationError(message)
        case 403 if _MISSING_RIGHT.search(str(error)):
            return OperationError(f"{message}; give its service account a role with the verb and resource: {what}")
        case 400 | 403 | 422:
            return RejectedError(message)
        case 401:
            return ClusterUnavailableError(f"{message}; the credentials of the node are not accepted")
        case 404:
            return OperationError(f"{message}; create the namespace, or correct it in the configuration")
        case _:
            return UnavailableError(message)


def _status_code(error: Exception) -> int | None:
    if isinstance(error, ApiError) and error.status.code is not None:
        return int(error.status.code)
    return error.response.status_code if isinstance(error, httpx2.HTTPStatusError) else None


def _reason(error: Exception) -> str:
    return (error.status.reason or "") if isinstance(error, ApiError) else ""


def _missing_kind(error: Exception) -> str:
    """Return the kind of object that there is not, in the words of the API server."""
    details = error.status.details if isinstance(error, ApiError) else None
    return (details.kind or "") if details is not None else ""


def _message(error: Exception) -> str:
    if isinstance(error, TimeoutError | httpx2.TimeoutException):
        return "the API server does not answer in time"
    return str(error) or type(error).__name__
