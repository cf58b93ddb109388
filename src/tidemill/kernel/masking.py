"""Masks secret values in texts, wherever Tidemill passes them on: logs, printed output, errors."""

import json
import re
from collections.abc import Iterator
from urllib.parse import quote

MASKED = "***"
MIN_LENGTH = 4
"""Characters of the shortest text that is masked: a shorter one would hide every other word."""
_MIN_LINE_LENGTH = 8
"""Characters of the shortest line of a longer secret, such as a private key, that is masked by itself."""


class SecretMask:
    """The secrets that this process has read."""

    def __init__(self) -> None:
        self.is_empty = True
        """Whether nothing is masked: most processes read no secret, and skip everything below."""
        self.forms: tuple[bytes, ...] = ()
        """The texts that are masked, longest first."""
        self._pattern = re.compile(r"(?!)")
        self.byte_pattern = re.compile(rb"(?!)")

    def add(self, secret: str) -> None:
        """Mask a secret from now on, as it is and as Python, JSON and URLs write it."""
        known = {form.decode("utf-8", "surrogatepass") for form in self.forms}
        texts = known | {form for form in _forms_of(secret) if len(form) >= MIN_LENGTH}
        if not texts or texts == known:
            return
        ordered = sorted(texts, key=len, reverse=True)
        self.forms = tuple(text.encode("utf-8", "surrogatepass") for text in ordered)
        self._pattern = re.compile("|".join(map(re.escape, ordered)))
        self.byte_pattern = re.compile(b"|".join(map(re.escape, self.forms)))
        self.is_empty = False

    def mask(self, text: str) -> str:
        """Return a text without secrets."""
        return text if self.is_empty else self._pattern.sub(MASKED, text)

    def mask_bytes(self, data: bytes) -> bytes:
        """Return bytes without secrets."""
        return data if self.is_empty else self.byte_pattern.sub(MASKED.encode(), data)

    def mask_value(self, value: object) -> object:
        """Return a value without secrets in its texts, at any depth."""
        if isinstance(value, str):
            return self.mask(value)
        if isinstance(value, dict):
            return {self.mask_value(key): self.mask_value(item) for key, item in value.items()}
        return [self.mask_value(item) for item in value] if isinstance(value, list | tuple) else value


def _forms_of(secret: str) -> Iterator[str]:
    yield secret
    yield repr(secret)[1:-1]
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield quote(secret, safe="", errors="replace")
    yield from (line for line in secret.splitlines() if len(line) >= _MIN_LINE_LENGTH)


class MaskedStream:
    """Masks secrets in bytes that arrive in chunks, even those that begin in one chunk and end in another."""

    def __init__(self, mask: SecretMask) -> None:
        self._mask = mask
        self._held_back = b""

    def feed(self, data: bytes) -> bytes:
        """Return what is certain, and hold back an end that may become a secret, or a longer one."""
        data = self._held_back + data
        certain = len(data) - max((_overlap(data, form) for form in self._mask.forms), default=0)
        pieces, position = [], 0
        for match in self._mask.byte_pattern.finditer(data):
            if match.start() >= certain:
                break
            pieces += [data[position : match.start()], MASKED.encode()]
            position = match.end()
        certain = max(certain, position)
        self._held_back = data[certain:]
        return b"".join([*pieces, data[position:certain]])

    def flush(self) -> bytes:
        """Return what was held back: no more follows."""
        rest, self._held_back = self._held_back, b""
        return self._mask.mask_bytes(rest)


def _overlap(data: bytes, form: bytes) -> int:
    """Return the length of the longest end of `data` with which `form` begins; less than the whole form."""
    for length in range(min(len(data), len(form) - 1), 0, -1):
        if data.endswith(form[:length]):
            return length
    return 0
