"""Writes a tree to a directory.

- New files are first written to a staging directory inside the root. The remaining steps are
  quick: remove, create directories, rename into place, set permissions.
- All paths are opened by descriptor beneath the root.
- A file is replaced or removed only if it is still the one that was read into the store. Otherwise
  the update stops there, so nothing is lost that is not stored.
- Running an interrupted update again completes it.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

from infloop.errors import StepError
from infloop.lowlevel.remove_tree import remove_tree_at
from infloop.workspace import beneath
from infloop.workspace.snapshots.objects import EXECUTABLE, LINK

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from infloop.workspace.snapshots.stat_cache import Folder
    from infloop.workspace.snapshots.trees import Difference, PathEntry
    from infloop.workspace.threads import Stop


STAGING_NAME = re.compile(rb"\.infloop-stage-[0-9a-f]{16}")  # noqa: TID251  (our own fixed pattern)

BlobTargets: TypeAlias = "dict[str, list[tuple[int, Difference]]]"
"""For each blob, the numbered differences whose content it is."""


class Permission(NamedTuple):
    path: bytes
    mode: int


class TreeUpdate(msgspec.Struct, frozen=True):
    """The changes to make in a directory.

    - `before` is the tree as it was scanned.
    - `special_files` are sockets and pipes to remove; they have no content to lose.
    - `modes` are the permissions of new files; files not listed get those of the umask.
    - With `remove_emptied`, directories that become empty are removed too.
    """

    differences: tuple[Difference, ...]
    before: Folder
    modes: Mapping[bytes, int] = msgspec.field(default_factory=dict)
    permissions: tuple[Permission, ...] = ()
    special_files: Collection[bytes] = ()
    remove_emptied: bool = False

    def contents(self) -> BlobTargets:
        """Return, for each blob that is needed, the differences it is the content of."""
        targets: BlobTargets = {}
        for number, each in enumerate(self.differences):
            if each.new and not each.new.is_folder:
                targets.setdefault(each.new.id, []).append((number, each))
        return targets


class StagingDirectory:
    """A directory with one file for each difference that has content, named by its number."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._name = b".infloop-stage-" + secrets.token_hex(8).encode()
        self.root_mode = beneath.make_writable(root)
        """The final permissions of the root; None leaves them unchanged."""
        os.mkdir(self._name, 0o700, dir_fd=root)
        self.descriptor = os.open(self._name, beneath.OPEN_DIRECTORY, dir_fd=root)

    def put(self, number: int, content: bytes, entry: PathEntry, mode: int | None) -> None:
        """Write the content of one difference."""
        name = b"%d" % number
        if entry.mode == LINK:
            return os.symlink(content, name, dir_fd=self.descriptor)
        usual = 0o777 if entry.mode == EXECUTABLE else 0o666
        file = os.open(name, beneath.CREATE_FILE, usual, dir_fd=self.descriptor)
        try:
            beneath.write_all(file, content)
            if mode is not None:
                os.fchmod(file, mode)
        finally:
            os.close(file)
        return None

    def put_all(
        self,
        update: TreeUpdate,
        targets: BlobTargets,
        contents: Iterable[tuple[str, bytes]],
        stop: Stop,
    ) -> None:
        """Write each blob to all its targets."""
        for blob, content in contents:
            stop.check()
            for number, each in targets[blob]:
                assert each.new
                self.put(number, content, each.new, update.modes.get(each.path))

    def close(self) -> None:
        """Remove the directory with its content, and restore the permissions of the root."""
        os.close(self.descriptor)
        remove_tree_at(self._root, self._name)
        if self.root_mode is not None:
            os.fchmod(self._root, self.root_mode)


def open_staging(root: int) -> StagingDirectory:
    """Create a staging directory, or raise StepError."""
    try:
        return StagingDirectory(root)
    except OSError as error:
        raise StepError(f"the directory is not writable: {error.strerror}") from None


def perform_update(root: int, stage: StagingDirectory, update: TreeUpdate) -> None:
    """Make the changes; all content is staged. Raise StepError if a change is not possible."""
    try:
        _Updater(root, stage, update).run()
    except OSError as error:
        path = os.fsdecode(error.filename2 or error.filename or b"the directory")
        raise StepError(f"{path!r} could not be changed: {error.strerror}") from None


