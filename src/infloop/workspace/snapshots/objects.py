"""The private object store: a bare git repository that this module writes and git reads.

- Objects are written as one pack for each batch: two files and a few syncs.
- A pack gets its final name when it is complete. A crash leaves at most a temporary file.
- git merges small packs into larger ones from time to time (see `store`).
- The ids of all objects are kept in memory, read from the pack indexes. So no object is written
  twice, and a pack that was removed is noticed.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import struct
import threading
import zlib
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from infloop.workspace.durable_files import sync_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path
    from types import TracebackType
    from typing import Self

ObjectKind: TypeAlias = Literal["commit", "tree", "blob"]

ID_BYTES = 20
FILE, EXECUTABLE, LINK, FOLDER = b"100644", b"100755", b"120000", b"40000"

_KINDS: dict[ObjectKind, int] = {"commit": 1, "tree": 2, "blob": 3}
_MAX_PACK_BYTES = 1 << 30  # over 2 GiB, a pack index needs longer offsets
_BLOCK = 1 << 20
_IDS_OFFSET = 8 + 256 * 4

_CONFIG = """\
[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = true
\tlogAllRefUpdates = false
[gc]
\tauto = 0
[pack]
\tthreads = 1
[merge]
\trenames = false
\tdirectoryRenames = false
\tconflictStyle = merge
"""

# A .gitattributes in a tree must change no byte and start no driver. `-diff` and `-merge` would
# mean "binary"; `!` restores the behaviour without attributes.
_ATTRIBUTES = "* -text -eol -ident -filter -working-tree-encoding !diff !merge !whitespace\n"


class TreeEntry(NamedTuple):
    """One entry of a tree object."""

    name: bytes
    mode: bytes
    id: bytes


class Objects:
    """The repository at `directory`; it is created before the first write."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.packs = directory / "objects" / "pack"
        self._lock = threading.Lock()
        self._packs_known: set[str] = set()
        self.known: set[bytes] = set()
        """The ids of all objects at the last `refresh`."""

    def prepare(self) -> None:
        """Create the repository if it does not exist."""
        if (self.directory / "HEAD").exists():
            return
        for below in ("objects/pack", "objects/info", "refs/heads", "info"):
            (self.directory / below).mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        _write_atomically(self.directory / "config", _CONFIG)
        _write_atomically(self.directory / "info" / "attributes", _ATTRIBUTES)
        # Last, because its existence means that the repository is complete.
        _write_atomically(self.directory / "HEAD", "ref: refs/heads/none\n")

    def refresh(self) -> None:
        """Read the indexes of packs that other processes or git added or removed."""
        with self._lock:
            names = (entry.name for entry in os.scandir(self.packs))
            present = {name for name in names if name.startswith("pack-") and name.endswith(".idx")}
            if self._packs_known - present:
                self._packs_known, self.known = set(), set()
            for name in present - self._packs_known:
                self.known.update(object_ids_in((self.packs / name).read_bytes()))
            self._packs_known = present

    def pack_count(self) -> int:
        """Return the number of packs at the last `refresh`."""
        return len(self._packs_known)

    def protect_packs(self) -> None:
        """Make packs that git has just written durable, and readable for us alone."""
        for entry in os.scandir(self.packs):
            if entry.stat().st_mode & 0o077:
                os.chmod(entry.path, 0o400)  # noqa: PTH101  (an entry's path is a string)
        sync_directory(self.packs)

    def batch(self) -> Batch:
        """Start writing objects; they become readable when the `with` block ends."""
        return Batch(self.packs, self.known, self._add_known)

    def _add_known(self, name: str, ids: set[bytes]) -> None:
        with self._lock:
            self._packs_known.add(name)
            self.known |= ids

    def remove_temporary_files(self) -> None:
        """Remove the files of writers that died; no writer may be active."""
        for entry in os.scandir(self.packs):
            if entry.name.startswith("tmp_"):
                os.unlink(entry.path)  # noqa: PTH108  (an entry's path is a string)


class Batch:
    """Objects being written; none can be read until the block ends without an error."""

    def __init__(
        self, packs: Path, known: set[bytes], on_stored: Callable[[str, set[bytes]], None]
    ) -> None:
        self._packs = packs
        self._known = known
        self._on_stored = on_stored
        self._added: set[bytes] = set()
        self._pack: _Pack | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pack, self._pack = self._pack, None
        if pack is None:
            return
        if error is None:
            self._finish(pack)
        else:
            pack.abandon()

    def __contains__(self, object_id: bytes) -> bool:
        return object_id in self._known or object_id in self._added

    def add(self, kind: ObjectKind, data: bytes) -> bytes:
        """Write an object unless it exists; return its id."""
        digest = hashlib.sha1(b"%s %d\0" % (kind.encode(), len(data)), usedforsecurity=False)
        digest.update(data)
        object_id = digest.digest()
        if object_id in self:
            return object_id
        if self._pack is None:
            self._pack = _Pack(self._packs)
        self._pack.add(kind, data, object_id)
        self._added.add(object_id)
        if self._pack.size > _MAX_PACK_BYTES:
            pack, self._pack = self._pack, None
            self._finish(pack)
        return object_id

    def tree(self, entries: Iterable[TreeEntry]) -> bytes:
        """Write a tree; return its id."""
        lines = sorted(entries, key=_tree_order)
        return self.add("tree", b"".join([b"%s %s\0%s" % (e.mode, e.name, e.id) for e in lines]))

    def _finish(self, pack: _Pack) -> None:
        self._on_stored(pack.finish(), self._added)


def _tree_order(entry: TreeEntry) -> bytes:
    return entry.name + b"/" if entry.mode == FOLDER else entry.name


class _Pack:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / f"tmp_{secrets.token_hex(8)}.pack"
        self._file = self._path.open("xb+", buffering=_BLOCK)
        self._file.write(b"PACK" + struct.pack(">LL", 2, 0))
        self._entries: list[tuple[bytes, int, int]] = []
        self.size = 12

    def add(self, kind: ObjectKind, data: bytes, object_id: bytes) -> None:
        packed = _entry_head(_KINDS[kind], len(data)) + zlib.compress(data, 1)
        self._entries.append((object_id, zlib.crc32(packed), self.size))
        self._file.write(packed)
        self.size += len(packed)

    def finish(self) -> str:
        """Give the pack its final name; return the name of its index."""
        checksum = self._sign()
        listing = self._path.with_suffix(".idx")
        with listing.open("xb") as file:
            file.write(_pack_index(sorted(self._entries), checksum))
            _sync(file.fileno())
        name = f"pack-{checksum.hex()}"
        self._path.replace(self._directory / f"{name}.pack")
        listing.replace(self._directory / f"{name}.idx")
        sync_directory(self._directory)
        return f"{name}.idx"

    def abandon(self) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)

    def _sign(self) -> bytes:
        """Write the number of objects, which is known only now, and the checksum."""
        self._file.seek(8)
        self._file.write(struct.pack(">L", len(self._entries)))
        self._file.seek(0)
        digest = hashlib.sha1(usedforsecurity=False)
        while block := self._file.read(_BLOCK):
            digest.update(block)
        self._file.write(digest.digest())
        self._file.flush()
        _sync(self._file.fileno())
        self._file.close()
        return digest.digest()


