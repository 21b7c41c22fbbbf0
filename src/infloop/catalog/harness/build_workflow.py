"""Runs a workflow file in Python and sends what it built: `build_workflow.py FILE FOLDER NAME`.

The text of FILE comes on standard input. FOLDER is where its imports are found, if it may be seen.
NAME is the workflow to send, if the file makes several. The result goes to descriptor 3 as JSON, so
that what the file prints is not taken for it; `infloop.model.loop_file.built` says what it means.

Stands alone: it runs in a sandbox beside `infloop.py`, a copy of `infloop.builder`.
"""

from __future__ import annotations

import ast
import json
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

RESULT = os.fdopen(os.dup(3), "wb")  # dup() makes it private: not inherited by children
os.close(3)

MAX_MESSAGE = 1_000
MAX_FRAMES = 100


def main(file: str, folder: str, name: str) -> None:
    """Run the file and send its result; its threads and exit handlers are not waited for."""
    source = sys.stdin.buffer.read()
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    import infloop

    sys.path[:1] = [folder] if folder else []
    sys.argv = [file]
    sent = _Build(infloop, file, source).run(name)
    RESULT.write(json.dumps(sent, allow_nan=False).encode())
    RESULT.close()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)


class _Build:
    """One file, and where its parts are in its text."""

    def __init__(self, builder: Any, file: str, source: bytes) -> None:
        self._builder = builder
        self._file = file
        self._source = source
        self._lines = source.split(b"\n")
        self._calls: dict[tuple[int, ...], ast.Call] = {}

    def run(self, name: str) -> dict[str, object]:
        """Return the result of the file."""
        try:
            found = self._workflows()
            chosen = name if name or len(found) != 1 else next(iter(found))
            tree = self._part(found[chosen], None) if chosen in found else None
        except BaseException as error:  # noqa: BLE001  (the file may raise anything)
            return {"error": self._error(error)}
        return {"names": list(found), "tree": tree}

    def _workflows(self) -> dict[str, Any]:
        """Execute the file; return the workflows that its variables hold."""
        tree = ast.parse(self._source, self._file)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                self._calls[_range(node)] = node
        # Another name could be that of a module that the file imports.
        module = ModuleType("__workflow__")
        module.__file__ = self._file
        sys.modules[module.__name__] = module
        self._builder._file = self._file  # noqa: SLF001
        exec(compile(tree, self._file, "exec"), module.__dict__)  # noqa: S102
        found: dict[str, Any] = {}
        for name, value in vars(module).items():
            is_new = not any(value is one for one in found.values())
            if isinstance(value, self._builder.Workflow) and not name.startswith("_") and is_new:
                found[name] = value
        return found

    # -- what was built --

    def _part(self, value: Any, node: ast.AST | None) -> list[object]:
        """Return a value as it is sent; `node` is the expression that it comes from, if known."""
        if isinstance(value, self._builder.Step):
            call = self._calls.get(value.at) if value.at else None
            return ["m", self._arguments(value, call), self._at(value.at)]
        at = self._at(_range(node)) if node is not None else None
        if isinstance(value, dict):
            nodes = _members(node)
            return ["m", {key: self._part(one, nodes.get(key)) for key, one in value.items()}, at]
        if isinstance(value, list):
            written: list[Any] = list(node.elts) if isinstance(node, (ast.List, ast.Tuple)) else []
            if len(written) != len(value) or any(isinstance(one, ast.Starred) for one in written):
                written = [None] * len(value)
            return ["l", [self._part(*pair) for pair in zip(value, written)], at]  # noqa: B905
        return ["s", value, at]

    def _arguments(self, step: Any, call: ast.Call | None) -> dict[str, object]:
        nodes: dict[str | None, ast.AST] = {}
        if call is not None:
            nodes = {one.arg: one.value for one in call.keywords}
        sent: dict[str, object] = {}
        for number, (key, value) in enumerate(step.keys.items()):
            node = nodes.get(step.arguments[key])
            if node is None and number == 0 and call is not None and call.args:
                node = call.args[0]
            sent[key] = self._part(value, node)
        return sent

    def _at(self, position: tuple[int, ...] | None) -> list[int] | None:
        if position is None:
            return None
        line, begin, last, end = position
        return [line, self._column(line, begin), last, self._column(last, end)]

    def _column(self, line: int, count: int) -> int:
        """Return a column from 1 that counts characters, for one from 0 that counts bytes."""
        text = self._lines[line - 1] if 0 < line <= len(self._lines) else b""
        return len(text[:count].decode(errors="replace")) + 1

    # -- what was raised --

    def _error(self, error: BaseException) -> dict[str, object]:
        try:
            said = str(error.msg) if isinstance(error, SyntaxError) else str(error)
        except BaseException:  # noqa: BLE001  (the class may be the file's own)
            said = "an exception without a text"
        message = f"{type(error).__name__}: {said}" if said else type(error).__name__
        at, frames = self._trace(error.__traceback__)
        if isinstance(error, SyntaxError):
            if error.filename == self._file:
                at = (error.lineno or 1, error.offset or 1)
            else:
                frames.append(f"{_short(str(error.filename))}:{error.lineno}")
        frames = frames[:-MAX_FRAMES:-1]
        return {"message": message[:MAX_MESSAGE], "at": at, "frames": frames}

    def _trace(self, trace: TracebackType | None) -> tuple[tuple[int, int], list[str]]:
        """Return the last position in the file, and the calls behind it in other files."""
        at = 1, 1
        frames: list[str] = []
        while trace is not None:
            code = trace.tb_frame.f_code
            line, begin, _, _ = self._builder._where(code, trace.tb_lasti, trace.tb_lineno)  # noqa: SLF001
            if code.co_filename == self._file:
                at, frames = (line, self._column(line, begin)), []
            elif os.path.dirname(code.co_filename) == os.path.dirname(self._file):  # noqa: PTH120
                frames.append(f"{_short(code.co_filename)}:{line} in {code.co_name}")
            trace = trace.tb_next
        return at, frames


def _range(node: Any) -> tuple[int, ...]:
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def _members(node: ast.AST | None) -> dict[Any, ast.AST]:
    """Return the values of a dictionary by their keys, as far as these are written there."""
    if not isinstance(node, ast.Dict):
        return {}
    pairs = zip(node.keys, node.values)  # noqa: B905  (they have the same length)
    return {key.value: value for key, value in pairs if isinstance(key, ast.Constant)}


def _short(file: str) -> str:
    return os.path.basename(file)[:100]  # noqa: PTH119


if __name__ == "__main__":
    main(*sys.argv[1:])
