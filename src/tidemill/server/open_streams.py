"""Open streams: an answer that goes on for hours ends when the key or session behind it does."""

import asyncio
from typing import TYPE_CHECKING

from tidemill.engine.access.credential_watch import CredentialWatch

if TYPE_CHECKING:
    from litestar.types import ASGIApp, Message, Receive, Scope, Send


async def stream_while_valid(
    watch: CredentialWatch, credential: str, app: "ASGIApp", scope: "Scope", receive: "Receive", send: "Send"
) -> None:
    """Handle a request whose answer is a stream, and end the stream when the credential ends."""
    is_begun = False

    async def send_noted(message: "Message") -> None:
        nonlocal is_begun
        is_begun = is_begun or message["type"] == "http.response.start"
        await send(message)

    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(None) as limit:
            unsubscribe = watch.subscribe(credential, lambda: limit.reschedule(loop.time()))
            try:
                await app(scope, receive, send_noted)
            finally:
                unsubscribe()
    except TimeoutError:
        if not limit.expired():
            raise
        if is_begun:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
