"""What a confined child may reach and use; the same terms at every level that confines."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    from infloop.sandbox.spawn_request import OnListening

Network: TypeAlias = Literal["open", "none", "proxy"]

OnRefused: TypeAlias = Callable[[str, int, str], None]
"""Gets the address and port that a child tried to connect to, and why it may not."""


class ResourceLimits(msgspec.Struct, frozen=True):
    """What one child may use at most; 0 sets no limit.

    - `processes`: processes and threads at one time.
    - `file_bytes`: the size of any one file.
    - `memory_bytes`: the writable memory of any one process. Where the level can use cgroups, also
      the memory of all processes together.
    - `temp_bytes`: all files in the temporary directory, where that is a file system of its own.
    """

    processes: int = 512
    open_files: int = 4096
    file_bytes: int = 16 << 30
    memory_bytes: int = 0
    temp_bytes: int = 2 << 30


class Access(msgspec.Struct, frozen=True):
    """What a child can reach besides the system's programs, its private home and its temp.

    - `read` and `write`: paths of files or directories, with everything below them. Missing paths
      are left out. Writable paths are also readable. A path with a link in it is refused.
    - `pinned`: the device and inode of what must be at some of these paths.
    - `network`: at "proxy" the child finds one listener, on `proxy_port` of 127.0.0.1.
      `on_listening` gets that socket, by its port, before the child starts, and owns it.
      `proxy_user` is the part before the `@` of the proxy's URL in the child's variables.
    - `local_ports`: services on this machine's loopback that the child reaches, also at "none".
    - The ports of infloop's own servers are never reached, whatever is listed or open.
      `on_refused` is told about these and, where the level can, about other refused addresses:
      each of them once.
    - `home`: a directory that serves as its home. Without it the home is removed with the child.
    """

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    pinned: tuple[tuple[str, int, int], ...] = ()
    network: Network = "none"
    proxy_port: int = 3128
    proxy_user: str = ""
    on_listening: OnListening | None = None
    local_ports: tuple[int, ...] = ()
    on_refused: OnRefused | None = None
    home: str = ""
    limits: ResourceLimits = ResourceLimits()
