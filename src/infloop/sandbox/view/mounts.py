"""The file view of a child at level `sandbox`, as arguments for bubblewrap (pure).

The view starts empty. It contains only what is listed here or in the child's `access`:

    /usr (and /bin, /lib, …)    the system's programs, read-only
    /etc                        made for the child: its user, no name servers unless the network is
                                open, certificates, the linker's cache, alternatives, fonts
    what its programs need      installations outside /usr, read-only (see program_paths)
    HOME, /tmp, /dev/shm        its own, of limited size, removed with it
    /proc                       its own processes; kernel settings read-only
    /dev                        null, zero, full, random, urandom, tty, its own terminals
    paths of its access         readable or writable; the deeper path decides
    hidden paths                empty, unless a deeper path is in its access
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from infloop.sandbox.access import Access

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_NEVER_GRANTED = frozenset({"/", "/proc", "/sys", "/dev", "/run", "/etc"})
_SHARED_MEMORY_BYTES = 256 << 20
_TEMP, _OTHER_TEMP = "/tmp", "/var/tmp"  # noqa: S108  (the child's own)

MountKind: TypeAlias = Literal["link", "tmpfs", "ro", "rw", "hidden"]
_ORDER: tuple[MountKind, ...] = ("link", "tmpfs", "ro", "rw", "hidden")


class RootLayout(msgspec.Struct, frozen=True):
    """The parts of this machine's root directory that children see.

    - `links`: directories of the root that are links, with their targets.
    - `directories`: those that are not.
    - `etc`: directories of /etc that are mounted as they are.
    - `copied`: files of /etc with their content.
    - `time_zone`: the target of /etc/localtime.
    - `name_service`: the files that configure name resolution, with their targets.
    - `masked`: files of /proc that children do not see.
    - `for_root`: the files of the kernel that are root's belong to children too.
    """

    links: tuple[tuple[str, str], ...]
    directories: tuple[str, ...]
    etc: tuple[str, ...]
    copied: tuple[tuple[str, bytes], ...]
    time_zone: str
    name_service: tuple[tuple[str, str], ...]
    masked: tuple[str, ...]
    for_root: bool = False


class Mount(NamedTuple):
    """What is at a path: an empty file system, `source` (read-only or not), or a link to it."""

    path: str
    kind: MountKind
    source: str = ""


def refusal(access: Access) -> str:
    """Return why an access cannot be granted; empty if it can."""
    for path in (*access.read, *access.write):
        if not path.startswith("/"):
            return f"path {path!r} is not absolute"
        if path in _NEVER_GRANTED:
            return f"path {path!r} cannot be granted to a child: name a directory inside it"
    for path in access.write:
        if is_in(path, _SYSTEM):
            return f"path {path!r} cannot be written by a child: it belongs to the system"
    return ""


def can_be_home(path: str) -> bool:
    """Return whether a child's own home may be at `path`."""
    return len(path) > 1 and path[0] == "/" and not is_in(path, (*_SYSTEM, *_NEVER_GRANTED))


def view(root: RootLayout, access: Access, mounts: Iterable[Mount]) -> list[str]:
    """Return the arguments that build the view."""
    return [
        *_root_arguments(root, open_network=access.network == "open"),
        *_private_arguments(root),
        *_mount_arguments(mounts, access),
        *(("--remount-ro", "/proc") if root.for_root else ()),
        *("--remount-ro", "/dev", "--remount-ro", "/"),
    ]


def path_in_view(path: str) -> str:
    """Return where a path is in the view, without the only link there that the machine lacks."""
    return _TEMP + path.removeprefix(_OTHER_TEMP) if is_in(path, (_OTHER_TEMP,)) else path


def etc_files(
    root: RootLayout, access: Access, *, uid: int, gid: int, home: str
) -> dict[str, bytes]:
    """Return the files of /etc that are made for the child."""
    files = {
        "/etc/passwd": f"agent:x:{uid}:{gid}:agent:{home}:/bin/sh\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
        "/etc/group": f"agent:x:{gid}:\nnogroup:x:65534:\n",
        "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    }
    if access.network != "open":
        files |= {
            "/etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
            "/etc/resolv.conf": "# only the proxy resolves names\n",
        }
    return {**dict(root.copied), **{path: text.encode() for path, text in files.items()}}


def _root_arguments(root: RootLayout, *, open_network: bool) -> list[str]:
    arguments = ["--ro-bind", "/usr", "/usr"]
    for path, target in root.links:
        arguments += ["--symlink", target, path]
    for path in (*root.directories, *root.etc):
        arguments += ["--ro-bind", path, path]
    if root.time_zone:
        arguments += ["--symlink", root.time_zone, "/etc/localtime"]
    for path, source in root.name_service if open_network else ():
        arguments += ["--ro-bind", source, path]
    return arguments


def _private_arguments(root: RootLayout) -> list[str]:
    arguments = ["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev"]
    # It holds keys, and has files for each network interface.
    arguments += ["--size", "4096", "--tmpfs", "/proc/sys/net"] if root.for_root else []
    for path in root.masked:
        arguments += ["--ro-bind", "/dev/null", path]
    temp = ("--symlink", f"..{_TEMP}", _OTHER_TEMP)
    return [*arguments, "--dir", "/run", "--dir", "/var", *temp]


def mounts(
    access: Access, *, programs: Mapping[str, str], home: str, hidden: Sequence[str]
) -> list[Mount]:
    """Return what is mounted for a child, besides the system; every path must exist.

    `programs` are the real paths of what its programs need, by path. Later mounts, and so deeper
    ones, cover earlier ones.
    """
    reachable = (*access.read, *access.write)
    found = {Mount("/tmp", "tmpfs"), Mount("/dev/shm", "tmpfs")}  # noqa: S108  (the child's own)
    if home not in access.write:
        found |= {Mount(home, "rw", access.home) if access.home else Mount(home, "tmpfs")}
    outside = {path for path in programs if not is_in(path, (*_SYSTEM, *reachable))}
    shown = {path for path in outside if not is_in(path, outside - {path})}
    found |= {
        Mount(path, "ro" if programs[path] == path else "link", programs[path]) for path in shown
    }
    found |= {Mount(path, "ro", path) for path in access.read}
    found |= {Mount(path, "rw", path) for path in access.write}
    visible = [mount.path for mount in found if mount.kind in ("ro", "rw")]
    found |= {Mount(path, "hidden") for path in hidden if is_in(path, visible)}
    ordered = sorted(found, key=lambda m: (m.path.count("/"), _ORDER.index(m.kind), m.path))
    return list({mount.path: mount for mount in ordered}.values())


def _mount_arguments(mounts: Iterable[Mount], access: Access) -> list[str]:
    arguments: list[str] = []
    for path, kind, source in mounts:
        if kind == "tmpfs":
            size = access.limits.temp_bytes or 1 << 40
            if path == "/dev/shm":  # noqa: S108  (the child's own)
                size = min(size, _SHARED_MEMORY_BYTES)
            mode = "0700" if path not in ("/tmp", "/dev/shm") else "1777"  # noqa: S108
            arguments += ["--perms", mode, "--size", str(size), "--tmpfs", path]
        elif kind == "hidden":
            arguments += ["--perms", "0500", "--size", "4096", "--tmpfs", path]
        elif kind == "link":
            arguments += ["--symlink", source, path]
        else:
            arguments += ["--bind" if kind == "rw" else "--ro-bind", source, path]
    return arguments


def is_in(path: str, paths: Iterable[str]) -> bool:
    """Return whether a path is one of the paths or lies below one."""
    return any(path == other or path.startswith(other + "/") for other in paths)
