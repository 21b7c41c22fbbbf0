"""What a kind of trigger declares.

A new kind is

- a class in a file of its own in this package,
- one line in `infloop.triggers.KINDS`,
- its name in `infloop.model.events.TriggerKindName`.

If it has options, they are a class and a field in `infloop.model.trigger`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from infloop.model.audit import SYSTEM

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from infloop.model.audit import Actor, EventName
    from infloop.model.events import TriggerKindName
    from infloop.model.plugin import Plugin
    from infloop.model.problems import Report
    from infloop.model.trigger import Trigger
    from infloop.model.values import JsonObject
    from infloop.triggers.services import Source, SourceServices


class OptionGroup(Protocol):
    """A group of command-line options, as argparse makes it."""

    def add_argument(self, *flags: str, **settings: Any) -> object:
        """Add an option."""


class TriggerKind(ABC):
    """One kind of trigger: its attributes, its checks, its texts, and what fires it."""

    name: ClassVar[TriggerKindName]
    title: ClassVar[str]
    """The heading of its options in `infloop triggers add --help`."""
    takes_requests: ClassVar[bool] = False
    """Whether a trigger has an address, and a secret that senders sign with."""
    is_trusted: ClassVar[bool] = False
    """Whether all values it passes to a workflow are our own; otherwise they are untrusted."""
    actor: ClassVar[Actor] = SYSTEM
    """Who asks for its runs, in the audit log."""
    queued_event: ClassVar[EventName] = "run.queued"
    """The audit event of a queued run."""

    @abstractmethod
    def add_options(self, group: OptionGroup) -> None:
        """Add the options of `infloop triggers add` that belong to this kind."""

    @abstractmethod
    def is_chosen(self, args: argparse.Namespace) -> bool:
        """Tell whether the options ask for this kind; if for none, the first kind is used."""

    def fields(self, args: argparse.Namespace) -> JsonObject:
        """Return the fields of a new trigger from the options."""
        return {}

    @abstractmethod
    def describe(self, trigger: Trigger) -> str:
        """Return what fires the trigger, as the subject of "… starts 'my-workflow'"."""

    def details(self, trigger: Trigger, now_ms: int) -> Iterator[str]:
        """Yield more lines about a trigger, for `infloop triggers show`."""
        yield from ()

    def next_at(self, trigger: Trigger, now_ms: int) -> int | None:
        """Return when the trigger fires next, where that is known."""
        return None

    def check(self, trigger: Trigger, plugin: Plugin | None, report: Report) -> None:  # noqa: B027
        """Report what is wrong with a trigger beyond the format of its file."""

    def source(self, services: SourceServices) -> Source | None:
        """Return what fires the triggers of this kind; None if requests to the server do."""
        return None
