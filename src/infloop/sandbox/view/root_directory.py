"""What this machine's root directory looks like, for the views of children."""

from __future__ import annotations

import stat
from pathlib import Path

from infloop.sandbox.view.mounts import Root

_TOP = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_STORES = ("/nix/store", "/gnu/store")
_SHOWN = (
    *("alternatives", "ssl/certs", "ca-certificates/extracted", "crypto-policies/back-ends"),
    *("pki/ca-trust/extracted", "pki/tls/certs", "fonts"),
)
# To copy a small file is cheaper than to mount it.
_COPIED = ("ld.so.cache", "ssl/openssl.cnf", "pki/tls/openssl.cnf")
_MASKED = ("/proc/kcore", "/proc/keys", "/proc/sysrq-trigger", "/proc/timer_list")
_NAME_SERVICE = ("hosts", "resolv.conf")


def look_at_root() -> Root:
    """Return what is where now; it changes only when the system itself does."""
    top = [Path("/", name) for name in _TOP]
    etc = [Path("/etc", name) for name in _SHOWN]
    copied = [Path("/etc", name) for name in _COPIED]
    names = [Path("/etc", name) for name in _NAME_SERVICE]
    zone = Path("/etc/localtime").resolve()
    return Root(
        links=tuple((str(path), str(path.readlink())) for path in top if path.is_symlink()),
        directories=(
            *(str(path) for path in top if path.is_dir() and not path.is_symlink()),
            *(store for store in _STORES if Path(store).is_dir()),
        ),
        etc=tuple(str(path) for path in etc if path.exists()),
        time_zone=str(zone) if zone.is_relative_to("/usr") else "",
        copied=tuple((str(path), path.read_bytes()) for path in copied if path.is_file()),
        masked=tuple(path for path in _MASKED if _readable_by_all(Path(path))),
        name_service=tuple((str(p), str(p.resolve())) for p in names if p.exists()),
    )


def _readable_by_all(path: Path) -> bool:
    return path.exists() and bool(path.stat().st_mode & stat.S_IROTH)
