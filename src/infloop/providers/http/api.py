"""One HTTP API as a manifest describes it: its one address, and the token that opens it.

Connections go through `egress` and to the base URL alone; the operator who wrote it may mean this
machine or network. The token comes from the manifest or from the variable that it names. It is put
into one header and nothing else: what a server says about an error is shown without it.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from msgspec.structs import replace

from infloop.egress.client import Client, Destination
from infloop.errors import EgressError, StepError
from infloop.policy.hosts import parse_url
from infloop.providers.base import Done, Part, Stderr

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from infloop.egress.client import Response
    from infloop.model.provider import HttpProvider
    from infloop.model.values import JsonObject

CONNECT_S = 30.0
SILENCE_S = 600.0
"""How long a connection may be dead silent; a model that thinks at least sends signs of life."""


class Api:
    """An API that can be asked; raises StepError where its manifest does not suffice for that."""

    def __init__(self, manifest: HttpProvider, variables: Mapping[str, str]) -> None:
        self._base = manifest.base_url
        try:
            self.who = parse_url(self._base).authority
            self._allowed = Destination.of(self._base, private_ok=True)
        except EgressError as error:
            raise StepError(
                f"provider {manifest.id!r} cannot be asked: {error}; change its baseUrl"
            ) from None
        self.key = _whereabouts(manifest)
        self._token = _token(manifest, variables, self.key)
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
        """Send a question and yield the answer; GET without content. Raises EgressError."""
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
                read_timeout_s=SILENCE_S,
                max_response_bytes=max_response_bytes,
            ) as response,
        ):
            yield response

    def told(self, error: EgressError) -> str:
        """Return what went wrong with a connection, and with whose."""
        said = str(error)
        return self.without_token(said if self.who in said else f"{self.who}: {said}")

    def without_token(self, text: str) -> str:
        """Return a text of the server with nothing of the token in it."""
        return text.replace(self._token, "[token]") if self._token else text

    def discreet(self, part: Part) -> Part:
        """Return a part of an answer whose remarks do not hold the token."""
        match part:
            case Stderr(text):
                return Stderr(self.without_token(text))
            case Done(error=error) if error:
                return replace(part, error=self.without_token(error))
            case _:
                return part


def _whereabouts(manifest: HttpProvider) -> str:
    """Return where the token comes from, in words."""
    auth = manifest.auth
    if auth is None:
        return f"whether provider {manifest.id!r} needs 'auth' in its manifest"
    if auth.env_var:
        return f"the token in the variable {auth.env_var}"
    return f"the token of provider {manifest.id!r}"


def _token(manifest: HttpProvider, variables: Mapping[str, str], key: str) -> str:
    auth = manifest.auth
    if auth is None:
        return ""
    token = (variables.get(auth.env_var, "") if auth.env_var else auth.token or "").strip()
    if not token:
        raise StepError(f"provider {manifest.id!r} needs {key}, which is not set")
    if not (token.isascii() and token.isprintable()):
        raise StepError(f"{key} holds characters that no HTTP header can; copy it again")
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
