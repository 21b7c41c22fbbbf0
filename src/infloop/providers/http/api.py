"""The address and the token of an HTTP API, from its manifest.

- Connections go through `egress`, and only to the base URL. It may be on this machine or a private
  network: the operator wrote it.
- The token comes from the manifest or from the variable that the manifest names. It is sent in one
  header and removed from the error messages of the server.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from msgspec.structs import replace

from infloop.egress.client import Client, Destination
from infloop.errors import EgressError, StepError
from infloop.model.hosts import parse_url
from infloop.providers.base import AnswerPart, Done, Stderr

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from infloop.egress.client import Response
    from infloop.model.provider import HttpProvider
    from infloop.model.values import JsonObject

CONNECT_S = 30.0
READ_TIMEOUT_S = 600.0
"""How long a connection may be silent; servers send keep-alive events while a model thinks."""


class Api:
    """Calls an API; raises StepError if its manifest is not sufficient for that."""

    def __init__(self, manifest: HttpProvider, variables: Mapping[str, str]) -> None:
        self._base = manifest.base_url
        try:
            self.host = parse_url(self._base).authority
            self._allowed = Destination.of(self._base, private_ok=True)
        except EgressError as error:
            raise StepError(
                f"provider {manifest.id!r} cannot be asked: {error}; change its baseUrl"
            ) from None
        self.token_source = _token_source(manifest)
        self._token = _token(manifest, variables, self.token_source)
        self._headers = _authorization(manifest, self._token)

    @asynccontextmanager
    async def ask(
        self,
        path: str,
        content: JsonObject | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        max_response_bytes: int,
    ) -> AsyncGenerator[Response]:
        """Send a request and yield the response; GET without content. Raises EgressError."""
        data = None if content is None else json.dumps(content).encode()
        sent = {"content-type": "application/json"} if data else {"accept": "application/json"}
        async with (
            Client([self._allowed]) as client,
            client.stream(
                "POST" if data else "GET",
                f"{self._base}{path}",
                headers={**sent, **(headers or {}), **self._headers},
                content=data,
                connect_timeout_s=CONNECT_S,
                read_timeout_s=READ_TIMEOUT_S,
                max_response_bytes=max_response_bytes,
            ) as response,
        ):
            yield response

    def describe(self, error: EgressError) -> str:
        """Return what went wrong with the connection, with the host."""
        message = str(error)
        return self.redact_text(message if self.host in message else f"{self.host}: {message}")

    def redact_text(self, text: str) -> str:
        """Remove the token from a text of the server."""
        return text.replace(self._token, "[token]") if self._token else text

    def redact(self, part: AnswerPart) -> AnswerPart:
        """Remove the token from the diagnostics and errors of an answer."""
        match part:
            case Stderr(text):
                return Stderr(self.redact_text(text))
            case Done(error=error) if error:
                return replace(part, error=self.redact_text(error))
            case _:
                return part


def _token_source(manifest: HttpProvider) -> str:
    """Return where the token comes from, as part of a sentence."""
    auth = manifest.auth
    if auth is None:
        return f"whether provider {manifest.id!r} needs 'auth' in its manifest"
    if auth.env_var:
        return f"the token in the variable {auth.env_var}"
    return f"the token of provider {manifest.id!r}"


def _token(manifest: HttpProvider, variables: Mapping[str, str], source: str) -> str:
    auth = manifest.auth
    if auth is None:
        return ""
    token = (variables.get(auth.env_var, "") if auth.env_var else auth.token or "").strip()
    if not token:
        raise StepError(f"provider {manifest.id!r} needs {source}, which is not set")
    if not (token.isascii() and token.isprintable()):
        raise StepError(f"{source} holds characters that no HTTP header can; copy it again")
    return token


def _authorization(manifest: HttpProvider, token: str) -> dict[str, str]:
    auth = manifest.auth
    if auth is None:
        return {}
    match auth.type:
        case "bearer":
            return {"authorization": f"Bearer {token}"}
        case "x-api-key":
            return {"x-api-key": token}
