"""Waits until something is true: the only place in the tests that polls."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar, overload

PATIENCE_S = 60.0
INTERVAL_S = 0.01
LONGEST_INTERVAL_S = 0.2

T = TypeVar("T")


def eventually(
    look: Callable[[], T | None],
    what: str | Callable[[], str] = "",
    *,
    within_s: float = PATIENCE_S,
    every_s: float | None = None,
) -> T:
    """Return what `look` returns as soon as that is true; fail when the time is up."""
    began = time.monotonic()
    while not (found := look()):
        if time.monotonic() - began > within_s:
            raise AssertionError(_message(look, what, found, within_s))
        time.sleep(_interval(began, every_s))
    return found


def text_in(file: Path, *, within_s: float = PATIENCE_S) -> str:
    """Return what a file holds as soon as it holds something."""
    return eventually(
        lambda: file.read_text() if file.exists() else None, f"{file} holds text", within_s=within_s
    )


@overload
async def eventually_async(
    look: Callable[[], Coroutine[Any, Any, T | None]],
    what: str | Callable[[], str] = ...,
    *,
    within_s: float = ...,
    every_s: float | None = ...,
) -> T: ...


@overload
async def eventually_async(
    look: Callable[[], T | None],
    what: str | Callable[[], str] = ...,
    *,
    within_s: float = ...,
    every_s: float | None = ...,
) -> T: ...


async def eventually_async(
    look: Callable[[], Any],
    what: str | Callable[[], str] = "",
    *,
    within_s: float = PATIENCE_S,
    every_s: float | None = None,
) -> Any:
    """Do as `eventually` does without blocking the event loop; `look` may be a coroutine function.

    A `look` that takes too long is cancelled.
    """
    found, began = None, time.monotonic()
    try:
        async with asyncio.timeout(within_s) as deadline:
            while True:
                seen = look()
                found = await seen if inspect.isawaitable(seen) else seen
                if found:
                    return found
                await asyncio.sleep(_interval(began, every_s))
    except TimeoutError:
        if not deadline.expired():
            raise
    raise AssertionError(_message(look, what, found, within_s))


def _interval(began: float, every_s: float | None) -> float:
    """Unless told, look less often the longer it takes: a look may be a request."""
    if every_s is not None:
        return every_s
    return min(max(INTERVAL_S, (time.monotonic() - began) / 10), LONGEST_INTERVAL_S)


def _message(
    look: Callable[[], object], what: str | Callable[[], str], found: object, within_s: float
) -> str:
    """Say what did not come true: in the words of the test, or as the condition is written."""
    if callable(what):
        what = what()
    elif not what:
        what = inspect.getsource(look).strip() if inspect.isfunction(look) else repr(look)
    return f"not true after {within_s:g} s: {what}\nlast seen: {found!r}"
