"""Pods over plain HTTP, for tests of an API server: create, patch, bind, watch."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import httpx

Json = dict[str, Any]

MERGE_PATCH = {"Content-Type": "application/merge-patch+json"}
STRATEGIC_PATCH = {"Content-Type": "application/strategic-merge-patch+json"}
TIMEOUT = 20.0


class Pods:
    """The pods of one namespace, as one identity reaches them."""

    def __init__(self, client: httpx.AsyncClient, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.path = f"/api/v1/namespaces/{namespace}/pods"

    async def create(self, name: str, labels: Json | None = None, **spec: Any) -> Json:
        """Create a pod that no scheduler takes."""
        return _found(await self.try_create(name, labels, **spec))

    async def try_create(self, name: str, labels: Json | None = None, **spec: Any) -> httpx.Response:
        """Ask for a pod, and return the answer."""
        return await self.client.post(self.path, json=pod(name, labels, **spec))

    async def get(self, name: str) -> Json:
        """Return a pod."""
        return _found(await self.client.get(f"{self.path}/{name}"))

    async def exists(self, name: str) -> bool:
        """Return whether there is such a pod."""
        return (await self.client.get(f"{self.path}/{name}")).status_code != httpx.codes.NOT_FOUND

    async def select(self, **params: Any) -> Json:
        """Return a list of pods with its metadata."""
        return _found(await self.client.get(self.path, params=params))

    async def set_status(self, name: str, **status: Any) -> Json:
        """Write the status of a pod, as its kubelet does: conditions of other types stay."""
        body = {"status": status}
        return _found(await self.client.patch(f"{self.path}/{name}/status", json=body, headers=STRATEGIC_PATCH))

    async def bind(self, name: str, node: str = "test-node") -> None:
        """Assign a pod to a node, as a scheduler does."""
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"name": node}}
        _found(await self.client.post(f"{self.path}/{name}/binding", json=body))

    async def delete(self, name: str, **options: Any) -> httpx.Response:
        """Delete a pod, and return the answer."""
        return await self.client.request("DELETE", f"{self.path}/{name}", json=options or None)

    async def watch(self, **params: Any) -> AsyncIterator[Json]:
        """Yield the events of a watch until its stream ends."""
        params = {"watch": "true", "timeoutSeconds": int(TIMEOUT), **params}
        async with self.client.stream("GET", self.path, params=params) as stream:
            stream.raise_for_status()
            async for line in stream.aiter_lines():
                yield json.loads(line)

    async def watch_until(self, is_last: Callable[[Json], bool], **params: Any) -> list[Json]:
        """Collect the events of a watch up to the one that a test waits for."""
        events = []
        async with asyncio.timeout(TIMEOUT), aclosing(self.watch(**params)) as stream:
            async for event in stream:
                events.append(event)
                if is_last(event):
                    return events
        raise AssertionError(f"the watch ended after {events}")


def pod(name: str, labels: Json | None = None, **spec: Any) -> Json:
    """Return the manifest of a pod that no scheduler takes."""
    containers = [{"name": "attempt", "image": "registry.test/tidemill", "command": ["tidemill", "attempt"]}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"schedulerName": "test", "restartPolicy": "Never", "containers": containers, **spec},
    }


def brief(events: list[Json]) -> list[tuple[str, str]]:
    """Return the types of events and the names of their objects."""
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


def _found(answer: httpx.Response) -> Json:
    if not answer.is_success:
        text = f"{answer.request.method} {answer.request.url}: {answer.status_code} {answer.text}"
        raise httpx.HTTPStatusError(text, request=answer.request, response=answer)
    found: Json = answer.json()
    return found
