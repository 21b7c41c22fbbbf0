"""Trigger files: webhooks, schedules and file watches that start a workflow."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from infloop.model.definition import parse_definition
from infloop.model.events import TriggerKindName
from infloop.model.patterns import BadPattern, compile_pattern
from infloop.model.problems import short_repr
from infloop.model.schema import Document, FileModel, Flag, Whole, field, publish
from infloop.model.template import Template
from infloop.model.texts import FileName, unless_empty
from infloop.model.values import JsonObject, JsonValue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infloop.errors import Problem
    from infloop.model.problems import Report

# Our own fixed pattern: no nested repeats.
_TRIGGER_ID = re.compile(r"[A-Za-z0-9_-]{16,32}", re.ASCII)  # noqa: TID251
MAX_DEBOUNCE_MS = 3_600_000


def _trigger_id(text: str) -> str:
    if not is_trigger_id(text):
        raise ValueError(
            f"{short_repr(text)} is not a trigger id; use 16 to 32 letters, digits, dashes and "
            "underscores"
        )
    return text


class Predicate(FileModel):
    """A comparison that must hold for a request."""

    protects = True

    lhs: str = field("", "Left", "The text that is compared.", template=True)
    op: Literal["==", "!=", "contains", "matches"] = field("==", "Operator", "How.")
    rhs: str = field("", "Right", "The text it is compared with.", template=True)


class KindOptions(FileModel):
    """The options of one kind of trigger, in a field of its own: see `KIND_OPTIONS`."""

    def check(self, place: str, report: Report) -> None:
        """Report what is wrong beyond the types of the fields."""


class Schedule(KindOptions):
    """When a schedule starts its workflow."""

    required_keys = ("cron",)

    cron: str = field("", "Cron", "Minute, hour, day, month, weekday: 30 9 * * 1-5.")
    time_zone: str = field("UTC", "Time zone", "The time zone of the expression: Europe/Berlin.")
    misfire: Literal["once", "skip", "ask"] = field(
        "once",
        "When missed",
        "What to do about missed times: start one run for all of them, start none, or ask a "
        "person.",
    )


class Watch(KindOptions):
    """The file changes that start a workflow."""

    required_keys = ("directory", "globs")

    directory: str = field("", "Directory", "The directory to watch, as an absolute path.")
    globs: tuple[str, ...] = field((), "Files", "The files to watch: src/**/*.py, *.md.")
    ignore: tuple[str, ...] = field(
        (), "But not", "Files to ignore; `.git` and editors' temporary files always are."
    )
    debounce_ms: Whole = field(
        500, "Quiet time (ms)", "The workflow is started when nothing has changed for this long."
    )

    def check(self, place: str, report: Report) -> None:
        if not self.directory.startswith("/"):
            report.error(
                f"{place}.directory",
                f"{short_repr(self.directory)} is not absolute",
                "begin with a slash",
            )
        if not 0 <= self.debounce_ms <= MAX_DEBOUNCE_MS:
            report.error(
                f"{place}.debounceMs",
                f"{short_repr(self.debounce_ms)} is not a quiet time",
                f"use 0 to {MAX_DEBOUNCE_MS}",
            )


KIND_OPTIONS: dict[TriggerKindName, str] = {"schedule": "schedule", "file": "files"}
"""The field of a trigger that holds the options of its kind, for kinds that have options."""


class Trigger(Document):
    """Starts a workflow without a person. The id of a webhook is its credential."""

    model_title = "Trigger"
    required_keys = ("id", "enabled", "workflowId")

    id: Annotated[str, unless_empty(_trigger_id)] = field(
        "", "Id", "The unguessable last part of the webhook's address."
    )
    name: str = field("", "Name", "What people call it.")
    kind: TriggerKindName = field("webhook", "Kind", "A request, a time, or a changed file.")
    enabled: Flag = field(default=False, title="Enabled", description="Whether it starts anything.")
    workflow_id: FileName = field("", "Workflow", "The workflow to run.")
    plugin_id: str = field("generic", "Plugin", "Who sends the requests.")
    event_type: str | None = field(None, "Event", "The event to react to.")
    match: tuple[Predicate, ...] = field((), "Conditions", "All must hold; none always do.")
    inputs: dict[str, str] = field({}, "Inputs", "Values by name.", template=True)
    cwd: str | None = field(
        None,
        "Working directory",
        "Where its runs work, as an absolute path; where the server was started if empty.",
    )
    secret: str | None = field(None, "Secret", "The key of the sender's signature.", secret=True)
    previous_secret: str | None = field(
        None, "Secret before", "The key before this one, while senders change over.", secret=True
    )
    previous_secret_until: Whole | None = field(
        None, "Secret before, until", "When it expires, in milliseconds since 1970."
    )
    verify_optional: Flag = field(
        default=False,
        title="Accept unsigned requests",
        description="Accept requests without a proof of who sent them.",
    )
    schedule: Schedule | None = field(None, "Schedule", "For kind schedule.")
    files: Watch | None = field(None, "Files", "For kind file.")
    last_fired_at: Whole | None = field(None, "Last fired", "Milliseconds since 1970.")
    created_at: Whole | None = field(None, "Created", "Milliseconds since 1970.")
    updated_at: Whole | None = field(None, "Changed", "Milliseconds since 1970.")

    @property
    def display_name(self) -> str:
        """What to call it; never its id, which is a credential."""
        return self.name or f"{self.workflow_id} {self.kind}"

    # What its file has besides: kept when it is written, and never used.
    _unknown: ClassVar[JsonObject] = {}

    def with_unknown(self, unknown: JsonObject) -> Self:
        """Return the trigger with keys of its file that infloop does not know."""
        if not unknown:
            return self
        made = self.model_copy()
        made.__dict__["_unknown"] = unknown
        return made

    def to_json(self) -> JsonObject:
        return {**super().to_json(), **self._unknown}


KNOWN_KEYS = frozenset(info.alias for info in Trigger.model_fields.values())


def parse_trigger(data: bytes) -> tuple[Trigger | None, list[Problem]]:
    """Read a trigger file."""
    unknown: JsonObject = {}

    def choose(raw: Mapping[str, JsonValue], report: Report) -> type[Trigger]:
        unknown.update({key: value for key, value in raw.items() if key not in KNOWN_KEYS})
        return Trigger

    trigger, problems = parse_definition(data, choose, _trigger_rules)
    return trigger.with_unknown(unknown) if trigger is not None else None, problems


def _trigger_rules(trigger: Trigger, report: Report) -> None:
    place = KIND_OPTIONS.get(trigger.kind)
    if place is not None:
        options: KindOptions | None = getattr(trigger, place)
        if options is None:
            report.error(place, "is missing", "a trigger of this kind needs it")
        else:
            options.check(place, report)
    if trigger.cwd and not trigger.cwd.startswith("/"):
        report.error("cwd", f"{short_repr(trigger.cwd)} is not absolute", "begin with a slash")
    if trigger.previous_secret and trigger.previous_secret_until is None:
        report.error("previousSecretUntil", "is missing", "say when the old secret expires")
    for index, predicate in enumerate(trigger.match):
        if predicate.op == "matches" and not Template(predicate.rhs).references:
            try:
                compile_pattern(predicate.rhs)
            except BadPattern as error:
                report.warning(
                    f"match[{index}].rhs",
                    f"never matches, since it cannot run in linear time: {error}",
                    "RE2 syntax has no look-around and no back-references",
                )


def is_trigger_id(text: str) -> bool:
    """Say whether `text` can be the id of a trigger, which is also its file name."""
    return bool(_TRIGGER_ID.fullmatch(text))


def trigger_schema() -> dict[str, Any]:
    """Return the JSON Schema of a trigger; `forKind` marks the options of one kind."""
    schema = publish(Trigger, "trigger")
    for kind, name in KIND_OPTIONS.items():
        schema["properties"][name]["forKind"] = kind
    return schema
