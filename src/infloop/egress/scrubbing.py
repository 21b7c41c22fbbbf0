"""A secret is taken out of what a far side says, wherever its answer is cut into pieces (pure)."""

from __future__ import annotations


class Scrubber:
    """Puts stars in the place of a secret; a text stays as long as it was.

    What may be the beginning of the secret is held back until it is known whether it is.
    """

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()
        self._stars = b"*" * len(self._secret)
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Take the next piece; return what can be shown by now."""
        text = (self._held + data).replace(self._secret, self._stars)
        begun = self._begun_at_end(text)
        self._held = text[len(text) - begun :]
        return text[: len(text) - begun]

    def finish(self) -> bytes:
        """Return what was held back and turned out to be nothing."""
        held, self._held = self._held, b""
        return held

    def _begun_at_end(self, text: bytes) -> int:
        """Return how many bytes at the end of a text are the beginning of the secret."""
        longest = min(len(text), len(self._secret) - 1)
        for size in range(longest, 0, -1):
            if self._secret.startswith(text[len(text) - size :]):
                return size
        return 0
