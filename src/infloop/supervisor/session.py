"""The session state: one JSON object, kept in a file that is replaced as a whole.

- It is loaded once. What others write to the file meanwhile is overwritten.
- The file is written with every change, by an atomic replacement, with mode 0600.
- A change that cannot be written is taken back.
- The keys that the engine writes itself cannot be written by anybody else.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from infloop.errors import StoreError
from infloop.model.dev.config import DevConfig
from infloop.model.dev.reading import ConfigError
from infloop.store.files import private_directory, write_private

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from infloop.model.values import JsonValue

_MAX_BYTES = 64 << 20


class Session:
    """The state of one development loop."""

    def __init__(self, path: str) -> None:
        """Load the file if there is one; raise ConfigError if it is not a JSON object."""
        self.path = path
        self._values = _load(Path(path))
        self._written: bytes | None = None
        self.on_change: Callable[[], None] = lambda: None

    @property
    def values(self) -> Mapping[str, JsonValue]:
        return self._values

    def encoded(self) -> bytes:
        """Return the content of the file."""
        return _encode(self._values)

    def text(self, key: str) -> str:
        """Return the text under a key; empty if there is none."""
        value = self._values.get(key)
        return value if isinstance(value, str) else ""

    def update(self, changes: Mapping[str, JsonValue]) -> bool:
        """Store values of children and clients; return whether anything changed.

        Raises StoreError for a reserved key, and if the file cannot be written.
        """
        for key in changes:
            if key in DevConfig.RESERVED_KEYS:
                raise StoreError(f"state key {key!r} is reserved: infloop writes it itself")
        return self.update_own(changes)

    def update_own(self, changes: Mapping[str, JsonValue]) -> bool:
        """Store values of the engine; as `update`, with the reserved keys."""
        before = self._values
        after = {**before, **changes}
        encoded = _encode(after)
        if encoded == self._written or (self._written is None and after == before and before):
            return False
        try:
            target = Path(self.path)
            private_directory(target.parent)
            write_private(target, encoded, durable=False)
        except OSError as error:
            raise StoreError(f"cannot write the state file {self.path!r}: {error}") from None
        self._values, self._written = after, encoded
        self.on_change()
        return True


def _encode(values: Mapping[str, JsonValue]) -> bytes:
    text = json.dumps(values, indent=2, sort_keys=True, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace")


def _load(path: Path) -> dict[str, JsonValue]:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"failed to read state at {path}", error.strerror or "") from None
    try:
        values = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"failed to parse state at {path}", str(error)) from None
    if not isinstance(values, dict):
        raise ConfigError(f"failed to parse state at {path}", "it is not a JSON object")
    return values
