"""The variables and secrets that a node has besides those of its store."""

from collections.abc import Mapping
from typing import Any

import msgspec

from tidemill.access.secret_source import SecretSource
from tidemill.engine.access.secret_sources import SecretSources, make_secret_sources
from tidemill.kernel.errors import DefinitionError
from tidemill.kernel.limits import NAME_RULE, is_name
from tidemill.kernel.settings import Settings


class GivenValues(msgspec.Struct, frozen=True):
    """What author code of a node reads before, or after, what its store has."""

    tenant: str = ""
    """The tenant whose code reads the variables."""
    variables: Mapping[str, Any] = {}
    secrets: SecretSources = SecretSources()


def read_given_values(
    variables: Mapping[str, Any] | None,
    secrets: Mapping[str, str] | SecretSource | None,
    tenant: str,
    environment: Mapping[str, str],
    settings: Settings,
) -> GivenValues:
    """Return the values that a node is given, that its environment has, and that its settings name."""
    given = {name: _stored_form(name, value) for name, value in _check_names("variables", variables or {}).items()}
    if not isinstance(secrets, SecretSource):
        _check_names("secrets", secrets or {})
        for name, value in (secrets or {}).items():
            if not isinstance(value, str) or not value:
                message = f"secret '{name}' is a text that is not empty, not {type(value).__name__!r}"
                raise DefinitionError.single("node", message)
    return GivenValues(tenant, given, make_secret_sources(secrets or {}, tenant, environment, settings))


def _check_names(argument: str, values: Any) -> Mapping[str, Any]:
    if not isinstance(values, Mapping):
        message = f"{argument}= takes values by name, such as {{'region': 'eu'}}, not {type(values).__name__!r}"
        raise DefinitionError.single("node", message)
    for name in values:
        if not is_name(name):
            raise DefinitionError.single("node", f"{argument}= takes names, {NAME_RULE}, not {name!r}")
    return values


def _stored_form(name: str, value: Any) -> Any:
    """Return a variable as it would come from the store."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise DefinitionError.single("node", f"variable '{name}' cannot be expressed in JSON: {error}") from error
