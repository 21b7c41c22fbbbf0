"""The parts of the system that every confined child may use.

What is neither listed here nor in the child's `access` is refused. Paths that do not exist are left
out.
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
        # the dynamic linker and alternatives
        *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld.so.preload", "alternatives"),
        # certificates
        *("ssl", "pki", "ca-certificates", "ca-certificates.conf", "crypto-policies"),
        # time, language, terminal
        *("localtime", "timezone", "locale.alias", "locale.conf", "terminfo", "inputrc"),
        # shells and tools
        *("profile", "profile.d", "bash.bashrc", "bashrc", "shells", "gitconfig", "mime.types"),
        *("magic", "os-release", "debian_version", "lsb-release", "python3", "fonts", "java"),
    )
)
"""System configuration that programs read; no file with secrets."""

KERNEL = (
    "/proc",
    *("/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/fs/cgroup"),
    "/sys/kernel/mm/transparent_hugepage",
)
"""What programs read to find the number of processors and the size of memory."""

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
"""Devices that store nothing, to read and to write."""
