"""Making a directory be as a tree says.

New files are first written whole to a staging directory inside the root, so that what is left to
do is quick: remove, make directories, rename into place, set permissions. Everything goes by
descriptor beneath the root. Before a file is replaced or removed it must still be the one that was
read into the store, so nothing is ever lost that is not kept; if it is not, the work stops there.

Done again after an interruption, it finishes what was begun.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from infloop.errors import StepError
from infloop.lowlevel.remove_tree import remove_tree_at
from infloop.workspace import beneath
from infloop.workspace.snapshots.objects import LINK, PROGRAM

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from infloop.workspace.snapshots.index import Folder
    from infloop.workspace.snapshots.trees import Difference, Entry
    from infloop.workspace.threads import Stop


STAGE = re.compile(rb"\.infloop-stage-[0-9a-f]{16}")  # noqa: TID251  (our own fixed pattern)
"""The name of a staging directory."""


Wanted: TypeAlias = "dict[str, list[tuple[int, Difference]]]"
"""For each blob, the numbered differences that it is the content of."""


class Permission(NamedTuple):
    """Permission bits that a path is to have."""

    path: bytes
    mode: int


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be done.

    `before` is the tree as it was read; `fleeting` are sockets and pipes, which hold nothing and
    may go. The permissions of new files are in `modes`; those not in it get what the umask gives.
    With `tidy`, directories that are emptied go too, though no difference says so.
    """

    differences: tuple[Difference, ...]
    before: Folder
    modes: Mapping[bytes, int] = field(default_factory=dict)
    permissions: tuple[Permission, ...] = ()
    fleeting: Collection[bytes] = ()
    tidy: bool = False

    def contents(self) -> Wanted:
        """Return, for each blob that is needed, which differences it is for."""
        wanted: Wanted = {}
        for number, each in enumerate(self.differences):
            if each.new and not each.new.is_folder:
                wanted.setdefault(each.new.id, []).append((number, each))
        return wanted


