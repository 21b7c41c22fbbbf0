"""The tables of Procrastinate, in our schema, and which versions of the library fit them.

The migration that makes them is a copy of what version 3.10 has: see `procrastinate-3.10.sql`. The
library numbers its functions. A version that needs others than the copy has is refused when the
database is opened, before anything is queued.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from procrastinate import __version__, sql

from infloop.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping

_FILE = "procrastinate-3.10.sql"
_NAME = r"procrastinate_\w+"

USED = (
    "defer_jobs",
    "fetch_job",
    "finish_job",
    "retry_job",
    "register_worker",
    "update_heartbeat",
    "unregister_worker",
)
"""The queries of the library that infloop makes."""


@cache
def jobs_schema() -> str:
    """Return the statements that make the tables."""
    return files(__package__).joinpath(_FILE).read_text(encoding="utf-8")


def check_library(queries: Mapping[str, str] = sql.queries, version: str = __version__) -> None:
    """Raise StoreError if the installed library needs other functions than the tables have."""
    made = {*re.findall(_NAME, jobs_schema())}
    for name in USED:
        if missing := {*re.findall(_NAME, queries.get(name, f"procrastinate_{name}"))} - made:
            raise StoreError(
                f"procrastinate {version} needs {min(missing)!r}, which this infloop does not make;"
                " install the version of procrastinate that `infloop[cluster]` asks for, or a"
                " newer infloop"
            )
