"""Tables of attacks. The `door` of a row names the test that tries it.

Every table is a list of `[[attack]]` with

    case    the id of the case that the row is an instance of; several rows may be of one case
    name    what is tried, unique in its table
    door    how it is tried: which test takes the row, and what its other fields mean
    heavy   only `make test-thorough` tries it: it takes long, or another row tries much the same
"""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from support.paths import ATTACK_TABLES
from support.thorough import FACTOR

Attack = dict[str, Any]


class AttackTable:
    """One table; knows which of its doors a test has asked for."""

    def __init__(self, name: str) -> None:
        file = ATTACK_TABLES / f"{name}.toml"
        self.rows: list[Attack] = tomllib.loads(file.read_text(encoding="utf-8"))["attack"]
        self._tried: set[str] = set()

    def at(self, door: str) -> list[Any]:
        """The rows of a door, as parameters of the test that tries them."""
        self._tried.add(door)
        found = [row for row in self.rows if row["door"] == door]
        assert found, f"no row has the door {door!r}"
        return [_parameter(row) for row in found if FACTOR or not row.get("heavy")]

    def check(self) -> None:
        """Every row is tried by some test, under a name of its own."""
        assert {row["door"] for row in self.rows} == self._tried
        assert len({row["name"] for row in self.rows}) == len(self.rows)


def _parameter(row: Attack) -> Any:
    marks = [pytest.mark.thorough] if row.get("heavy") else []
    return pytest.param(row, id=f"{row['case']}: {row['name']}", marks=marks)
