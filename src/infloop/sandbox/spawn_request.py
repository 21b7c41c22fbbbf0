"""What a keeper is asked to start: the request of a caller as a level turned it into a command."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import msgspec

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

FIRST_EXTRA_FD = 4
"""The number of a child's first extra descriptor, with or without a result descriptor."""

PlaceKind: TypeAlias = Literal["cwd", "bind", "read-only", "covered"]
OnListening: TypeAlias = "Callable[[Mapping[int, socket.socket]], Awaitable[None]]"


class Place(NamedTuple):
    """What must be at a path when a child starts, so that nobody can exchange it before.

    - `cwd`: the working directory that the keeper has entered.
    - `bind`, `read-only`: this file or directory, in the root that bubblewrap made.
    - `covered`: anything else but this directory, in that root.
    """

    kind: PlaceKind
    device: int
    inode: int
    path: str


class BubblewrapOptions(msgspec.Struct, frozen=True):
    """How the keeper handles a program that is bubblewrap.

    - bubblewrap inherits two more descriptors after the others: the first for its
      `--json-status-fd`, the second for its `--seccomp`.
    - In the network namespace that bubblewrap made, a listener is opened on each of the `ports` of
      127.0.0.1. `on_listening` gets the listeners by port and owns them. The child starts when it
      returns.
    - After the inherited descriptors come some that are not: a file with the seccomp filter of
      the program, those of `brokered`, and that of `joins_cgroup`.
    - With `brokered` bubblewrap starts with another filter, which sends connect() to the connect
      broker. Its descriptors are the filter and the socket to the broker.
    - With `joins_cgroup` the keeper writes the process id to one more descriptor, which makes the
      process a member of that cgroup.
    - With `max_pids` no process id in its namespace is that high, which bounds their number.
    - With `traced` the kernel kills the child when its keeper is gone. Without it bubblewrap needs
      `--die-with-parent`.
    """

    ports: tuple[int, ...] = ()
    brokered: bool = False
    joins_cgroup: bool = False
    on_listening: OnListening | None = None
    traced: bool = True
    max_pids: int = 0


class SpawnRequest(msgspec.Struct, frozen=True):
    """A program to start, and how it is confined before it starts.

    - The child inherits the `descriptors` at 4, 5, …; the caller closes them.
    - The child starts only if the `places` are what they should be. At bubblewrap, `on_placed` is
      called when that is known.
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
    places: tuple[Place, ...] = ()
    on_placed: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        assert not (self.guard and self.bubblewrap)
