"""Which isolation levels hold on this machine, and which one is taken.

A level counts only when it was attacked and held (see self_check). `auto` takes the strongest that
does and falls back to `host`; a level that is asked for by name and does not hold is refused.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, assert_never

from infloop import __version__
from infloop.errors import MissingPart, SettingsError
from infloop.model.isolation import LEVELS
from infloop.sandbox.levels import container
from infloop.sandbox.levels.bubblewrap import BubblewrapSandbox
from infloop.sandbox.levels.guard import ContainerSandbox, GuardSandbox
from infloop.sandbox.levels.host import HostSandbox
from infloop.sandbox.levels.trusted_bubblewrap import PLACES
from infloop.sandbox.self_check.battery import QUICK, self_check

if TYPE_CHECKING:
    from infloop.model.isolation import Level
    from infloop.sandbox.base import Sandbox

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Place:
    """What children are given on this machine, whatever their level.

    In `scratch` they get private directories; their user must be able to enter it. `hidden`
    directories are never shown to them. `user` is as whom root starts them.
    """

    scratch: str
    hidden: tuple[str, ...] = ()
    user: tuple[int, int] | None = None


@dataclass(frozen=True)
class Proof:
    """Whether a level holds here; `reason` says what is missing or was broken."""

    level: Level
    reason: str = ""

    @property
    def holds(self) -> bool:
        """Whether children can be run at this level."""
        return not self.reason


@dataclass(frozen=True)
class Choice:
    """The level that is taken, and what was found out about it and the stronger ones."""

    level: Level
    proofs: tuple[Proof, ...] = ()

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it is not a stronger level, as sentences."""
        return tuple(f"{p.level}: {p.reason}" for p in self.proofs if not p.holds)

    @property
    def why_host(self) -> str:
        """Why children are not confined; nothing if they are, or if that was asked for."""
        if self.level != "host":
            return ""
        # Who is not in a container has not chosen to be.
        return next((p.reason for p in self.proofs if p.level != "container"), "")


def open_level(level: Level, place: Place) -> Sandbox:
    """Return a sandbox of this level.

    Raises MissingPart, naming the missing piece, and SettingsError where root needs a user.
    """
    match level:
        case "sandbox":
            return BubblewrapSandbox(hidden=place.hidden, user=place.user)
        case "guard":
            return GuardSandbox(place.scratch, hidden=place.hidden, user=place.user)
        case "container":
            if piece := container.missing_piece():
                raise MissingPart(f"level 'container' needs {piece}")
            return ContainerSandbox(place.scratch, hidden=place.hidden, user=place.user)
        case "host":
            return HostSandbox(user=place.user)
    assert_never(level)


async def prove(level: Level, place: Place) -> Proof:
    """Attack a level a few times, once for each way out, and say whether it held."""
    try:
        sandbox = open_level(level, place)
    except SettingsError as error:
        return Proof(level, str(error))
    try:
        found = await self_check(sandbox, place.scratch, user=place.user, attempts=QUICK)
    finally:
        await sandbox.close()
    if found.error:
        return Proof(level, found.error)
    broken = "; ".join(f"{finding.attempt}: {finding.detail}" for finding in found.broken)
    return Proof(level, f"a promise was broken ({broken})" if broken else "")


async def choose(asked: Level | Literal["auto"], place: Place, cache: Path | None = None) -> Choice:
    """Return the level to run children at; `host` needs no proof, as it promises little.

    What held is remembered in the file `cache` until the machine or infloop starts anew in another
    version. Raises SettingsError for a level that was asked for and does not hold.
    """
    if asked == "host":
        return Choice("host")
    known = _Known(cache, place)
    proofs: list[Proof] = []
    for level in LEVELS[:-1] if asked == "auto" else (asked,):
        proof = Proof(level) if known.holds(level) else await prove(level, place)
        proofs.append(proof)
        if proof.holds:
            known.add(level)
            return Choice(level, tuple(proofs))
    if asked != "auto":
        raise SettingsError(f"level {asked!r} does not hold here: {proofs[0].reason}")
    return Choice("host", tuple(proofs))


class _Known:
    """What held before under the same circumstances; what did not is tried again each time."""

    def __init__(self, cache: Path | None, place: Place) -> None:
        self._cache = cache
        self._key = _circumstances(place)
        self._held: list[str] = []
        if cache:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                stored: dict[str, Any] = json.loads(cache.read_text(encoding="utf-8"))
                self._held = stored["held"] if stored["key"] == self._key else []

    def holds(self, level: Level) -> bool:
        return level in self._held

    def add(self, level: Level) -> None:
        if self._cache is None or self.holds(level):
            return
        self._held = [*self._held, level]
        draft = self._cache.with_suffix(f".{os.getpid()}")
        draft.touch(mode=0o600)  # another user who could write it would choose our level
        draft.write_text(json.dumps({"key": self._key, "held": self._held}), encoding="utf-8")
        draft.replace(self._cache)


def _circumstances(place: Place) -> list[Any]:
    """Return what a proof depends on, as JSON gives it back."""
    programs = [Path(name).stat().st_mtime_ns for name in PLACES if Path(name).exists()]
    user = list(place.user or (os.geteuid(), os.getegid()))
    boot = _BOOT_ID.read_text(encoding="ascii").strip()
    return [__version__, boot, os.uname().release, user, programs]
