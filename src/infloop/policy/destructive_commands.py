"""Which commands of a shell line delete, overwrite or publish something (pure).

This is a reason to ask a person. It is no fence: a script, a build or a program that is not listed
can do the same, and the isolation level decides what a child can reach at all.

- Each simple command of a line is judged, also in substitutions, behind programs that start others
  (`env`, `xargs`, `find -exec`) and in code for a shell (`sh -c`, `eval`, a here-document).
- What cannot be followed counts as destructive, and so does a program whose name is not known.
- The code of other interpreters (`python -c`) is searched for words, and not understood.
"""

from __future__ import annotations

import re
from itertools import islice, pairwise, takewhile
from typing import TYPE_CHECKING, NamedTuple

from infloop.policy.shell_commands import (
    UNKNOWN,
    ShellCommand,
    UnclearLine,
    read_commands,
    read_part,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_MAX_DEPTH = 8
_MAX_JUDGED = 300
_MAX_OPTIONS = 20
_MAX_CODE_CHARS = 5_000

_DELETES, _OVERWRITES, _PUBLISHES = "it deletes", "it overwrites", "it publishes or sends"
_ENDS = "it ends processes"
_OTHER_USER = "it runs as another user"
_SYSTEM = "it changes the system"
_NOT_KNOWN = "what it runs is not known"
_EMPTY_FILES = frozenset({"/dev/null", "/dev/zero"})


class JudgedCommand(NamedTuple):
    """One command of a line; `reason` is empty unless it is destructive."""

    text: str
    reason: str


def judge_commands(line: str) -> list[JudgedCommand]:
    """Return every command of a line with the reason why it is destructive, if it is."""
    try:
        judged = list(islice(_judged(read_commands(line), 0), _MAX_JUDGED + 1))
    except UnclearLine as error:
        return [JudgedCommand(line, f"it cannot be followed: {error}")]
    if len(judged) > _MAX_JUDGED:
        return [JudgedCommand(line, f"it has more than {_MAX_JUDGED} commands")]
    return judged or [JudgedCommand(line, "")]


def why_destructive(line: str) -> str:
    """Return why a line is destructive, or an empty text."""
    return next((each.reason for each in judge_commands(line) if each.reason), "")


# -- programs --------------------------------------------------------------------------------------


def _names(reason: str, names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), reason)


_ALWAYS: Mapping[str, str] = {
    **_names(_DELETES, "rm unlink shred srm wipe wipefs rimraf trash del-cli dropdb dropuser"),
    **_names(_DELETES, "lvremove vgremove pvremove blkdiscard userdel groupdel deluser delgroup"),
    **_names(_OVERWRITES, "dd truncate mkfs mke2fs mkswap fdisk sfdisk cfdisk sgdisk gdisk parted"),
    **_names(_OVERWRITES, "badblocks hdparm cryptsetup fallocate chattr"),
    **_names(_ENDS, "kill pkill killall killall5 skill xkill fuser tkill"),
    **_names(_SYSTEM, "shutdown reboot halt poweroff init telinit systemctl systemd-run launchctl"),
    **_names(_SYSTEM, "service mount umount swapoff swapon modprobe insmod rmmod sysctl"),
    **_names(_SYSTEM, "iptables ip6tables nft ufw useradd usermod passwd chpasswd visudo at batch"),
    **_names(_SYSTEM, "docker podman nerdctl buildah docker-compose podman-compose virsh lxc"),
    **_names(_SYSTEM, "pivot_root nsenter chroot setcap loginctl update-rc.d"),
    **_names(_OTHER_USER, "sudo sudoedit su doas pkexec runuser setpriv"),
    **_names(_PUBLISHES, "ssh scp sftp ftp lftp nc ncat netcat socat telnet mosh sendmail mail"),
    **_names(_PUBLISHES, "mailx mutt tftp rclone rsh rcp ngrok cloudflared"),
}

