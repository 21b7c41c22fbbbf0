"""Runs a script node's Python: `python3 run_python.py script.py`, arguments as JSON on stdin.

The value that the script's `run` returns goes to descriptor 3 as JSON. The descriptor is moved out
of the way and closed to children first, so printed text and child processes cannot forge a result.
Stands alone: it runs under the interpreter of the script, not ours.
"""

from __future__ import annotations

# Every script waits for these imports. A small one took 44 ms of CPU time with json, which imports
# re, and takes 27 ms with the C half of json; Python alone takes 22 ms (medians of 25 alternating
# starts on a busy machine). asyncio, inspect and typing, which few scripts need, took 68 ms more.
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable

RESULT = os.fdopen(os.dup(3), "wb")  # dup() makes it private: not inherited by children
os.close(3)

_CO_ITERABLE_COROUTINE = 0x100
# The C half of json is private: an interpreter may lack it, or want other options.
_NOT_THIS_JSON = (ImportError, AttributeError, TypeError)


def main(script: str) -> None:
    """Run the script and hand back what its `run` returns."""
    arguments = decode(sys.stdin.buffer.read().decode())
    sys.argv = [script]
    sys.path[0] = os.path.dirname(script)  # noqa: PTH120
    with open(script, encoding="utf-8") as file:  # noqa: PTH123
        source = file.read()
    module = {"__name__": "__main__", "__file__": script, "__builtins__": __builtins__}
    exec(compile(source, script, "exec"), module)  # noqa: S102
    run = module.get("run")
    if not callable(run):
        sys.exit("the script must define a function named run")
    value = run(*arguments)
    if _is_awaitable(value):
        import asyncio

        value = asyncio.run(_finish(value))
    sys.stdout.flush()
    RESULT.write(encode(value).encode())
    RESULT.close()


def decode(text: str) -> list[object]:
    """Say the same as `json.loads`, of a text that begins with its value."""
    found: list[object]
    try:
        from _json import make_scanner

        scan = make_scanner(_Decoding)  # type: ignore[arg-type]
    except _NOT_THIS_JSON:
        import json

        found = json.loads(text)
    else:
        found, _ = scan(text, 0)
    return found


class _Decoding:
    """The options of a `json.JSONDecoder`."""

    strict = True
    object_hook = object_pairs_hook = parse_constant = None
    parse_float = float
    parse_int = int


def encode(value: object) -> str:
    """Say the same as `json.dumps(value, allow_nan=False)`."""
    try:
        from _json import encode_basestring_ascii, make_encoder

        how = (encode_basestring_ascii, None, ": ", ", ", False, False, False)
        pieces = make_encoder({}, _refuse, *how)
    except _NOT_THIS_JSON:
        import json

        return json.dumps(value, allow_nan=False)
    return "".join(pieces(value, 0))


def _refuse(value: object) -> object:
    name = type(value).__name__
    raise TypeError(f"Object of type {name} is not JSON serializable")


def _is_awaitable(value: object) -> bool:
    """Say the same as `inspect.isawaitable`."""
    code = getattr(value, "gi_code", None)
    return hasattr(type(value), "__await__") or bool(
        getattr(code, "co_flags", 0) & _CO_ITERABLE_COROUTINE
    )


async def _finish(awaitable: Awaitable[object]) -> object:
    return await awaitable


if __name__ == "__main__":
    main(sys.argv[1])
