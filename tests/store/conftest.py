"""The store, in every implementation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.stores import IMPLEMENTATIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.stores import OpenStore


@pytest.fixture(params=IMPLEMENTATIONS)
def implementation(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the name of an implementation; a test that uses it runs against each of them."""
    name: str = request.param
    if name != "postgresql":
        yield name
        return
    from support.postgresql import drop_databases, running_server

    running_server()
    yield name
    drop_databases()


@pytest.fixture
def open_store(implementation: str) -> OpenStore:
    """Return what opens a store of that implementation."""
    return IMPLEMENTATIONS[implementation]
