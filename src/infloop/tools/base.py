"""The interface of a tool.

A tool declares its name, its arguments and what a call needs, and does the work. It decides nothing
about permission: only `tools.gate` calls it. An extension is one class in a file of its own and one
line in its family's tuple.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import msgspec

from infloop.errors import InfloopError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infloop.model.capabilities import Need


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of a call. A model sends JSON; an unknown field is an error."""


A = TypeVar("A", bound=Arguments)


class ToolError(InfloopError):
    """A call failed or was refused; the model gets the text and can try something else.

    `code` is stable, for tests and programs: `path-is-absolute`, `timed-out`. `detail` is for the
    operator alone: it is in the audit log, and the model does not get it.
    """

    def __init__(self, code: str, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.detail = detail


class Tool(ABC, Generic[A]):
    """Something that a model can call."""

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    description: ClassVar[str]
    arguments: ClassVar[type[Any]]
    """The class of its arguments, a subclass of `Arguments`."""

    @abstractmethod
    def needs(self, arguments: A) -> Sequence[Need]:
        """Return what a call needs; never nothing. This does no I/O."""

    @abstractmethod
    async def run(self, arguments: A) -> str:
        """Do it; return the text for the model. Raises ToolError.

        The text is bounded, but it can be larger than what a model gets: the gate cuts it. When
        this is cancelled, nothing of the call keeps running.
        """

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the arguments, as a model gets it."""
        return msgspec.json.schema(self.arguments)

    def summary(self, arguments: A) -> str:
        """Return the call in one line, for a person."""
        return ", ".join(dict.fromkeys(need.subject for need in self.needs(arguments)))


class ToolFamily(ABC):
    """Tools that share something that must be closed, such as a browser or processes."""

    @property
    @abstractmethod
    def tools(self) -> tuple[Tool[Any], ...]:
        """The tools."""

    async def close(self) -> None:  # noqa: B027  (most families have nothing to close)
        """End everything that the tools have started."""
