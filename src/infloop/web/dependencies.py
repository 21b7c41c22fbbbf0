"""What routes and guards are given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from infloop.application.application import Application
    from infloop.application.login import Logins
    from infloop.application.sessions import Sessions
    from infloop.model.clock import Clock
    from infloop.web.connections import Connections
    from infloop.web.exposure import Exposure
    from infloop.web.metrics import Metrics
    from infloop.web.streams import Frames, Streams


class WebDependencies(msgspec.Struct, frozen=True):
    """The use cases, and what only HTTP needs; `own_user` is the user of this process."""

    application: Application
    clock: Clock
    exposure: Exposure
    own_user: int
    connections: Connections
    sessions: Sessions
    logins: Logins
    streams: Streams
    frames: Frames
    metrics: Metrics
