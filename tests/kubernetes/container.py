"""The one container of a pod as a local process: its command, its environment, its files, its log."""

import asyncio
import base64
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

Json = dict[str, Any]
Secrets = Mapping[str, Mapping[str, bytes]]


class Container:
    """A process for the first container of a pod. Mounted paths become folders below one of its own."""

    def __init__(self, pod: Json, folder: Path) -> None:
        self.spec: Json = pod["spec"]["containers"][0]
        self.log = folder / "log"
        self._volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", ())}
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None

    @property
    def secret_names(self) -> set[str]:
        """The secrets without which it cannot start."""
        names = {volume["secret"]["secretName"] for volume in self._volumes.values() if "secret" in volume}
        for entry in self.spec.get("env", ()):
            if (key := entry.get("valueFrom", {}).get("secretKeyRef")) is not None:
                names.add(key["name"])
        return names

    async def start(self, secrets: Secrets) -> None:
        """Start the process, in a session of its own."""
        mounts = self._mount(secrets)
        command = [_local(word, mounts) for word in [*self.spec.get("command", ()), *self.spec.get("args", ())]]
        if command[0] == "tidemill":
            command[:1] = [sys.executable, "-m", "tidemill"]
        own = {entry["name"]: _local(_value(entry, secrets), mounts) for entry in self.spec.get("env", ())}
        machine = {name: os.environ[name] for name in ("PATH", "TMPDIR", "LANG", "PYTHONPATH") if name in os.environ}
        with self.log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command, env=machine | own, stdout=log, stderr=log, cwd=self._folder, start_new_session=True
            )

    async def wait(self) -> int:
        """Wait for the end of the process; return its exit code as a shell would."""
        assert self._process is not None
        code = await self._process.wait()
        return code if code >= 0 else 128 - code

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to the process and its children, if it runs."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, how)

    def _mount(self, secrets: Secrets) -> dict[str, str]:
        """Make the mounted folders; return them by the paths that they have in the container."""
        mounts = {}
        for number, mount in enumerate(self.spec.get("volumeMounts", ())):
            local = self._folder / f"mount-{number}"
            local.mkdir()
            volume = self._volumes[mount["name"]]
            for name, content in secrets.get(volume.get("secret", {}).get("secretName", ""), {}).items():
                (local / name).write_bytes(content)
            mounts[mount["mountPath"].rstrip("/")] = str(local)
        return mounts


def decode_secret(secret: Json) -> dict[str, bytes]:
    """Return what a secret of the API holds."""
    return {name: base64.b64decode(content) for name, content in secret.get("data", {}).items()}


def _value(entry: Json, secrets: Secrets) -> str:
    if (key := entry.get("valueFrom", {}).get("secretKeyRef")) is not None:
        return secrets[key["name"]][key["key"]].decode()
    return str(entry.get("value", ""))


def _local(text: str, mounts: Mapping[str, str]) -> str:
    """Replace a path in the container by that of this machine."""
    for path, local in mounts.items():
        if text == path or text.startswith(f"{path}/"):
            return local + text.removeprefix(path)
    return text
