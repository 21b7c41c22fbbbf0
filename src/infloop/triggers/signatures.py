"""Verifies the signatures of requests.

Rules
  * The check covers the bytes that arrived, before they are decoded or parsed.
  * Comparisons take constant time.
  * How a sender signs is data (`model.plugin.Signature`). What does not match it exactly is
    refused: a missing or repeated header, a missing digit, a timestamp outside the tolerance.
  * The reason of a refusal is for the log. The sender does not learn it.

To add a scheme that differs only in its digest, write one function, add one line to `SCHEMES`, and
add the name to `model.plugin.SchemeName`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import msgspec

from infloop.model.plugin import SchemeName, Signature

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Headers: TypeAlias = tuple[tuple[str, str], ...]
Reason: TypeAlias = Literal["ok", "missing", "malformed", "stale", "mismatch", "misconfigured"]

MAX_SIGNATURES = 16
"""More than any sender has keys at the same time."""


MIN_SECRET_BYTES = 16
"""The least that a new secret must have; one request with its signature is enough to try keys."""


class Scheme(NamedTuple):
    """How a signature is computed from a key and the signed bytes; it has `size` bytes."""

    digest: Callable[[bytes, bytes], bytes]
    size: int

    def encoded_length(self, encoding: Literal["hex", "base64"]) -> int:
        """Return the number of characters of a signature."""
        return 2 * self.size if encoding == "hex" else 4 * -(-self.size // 3)


def _hmac_sha256(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, hashlib.sha256)


SCHEMES: dict[SchemeName, Scheme] = {
    "hmac-sha256": Scheme(_hmac_sha256, 32),
}
"""All schemes but `token`, which signs nothing: its header holds the secret itself."""

_WHSEC = "whsec_"
_DECOY = Signature(header="x-hub-signature-256", scheme="hmac-sha256", format="sha256=<hex>")
_PLACEHOLDER = re.compile(r"<(body|timestamp|id)>", re.ASCII)  # noqa: TID251  (our own fixed pattern)
_TIME = re.compile(r"[0-9]{1,12}", re.ASCII)  # noqa: TID251  (our own fixed pattern)
_LONGEST_ID = 256


class SignatureCheck(msgspec.Struct, frozen=True):
    """Whether a request is genuine, and the reason for the log.

    `fingerprint` is the same for two genuine requests that were signed alike, with the same secret;
    it is empty for a token, which signs nothing.
    """

    reason: Reason
    fingerprint: str = ""

    @property
    def ok(self) -> bool:
        return self.reason == "ok"


class _Refused(Exception):
    """The request cannot be genuine."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason


class _Claim(msgspec.Struct, frozen=True):
    """The signatures, the timestamp and the id that a request states."""

    signatures: tuple[str, ...]
    timestamp: str = ""
    id: str = ""


def verify(
    signature: Signature, secrets: Sequence[str], headers: Headers, body: bytes, now_ms: int
) -> SignatureCheck:
    """Check whether `body` was signed with one of `secrets`, at a time within the tolerance."""
    try:
        keys = [_key(signature, secret) for secret in secrets if secret]
        if not keys:
            return SignatureCheck("misconfigured")
        claim = _read_claim(signature, headers)
        if signature.timed:
            _check_timestamp(signature, claim.timestamp, now_ms)
    except _Refused as refused:
        # An early refusal must take as long as a comparison.
        _hmac_sha256(b"nobody's key", body)
        return SignatureCheck(refused.reason)
    expected = [_expected(signature, key, claim, body) for key in keys]
    # All pairs are compared, so that the time does not reveal which one matched.
    matches = [
        (hmac.compare_digest(given.encode(), wanted.encode()), wanted)
        for wanted in expected
        for given in claim.signatures
    ]
    matched, proof = max(matches)
    fingerprint = "" if signature.is_token else hashlib.sha256(proof.encode()).hexdigest()
    return SignatureCheck("ok" if matched else "mismatch", fingerprint if matched else "")