_SUBCOMMANDS: Mapping[str, tuple[str, frozenset[str]]] = {
    name: (_PUBLISHES, frozenset(words.split()))
    for names, words in (
        (
            "npm pnpm yarn bun lerna",
            "publish unpublish deprecate dist-tag owner access token adduser login",
        ),
        ("cargo", "publish yank owner login"),
        ("gem", "push yank owner"),
        ("twine", "upload register"),
        ("poetry uv flit hatch pdm rye maturin", "publish upload"),
        ("mvn mvnw", "deploy release:perform"),
        ("gradle gradlew", "publish uploadArchives"),
        ("dotnet nuget", "push delete"),
        ("helm", "install upgrade uninstall delete rollback push"),
        ("vsce ovsx", "publish unpublish"),
    )
    for name in names.split()
}
"""Subcommands that publish; others of these programs do not."""

_READING = frozenset(
    (
        *("list", "ls", "view", "get", "describe", "show", "status", "diff", "checks", "version"),
        *("help", "logs", "log", "whoami", "explain", "top", "plan", "validate", "fmt", "output"),
        *("search", "api-resources", "cluster-info", "--help", "--version", "-h"),
    )
)
_READING_PREFIXES = ("describe-", "list-", "get-")
_REMOTE = frozenset(
    (
        *("kubectl", "oc", "terraform", "tofu", "pulumi", "gh", "glab", "hub", "aws", "gcloud"),
        *("gsutil", "az", "heroku", "fly", "flyctl", "vercel", "netlify", "wrangler", "firebase"),
        *("doctl", "hcloud", "eksctl", "ansible", "ansible-playbook", "serverless", "goreleaser"),
    )
)
"""Programs that change something elsewhere, unless they are told only to read."""

_WRAPPERS: Mapping[str, tuple[int, str]] = {
    "sudo": (0, "nEHSskibA"),
    "doas": (0, "nLs"),
    "env": (0, "i0v"),
    "nice": (0, ""),
    "ionice": (0, "t"),
    "nohup": (0, ""),
    "timeout": (1, "v"),
    "time": (0, "pavq"),
    "stdbuf": (0, ""),
    "setsid": (0, "cfw"),
    "xargs": (0, "0rtpxo"),
    "parallel": (0, "k0X"),
    "command": (0, "p"),
    "builtin": (0, ""),
    "exec": (0, "cl"),
    "chrt": (1, "bfiorRv"),
    "taskset": (1, "a"),
    "flock": (1, "nsxuoFv"),
    "watch": (0, "dtbegcx"),
    "strace": (0, "fFqvtTrkCciy"),
    "ltrace": (0, "fciCS"),
    "unshare": (0, "rmnpiuUfC"),
    "script": (0, "aefq"),
    "busybox": (0, ""),
    "toybox": (0, ""),
    "unbuffer": (0, "p"),
    "xvfb-run": (0, "a"),
    "catchsegv": (0, ""),
    "npx": (0, "yq"),
    "bunx": (0, ""),
    "uvx": (0, "q"),
    "pnpx": (0, ""),
    "direnv": (2, ""),
}
"""Programs that start another: the operands before it, and the flags that have no value."""

_RUNNERS = frozenset({"run", "exec", "x", "dlx", "shell"})
_RUN_PROGRAMS = frozenset(
    (
        "uv",
        "poetry",
        "pdm",
        "hatch",
        "pipenv",
        "bundle",
        "npm",
        "pnpm",
        "yarn",
        "bun",
        "mise",
        "rye",
    )
)

