"""Whether a request is what its sender signed.

Rules
  * The bytes that arrived are what is checked, before anyone reads them as text or JSON.
  * Comparing takes the same time however much of a signature is right.
  * How a sender signs is data (`model.plugin.Signature`). What does not fit it exactly is refused:
    a header that is missing or there twice, a digit too few, a time that is too far away.
  * The verdict's reason is for the log. Whoever sent the request learns nothing of it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from infloop.model.plugin import Signature

if TYPE_CHECKING:
    from collections.abc import Sequence

Headers: TypeAlias = tuple[tuple[str, str], ...]
Reason: TypeAlias = Literal["ok", "missing", "malformed", "stale", "mismatch", "misconfigured"]

MAX_SIGNATURES = 16
"""More than any sender has keys at one time."""

_WHSEC = "whsec_"
_DECOY = Signature(header="x-hub-signature-256", scheme="hmac-sha256", format="sha256=<hex>")
_PLACE = re.compile(r"<(body|timestamp|id)>", re.ASCII)  # noqa: TID251  (our own fixed pattern)
_TIME = re.compile(r"[0-9]{1,12}", re.ASCII)  # noqa: TID251  (our own fixed pattern)
_LONGEST_ID = 256


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a request is genuine, and why not, in a word for the log."""

    reason: Reason

    @property
    def ok(self) -> bool:
        """Whether the sender knew a secret."""
        return self.reason == "ok"


class _Refused(Exception):
    """The request cannot be genuine; holds the reason."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason


@dataclass(frozen=True, slots=True)
class _Claim:
    """What a request says about itself: its signatures, when it was signed, and its id."""

    signatures: tuple[str, ...]
    timestamp: str = ""
    id: str = ""


def verify(
    signature: Signature, secrets: Sequence[str], headers: Headers, body: bytes, now_ms: int
) -> Verdict:
    """Say whether `body` was signed with one of `secrets`, at a time near enough."""
    try:
        keys = [_key(signature, secret) for secret in secrets if secret]
        if not keys:
            return Verdict("misconfigured")
        claim = _read_claim(signature, headers)
        if signature.timed:
            _check_time(signature, claim.timestamp, now_ms)
    except _Refused as refused:
        # What is refused at first sight takes no less time than what is compared.
        hmac.digest(b"nobody's key", body, hashlib.sha256)
        return Verdict(refused.reason)
    expected = [_expected(signature, key, claim, body) for key in keys]
    # Every pair is compared, so that the time does not tell which one was right.
    matches = [
        hmac.compare_digest(given.encode(), wanted.encode())
        for wanted in expected
        for given in claim.signatures
    ]
    return Verdict("ok" if any(matches) else "mismatch")


def sign(
    signature: Signature, secret: str, body: bytes, now_ms: int, request_id: str
) -> dict[str, str]:
    """Return the headers that a sender with `secret` would send along with `body`."""
    claim = _Claim((), str(now_ms // 1000), request_id)
    try:
        made = _expected(signature, _key(signature, secret), claim, body)
    except _Refused:
        raise ValueError("the secret does not fit the plugin: expected whsec_ and base64") from None
    headers: dict[str, str] = {}
    if signature.scheme == "hmac-sha256":
        made = signature.prefix_and_encoding()[0] + made
        if signature.timestamp_prefix:
            time = signature.timestamp_prefix + claim.timestamp
            made = f"{time}{signature.separator}{made}"
    headers[signature.header] = made
    if signature.timestamp_header:
        headers[signature.timestamp_header] = claim.timestamp
    if signature.id_header:
        headers[signature.id_header] = claim.id
    return headers


def is_secret(signature: Signature, secret: str) -> bool:
    """Say whether `secret` can be one of this sender's."""
    try:
        return bool(_key(signature, secret))
    except _Refused:
        return False


def pretend(headers: Headers, body: bytes, now_ms: int) -> None:
    """Take as long as `verify` does, and answer nothing.

    A request to an address that does not exist must not be told apart by its answer's time.
    """
    verify(_DECOY, ("nobody's key",), headers, body, now_ms)


