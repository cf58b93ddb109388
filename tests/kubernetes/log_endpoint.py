"""The part of a kubelet that API servers ask for the logs of containers: HTTPS with a certificate of its own."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

FindLog = Callable[[str, str], Path | None]
"""Returns the file with the log of a pod, by namespace and name."""

EPOCH = datetime(2020, 1, 1, tzinfo=UTC)


@asynccontextmanager
async def serve_logs(find: FindLog, folder: Path) -> AsyncIterator[int]:
    """Serve logs on a free port of loopback; yield the port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        address = urlsplit(head.split(" ", 2)[1])  # /containerLogs/{namespace}/{pod}/{container}
        _, _, namespace, name, _ = address.path.split("/")
        path = find(namespace, name)
        code, body = ("404 Not Found", b"") if path is None else ("200 OK", path.read_bytes())
        if lines := parse_qs(address.query).get("tailLines"):
            body = b"".join(body.splitlines(keepends=True)[-int(lines[0]) :])
        kind = "Content-Type: text/plain\r\nConnection: close"
        writer.write(f"HTTP/1.1 {code}\r\n{kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(_new_certificate(folder))
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


def _new_certificate(folder: Path) -> Path:
    """Write a certificate that no authority has signed, with its key; API servers take it from a kubelet."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test-kubelet")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(EPOCH)
        .not_valid_after(EPOCH + timedelta(days=36500))
        .sign(key, hashes.SHA256())
    )
    path = folder / "kubelet.pem"
    path.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return path
