"""Runs a script node's Python: `python3 run_python.py script.py`, arguments as JSON on stdin.

The value that the script's `run` returns goes to descriptor 3 as JSON. The descriptor is moved out
of the way and closed to children first, so printed text and child processes cannot forge a result.
Stands alone: it runs under the interpreter of the script, not ours.
"""

from __future__ import annotations

# Every script waits for these imports. With asyncio, inspect and typing, which few scripts need, a
# small one took 96 instead of 28 ms of CPU time (shortest of 25 alternating starts).
import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable

RESULT = os.fdopen(os.dup(3), "wb")  # dup() makes it private: not inherited by children
os.close(3)

_CO_ITERABLE_COROUTINE = 0x100


def main(script: str) -> None:
    """Run the script and hand back what its `run` returns."""
    arguments = json.load(sys.stdin)
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
    RESULT.write(json.dumps(value, allow_nan=False).encode())
    RESULT.close()


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