_SHELLS = frozenset(
    {"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "csh", "tcsh", "rbash"}
)
_INTERPRETERS: Mapping[str, str] = {
    "python": "c",
    "pypy": "c",
    "perl": "eE",
    "ruby": "e",
    "node": "ep",
    "deno": "e",
    "bun": "e",
    "php": "r",
    "lua": "e",
    "Rscript": "e",
    "awk": "",
    "gawk": "",
    "mawk": "",
    "osascript": "e",
}
"""Programs that take code as an argument, with the options before it."""

_SQL = frozenset({"psql", "mysql", "mariadb", "sqlite3", "mongosh", "mongo", "redis-cli", "duckdb"})

# Our own fixed patterns: linear, no nested repeats.
_OPTION_VALUE = re.compile(r"[0-9.]+[A-Za-z]?|\{\}|-")  # noqa: TID251
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")  # noqa: TID251
_VERSION = re.compile(r"[0-9.]+$")  # noqa: TID251
_CODE_WORDS = re.compile(  # noqa: TID251
    r"(?i)rmtree|unlink|os\.remove|removedirs|rmdir|rmSync|rm_rf|\brm\b|\bsystem\b|subprocess"
    r"|popen|spawn|child_process|\bexec|\beval\b|truncate|\bkill|os\.replace|shutil\.move|`"
    r"|File\.delete|FileUtils|\| *\"|requests\.(post|put|patch|delete)|urlopen|fetch\(|socket"
)
_SQL_WORDS = re.compile(r"(?i)\b(drop|delete|truncate|update|alter|flushall|flushdb|del)\b")  # noqa: TID251


# -- judging ---------------------------------------------------------------------------------------


def _judged(commands: Iterable[ShellCommand], depth: int) -> Iterator[JudgedCommand]:
    if depth > _MAX_DEPTH:
        raise UnclearLine("it is nested too deeply")
    for command in commands:
        for target in command.writes:
            if reason := _target_reason(target):
                yield JudgedCommand(f"> {_shown(target)}", reason)
        if command.words:
            yield JudgedCommand(command.text, _reason(command))
            yield from _judged(_started(command, depth), depth + 1)


def _reason(command: ShellCommand) -> str:
    """Return why a command itself is destructive; what it starts is judged on its own."""
    name, args = _program(command.words[0]), command.words[1:]
    if UNKNOWN in command.words[0] or not name:
        return _NOT_KNOWN
    if args and all(arg in ("--help", "--version") for arg in args):
        return ""
    if name in _ALWAYS or name.startswith("mkfs."):
        return _ALWAYS.get(name, _OVERWRITES)
    if judge := _JUDGES.get(name):
        return judge(args)
    if name in _REMOTE:
        return "" if _only_reads(args) else _PUBLISHES
    if name in _SUBCOMMANDS:
        reason, subcommands = _SUBCOMMANDS[name]
        if subcommands & {*_operands(args)[:3]}:
            return reason
    if name in _SQL:
        texts = (*args, command.stdin or "")
        return _DELETES if any(map(_SQL_WORDS.search, texts)) else ""
    if name in _INTERPRETERS:
        code = _code(args, _INTERPRETERS[name], command.stdin)
        return "its code may delete or send something" if _CODE_WORDS.search(code) else ""
    if name in _SHELLS:
        return _shell_reason(args, command.stdin)
    return ""


def _started(command: ShellCommand, depth: int) -> Iterator[ShellCommand]:
    """Yield the commands that a command starts, as far as its words show them."""
    name, args = _program(command.words[0]), command.words[1:]
    for words in _started_words(name, args):
        if words and not _OPTION_VALUE.fullmatch(words[0]):
            yield ShellCommand(tuple(words), " ".join(map(_shown, words)))
    for code in _started_code(name, args, command.stdin):
        if len(code) > _MAX_CODE_CHARS:
            raise UnclearLine(f"it has code of more than {_MAX_CODE_CHARS} characters")
        yield from read_part(code, depth)


def _started_words(name: str, args: Sequence[str]) -> Iterator[Sequence[str]]:
    if name == "command" and args and args[0] in ("-v", "-V"):
        return
    if name in _WRAPPERS:
        yield from _behind_options(args, *_WRAPPERS[name])
    elif name in _RUN_PROGRAMS and args and args[0] in _RUNNERS:
        yield from _behind_options(args[1:], 0, "")
    elif name in ("find", "fd", "fdfind"):
        for index, arg in enumerate(args):
            if arg in ("-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"):
                yield list(takewhile(lambda word: word not in (";", "+"), args[index + 1 :]))
    elif name in ("python", "pypy") and "-m" in args:
        yield args[args.index("-m") + 1 :]
    elif name == "git" and args[:2] == ("bisect", "run"):
        yield args[2:]


def _behind_options(args: Sequence[str], operands: int, flags: str) -> Iterator[Sequence[str]]:
    """Yield what may be the command behind options, some of which may have a value."""
    seen = unsure = 0
    for index, arg in enumerate(args):
        if arg == "--":
            unsure = 0
            if seen == operands:
                yield args[index + 1 :]
                return
        elif arg[:1] == "-" and arg != "-":
            is_long = arg[:2] == "--"
            has_value = "=" in arg if is_long else len(arg) > len("-x") or arg[1] in flags
            unsure += not has_value  # its value may be the next word
            if unsure > _MAX_OPTIONS:
                raise UnclearLine(f"it has more than {_MAX_OPTIONS} options before a command")
        elif _VARIABLE.match(arg):
            continue
        else:
            if seen >= operands:
                yield args[index:]
            if seen >= operands + unsure:
                return
            seen += 1


def _started_code(name: str, args: Sequence[str], stdin: str | None) -> Iterator[str]:
    """Yield the code for a shell in the arguments and the input of a command."""
    if name in _SHELLS:
        if (code := _shell_code(args)) is not None:
            yield code
        elif not _operands(args) and stdin is not None:
            yield stdin
    elif name == "eval":
        yield " ".join(args)
    elif name == "trap" and args and args[0] != "-":
        yield args[0]
    elif name == "alias":
        yield from (value for _, equals, value in (arg.partition("=") for arg in args) if equals)
    elif name == "env":
        yield from _split_string(args)
    elif name in ("flock", "script", "su"):
        yield from (after for arg, after in pairwise(args) if arg[:1] == "-" and arg[-1] == "c")
    elif name == "nix-shell" and "--run" in args[:-1]:
        yield args[args.index("--run") + 1]
    elif name in ("watch", "parallel"):
        for words in _behind_options(args, *_WRAPPERS[name]):
            yield " ".join(words)


# -- single programs -------------------------------------------------------------------------------


def _shell_reason(args: Sequence[str], stdin: str | None) -> str:
    operands = _operands(args)
    if _shell_code(args) is not None:
        return ""
    if operands:
        return _NOT_KNOWN if UNKNOWN in operands[0] else ""
    return "" if stdin is not None else "it runs what it reads"


def _git(args: Sequence[str]) -> str:
    index = 0
    while index < len(args) and args[index].startswith("-"):
        option = args[index]
        if option in ("-c", "--config-env") or option.startswith("--exec-path="):
            if not _is_plain_setting(args[index + 1] if index + 1 < len(args) else ""):
                return "git gets settings that may run something"
            index += 1
        elif option in ("-C", "--git-dir", "--work-tree", "--namespace"):
            index += 1
        index += 1
    if index >= len(args):
        return ""
    subcommand, rest = args[index], args[index + 1 :]
    if UNKNOWN in subcommand:
        return _NOT_KNOWN
    if subcommand in _GIT_ALWAYS:
        return _GIT_ALWAYS[subcommand]
    if subcommand in _GIT_WORDS and not _GIT_WORDS[subcommand].isdisjoint(rest):
        return _DELETES
    if subcommand in _GIT_LETTERS and _has(rest, *_GIT_LETTERS[subcommand]):
        return _DELETES
    if subcommand == "clean" and not _has(rest, "n", "dry-run"):
        return _DELETES
    if subcommand == "restore" and (not _has(rest, "S", "staged") or _has(rest, "W", "worktree")):
        return _OVERWRITES
    if subcommand == "checkout" and ("--" in rest or "." in rest):
        return _OVERWRITES
    return _git_settings(rest) if subcommand == "config" else ""


def _git_settings(args: Sequence[str]) -> str:
    """Judge `git config`: a setting can name a program that git starts later."""
    operands = [word for word in _operands(args) if word not in ("set", "unset")]
    changes = len(operands) > 1 or len(operands) != len(_operands(args))
    is_shared = _has(args, "", "global", "system", "unset", "unset-all")
    return _SYSTEM if is_shared or (changes and not _is_plain_setting(operands[0])) else ""


_GIT_ALWAYS: Mapping[str, str] = {
    **_names(_PUBLISHES, "push send-email send-pack request-pull"),
    **_names(_DELETES, "filter-branch filter-repo rm prune gc update-ref"),
}
_GIT_WORDS: Mapping[str, frozenset[str]] = {
    "stash": frozenset({"drop", "clear"}),
    "reflog": frozenset({"expire", "delete"}),
    "worktree": frozenset({"remove", "prune"}),
    "remote": frozenset({"remove", "rm", "set-url", "prune"}),
    "submodule": frozenset({"deinit"}),
    "lfs": frozenset({"push", "prune"}),
    "svn": frozenset({"dcommit"}),
    "notes": frozenset({"remove", "prune"}),
}
_GIT_LETTERS: Mapping[str, tuple[str, ...]] = {
    "reset": ("", "hard", "merge", "keep"),
    "branch": ("dDfMC", "delete", "force"),
    "tag": ("df", "delete", "force"),
    "checkout": ("fB", "force"),
    "switch": ("fC", "force", "discard-changes", "force-create"),
    "fetch": ("f", "force"),
    "mv": ("f", "force"),
}


_PLAIN_SETTINGS = (
    *("color.", "user.name", "user.email", "advice.", "log.", "diff.color", "core.quotepath"),
    *("init.default", "commit.gpgsign=false", "core.pager=cat", "pull.", "push.default"),
)


def _is_plain_setting(setting: str) -> bool:
    """Tell whether a setting for git runs nothing."""
    return setting.lower().startswith(_PLAIN_SETTINGS)


def _find(args: Sequence[str]) -> str:
    if "-delete" in args:
        return _DELETES
    return _OVERWRITES if any(arg.startswith(("-fprint", "-fls")) for arg in args) else ""


def _recursive(args: Sequence[str]) -> str:
    return _OVERWRITES if _has(args, "R", "recursive") else ""


def _curl(args: Sequence[str]) -> str:
    for index, arg in enumerate(args):
        following = args[index + 1] if index + 1 < len(args) else ""
        if arg.startswith("--"):
            name, _, value = arg[2:].partition("=")
            if name.startswith(("data", "form", "upload", "json", "url-query", "config", "mail")):
                return _PUBLISHES
            if name in ("req", "requ", "reque", "reques", "request"):
                method = value or following
                if method.upper() not in ("GET", "HEAD"):
                    return _PUBLISHES
        elif arg[:1] == "-":
            for at, letter in enumerate(arg[1:], 2):
                if letter in "dFTK":
                    return _PUBLISHES
                if letter == "X":
                    if (arg[at:] or following).upper() not in ("GET", "HEAD"):
                        return _PUBLISHES
                    break
                if letter in "AbceEhHmoPQrtuUwxyYzC":  # the rest of the word is its value
                    break
    return ""


def _wget(args: Sequence[str]) -> str:
    sends = ("--post", "--method", "--body", "--execute", "-e", "--input-file", "--use-askpass")
    return _PUBLISHES if any(arg.startswith(sends) for arg in args) else ""


def _httpie(args: Sequence[str]) -> str:
    operands = _operands(args)
    reads = bool(operands) and operands[0].upper() in ("GET", "HEAD", "OPTIONS")
    only_url = len(operands) == 1 and not _has(args, "f", "form", "multipart", "raw")
    return "" if reads or only_url else _PUBLISHES


def _rsync(args: Sequence[str]) -> str:
    if any(arg.startswith(("--del", "--remove-source", "--inplace")) for arg in args):
        return _DELETES
    return _PUBLISHES if any(":" in operand for operand in _operands(args)) else ""


def _tar(args: Sequence[str]) -> str:
    runs = ("--checkpoint-action", "--to-command", "--use-compress", "--remove-files", "-I")
    return _DELETES if any(arg.startswith(runs) for arg in args) else ""


def _forced(args: Sequence[str]) -> str:
    return _OVERWRITES if _has(args, "f", "force") else ""


def _copy(args: Sequence[str]) -> str:
    return _OVERWRITES if _EMPTY_FILES & {*args} else ""


def _tee(args: Sequence[str]) -> str:
    return next(filter(None, map(_target_reason, _operands(args))), "")


def _crontab(args: Sequence[str]) -> str:
    return "" if list(args) == ["-l"] else _SYSTEM


def _sourced(args: Sequence[str]) -> str:
    return _NOT_KNOWN if not args or UNKNOWN in args[0] else ""


_JUDGES: Mapping[str, Callable[[Sequence[str]], str]] = {
    "git": _git,
    "find": _find,
    "chmod": _recursive,
    "chown": _recursive,
    "chgrp": _recursive,
    "setfacl": _recursive,
    "curl": _curl,
    "wget": _wget,
    "http": _httpie,
    "https": _httpie,
    "xh": _httpie,
    "rsync": _rsync,
    "tar": _tar,
    "bsdtar": _tar,
    "mv": _forced,
    "ln": _forced,
    "cp": _copy,
    "tee": _tee,
    "crontab": _crontab,
    "source": _sourced,
    ".": _sourced,
}


# -- words -----------------------------------------------------------------------------------------


def _program(word: str) -> str:
    """Return the name of a program without its directory and version."""
    name = word.rpartition("/")[2].removesuffix(".exe")
    short = _VERSION.sub("", name)
    return short if short in _INTERPRETERS or short == "pip" else name


def _operands(args: Sequence[str]) -> list[str]:
    """Return the arguments that are no options."""
    return [arg for arg in args if arg[:1] != "-" or arg == "-"]


def _has(args: Sequence[str], letters: str, *names: str) -> bool:
    """Tell whether an option is given, by one of its letters or by the start of a long name."""
    for arg in takewhile(lambda arg: arg != "--", args):
        if arg.startswith("--"):
            given = arg[2:].partition("=")[0]
            if given and any(name.startswith(given) for name in names):
                return True
        elif arg[:1] == "-" and set(arg[1:]) & set(letters):
            return True
    return False


def _shell_code(args: Sequence[str]) -> str | None:
    """Return the code that a shell gets with `-c`: its first operand."""
    has_code = is_value = False
    for arg in args:
        if is_value:
            is_value = False
        elif arg[:1] in ("-", "+") and arg not in ("-", "--"):
            has_code = has_code or (arg[:2] != "--" and "c" in arg)
            is_value = arg[-1] in "oO" or arg in ("--rcfile", "--init-file")
        elif arg not in ("-", "--"):
            return arg if has_code else None
    return None


def _split_string(args: Sequence[str]) -> Iterator[str]:
    """Yield the line that `env -S` splits into words."""
    for index, arg in enumerate(args):
        rest = args[index + 1 :]
        if arg.startswith("--split-string"):
            yield " ".join((arg.partition("=")[2], *rest))
        elif arg[:1] == "-" and arg[:2] != "--" and "S" in arg:
            yield " ".join((arg.partition("S")[2], *rest))


def _code(args: Sequence[str], letters: str, stdin: str | None) -> str:
    """Return the code in the arguments or the input of an interpreter."""
    if not letters:
        return " ".join(args)
    for index, arg in enumerate(args):
        is_short = arg[:1] == "-" and arg[:2] != "--" and set(arg[1:]) & set(letters)
        if is_short or arg in ("--eval", "--print", "eval"):
            return " ".join(args[index:])
    reads = not _operands(args) or "-" in args
    return stdin or "" if reads else ""


def _only_reads(args: Sequence[str]) -> bool:
    first = [*_operands(args)[:4], *(arg for arg in args if arg in ("--help", "--version", "-h"))]
    return any(word in _READING or word.startswith(_READING_PREFIXES) for word in first)


def _target_reason(target: str) -> str:
    """Return why writing to the target of a redirection is destructive."""
    if target.startswith("/dev/"):
        harmless = ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/fd/")
        if target.startswith(("/dev/tcp/", "/dev/udp/")):
            return _PUBLISHES
        return "" if target.startswith(harmless) else _OVERWRITES
    if target.startswith(("/tmp/", "/var/tmp/")) and "/../" not in target:  # noqa: S108
        return ""
    outside = target.startswith(("/", "~")) or ".." in target.split("/")
    return _OVERWRITES if outside or ".git" in target.split("/") else ""


def _shown(word: str) -> str:
    return word.replace(UNKNOWN, "…")
