"""Where secrets come from besides the store: the arguments of a node, its environment and files."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from tidemill.access.secret_source import SecretSource
from tidemill.kernel.concurrency import call_in_thread
from tidemill.kernel.errors import OperationError
from tidemill.kernel.settings import Settings, secret_variable, secret_variables


class SecretSources(msgspec.Struct, frozen=True):
    """The sources of a node, in the order in which they are asked."""

    before_store: tuple[SecretSource, ...] = ()
    after_store: tuple[SecretSource, ...] = ()


class GivenSecrets:
    """Secrets of one tenant, by name."""

    def __init__(self, tenant: str, secrets: Mapping[str, str]) -> None:
        self._tenant = tenant
        self._secrets = secrets

    async def read(self, tenant: str, name: str) -> str | None:
        """Return the value that was given."""
        return self._secrets.get(name) if tenant == self._tenant else None


class EnvironmentSecrets:
    """Secrets of one tenant in `TIDEMILL_SECRET_NAME`, as the environment was when this was made."""

    def __init__(self, tenant: str, environment: Mapping[str, str]) -> None:
        self._tenant = tenant
        self._variables = {name: environment[name] for name in secret_variables(environment)}

    async def read(self, tenant: str, name: str) -> str | None:
        """Return the value of the variable; None if it is empty."""
        variable = secret_variable(name)
        return self._variables.get(variable) or None if variable is not None and tenant == self._tenant else None


class SecretFiles:
    """Secrets in the files of a folder: of one tenant in the folder itself, of each other one in a folder within."""

    def __init__(self, tenant: str, folder: str) -> None:
        self._tenant = tenant
        self._folder = Path(folder)

    async def read(self, tenant: str, name: str) -> str | None:
        """Return the content of the file, without a newline at its end."""
        if name.startswith(".") or tenant.startswith("."):  # of Kubernetes, or a way out of the folder
            return None
        folder = self._folder if tenant == self._tenant else self._folder / tenant
        text: str | None = await call_in_thread(_read_secret_file, folder / name)
        return text


def _read_secret_file(path: Path) -> str | None:
    try:
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise OperationError(f"the file {path} of a secret cannot be read: {error}") from error
    return text.removesuffix("\n").removesuffix("\r") or None


def make_secret_sources(
    given: Mapping[str, str] | SecretSource, tenant: str, environment: Mapping[str, str], settings: Settings
) -> SecretSources:
    """Return the sources of a node, whose own tenant this is."""
    first = GivenSecrets(tenant, given) if isinstance(given, Mapping) else given
    near: list[SecretSource] = [first, EnvironmentSecrets(tenant, environment)]
    if settings.secrets_dir is not None:
        near.append(SecretFiles(tenant, settings.secrets_dir))
    return SecretSources(tuple(near), _make_vault(settings))


def _make_vault(settings: Settings) -> tuple[SecretSource, ...]:
    if settings.vault_address is None:
        return ()
    from tidemill.engine.access.vault import Vault  # on use: httpx, which few nodes need

    return (Vault(settings),)
