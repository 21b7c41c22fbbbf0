"""A container engine for tests: podman with runc, and a base image made of this machine's files.

Nothing is pulled. The base holds what the Dockerfile expects of its base: a Python in /usr/local,
a shell with its tools, and an `apt-get` that has nothing to do, because git is there already.
Whatever is made carries the name of this process and is removed by it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from support.parts import missing

NAME = f"infloop-test-{os.getpid()}"
# crun refuses machines that still have cgroup v1 beside v2; runc takes both.
ENGINE = ("podman", "--runtime", "runc")
# The engine's own defaults may be above what this machine lets even root set.
ULIMITS = {"nofile": 1024, "nproc": 4096}

_PROGRAMS = (
    *("sh", "cat", "chmod", "chown", "cp", "env", "false", "find", "grep", "id", "install", "ln"),
    *("ls", "mkdir", "mktemp", "mv", "rm", "sed", "sleep", "sort", "test", "touch", "tr", "true"),
    *("wc", "useradd", "git", "dash", "bash", "printf", "tail", "head", "kill"),
)
# Wheels are linked against these, and every Debian has them.
_LIBRARIES = (
    *("libgcc_s.so.1", "libstdc++.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0"),
    *("libresolv.so.2", "librt.so.1", "libutil.so.1"),
)
_UNUSED = (
    *("test", "tests", "idlelib", "tkinter", "turtledemo", "lib2to3", "site-packages"),
    *("dist-packages", "config-*", "__pycache__", "_tkinter.*"),
)
_APT_GET = """#!/bin/sh
# git is there already: this image was made where there may be no network.
test "$1" = update && exit
for name; do
    case $name in
        install | -*) ;;
        git) command -v git >/dev/null || exit 1 ;;
        ca-certificates) test -d /etc/ssl/certs || exit 1 ;;
        *) echo "no package $name" >&2; exit 1 ;;
    esac
done
"""


def podman(
    *arguments: str, timeout: float = 60, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run podman; a failure shows what it said."""
    done = subprocess.run(
        [*ENGINE, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if check:
        assert done.returncode == 0, f"podman {arguments}: {done.stdout}\n{done.stderr}"
    return done


# -- the images ------------------------------------------------------------------------------------


@contextmanager
def built_image(project: Path, folder: Path) -> Iterator[str]:
    """Give the project's own image, made by its Dockerfile without any network."""
    base, image = f"localhost/{NAME}-base", f"localhost/{NAME}"
    wheels = _wheels(project, folder / "wheels")
    settings = folder / "pip.conf"
    settings.write_text("[global]\nno-index = true\nfind-links = /wheels\n")
    root = make_root(folder / "root")
    archive = folder / "root.tar"
    subprocess.run(["tar", "-C", str(root), "-cf", str(archive), "."], check=True, timeout=120)
    with ExitStack() as stack:
        stack.callback(podman, "rmi", "--force", base, image, check=False)
        podman("import", str(archive), base, timeout=300)
        archive.unlink()
        podman(
            *("build", "--pull=never", "--network=none", "--format=docker", "--layers=false"),
            *("--build-arg", f"BASE={base}", "--tag", image),
            *("--volume", f"{wheels}:/wheels:ro", "--volume", f"{settings}:/etc/pip.conf:ro"),
            *ulimit_flags(ULIMITS),
            str(project),
            timeout=900,
        )
        yield image


def _wheels(project: Path, folder: Path) -> Path:
    """Fetch the packages of the image's lock file as this machine is used to fetch packages."""
    lock = project / "requirements-image.lock"
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "--require-hashes"),
            *("--only-binary", ":all:", "-r", str(lock), "-d", str(folder)),
        ],
        check=True,
        timeout=600,
    )
    return folder