def sign(
    signature: Signature, secret: str, body: bytes, now_ms: int, request_id: str
) -> dict[str, str]:
    """Return the headers that a sender with `secret` would send with `body`."""
    claim = _Claim((), str(now_ms // 1000), request_id)
    try:
        made = _expected(signature, _key(signature, secret), claim, body)
    except _Refused:
        raise ValueError("the secret does not fit the plugin: expected whsec_ and base64") from None
    headers: dict[str, str] = {}
    if not signature.is_token:
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


def accepts_secret(signature: Signature, secret: str) -> bool:
    """Tell whether `secret` has the format of this sender's secrets."""
    try:
        return bool(_key(signature, secret))
    except _Refused:
        return False


def is_short_secret(signature: Signature, secret: str) -> bool:
    """Tell whether a secret is so short that a key of this length can be found by trying."""
    return accepts_secret(signature, secret) and len(_key(signature, secret)) < MIN_SECRET_BYTES


def simulate_check(headers: Headers, body: bytes, now_ms: int) -> None:
    """Take as long as `verify` does.

    The response time must not reveal whether an address exists.
    """
    verify(_DECOY, ("nobody's key",), headers, body, now_ms)


def header(headers: Headers, name: str) -> str | None:
    """Return the value of a header, None if it is missing; raise ValueError if it is repeated."""
    values = [value for key, value in headers if key.lower() == name]
    if len(values) > 1:
        raise ValueError(f"the header {name!r} occurs {len(values)} times")
    return values[0] if values else None


# -- reading the claim -----------------------------------------------------------------------


def _read_claim(signature: Signature, headers: Headers) -> _Claim:
    value = _single(headers, signature.header)
    if signature.is_token:
        return _Claim((value,))
    if signature.separator is None:
        parts = [value]
    else:
        # The split is bounded, so that an excessive number of parts is noticed and not processed.
        parts = value.split(signature.separator, 4 * MAX_SIGNATURES)
    timestamp = _timestamp(signature, headers, parts)
    request_id = _single(headers, signature.id_header) if signature.id_header else ""
    if len(request_id) > _LONGEST_ID:
        raise _Refused("malformed")
    return _Claim(_signatures(signature, parts), timestamp, request_id)


def _signatures(signature: Signature, parts: list[str]) -> tuple[str, ...]:
    """Return the signatures among the parts of the header; other schemes are left out."""
    prefix, encoding = signature.prefix_and_encoding()
    found = [part[len(prefix) :] for part in parts if part.startswith(prefix)]
    if not found or len(found) > MAX_SIGNATURES:
        raise _Refused("malformed")
    length = SCHEMES[signature.scheme].encoded_length(encoding)
    well_formed = [text for text in found if len(text) == length]
    if not well_formed:
        raise _Refused("malformed")
    return tuple(text.lower() if encoding == "hex" else text for text in well_formed)


def _timestamp(signature: Signature, headers: Headers, parts: list[str]) -> str:
    if signature.timestamp_header:
        return _single(headers, signature.timestamp_header)
    if not signature.timestamp_prefix:
        return ""
    prefix = signature.timestamp_prefix
    times = [part[len(prefix) :] for part in parts if part.startswith(prefix)]
    if len(times) != 1:
        raise _Refused("malformed")
    return times[0]


def _check_timestamp(signature: Signature, timestamp: str, now_ms: int) -> None:
    if not _TIME.fullmatch(timestamp):
        raise _Refused("malformed")
    if abs(now_ms / 1000 - int(timestamp)) > signature.tolerance_seconds:
        raise _Refused("stale")


def _single(headers: Headers, name: str) -> str:
    try:
        value = header(headers, name)
    except ValueError:
        raise _Refused("malformed") from None
    if not value:
        raise _Refused("missing")
    if not value.isascii():  # its original bytes are unknown
        raise _Refused("malformed")
    return value


# -- computing the signature -----------------------------------------------------------------


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
    """Return the encoded signature without its prefix, or the token."""
    if signature.is_token:
        return key.decode()
    digest = SCHEMES[signature.scheme].digest(key, _signed(signature, claim, body))
    if signature.prefix_and_encoding()[1] == "hex":
        return digest.hex()
    return base64.b64encode(digest).decode()


def _signed(signature: Signature, claim: _Claim, body: bytes) -> bytes:
    values = {"body": body, "timestamp": claim.timestamp.encode(), "id": claim.id.encode()}
    # split() alternates: literal, placeholder, literal, …, literal
    parts = _PLACEHOLDER.split(signature.signed)
    return b"".join(
        values[part] if index % 2 else part.encode() for index, part in enumerate(parts)
    )
