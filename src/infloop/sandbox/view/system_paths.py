"""The parts of the system that every confined child may use.

Lists, not the whole root: what is not here, and not in the child's fence, is refused. Whatever
does not exist on a machine is left out.
"""

from __future__ import annotations

PROGRAMS = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt"),
    *("/nix/store", "/gnu/store"),
)
"""Programs and their libraries."""

CONFIGURATION = tuple(
    f"/etc/{name}"
    for name in (
        # users and names
        *("passwd", "group", "nsswitch.conf", "hosts", "host.conf", "hostname", "resolv.conf"),
        *("gai.conf", "services", "protocols", "networks"),
        # the loader, and which program stands for which
        *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld.so.preload", "alternatives"),
        # whom to trust
        *("ssl", "pki", "ca-certificates", "ca-certificates.conf", "crypto-policies"),
        # time, language, terminal
        *("localtime", "timezone", "locale.alias", "locale.conf", "terminfo", "inputrc"),
        # shells and tools
        *("profile", "profile.d", "bash.bashrc", "bashrc", "shells", "gitconfig", "mime.types"),
        *("magic", "os-release", "debian_version", "lsb-release", "python3", "fonts", "java"),
    )
)
"""What programs look up about the system; nothing that holds a secret."""

KERNEL = (
    "/proc",
    *("/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/fs/cgroup"),
    "/sys/kernel/mm/transparent_hugepage",
)
"""What programs ask to know how many processors and how much memory they have."""

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
"""Devices without memory of their own, to read and to write."""
