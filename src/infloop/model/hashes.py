"""SHA-256 of a text or of bytes, as names of what is stored and as fingerprints."""

from __future__ import annotations


def sha256_hex(data: bytes) -> str:
    """Return the SHA-256 as 64 hexadecimal digits."""
    # Not above: `infloop runs` hashes nothing, and loading OpenSSL takes 5 ms.
    from hashlib import sha256

    return sha256(data).hexdigest()
