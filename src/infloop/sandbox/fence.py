"""What one confined child may reach; the same words at every level that confines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    from infloop.sandbox.launch import OnListening

Network: TypeAlias = Literal["open", "none", "proxy"]


class Limits(msgspec.Struct, frozen=True):
    """What one child may use at most; 0 sets no limit of ours.

    `processes` is how many it may have at once, with threads; `file_bytes` the size of any one
    file; `memory_bytes` the writable memory of any one process, and where the level can (see
    cgroup) the memory of all together; `temp_bytes`, where temp is a
    file system of its own, the size of all files in it.
    """

    processes: int = 512
    open_files: int = 4096
    file_bytes: int = 16 << 30
    memory_bytes: int = 0
    temp_bytes: int = 2 << 30


class Fence(msgspec.Struct, frozen=True):
    """What a child can reach beside the system's programs, its private home and its temp.

    `read` and `write` are real paths of files or directories with all below them; what is not
    there is left out, and what may be written may be read. With the network at `proxy` the child
    finds one listener, on `proxy_port` of 127.0.0.1: `on_listening` gets and owns that socket, by
    its port, before the child begins; `proxy_user` is what stands before the `@` of its URL in the
    child's variables. `local_ports` are services on this machine's loopback that
    it reaches as well, at `none` too. `home` is a directory that serves as its home; without one
    it gets one that is gone with it.
    """

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    network: Network = "none"
    proxy_port: int = 3128
    proxy_user: str = ""
    on_listening: OnListening | None = None
    local_ports: tuple[int, ...] = ()
    home: str = ""
    limits: Limits = Limits()
