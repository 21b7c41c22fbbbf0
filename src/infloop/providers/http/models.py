"""The models that an HTTP provider offers: as it tells now, or else as its manifest lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from infloop.errors import EgressError, StepError
from infloop.model.provider import Profile
from infloop.providers.http.api import Api
from infloop.providers.http.refusals import read_refusal
from infloop.providers.idle_timeout import Patience, Stalled
from infloop.providers.json_lines import as_objects, as_words, read_frame
from infloop.providers.lines import Line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infloop.model.provider import HttpProvider

PATIENCE_MS = 20_000
MAX_LIST_BYTES = 4 << 20
MOST_PROFILES = 2_000
LONGEST_NAME = 200


class Offer(NamedTuple):
    """What there is to choose from, and who says so: the server now, or the manifest."""

    profiles: tuple[Profile, ...]
    source: Literal["live", "static"]


async def offered_profiles(manifest: HttpProvider, variables: Mapping[str, str]) -> Offer:
    """Ask for the models; raise StepError if there is no answer and the manifest lists none."""
    if manifest.profiles_endpoint:
        try:
            listed = await _ask(manifest, manifest.profiles_endpoint, variables)
            return Offer(listed, "live")
        except StepError:
            if not manifest.profiles:
                raise
    return Offer(manifest.profiles, "static")


async def _ask(
    manifest: HttpProvider, path: str, variables: Mapping[str, str]
) -> tuple[Profile, ...]:
    api = Api(manifest, variables)
    try:
        body = await Patience(PATIENCE_MS).hold(_body(api, path))
    except Stalled:
        raise StepError(f"{api.who} did not list its models in {PATIENCE_MS} ms") from None
    except EgressError as error:
        raise StepError(f"{api.told(error)}; its models cannot be listed") from None
    frame = read_frame(Line(body.decode("utf-8", "replace"))) or {}
    offered = [_profile(one) for one in as_objects(frame.get("data"))[:MOST_PROFILES]]
    profiles = tuple(one for one in offered if one is not None)
    if not profiles:
        raise StepError(f"{api.who} lists no models at {path!r}")
    return profiles


async def _body(api: Api, path: str) -> bytes:
    async with api.ask(path, max_response_bytes=MAX_LIST_BYTES) as response:
        if 200 <= response.status < 300:
            return await response.read()
        refusal = await read_refusal(response)
    told = api.without_token(refusal.told())
    raise StepError(f"{api.who} answered {refusal.status} when asked for its models: {told}")


def _profile(listed: Mapping[str, object]) -> Profile | None:
    """Return a model as servers list it, in either dialect; None for what cannot be one."""
    name, label = as_words(listed.get("id")), as_words(listed.get("display_name"))
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        return None
    return Profile(id=name, label=label if label and label.isprintable() else None)
