"""Whose packages are loaded: those that a trusted key signed and, unless signatures are required, those of anybody.

A signature by a trusted key is a promise, and it is always held to: a package that is not what was signed is refused
also where an unsigned one would be loaded. What only an unknown key signed counts as unsigned.

| what is found | code | if required | if not |
|---|---|---|---|
| a trusted key signed this, for this tenant, and it still holds | | loaded | loaded |
| a trusted key signed something else, or the signature is damaged | `invalid_signature` | refused | refused |
| a trusted key signed it for another tenant | `wrong_tenant` | refused | refused |
| a trusted key signed it, and its time is over | `expired_signature` | refused | refused |
| a key signed it that is not trusted | `unknown_key` | refused | loaded |
| nobody signed it | `unsigned_package` | refused | loaded |
"""

from collections.abc import Sequence
from datetime import datetime

from tidemill.kernel.errors import OperationError, RequestError
from tidemill.packages.archive import Contents
from tidemill.packages.signature import PublicKey, Verified, read_signature, verify
from tidemill.storage.package_ports import TrustedKeys


class Trust:
    """The policy of a node. Keys in the store are of one tenant each, those from a file are trusted for all."""

    def __init__(
        self, keys: TrustedKeys | None = None, file_keys: Sequence[PublicKey] = (), required: bool = False
    ) -> None:
        self._keys = keys
        self._file_keys = tuple(file_keys)
        self._required = required

    async def check(self, contents: Contents, tenant: str, now: datetime) -> Verified | None:
        """Return who signed a package, None if nobody did that is trusted; RequestError if it may not be loaded."""
        if contents.signature is None and not self._required:
            return None
        trusted = [*self._file_keys, *await self._keys_of(tenant)]
        if not self._required and read_signature(contents).key not in {one.id for one in trusted}:
            return None
        return verify(contents, trusted, now=now, tenant=tenant)

    async def _keys_of(self, tenant: str) -> list[PublicKey]:
        found = await self._keys.of(tenant) if self._keys is not None else []
        try:
            return [PublicKey.parse(one.text) for one in found]
        except RequestError as error:
            raise OperationError(
                f"a trusted key of tenant '{tenant}' cannot be read from the store: {error}"
            ) from error