def _entry_head(kind: int, size: int) -> bytes:
    head = bytearray()
    byte, size = (kind << 4) | (size & 15), size >> 4
    while size:
        head.append(byte | 0x80)
        byte, size = size & 0x7F, size >> 7
    head.append(byte)
    return bytes(head)


def _pack_index(entries: list[tuple[bytes, int, int]], pack_checksum: bytes) -> bytes:
    """Return a pack index (version 2) for sorted entries of (id, crc32, offset)."""
    counts = [0] * 256
    for object_id, _, _ in entries:
        counts[object_id[0]] += 1
    totals, total = [], 0
    for count in counts:
        total += count
        totals.append(total)
    body = b"".join(
        (
            b"\xfftOc" + struct.pack(">L", 2),
            struct.pack(">256L", *totals),
            b"".join(object_id for object_id, _, _ in entries),
            struct.pack(f">{len(entries)}L", *(crc for _, crc, _ in entries)),
            struct.pack(f">{len(entries)}L", *(offset for _, _, offset in entries)),
            pack_checksum,
        )
    )
    return body + hashlib.sha1(body, usedforsecurity=False).digest()


def object_ids_in(listing: bytes) -> Iterable[bytes]:
    """Return the object ids in a pack index."""
    (count,) = struct.unpack_from(">L", listing, _IDS_OFFSET - 4)
    end = _IDS_OFFSET + count * ID_BYTES
    return (listing[at : at + ID_BYTES] for at in range(_IDS_OFFSET, end, ID_BYTES))


def _write_atomically(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    temporary.write_text(text, encoding="ascii")
    temporary.replace(path)


def _sync(descriptor: int) -> None:
    os.fchmod(descriptor, 0o400)
    os.fsync(descriptor)