class _Updater:
    def __init__(self, root: int, stage: StagingDirectory, update: TreeUpdate) -> None:
        self._root = root
        self._stage = stage
        self._update = update
        self._opened: dict[bytes, int] = {}
        """The previous permissions of directories that were made writable."""

    def run(self) -> None:
        update = list(enumerate(self._update.differences))
        for _, each in update:
            if each.old and not each.old.is_folder and each.new is None:
                self._remove(each.path)
        for path in self._update.special_files:
            self._remove_special_file(path)
        for _, each in reversed(update):
            if each.old and each.old.is_folder:
                self._remove_folder(each.path)
        for _, each in update:
            if each.new and each.new.is_folder:
                self._add_folder(each.path)
        for number, each in update:
            if each.new and not each.new.is_folder:
                self._place(number, each)
        self._set_permissions()

    def _remove(self, path: bytes) -> None:
        with self._writable_parent(path) as (above, name):
            self._must_be_as_read(path, above, name)
            os.unlink(name, dir_fd=above)
        if self._update.remove_emptied:
            self._remove_emptied(path.rpartition(b"/")[0])

    def _remove_emptied(self, path: bytes) -> None:
        """Remove a directory if it is empty, and then its parents likewise."""
        while path:
            try:
                with self._writable_parent(path) as (above, name):
                    os.rmdir(name, dir_fd=above)
            except OSError:
                return
            path = path.rpartition(b"/")[0]

    def _remove_special_file(self, path: bytes) -> None:
        with suppress(FileNotFoundError), self._writable_parent(path) as (above, name):
            status = os.stat(name, dir_fd=above, follow_symlinks=False)
            if _is_special(status):
                os.unlink(name, dir_fd=above)

    def _remove_folder(self, path: bytes) -> None:
        # It stays if it contains something that must not be removed.
        with suppress(OSError), self._writable_parent(path) as (above, name):
            os.rmdir(name, dir_fd=above)

    def _add_folder(self, path: bytes) -> None:
        with self._writable_parent(path) as (above, name):
            os.mkdir(name, dir_fd=above)

    def _place(self, number: int, each: Difference) -> None:
        if each.old is None and self._update.remove_emptied:
            beneath.make_directories(self._root, each.path.rpartition(b"/")[0])
        with self._writable_parent(each.path) as (above, name):
            if each.old:
                self._must_be_as_read(each.path, above, name)
            else:
                self._must_be_nothing(each.path, above, name)
            source = b"%d" % number
            os.rename(source, name, src_dir_fd=self._stage.descriptor, dst_dir_fd=above)

    def _must_be_as_read(self, path: bytes, above: int, name: bytes) -> None:
        try:
            status = os.stat(name, dir_fd=above, follow_symlinks=False)
        except FileNotFoundError:
            raise _changed_meanwhile(path) from None
        leaf = self._update.before.leaf(path)
        # Not the change time: removing another hard link of the file changes it.
        now = (status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode)
        if leaf is None or now != (leaf.mtime, leaf.size, leaf.inode, leaf.mode):
            raise _changed_meanwhile(path)

    def _must_be_nothing(self, path: bytes, above: int, name: bytes) -> None:
        with suppress(FileNotFoundError):
            os.stat(name, dir_fd=above, follow_symlinks=False)
            raise _changed_meanwhile(path)

    def _set_permissions(self) -> None:
        final = {each.path: each.mode for each in self._update.permissions}
        # The deepest first, because a parent may become inaccessible.
        for path, mode in sorted({**self._opened, **final}.items(), reverse=True):
            if path:
                self._set_permission(path, mode)
        # The root last, because the staging directory is still in it.
        self._stage.root_mode = final.get(b"", self._stage.root_mode)

    def _set_permission(self, path: bytes, mode: int) -> None:
        with suppress(FileNotFoundError), beneath.open_parent(self._root, path) as (above, name):
            descriptor = os.open(name, beneath.OPEN_FILE, dir_fd=above)
            try:
                os.fchmod(descriptor, mode)
            finally:
                os.close(descriptor)

    @contextmanager
    def _writable_parent(self, path: bytes) -> Iterator[tuple[int, bytes]]:
        with beneath.open_parent(self._root, path) as (above, name):
            mode = beneath.make_writable(above)
            if mode is not None:
                self._opened.setdefault(path.rpartition(b"/")[0], mode)
            yield above, name


def _is_special(status: os.stat_result) -> bool:
    kinds = (stat.S_ISREG, stat.S_ISDIR, stat.S_ISLNK)
    return not any(is_kind(status.st_mode) for is_kind in kinds)


def _changed_meanwhile(path: bytes) -> StepError:
    return StepError(
        f"{os.fsdecode(path)!r} changed during the update: "
        "stop the programs that write to the directory and try again"
    )
