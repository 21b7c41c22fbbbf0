"""Results of runs: packs of git objects with which another machine shows and continues a run.

Promises of every implementation:

- A pack is stored completely or not at all, and only under the run's epoch: a process whose run was
  taken over raises `Fenced` and changes nothing.
- The packs of a run have the order in which they were saved.
- They are deleted with the run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import msgspec

from infloop.errors import StoreError
from infloop.model.hashes import sha256_hex

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_PACK_BYTES = 64 << 20
MAX_RUN_BYTES = 512 << 20
PART_BYTES = 1 << 20


class StoredPack(msgspec.Struct, frozen=True):
    """A pack of a run: its place in the order, its size, and the SHA-256 of its bytes."""

    number: int
    size: int
    digest: str


class RunResults(ABC):
    """The packs of all runs."""

    @abstractmethod
    async def save(self, run_id: str, epoch: int, pack: bytes) -> StoredPack:
        """Add a pack to a run; raise StoreError if it, or all of them, would be too large."""

    @abstractmethod
    async def packs(self, run_id: str) -> list[StoredPack]:
        """Return the packs of a run, the oldest first; none if there is no such run."""

    @abstractmethod
    async def read(self, run_id: str, pack: StoredPack) -> bytes:
        """Return the bytes of a pack; raise StoreError if they are not what was saved."""


def check_pack_size(pack: bytes, stored: int) -> None:
    """Raise StoreError if a pack is too large for a run that has `stored` bytes already."""
    if len(pack) > MAX_PACK_BYTES or stored + len(pack) > MAX_RUN_BYTES:
        raise StoreError(
            f"a result of {len(pack)} bytes is too large: at most {MAX_PACK_BYTES} bytes at a time "
            f"and {MAX_RUN_BYTES} bytes for a run are stored"
        )


def parts(pack: bytes) -> Iterator[bytes]:
    """Yield the parts in which a pack is stored."""
    return (pack[at : at + PART_BYTES] for at in range(0, len(pack), PART_BYTES))


def digest_of(pack: bytes) -> str:
    return sha256_hex(pack)


def checked(pack: StoredPack, found: bytes) -> bytes:
    """Return the bytes of a pack; raise StoreError if they are not those that were saved."""
    if len(found) != pack.size or digest_of(found) != pack.digest:
        raise StoreError("a stored result is damaged: its bytes are not those that were saved")
    return found
