"""Compares secrets in constant time."""

from __future__ import annotations

import hashlib
import hmac


def same_secret(given: str, right: str) -> bool:
    """Compare two secrets in a time that does not depend on their content.

    An empty secret equals nothing.
    """
    return bool(right) and hmac.compare_digest(_digest(given), _digest(right))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
