"""What the leak guard does when it finds a secret."""

from __future__ import annotations

from typing import Literal, TypeAlias

LeakMode: TypeAlias = Literal["off", "warn", "redact", "enforce"]
