"""Finds the programs that run scripts."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from infloop.settings import Settings

if TYPE_CHECKING:
    from infloop.nodes.base import Interpreters


def find_interpreters(chosen: Settings) -> Interpreters:
    """Return the operator's choice, or else the fastest that is installed."""
    from infloop.nodes.base import Interpreters

    typescript = _typescript(chosen)
    return Interpreters(
        python=chosen.python_bin,
        typescript=typescript,
        typescript_missing=(
            "TypeScript needs Deno, Bun or Node.js 23.6 or newer, and none was found; "
            "install one (`pip install infloop[typescript]` brings Deno) or name it in "
            "INFLOOP_DENO_BIN, INFLOOP_BUN_BIN or INFLOOP_NODE_BIN"
        ),
    )


class ThisMachine:
    """What a check of a workflow looks up on this machine."""

    def __init__(self, chosen: Settings) -> None:
        self._chosen = chosen

    @cached_property
    def typescript_missing(self) -> str:
        found = find_interpreters(self._chosen)
        return "" if found.typescript else found.typescript_missing

    def has_program(self, name: str) -> bool:
        return _installed(name) is not None

    def has_directory(self, path: str) -> bool:
        try:
            return Path(path).is_dir()
        except (OSError, ValueError):  # ValueError: a NUL in the name
            return False


def _installed(program: str) -> str | None:
    """Return the path of a program; the working directory is not searched."""
    from infloop.sandbox.levels.keeper_sandbox import find_program

    return find_program(program, os.environ.get("PATH", os.defpath))


_BUN = ("run",)
_DENO = ("run", "--quiet", "--no-config", "--no-lock", "--allow-all", "--no-check")
_NODE = ("--disable-warning=ExperimentalWarning", "--experimental-strip-types")


def _typescript(chosen: Settings) -> tuple[str, ...]:
    """Return the command that runs TypeScript: named before found, and then the fastest first.

    A small script takes 15 ms with Bun and 65 ms with Deno.
    """
    named = ((chosen.bun_bin, _BUN), (chosen.deno_bin, _DENO), (chosen.node_bin, _NODE))
    for program, options in named:
        if program:
            return (program, *options)
    if bun := _installed("bun"):
        return (bun, *_BUN)
    if deno := _packaged_deno() or _installed("deno"):
        return (deno, *_DENO)
    node = _installed("node")
    return (node, *_NODE) if node and _runs_typescript(Path(node)) else ()


def _packaged_deno() -> str:
    """Return the Deno of the `typescript` extra, or an empty text."""
    try:
        import deno
    except ImportError:
        return ""
    try:
        return str(deno.find_deno_bin())
    except (FileNotFoundError, RuntimeError):
        return ""


def _runs_typescript(node: Path) -> bool:
    """Say whether this Node can run TypeScript, by the version in its headers."""
    header = node.resolve().parent.parent / "include/node/node_version.h"
    try:
        text = header.read_text(encoding="utf-8")
    except OSError:
        return False
    major = next(
        (
            line.split()[2]
            for line in text.splitlines()
            if line.startswith("#define NODE_MAJOR_VERSION")
        ),
        "0",
    )
    return major.isdecimal() and int(major) >= 23
