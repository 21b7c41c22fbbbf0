"""How a caller proves who it is: a bearer token, or the cookie of a session."""

from __future__ import annotations

COOKIE = "infloop_session"
SECURE_COOKIE = f"__Host-{COOKIE}"


def bearer(authorization: str) -> str | None:
    """Return the token of an Authorization header, or None if it holds none."""
    word, _, token = authorization.strip().partition(" ")
    return token.strip() if word.lower() == "bearer" and token.strip() else None