class Stage:
    """The staging directory: one file for each difference that needs one, by number."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._name = b".infloop-stage-" + secrets.token_hex(8).encode()
        self.root_mode = beneath.make_writable(root)
        """The permissions to give the root at the end, None to leave it as it is."""
        os.mkdir(self._name, 0o700, dir_fd=root)
        self.descriptor = os.open(self._name, beneath.FOLDER, dir_fd=root)

    def put(self, number: int, content: bytes, entry: Entry, mode: int | None) -> None:
        """Write the content of one difference."""
        name = b"%d" % number
        if entry.mode == LINK:
            return os.symlink(content, name, dir_fd=self.descriptor)
        usual = 0o777 if entry.mode == PROGRAM else 0o666
        file = os.open(name, beneath.CREATE, usual, dir_fd=self.descriptor)
        try:
            beneath.write_all(file, content)
            if mode is not None:
                os.fchmod(file, mode)
        finally:
            os.close(file)
        return None

    def put_all(
        self, work: Work, wanted: Wanted, contents: Iterable[tuple[str, bytes]], stop: Stop
    ) -> None:
        """Write some contents to all places that they are wanted at."""
        for blob, content in contents:
            stop.check()
            for number, each in wanted[blob]:
                assert each.new
                self.put(number, content, each.new, work.modes.get(each.path))

    def close(self) -> None:
        """Remove the directory and what is left in it."""
        os.close(self.descriptor)
        remove_tree_at(self._root, self._name)
        if self.root_mode is not None:
            os.fchmod(self._root, self.root_mode)


def open_stage(root: int) -> Stage:
    """Make a staging directory, or raise StepError."""
    try:
        return Stage(root)
    except OSError as error:
        raise StepError(f"the directory cannot be written to: {error.strerror}") from None


def perform(root: int, stage: Stage, work: Work) -> None:
    """Do the work; everything it needs is staged. Raise StepError where it cannot go on."""
    try:
        _Performance(root, stage, work).run()
    except OSError as error:
        path = os.fsdecode(error.filename2 or error.filename or b"the directory")
        raise StepError(f"{path!r} could not be changed: {error.strerror}") from None


class _Performance:
    def __init__(self, root: int, stage: Stage, work: Work) -> None:
        self._root = root
        self._stage = stage
        self._work = work
        self._opened: dict[bytes, int] = {}
        """The permissions of directories that had to be made writable."""

    def run(self) -> None:
        work = list(enumerate(self._work.differences))
        for _, each in work:
            if each.old and not each.old.is_folder and each.new is None:
                self._remove(each.path)
        for path in self._work.fleeting:
            self._remove_fleeting(path)
        for _, each in reversed(work):
            if each.old and each.old.is_folder:
                self._remove_folder(each.path)
        for _, each in work:
            if each.new and each.new.is_folder:
                self._add_folder(each.path)
        for number, each in work:
            if each.new and not each.new.is_folder:
                self._place(number, each)
        self._set_permissions()

    def _remove(self, path: bytes) -> None:
        with self._writable_parent(path) as (above, name):
            self._must_be_as_read(path, above, name)
            os.unlink(name, dir_fd=above)
        if self._work.tidy:
            self._remove_emptied(path.rpartition(b"/")[0])

    def _remove_emptied(self, path: bytes) -> None:
        """Remove a directory that holds nothing any more, and so on upwards."""
        while path:
            try:
                with self._writable_parent(path) as (above, name):
                    os.rmdir(name, dir_fd=above)
            except OSError:
                return
            path = path.rpartition(b"/")[0]

    def _remove_fleeting(self, path: bytes) -> None:
        with suppress(FileNotFoundError), self._writable_parent(path) as (above, name):
            status = os.stat(name, dir_fd=above, follow_symlinks=False)
            if _holds_nothing(status):
                os.unlink(name, dir_fd=above)

    def _remove_folder(self, path: bytes) -> None:
        # It stays when something in it was not to be touched.
        with suppress(OSError), self._writable_parent(path) as (above, name):
            os.rmdir(name, dir_fd=above)

    def _add_folder(self, path: bytes) -> None:
        with self._writable_parent(path) as (above, name):
            os.mkdir(name, dir_fd=above)

    def _place(self, number: int, each: Difference) -> None:
        if each.old is None and self._work.tidy:
            beneath.make_folders(self._root, each.path.rpartition(b"/")[0])
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
            raise _disturbed(path) from None
        leaf = self._work.before.leaf(path)
        # Not its change time: removing another name of the same file moves that.
        now = (status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode)
        if leaf is None or now != (leaf.mtime, leaf.size, leaf.inode, leaf.mode):
            raise _disturbed(path)

    def _must_be_nothing(self, path: bytes, above: int, name: bytes) -> None:
        with suppress(FileNotFoundError):
            os.stat(name, dir_fd=above, follow_symlinks=False)
            raise _disturbed(path)

    def _set_permissions(self) -> None:
        final = {each.path: each.mode for each in self._work.permissions}
        # The deepest first: a directory may be made one that cannot be entered.
        for path, mode in sorted({**self._opened, **final}.items(), reverse=True):
            if path:
                self._set_permission(path, mode)
        # The root last of all: the staging directory is still in it.
        self._stage.root_mode = final.get(b"", self._stage.root_mode)

    def _set_permission(self, path: bytes, mode: int) -> None:
        with suppress(FileNotFoundError), beneath.parent(self._root, path) as (above, name):
            descriptor = os.open(name, beneath.READ, dir_fd=above)
            try:
                os.fchmod(descriptor, mode)
            finally:
                os.close(descriptor)

    @contextmanager
    def _writable_parent(self, path: bytes) -> Iterator[tuple[int, bytes]]:
        with beneath.parent(self._root, path) as (above, name):
            mode = beneath.make_writable(above)
            if mode is not None:
                self._opened.setdefault(path.rpartition(b"/")[0], mode)
            yield above, name


def _holds_nothing(status: os.stat_result) -> bool:
    kinds = (stat.S_ISREG, stat.S_ISDIR, stat.S_ISLNK)
    return not any(is_kind(status.st_mode) for is_kind in kinds)


def _disturbed(path: bytes) -> StepError:
    return StepError(
        f"{os.fsdecode(path)!r} changed while it was to be replaced: "
        "stop what is working in the directory and try again"
    )
