"""Opens what a workflow file in Python is built with."""

from __future__ import annotations

import pwd
from contextlib import suppress
from os import geteuid
from pathlib import Path
from typing import TYPE_CHECKING

from infloop.app.process import child_source_environment, home_of
from infloop.app.sandbox import open_sandbox
from infloop.settings import Settings, home_directory

if TYPE_CHECKING:
    from infloop.catalog.python_files import Built


async def build_python_file(chosen: Settings, ref: str) -> Built:
    """Build a workflow file, confined as strongly as this machine can.

    Raises SettingsError where nothing confines it, unless the operator chose that by name.
    """
    from infloop.catalog.python_files import BuildPlace, build_file
    from infloop.policy.environment import ChildEnvironment
    from infloop.sandbox.kernel.hardening import hide_from_children
    from infloop.store.data_directory import refuse_shared

    refuse_shared(chosen.data_dir)  # it remembers which levels hold
    hide_from_children()
    async with open_sandbox(chosen) as opened:
        user = opened.user
        inherited = ChildEnvironment(child_source_environment(user), ())()
        place = BuildPlace(
            opened.sandbox,
            chosen.python_bin,
            {name: inherited[name] for name in ("PATH", "HOME") if name in inherited},
            homes=_homes(user),
            hidden=(str(chosen.data_dir),),
            user=user,
        )
        return await build_file(ref, place)


def _homes(user: tuple[int, int] | None) -> frozenset[str]:
    homes = {home_directory(), home_of(user)}
    with suppress(KeyError):  # a user without an entry
        homes.add(Path(pwd.getpwuid(geteuid()).pw_dir))
    return frozenset(str(home.resolve()) for home in homes)
