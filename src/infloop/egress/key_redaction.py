"""Removes a key from a response, also where it is split between two parts (pure)."""

from __future__ import annotations


class KeyRedactor:
    """Replaces a key by stars; the length of the text stays the same.

    Text that may be the beginning of the key is held back until that is known.
    """

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()
        self._stars = b"*" * len(self._secret)
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Take the next part; return what can be passed on."""
        text = (self._held + data).replace(self._secret, self._stars)
        begun = self._begun_at_end(text)
        self._held = text[len(text) - begun :]
        return text[: len(text) - begun]

    def finish(self) -> bytes:
        """Return what was held back; it is not the key."""
        held, self._held = self._held, b""
        return held

    def _begun_at_end(self, text: bytes) -> int:
        """Return how many bytes at the end of the text may be the beginning of the key."""
        longest = min(len(text), len(self._secret) - 1)
        for size in range(longest, 0, -1):
            if self._secret.startswith(text[len(text) - size :]):
                return size
        return 0
