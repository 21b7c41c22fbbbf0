"""Lists the models of an HTTP provider: from the server, or else from its manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from infloop.errors import EgressError, StepError
from infloop.model.provider import Profile
from infloop.providers.http.api import Api
from infloop.providers.http.error_responses import read_error
from infloop.providers.idle_timeout import IdleTimeout, Stalled
from infloop.providers.json_lines import as_objects, as_str, json_object
from infloop.providers.lines import Line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infloop.model.provider import HttpProvider

LIST_TIMEOUT_MS = 20_000
MAX_LIST_BYTES = 4 << 20
MAX_PROFILES = 2_000
MAX_NAME_CHARS = 200


class ModelList(NamedTuple):
    """The models, and whether they come from the server (live) or the manifest (static)."""

    profiles: tuple[Profile, ...]
    source: Literal["live", "static"]


async def list_profiles(manifest: HttpProvider, variables: Mapping[str, str]) -> ModelList:
    """Return the models; raise StepError if the server fails and the manifest lists none."""
    if manifest.profiles_endpoint:
        try:
            listed = await _ask(manifest, manifest.profiles_endpoint, variables)
            return ModelList(listed, "live")
        except StepError:
            if not manifest.profiles:
                raise
    return ModelList(manifest.profiles, "static")


async def _ask(
    manifest: HttpProvider, path: str, variables: Mapping[str, str]
) -> tuple[Profile, ...]:
    api = Api(manifest, variables)
    try:
        body = await IdleTimeout(LIST_TIMEOUT_MS).wait_for(_body(api, path))
    except Stalled:
        raise StepError(f"{api.host} did not list its models in {LIST_TIMEOUT_MS} ms") from None
    except EgressError as error:
        raise StepError(f"{api.describe(error)}; its models cannot be listed") from None
    answer = json_object(Line(body.decode("utf-8", "replace"))) or {}
    listed = [_profile(one) for one in as_objects(answer.get("data"))[:MAX_PROFILES]]
    profiles = tuple(one for one in listed if one is not None)
    if not profiles:
        raise StepError(f"{api.host} lists no models at {path!r}")
    return profiles


async def _body(api: Api, path: str) -> bytes:
    async with api.ask(path, max_response_bytes=MAX_LIST_BYTES) as response:
        if 200 <= response.status < 300:
            return await response.read()
        error = await read_error(response)
    message = api.redact_text(error.message())
    raise StepError(f"{api.host} answered {error.status} when asked for its models: {message}")


def _profile(listed: Mapping[str, object]) -> Profile | None:
    """Return a model from a server's list, in either dialect; None for an invalid entry."""
    name, label = as_str(listed.get("id")), as_str(listed.get("display_name"))
    if not name or len(name) > MAX_NAME_CHARS or not name.isprintable():
        return None
    return Profile(id=name, label=label if label and label.isprintable() else None)
