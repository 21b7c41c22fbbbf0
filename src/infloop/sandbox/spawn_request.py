"""What a keeper is asked to start: the request of a caller as a level turned it into a command."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

import msgspec

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

FIRST_EXTRA_FD = 4
"""The number of a child's first extra descriptor, with or without a result descriptor."""

OnListening: TypeAlias = "Callable[[Mapping[int, socket.socket]], Awaitable[None]]"


class BubblewrapOptions(msgspec.Struct, frozen=True):
    """How the keeper handles a program that is bubblewrap.

    - bubblewrap inherits two more descriptors after the others: the first for its
      `--json-status-fd`, the second for its `--block-fd`.
    - In the network namespace that bubblewrap made, a listener is opened on each of the `ports` of
      127.0.0.1. `on_listening` gets the listeners by port and owns them. The child starts when it
      returns.
    - With `joins_cgroup` the last descriptor of the request is not inherited. The keeper writes the
      process id to it, which makes the process a member of that cgroup.
    """

    ports: tuple[int, ...] = ()
    joins_cgroup: bool = False
    on_listening: OnListening | None = None


class SpawnRequest(msgspec.Struct, frozen=True):
    """A program to start, and how it is confined before it starts.

    - The child inherits the `descriptors` at 4, 5, …; the caller closes them.
    - `limits` are pairs of a `resource.RLIMIT_*` and its value, set before the program starts. With
      `guard` or `bubblewrap` the child cannot raise them again.
    - With `guard` the keeper forks and the forked process confines itself (see guard_child). The
      first three descriptors are then its Landlock ruleset, its seccomp filter and the socket to
      the connect broker. They are not inherited.
    """

    program: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    descriptors: tuple[int, ...] = ()
    guard: bool = False
    bubblewrap: BubblewrapOptions | None = None
    limits: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        assert not (self.guard and self.bubblewrap)
