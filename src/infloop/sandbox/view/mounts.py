"""What a child at level `sandbox` sees of the machine, as arguments for bubblewrap.

Pure. The view begins empty; nothing is in it that is not named here or in the child's fence:

    /usr (and /bin, /lib, …)    the system's programs, read only
    /etc                        made for the child: its user, no name servers unless the network is
                                open, certificates, the linker's cache, alternatives, fonts
    what its programs need      installations outside /usr, read only (see programs)
    HOME, /tmp, /dev/shm        its own, of bounded size, gone with it
    /proc                       its own processes; kernel settings read only
    /dev                        null, zero, full, random, urandom, tty, its own terminals
    the fence                   what it may read, what it may write, the deeper path decides
    hidden paths                empty, unless something deeper in them is in the fence
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from infloop.sandbox.fence import Fence

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_NEVER_SHOWN = frozenset({"/", "/proc", "/sys", "/dev", "/run", "/etc"})
_SHARED_MEMORY_BYTES = 256 << 20

_Kind: TypeAlias = Literal["tmpfs", "ro", "rw", "hidden"]
_ORDER: tuple[_Kind, ...] = ("tmpfs", "ro", "rw", "hidden")


@dataclass(frozen=True)
class Root:
    """What this machine's root looks like, as far as children are concerned.

    `links` are directories of the root that are links and what they say; `directories` those that
    are not. `etc` are the directories of /etc that are shown as they are, `copied` files of it with
    what is in them, `time_zone` is what /etc/localtime points to, `name_service` what says where
    names are asked for, `masked` what of /proc is nobody's business.
    """

    links: tuple[tuple[str, str], ...]
    directories: tuple[str, ...]
    etc: tuple[str, ...]
    copied: tuple[tuple[str, bytes], ...]
    time_zone: str
    name_service: tuple[tuple[str, str], ...]
    masked: tuple[str, ...]


class _Mount(NamedTuple):
    path: str
    kind: _Kind


def refuse(fence: Fence) -> str:
    """Return why a fence cannot be put up, or nothing."""
    for path in (*fence.read, *fence.write):
        if not path.startswith("/"):
            return f"path {path!r} of the fence is not absolute"
        if path in _NEVER_SHOWN:
            return f"path {path!r} cannot be in a fence: it is more than one child's business"
    for path in fence.write:
        if _is_in(path, _SYSTEM):
            return f"path {path!r} cannot be written by a child: it belongs to the system"
    return ""


def can_be_home(path: str) -> bool:
    """Say whether a child's own home may lie there."""
    return len(path) > 1 and path[0] == "/" and not _is_in(path, (*_SYSTEM, *_NEVER_SHOWN))


def view(
    root: Root, fence: Fence, *, programs: Iterable[str], home: str, hidden: Sequence[str]
) -> list[str]:
    """Return the arguments that build the view; every path is real and exists."""
    return [
        *_root_arguments(root, open_network=fence.network == "open"),
        *_own_arguments(root.masked),
        *_mount_arguments(_mounts(fence, programs, home, hidden), fence),
        *("--remount-ro", "/dev", "--remount-ro", "/"),
    ]


def etc_files(root: Root, fence: Fence, *, uid: int, gid: int, home: str) -> dict[str, bytes]:
    """Return the files of /etc that are made for the child."""
    made = {
        "/etc/passwd": f"agent:x:{uid}:{gid}:agent:{home}:/bin/sh\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
        "/etc/group": f"agent:x:{gid}:\nnogroup:x:65534:\n",
        "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    }
    if fence.network != "open":
        made |= {
            "/etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
            "/etc/resolv.conf": "# names are resolved by the proxy alone\n",
        }
    return {**dict(root.copied), **{path: text.encode() for path, text in made.items()}}


def _root_arguments(root: Root, *, open_network: bool) -> list[str]:
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


def _own_arguments(masked: Iterable[str]) -> list[str]:
    arguments = ["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev"]
    for path in masked:
        arguments += ["--ro-bind", "/dev/null", path]
    temp = ("--symlink", "../tmp", "/var/tmp")  # noqa: S108  (the child's own)
    return [*arguments, "--dir", "/run", "--dir", "/var", *temp]


def _mounts(
    fence: Fence, programs: Iterable[str], home: str, hidden: Sequence[str]
) -> list[_Mount]:
    """Return what lies where; what is deeper, or listed later, lies on top."""
    reachable = (*fence.read, *fence.write)
    mounts = {_Mount("/tmp", "tmpfs"), _Mount("/dev/shm", "tmpfs")}  # noqa: S108  (the child's own)
    mounts |= {_Mount(home, "rw" if fence.home else "tmpfs")}
    outside = {path for path in programs if not _is_in(path, (*_SYSTEM, *reachable))}
    mounts |= {_Mount(path, "ro") for path in outside if not _is_in(path, outside - {path})}
    mounts |= {_Mount(path, "ro") for path in fence.read}
    mounts |= {_Mount(path, "rw") for path in fence.write}
    shown = [mount.path for mount in mounts if mount.kind != "tmpfs"]
    mounts |= {_Mount(path, "hidden") for path in hidden if _is_in(path, shown)}
    return sorted(mounts, key=lambda m: (m.path.count("/"), _ORDER.index(m.kind), m.path))


def _mount_arguments(mounts: list[_Mount], fence: Fence) -> list[str]:
    arguments: list[str] = []
    for path, kind in mounts:
        if kind == "tmpfs":
            size = fence.limits.temp_bytes or 1 << 40
            if path == "/dev/shm":  # noqa: S108  (the child's own)
                size = min(size, _SHARED_MEMORY_BYTES)
            mode = "0700" if path not in ("/tmp", "/dev/shm") else "1777"  # noqa: S108
            arguments += ["--perms", mode, "--size", str(size), "--tmpfs", path]
        elif kind == "hidden":
            arguments += ["--perms", "0500", "--size", "4096", "--tmpfs", path]
        else:
            source = fence.home if fence.home and kind == "rw" and path not in fence.write else path
            arguments += ["--bind" if kind == "rw" else "--ro-bind", source, path]
    return arguments


def _is_in(path: str, places: Iterable[str]) -> bool:
    return any(path == place or path.startswith(place + "/") for place in places)
