"""Decides which environment variables hold secrets.

Rules
  * A variable holds a secret if a part of its name says so (`GH_TOKEN`, `PGPASSWORD`), unless the
    end of its name says otherwise (`TOKEN_TYPE`, `SSH_KEY_PATH`).
  * In a URL only the password is a secret, whatever the name of the variable.
  * A value that occurs in ordinary text is not a secret: a path, a number, a word.
"""

from __future__ import annotations

from binascii import a2b_qp
from typing import TYPE_CHECKING

from infloop.policy.leaks.known import MIN_LENGTH, Secret

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_SECRET = frozenset(
    (
        *("AUTH", "AUTHORIZATION", "COOKIE", "COOKIES", "CREDENTIAL", "CREDENTIALS", "JWT", "PASS"),
        *("PAT", "PRIVATE", "PWD", "KEYS", "SECRETS", "TOKENS", "PASSWORDS"),
    )
)
_SECRET_ENDINGS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE")
_SECRET_NAMES = frozenset({"AWS_ACCESS_KEY_ID"})

_ABOUT = frozenset(
    (
        *("ALG", "ALGORITHM", "ARN", "AUDIENCE", "BACKEND", "CLASS", "COMMAND", "DIR", "DOMAIN"),
        *("ENABLED", "ENDPOINT", "EXPIRY", "FILE", "FORMAT", "HEADER", "HOST", "ID", "ISSUER"),
        *("LENGTH", "METHOD", "MODE", "NAME", "PATH", "PORT", "PROGRAM", "PROVIDER", "REALM"),
        *("REGION", "REGISTRY", "SCHEME", "SERVER", "SIZE", "SOCK", "SOCKET", "STORE", "TIMEOUT"),
        *("TTL", "TYPE", "USER", "USERNAME", "VERSION"),
    )
)

_LONGEST_WORD = 15
_SHORTEST_BASE64 = 32


def secret_values(environment: Mapping[str, str]) -> Iterator[Secret]:
    """Yield the secrets in an environment."""
    for name, given in environment.items():
        value = given.strip()
        if "://" in value:
            for password in filter(_can_be_found, _passwords(value)):
                yield Secret(f"env:{name}", password)
        elif _names_secret(name.upper()) and not _is_path(value) and _can_be_found(value):
            yield Secret(f"env:{name}", value)


def _names_secret(name: str) -> bool:
    parts = name.split("_")
    if name in _SECRET_NAMES:
        return True
    return parts[-1] not in _ABOUT and any(
        part in _SECRET or part.endswith(_SECRET_ENDINGS) for part in parts
    )


def _can_be_found(value: str) -> bool:
    """Tell whether a value is unlikely to occur in ordinary text."""
    is_word = value.isalpha() and (value.islower() or value[1:].islower() or value.isupper())
    return (
        len(value) >= MIN_LENGTH
        and any(map(str.isalpha, value))
        and not (is_word and len(value) <= _LONGEST_WORD)
    )


def _is_path(value: str) -> bool:
    return value.startswith(("/", "./", "~/")) and not _is_base64(value)


def _is_base64(value: str) -> bool:
    """Tell whether a value that starts with a slash is base64 instead of a path."""
    kinds = (str.isupper, str.islower, str.isdigit)
    return (
        len(value) >= _SHORTEST_BASE64
        and value.isascii()
        and all(letter.isalnum() or letter in "+/=" for letter in value)
        and all(any(map(kind, value)) for kind in kinds)
    )


def _passwords(url: str) -> Iterator[str]:
    """Yield the password of a URL as written and decoded."""
    authority = url.partition("://")[2]
    for end in "/?#":
        authority = authority.partition(end)[0]
    user, _, password = authority.rpartition("@")[0].partition(":")
    if password and password != user:
        yield password
        # Percent-encoding is quoted-printable with `%` instead of `=`.
        meant = a2b_qp(password.replace("=", "=3D").replace("%", "=").encode("utf-8", "replace"))
        yield meant.decode("utf-8", "replace")
