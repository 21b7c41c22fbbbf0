"""What a confined child sees of the homes in which its programs are installed."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from infloop.sandbox.access import Access
from infloop.sandbox.base import ChildRequest
from infloop.sandbox.view.program_paths import ProgramPaths, needed_paths
from support.canaries import PATH, place
from support.confinement import give, new_directory, sandbox_at
from support.thorough import FACTOR

if TYPE_CHECKING:
    from collections.abc import Callable

SECRETS = (
    *(".ssh/id", ".aws/credentials", ".netrc", ".bash_history", ".config/tool/auth.json"),
    *(".config/x/token", ".local/share/keyrings/login", ".local/share/other/auth.json"),
    *(".local/state/history", ".local/etc/secret", ".cargo/credentials.toml", ".npmrc"),
    *(".local/share/pipx/secret", ".local/share/claude/token", ".claude/.credentials.json"),
    *(".npm-global/etc/npmrc", ".nvm/secret", ".pyenv/secret", ".volta/secret", "share/secret"),
    *("state/secret", "etc/secret", "versions-secret", ".rustup/secret", "go/src/mine"),
)
CANARY = "the-canary"


def made(path: Path, text: str = "#!/bin/sh\necho ran\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def linked(path: Path, target: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
    return path


def python(prefix: Path) -> Path:
    """Make a Python that is a shell script; it runs the file that it is given."""
    made(prefix / "lib/python3.11/os.py", "")
    return made(prefix / "bin/python3", '#!/bin/sh\nexec sh "$@"\n')


def venv(prefix: Path, base: Path) -> Path:
    made(prefix / "pyvenv.cfg", "")
    linked(prefix / "bin/python", base)
    return made(prefix / "bin/tool", f"#!{prefix}/bin/python\necho ran\n")


def node(prefix: Path) -> Path:
    """Make a Node that is a shell script, and a program that npm installed with it."""
    made(prefix / "bin/node", '#!/bin/sh\nexec sh "$@"\n')
    made(prefix / "include/node/node.h", "")
    package = prefix / "lib/node_modules/@maker/tool"
    made(package / "vendor/bin", "#!/bin/sh\necho ran\n")
    made(package / "cli.js", f"#!/usr/bin/env node\n{package}/vendor/bin\n")
    return linked(prefix / "bin/tool", Path("../lib/node_modules/@maker/tool/cli.js"))


def pip_user(home: Path) -> str:
    made(home / ".local/lib/python3.11/site-packages/tool.sh", "echo ran\n")
    made(home / ".local/bin/tool", f"#!/bin/sh\n. {home}/.local/lib/python3.11/*/tool.sh\n")
    return f"{home}/.local/bin"


def pipx(home: Path) -> str:
    tool = venv(home / ".local/share/pipx/venvs/tool", python(home / ".pyenv/versions/3.11"))
    linked(home / ".local/bin/tool", tool)
    return f"{home}/.local/bin"


def claude_native(home: Path) -> str:
    linked(home / ".local/bin/tool", made(home / ".local/share/claude/versions/1.0.3"))
    return f"{home}/.local/bin"


def npm_prefix(home: Path) -> str:
    node(home / ".npm-global")
    return f"{home}/.npm-global/bin"


def npm_in_local(home: Path) -> str:
    node(home / ".local")
    return f"{home}/.local/bin"


def nvm(home: Path) -> str:
    node(home / ".nvm/versions/node/v20")
    return f"{home}/.nvm/versions/node/v20/bin"


def fnm(home: Path) -> str:
    node(home / ".local/share/fnm/node-versions/v20/installation")
    target = home / ".local/share/fnm/node-versions/v20/installation/bin"
    linked(home.parent / "run/multishell/bin", target)
    return f"{home.parent}/run/multishell/bin"


def pyenv(home: Path) -> str:
    venv(home / ".pyenv/versions/3.11", python(home / ".pyenv/versions/base"))
    made(home / ".pyenv/libexec/pyenv", f"#!/bin/sh\nexec {home}/.pyenv/versions/3.11/bin/tool\n")
    made(home / ".pyenv/shims/tool", f"#!/bin/sh\nexec {home}/.pyenv/libexec/pyenv\n")
    return f"{home}/.pyenv/shims"


def asdf(home: Path) -> str:
    made(home / ".asdf/installs/tool/1/bin/tool")
    made(home / ".asdf/shims/tool", f"#!/bin/sh\nexec {home}/.asdf/installs/tool/1/bin/tool\n")
    return f"{home}/.asdf/shims"


def volta(home: Path) -> str:
    made(home / ".volta/tools/image/tool")
    made(home / ".volta/bin/shim", f"#!/bin/sh\nexec {home}/.volta/tools/image/tool\n")
    linked(home / ".volta/bin/tool", Path("shim"))
    return f"{home}/.volta/bin"


def cargo(home: Path) -> str:
    made(home / ".rustup/toolchains/stable/bin/tool")
    made(home / ".cargo/bin/tool", f"#!/bin/sh\nexec {home}/.rustup/toolchains/*/bin/tool\n")
    return f"{home}/.cargo/bin"


def bun(home: Path) -> str:
    tool = made(home / ".bun/install/global/node_modules/tool/cli", "#!/bin/sh\necho ran\n")
    linked(home / ".bun/bin/tool", tool)
    return f"{home}/.bun/bin"


def deno(home: Path) -> str:
    made(home / ".deno/bin/tool")
    return f"{home}/.deno/bin"


def go(home: Path) -> str:
    made(home / "go/bin/tool")
    return f"{home}/go/bin"


def the_home_itself(home: Path) -> str:
    made(home / "tool")
    return str(home)


def local_itself(home: Path) -> str:
    made(home / ".local/tool")
    return f"{home}/.local"


def share_itself(home: Path) -> str:
    made(home / ".local/share/tool")
    return f"{home}/.local/share"


def a_link_to_the_home(home: Path) -> str:
    made(home / "tool")
    return str(linked(home.parent / "opt/bin", home))


def a_link_to_secrets(home: Path) -> str:
    made(home / ".ssh/tool")
    return str(linked(home.parent / "opt/bin", home / ".ssh"))


def a_program_that_leads_to_settings(home: Path) -> str:
    linked(home / ".local/bin/tool", made(home / ".config/x/tool"))
    return f"{home}/.local/bin"


def a_venv_in_the_home(home: Path) -> str:
    venv(home, python(home / ".pyenv/versions/3.11"))
    return f"{home}/bin"


def a_home_with_versions(home: Path) -> str:
    (home / "versions").mkdir()
    made(home / "bin/tool")
    return f"{home}/bin"


def an_interpreter_among_secrets(home: Path) -> str:
    shell = made(home / ".config/x/shell", '#!/bin/sh\nexec sh "$@"\n')
    made(home / ".local/bin/tool", f"#!{shell}\necho ran\n")
    return f"{home}/.local/bin"


def an_interpreter_that_is_a_secret(home: Path) -> str:
    (home / ".ssh/id").chmod(0o600)
    made(home / ".local/bin/other", f"#!{home}/.ssh/id\n")
    made(home / ".local/bin/tool")
    return f"{home}/.local/bin"


LAYOUTS: tuple[Callable[[Path], str], ...] = (
    *(pip_user, pipx, claude_native, npm_prefix, npm_in_local, nvm, fnm, pyenv, asdf, volta, cargo),
    *(bun, deno, go, the_home_itself, local_itself, share_itself, a_link_to_the_home),
    *(a_link_to_secrets, a_program_that_leads_to_settings, a_venv_in_the_home),
    *(a_home_with_versions, an_interpreter_among_secrets, an_interpreter_that_is_a_secret),
)


# In `make test` a layout is tried at one level, in `make test-thorough` at both.
LEVELS = ("guard", "sandbox")
CASES = [
    pytest.param(level, layout, id=f"{layout.__name__}-{level}")
    for number, layout in enumerate(LAYOUTS)
    for level in LEVELS
    if FACTOR or level == LEVELS[number % 2]
]


@pytest.mark.claim("I29")
@pytest.mark.thorough
@pytest.mark.parametrize(("level", "layout"), CASES)
async def test_a_program_in_a_home_runs_and_what_lies_beside_it_stays_hidden(
    level: str, layout: Callable[[Path], str]
) -> None:
    with place() as top:
        home, workspace = top / "me", new_directory(top / "work")
        for secret in SECRETS:
            made(home / secret, CANARY).chmod(0o600)
        path = layout(home)
        give(top)
        top.chmod(0o711)
        script = f"cd {home}; tool; find -L . -type f -exec cat {{}} +; cat {' '.join(SECRETS)}"
        env = {"PATH": f"{path}:{PATH}", "HOME": str(home)}
        access = Access(write=(str(workspace),))
        for argv in (("sh", "-c", script), ("tool",)):
            async with sandbox_at(level, new_directory(top / f"scratch-{len(argv)}")) as sandbox:
                request = ChildRequest(argv, str(workspace), env, access=access)
                result = await sandbox.run(request)
            assert CANARY not in result.stdout
        assert "ran" in result.stdout, result


def test_certificates_in_a_home_are_shown_and_keys_are_not(tmp_path: Path) -> None:
    home = tmp_path / "me"
    bundle = made(home / ".config/ca.pem", "-----BEGIN CERTIFICATE-----\n")
    both = made(home / ".ssh/both.pem", "-----BEGIN CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----")
    key = made(home / ".ssh/id", "-----BEGIN OPENSSH PRIVATE KEY-----")
    for path, shown in ((bundle, True), (both, False), (key, False), (home / ".ssh", False)):
        env = {"PATH": "/usr/bin", "SSL_CERT_FILE": str(path), "SSL_CERT_DIR": str(path)}
        assert (str(path) in needed_paths("/bin/sh", env, {str(home)})) == shown


def later() -> int:
    """A clock by which everything was made long ago."""
    return time.time_ns() + 60_000_000_000


def same_size_and_times(path: Path, text: str) -> None:
    """Overwrite a file so that only its change time tells."""
    before = path.stat()
    path.write_text(text.ljust(before.st_size)[: before.st_size])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def link_again(path: Path, target: Path) -> None:
    linked(path.with_name("new-link"), target).replace(path)


def exchange(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to(path.with_name("moved"))


CHANGES: dict[str, Callable[[Path], object]] = {
    "a link that leads elsewhere": lambda home: link_again(
        home / ".local/bin/tool", made(home / ".local/share/claude/versions/2")
    ),
    "another interpreter": lambda home: same_size_and_times(
        home / "tools/script", f"#!{made(home / 'lisp/bin/lisp')}"
    ),
    "a new program": lambda home: made(home / "tools/more"),
    "a program that is gone": lambda home: (home / "tools/script").unlink(),
    "a program that nobody may execute": lambda home: (home / "tools/script").chmod(0o600),
    "an installation that begins": lambda home: made(home / "app/pyvenv.cfg"),
    "a directory exchanged for a link": lambda home: exchange(home / "app"),
    "a key among certificates": lambda home: same_size_and_times(
        home / "ca.pem", "-----BEGIN CERTIFICATE-----\nPRIVATE KEY"
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_kept_answer_is_given_until_what_it_depends_on_changes(
    tmp_path: Path, change: str
) -> None:
    home = tmp_path / "me"
    native = claude_native(home)
    script = made(home / "tools/script", f"#!{made(home / 'perl/bin/perl')}{' ' * 200}")
    made(home / "app/bin/app")
    ca = made(home / "ca.pem", f"-----BEGIN CERTIFICATE-----\n{' ' * 50}")
    env = {"PATH": f"{native}:{home}/tools:{home}/app/bin", "SSL_CERT_FILE": str(ca)}
    asked = (str(script), env, {str(home)})
    paths = ProgramPaths(later)
    first = paths.needed(*asked)
    assert first == needed_paths(*asked)
    assert paths.needed(*asked) is first
    CHANGES[change](home)
    assert needed_paths(*asked) != first
    assert paths.needed(*asked) == needed_paths(*asked)


def test_an_answer_about_files_that_were_just_changed_is_not_kept(tmp_path: Path) -> None:
    asked = (str(made(tmp_path / "me/tools/script")), {"PATH": "/usr/bin"}, {str(tmp_path / "me")})
    paths = ProgramPaths()
    assert paths.needed(*asked) is not paths.needed(*asked)


def test_a_directory_is_searched_again_when_it_has_changed(tmp_path: Path) -> None:
    home = tmp_path / "me"
    env = {"PATH": claude_native(home)}
    needed_paths("/bin/sh", env, {str(home)})
    newer = made(home / ".local/share/claude/versions/2")
    linked(home / ".local/bin/new", newer).replace(home / ".local/bin/tool")
    assert str(newer) in needed_paths("/bin/sh", env, {str(home)})
