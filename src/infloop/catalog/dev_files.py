"""Finds and reads the configuration of a development loop.

It is `devloop.toml`, or the table `[dev]` of a file called `infloop.toml`. Relative paths in it are
relative to the file's directory.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from infloop.model.dev.reading import ConfigError, DevFile, parse_config, unknown_keys
from infloop.model.dev.validation import validate, warnings
from infloop.watch.globs import GlobSet
from infloop.watch.patterns import BadGlob

if TYPE_CHECKING:
    from infloop.model.dev.config import DevConfig

DEFAULT_NAME = "devloop.toml"
SETTINGS_NAME = "infloop.toml"
_MAX_BYTES = 1 << 20


def load_dev_file(named: str | None, directory: str) -> DevFile:
    """Read and check a configuration; raise ConfigError.

    Without a name it is `devloop.toml` in `directory`, or `infloop.toml` there if that has a table
    `[dev]`.
    """
    path = Path(directory, named) if named else _default(Path(directory))
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"failed to read config at {path}", error.strerror or str(error)
        ) from None
    if len(text) > _MAX_BYTES:
        raise ConfigError(f"failed to read config at {path}", "it is larger than 1 MiB")
    try:
        data = tomllib.loads(text.decode("utf-8"))
        if path.name == SETTINGS_NAME:
            data = data.get("dev", {})
        config = parse_config(data, str(path))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"failed to parse config at {path}", str(error)) from None
    base = os.path.normpath(path.parent)
    config = config.model_copy(
        update={
            "root": str(Path(base, config.root)),
            "state_file": str(Path(base, config.state_file)) if config.state_file else None,
        }
    )
    validate(config, root_exists=Path(config.root).exists())
    _check_globs(config)
    return DevFile(config, str(path), (*unknown_keys(data), *warnings(config)))


def _default(directory: Path) -> Path:
    own = directory / DEFAULT_NAME
    if own.is_file():
        return own
    shared = directory / SETTINGS_NAME
    try:
        if "dev" in tomllib.loads(shared.read_text(encoding="utf-8")):
            return shared
    except (OSError, ValueError):
        pass
    raise ConfigError(f"no devloop config provided and no ./{DEFAULT_NAME} found in {directory}")


def _check_globs(config: DevConfig) -> None:
    for name, group in sorted(config.watch.items()):
        for pattern in group.paths:
            try:
                GlobSet([pattern])
            except BadGlob as error:
                raise ConfigError(
                    f"invalid glob '{pattern}' in watch group '{name}'", str(error)
                ) from None
