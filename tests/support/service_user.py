"""The user as whom the children of a whole run work, and folders for them.

Where the tests run as root that is `nobody`: level `guard` does not confine root. Everybody else's
children work as the same user.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY = 65534
SERVICE_USER = "nobody" if os.geteuid() == 0 else ""
"""The setting `service_user`."""

CHILD_UID = NOBODY if SERVICE_USER else os.geteuid()


def give(*paths: Path) -> None:
    """Give files and directories to the children's user."""
    if SERVICE_USER:
        for path in paths:
            os.chown(path, NOBODY, NOBODY)


@contextmanager
def folder_for_children(*names: str) -> Iterator[Path]:
    """Make a folder that the children's user can enter; what is in `names` belongs to them."""
    made = Path(tempfile.mkdtemp(prefix="infloop-test-", dir="/var/tmp"))
    made.chmod(0o755)
    for name in names:
        (made / name).mkdir()
        give(made / name)
    try:
        yield made
    finally:
        shutil.rmtree(made)
