"""The OpenAPI document, made from the route table."""

from functools import cache
from typing import TYPE_CHECKING

import msgspec
from litestar import Litestar
from litestar._openapi.schema_generation.plugins.struct import StructSchemaPlugin
from litestar.openapi import OpenAPIConfig
from litestar.openapi.spec import Components, Schema, SecurityScheme
from msgspec.structs import fields

from tidemill.kernel.version import VERSION
from tidemill.server.requests import ApiRequest
from tidemill.server.route_table import ROUTES
from tidemill.server.routing import to_handler

if TYPE_CHECKING:
    from litestar._openapi.schema_generation import SchemaCreator
    from litestar.typing import FieldDefinition

DESCRIPTION = """\
Everything that a Tidemill node does: workflows and their runs, computation graphs with their reactors and accumulators,
packages, and the administration of tenants, keys and secrets.

Requests carry `Authorization: Bearer KEY`. Errors are problem details (RFC 9457) with a stable `code`. Lists have
`items`, the `total` and a `next` cursor. A POST takes an `Idempotency-Key`.
"""


class _StructSchemas(StructSchemaPlugin):
    """Describes structs. One that writes the defaults that its base omits always has the fields of both."""

    def to_openapi_schema(self, field_definition: "FieldDefinition", schema_creator: "SchemaCreator") -> Schema:
        schema = super().to_openapi_schema(field_definition, schema_creator)
        struct = field_definition.origin or field_definition.annotation
        if not struct.__struct_config__.omit_defaults and struct.__base__.__struct_config__.omit_defaults:
            schema.required = sorted(one.encode_name for one in fields(struct))
        return schema


@cache
def openapi_document() -> bytes:
    """Return the OpenAPI document as JSON; it is made once, on first use, because that takes a while."""
    config = OpenAPIConfig(
        title="Tidemill",
        version=VERSION,
        description=DESCRIPTION,
        components=Components(security_schemes={"key": SecurityScheme(type="http", scheme="bearer")}),
    )
    handlers = [to_handler(route) for route in ROUTES if route.method != "WEBSOCKET"]
    app = Litestar(
        handlers,
        openapi_config=config,
        request_class=ApiRequest,
        plugins=[_StructSchemas()],
        logging_config=None,
    )
    document = app.openapi_schema.to_schema()
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"].get("204", {}).pop("content", None)  # an answer without a body has no format
    return msgspec.json.encode(document)