def header(headers: Headers, name: str) -> str | None:
    """Return the value of a header that is there once; raise ValueError if it is there twice."""
    values = [value for key, value in headers if key.lower() == name]
    if len(values) > 1:
        raise ValueError(f"the header {name!r} is there {len(values)} times")
    return values[0] if values else None


# -- what the sender claims ------------------------------------------------------------------


def _read_claim(signature: Signature, headers: Headers) -> _Claim:
    value = _one(headers, signature.header)
    if signature.scheme == "token":
        return _Claim((value,))
    if signature.separator is None:
        parts = [value]
    else:
        # One more than is looked at, so that what is too long is seen and not read.
        parts = value.split(signature.separator, 4 * MAX_SIGNATURES)
    timestamp = _timestamp(signature, headers, parts)
    request_id = _one(headers, signature.id_header) if signature.id_header else ""
    if len(request_id) > _LONGEST_ID:
        raise _Refused("malformed")
    return _Claim(_signatures(signature, parts), timestamp, request_id)


def _signatures(signature: Signature, parts: list[str]) -> tuple[str, ...]:
    """Return the signatures among the parts of the header; those of other schemes are left out."""
    prefix, encoding = signature.prefix_and_encoding()
    found = [part[len(prefix) :] for part in parts if part.startswith(prefix)]
    if not found or len(found) > MAX_SIGNATURES:
        raise _Refused("malformed")
    length = 64 if encoding == "hex" else 44
    well_formed = [text for text in found if len(text) == length]
    if not well_formed:
        raise _Refused("malformed")
    return tuple(text.lower() if encoding == "hex" else text for text in well_formed)


def _timestamp(signature: Signature, headers: Headers, parts: list[str]) -> str:
    if signature.timestamp_header:
        return _one(headers, signature.timestamp_header)
    if not signature.timestamp_prefix:
        return ""
    prefix = signature.timestamp_prefix
    times = [part[len(prefix) :] for part in parts if part.startswith(prefix)]
    if len(times) != 1:
        raise _Refused("malformed")
    return times[0]


def _check_time(signature: Signature, timestamp: str, now_ms: int) -> None:
    if not _TIME.fullmatch(timestamp):
        raise _Refused("malformed")
    if abs(now_ms / 1000 - int(timestamp)) > signature.tolerance_seconds:
        raise _Refused("stale")


def _one(headers: Headers, name: str) -> str:
    try:
        value = header(headers, name)
    except ValueError:
        raise _Refused("malformed") from None
    if not value:
        raise _Refused("missing")
    if not value.isascii():  # what its bytes were is not known any more
        raise _Refused("malformed")
    return value


# -- what it ought to be ---------------------------------------------------------------------


def _key(signature: Signature, secret: str) -> bytes:
    if signature.secret_format != "whsec":  # noqa: S105  (the name of a format)
        return secret.encode()
    try:
        key = base64.b64decode(secret.removeprefix(_WHSEC), validate=True)
    except (binascii.Error, ValueError):
        raise _Refused("misconfigured") from None
    if not key:
        raise _Refused("misconfigured")
    return key


def _expected(signature: Signature, key: bytes, claim: _Claim, body: bytes) -> str:
    """Return the signature as it is written, without the text before it; or the token."""
    if signature.scheme == "token":
        return key.decode()
    digest = hmac.digest(key, _signed(signature, claim, body), hashlib.sha256)
    if signature.prefix_and_encoding()[1] == "hex":
        return digest.hex()
    return base64.b64encode(digest).decode()


def _signed(signature: Signature, claim: _Claim, body: bytes) -> bytes:
    values = {"body": body, "timestamp": claim.timestamp.encode(), "id": claim.id.encode()}
    # split() alternates: literal, place, literal, place, …, literal
    parts = _PLACE.split(signature.signed)
    return b"".join(
        values[part] if index % 2 else part.encode() for index, part in enumerate(parts)
    )
