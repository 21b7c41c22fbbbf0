"""The operator's settings: each value and where it is from. Secrets are never shown."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from infloop.application.models import Model
from infloop.errors import NotFound
from infloop.model.values import JsonObject

if TYPE_CHECKING:
    from infloop.application.resources import FileResources

Value: TypeAlias = str | int | float | bool | None
SettingSource: TypeAlias = Literal["default", "file", "environment", "command line"]

IN_TABLE = "In a table of the settings file; `infloop docs agent` explains it."


class SettingEntry(Model, kw_only=True):
    """A setting. The value of a secret is `set` or `not set`; `default` is None if it depends."""

    name: str
    value: Value
    source: SettingSource
    default: Value
    description: str


class SettingList(Model, kw_only=True):
    """All settings; `unknown` says which variables are named like a setting and are none."""

    settings: list[SettingEntry]
    unknown: list[str]


class _Shown(Model, kw_only=True):
    """What `settings.shown_settings` returns."""

    values: dict[str, Value]
    schema: JsonObject
    variables: dict[str, str]
    sources: dict[str, SettingSource]
    unknown: list[str]
    tables: dict[str, Value]


class Configuration:
    """Reads the settings that this process has."""

    def __init__(self, resources: FileResources) -> None:
        self._resources = resources

    def all(self) -> SettingList:
        shown = msgspec.convert(self._resources.settings(), _Shown)
        about = msgspec.convert(shown.schema["properties"], dict[str, JsonObject])
        entries = [
            SettingEntry(
                name=shown.variables[field],
                value=value,
                source=shown.sources[field],
                default=msgspec.convert(about[field].get("default"), Value),
                description=str(about[field]["description"]),
            )
            for field, value in shown.values.items()
        ]
        entries += [
            SettingEntry(name=name, value=value, source="file", default=None, description=IN_TABLE)
            for name, value in shown.tables.items()
        ]
        return SettingList(settings=entries, unknown=shown.unknown)

    def find(self, name: str) -> SettingEntry:
        """Return one setting, by its variable or its name in the file. Raises NotFound."""
        known = {each.name: each for each in self.all().settings}
        prefix = next(iter(known)).partition("_")[0] + "_"
        if name in known:
            return known[name]
        wanted = name.upper() if name.upper().startswith(prefix) else prefix + name.upper()
        if wanted in known:
            return known[wanted]
        near = get_close_matches(wanted[:80], known, n=1)
        hint = f"did you mean {near[0]}?" if near else "`infloop settings` lists them"
        raise NotFound(f"there is no setting {name[:80]!r}; {hint}")
