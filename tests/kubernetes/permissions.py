"""Identities of an API server and what roles allow them."""

from secrets import token_hex
from typing import NamedTuple

from tests.kubernetes.objects import ApiError, Objects


class Identity(NamedTuple):
    """Who sends a request."""

    user: str
    namespace: str = ""
    account: str = ""


class Permissions:
    """Tokens of service accounts, and the roles that are bound to them. The administrator may do everything."""

    def __init__(self, objects: Objects) -> None:
        self.administrator = token_hex(16)
        self._objects = objects
        self._identities = {self.administrator: Identity("admin")}

    def issue(self, namespace: str, account: str) -> str:
        """Return a new token of a service account."""
        token = token_hex(16)
        self._identities[token] = Identity(f"system:serviceaccount:{namespace}:{account}", namespace, account)
        return token

    def authenticate(self, header: str) -> Identity:
        """Return the identity of a request by its header."""
        found = self._identities.get(header.removeprefix("Bearer "))
        if found is None:
            raise ApiError(401, "Unauthorized", "Unauthorized")
        return found

    def authorize(self, identity: Identity, verb: str, resource: str, namespace: str) -> None:
        """Raise unless a role of the identity has the verb for the resource."""
        if not identity.account or self._is_allowed(identity, verb, resource, namespace):
            return
        where = f' in the namespace "{namespace}"' if namespace else " at the cluster scope"
        name, _, part = resource.partition("/")
        asked = f'User "{identity.user}" cannot {verb} resource "{resource}" in API group ""{where}'
        raise ApiError(403, "Forbidden", f"{name}{'/' + part if part else ''} is forbidden: {asked}")

    def _is_allowed(self, identity: Identity, verb: str, resource: str, namespace: str) -> bool:
        for binding in self._objects.select("rolebindings", namespace):
            subjects = [(one["namespace"], one["name"]) for one in binding.get("subjects", ())]
            if (identity.namespace, identity.account) not in subjects:
                continue
            role = self._objects.get(("roles", namespace, binding["roleRef"]["name"]))
            if any(resource in one["resources"] and verb in one["verbs"] for one in role.get("rules", ())):
                return True
        return False
