"""Secrets in HashiCorp Vault or OpenBao: version 2 of the key-value engine, over HTTP."""

from urllib.parse import quote

import httpx
import msgspec

from tidemill.kernel.errors import DefinitionError, OperationError
from tidemill.kernel.settings import Settings

TIMEOUT = 10.0  # seconds for one request
FIELD = "value"


class _VersionedSecret(msgspec.Struct, frozen=True):
    data: dict[str, object]


class _SecretAnswer(msgspec.Struct, frozen=True):
    data: _VersionedSecret


class Vault:
    """Reads the field `value` of `<vault_path>/<tenant>/<name>`."""

    def __init__(self, settings: Settings) -> None:
        if settings.vault_address is None or settings.vault_token is None:
            raise DefinitionError.single("settings", "vault_address needs vault_token: set both")
        self._mount, _, self._prefix = settings.vault_path.strip("/").partition("/")
        self._address = settings.vault_address.rstrip("/")
        self._headers = {"X-Vault-Token": settings.vault_token, "X-Vault-Request": "true"}

    async def read(self, tenant: str, name: str) -> str | None:
        """Return the value that Vault has now."""
        parts = [self._mount, "data", *filter(None, self._prefix.split("/")), tenant, name]
        url = f"{self._address}/v1/{'/'.join(quote(part, safe='') for part in parts)}"
        try:
            async with httpx.AsyncClient(timeout=TIMEOUT) as client:
                answer = await client.get(url, headers=self._headers)
        except httpx.HTTPError as error:
            raise OperationError(f"Vault at {self._address} cannot be asked for secret '{name}': {error!r}") from error
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        if answer.status_code != httpx.codes.OK:
            raise OperationError(f"Vault at {self._address} answers {answer.status_code} for secret '{name}', at {url}")
        return _value_of(answer.content, name, url)


def _value_of(content: bytes, name: str, url: str) -> str:
    try:
        value = msgspec.json.decode(content, type=_SecretAnswer).data.data.get(FIELD)
    except msgspec.DecodeError as error:
        raise OperationError(f"the answer of Vault for secret '{name}' is not one of its key-value engine") from error
    if not isinstance(value, str):
        raise OperationError(f"secret '{name}' has no text in the field '{FIELD}' in Vault, at {url}")
    return value
