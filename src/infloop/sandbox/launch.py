"""What a keeper is asked to start: what a level has made of a request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

import msgspec

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

FIRST_EXTRA_FD = 4
"""Where a child finds the first of its extra descriptors, with or without a result descriptor."""

OnListening: TypeAlias = "Callable[[Mapping[int, socket.socket]], Awaitable[None]]"


class Bubble(msgspec.Struct, frozen=True):
    """The program is bubblewrap and is held until its network is ready.

    bubblewrap inherits two more descriptors after the others: the first for its `--json-status-fd`,
    the second for its `--block-fd`. In the network of what it made, a listener is opened on each of
    the `ports` of 127.0.0.1; `on_listening` gets and owns them, by port, and the child runs when it
    returns. With `joins` the launch's last descriptor is not inherited: the process's id is written
    to it first, which makes it a member of a control group.
    """

    ports: tuple[int, ...] = ()
    joins: bool = False
    on_listening: OnListening | None = None


class Launch(msgspec.Struct, frozen=True):
    """A program to start, and how it is confined on its way.

    The child inherits the `descriptors` at 4, 5, …; they stay the caller's to close. `limits` are
    pairs of a `resource.RLIMIT_*` and its value, in force before the program begins, and for good
    with `guard` or `bubble`.

    With `guard` the keeper forks and the forked process confines itself (see confine) before it
    becomes the program: the first three descriptors are its ruleset, its filter and its socket for
    reports, and are not inherited.
    """

    program: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    descriptors: tuple[int, ...] = ()
    guard: bool = False
    bubble: Bubble | None = None
    limits: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        assert not (self.guard and self.bubble)