def make_root(root: Path) -> Path:
    """Make a small root file system with this Python, git and a shell."""
    for folder in ("usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "usr/local/bin", "etc/ssl/certs"):
        (root / folder).mkdir(parents=True)
    for folder in ("proc", "sys", "dev", "run", "tmp", "var/lib"):
        (root / folder).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\n")
    (root / "etc/nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files dns\n")
    apt_get = root / "usr/bin/apt-get"
    apt_get.write_text(_APT_GET)
    apt_get.chmod(0o755)
    programs = [*_copy_programs(root), *_copy_python(root)]
    _copy_libraries(root, programs)
    return root


def _copy_programs(root: Path) -> Iterator[Path]:
    for name in _PROGRAMS:
        found = shutil.which(name, path="/usr/bin:/usr/sbin:/bin:/sbin")
        if found:
            yield Path(shutil.copy(found, root / "usr/bin" / name))
    shutil.copytree("/usr/lib/git-core", root / "usr/lib/git-core", symlinks=True)
    shutil.copytree("/usr/share/git-core", root / "usr/share/git-core", symlinks=True)


def _copy_python(root: Path) -> Iterator[Path]:
    """Copy the interpreter that runs this, as the standard library alone with pip beside it."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    program = Path(sys.executable).resolve()
    yield Path(shutil.copy(program, root / f"usr/local/bin/{version}"))
    for name in ("python3", "python"):
        (root / "usr/local/bin" / name).symlink_to(version)
    library = root / "usr/local/lib" / version
    ignored = shutil.ignore_patterns(*_UNUSED)
    shutil.copytree(sysconfig.get_path("stdlib"), library, ignore=ignored)
    shutil.copytree(_pip(), library / "pip", ignore=ignored)
    yield from library.glob("lib-dynload/*.so")


def _pip() -> Path:
    """Where pip is. Not every environment has it, and only these tests need it."""
    found = find_spec("pip")
    if found is None or found.origin is None:
        missing(f"pip is missing: run `{sys.executable} -m ensurepip`")
    return Path(found.origin).parent


def _copy_libraries(root: Path, programs: Iterable[Path]) -> None:
    """Copy what the programs are linked against, under the names by which they ask for it."""
    directory = root / "usr/lib" / (sysconfig.get_config_var("MULTIARCH") or "")
    directory.mkdir(parents=True, exist_ok=True)
    listed = subprocess.run(
        ["ldd", *map(str, programs)], capture_output=True, text=True, timeout=60, check=False
    )
    for line in listed.stdout.splitlines():
        match line.split():
            case [name, "=>", path, _] if path.startswith("/"):
                _copy_once(path, directory / name)
            case [path, address] if path.startswith("/") and address.startswith("("):
                _copy_once(path, root / path[1:])
    for name in _LIBRARIES:
        _copy_once(f"/usr/lib/{directory.name}/{name}", directory / name)


def _copy_once(source: str, target: Path) -> None:
    if not target.exists():
        shutil.copy(source, target)


# -- a service of a compose file -------------------------------------------------------------------


def run_flags(service: Mapping[str, Any], project: Path, name: str) -> list[str]:
    """Return the flags by which `podman run` starts a service as compose would.

    A key that is not known here is an error: what is not passed on would not be tested.
    """
    flags = ["--name", name, "--pull=never"]
    for key, value in service.items():
        flags += _flags_of(key, value, project, name)
    wanted = {**ULIMITS, **service.get("ulimits", {})}
    return [*flags, *ulimit_flags(wanted)]


def ulimit_flags(limits: Mapping[str, int]) -> list[str]:
    return [f"--ulimit={limit}={value}:{value}" for limit, value in limits.items()]


def _flags_of(key: str, value: Any, project: Path, name: str) -> list[str]:
    match key:
        case "build" | "image" | "ulimits" | "restart" | "healthcheck":
            return []  # ours, or added below, or as it is in the image anyway
        case "ports":
            return [f"--publish={port}" for port in value]
        case "environment":
            return [f"--env={variable}={text}" for variable, text in value.items()]
        case "cap_drop":
            return [f"--cap-drop={capability}" for capability in value]
        case "security_opt":
            options = [option.replace("=./", f"={project}/") for option in value]
            return [f"--security-opt={option}" for option in options]
        case "read_only" | "init":
            return [f"--{key.replace('_', '-')}={str(value).lower()}"]
        case "volumes":
            return [f"--volume={name}-{volume}" for volume in value]
        case "tmpfs":
            return [f"--tmpfs={mount}" for mount in value]
        case "user" | "cpus" | "pids_limit":
            return [f"--{key.replace('_', '-')}={value}"]
        case "mem_limit":
            return [f"--memory={value}"]
        case "memswap_limit":
            return [f"--memory-swap={value}"]
        case "stop_grace_period":
            return [f"--stop-timeout={value.removesuffix('s')}"]
    raise AssertionError(f"a key of the compose file that these tests do not know: {key!r}")
