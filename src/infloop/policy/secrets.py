"""Whether somebody knows a secret."""

from __future__ import annotations

import hashlib
import hmac


def same_secret(given: str, right: str) -> bool:
    """Say whether two secrets are one; how long it takes says nothing about how much agrees.

    Nothing equals an empty secret.
    """
    return bool(right) and hmac.compare_digest(_digest(given), _digest(right))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
