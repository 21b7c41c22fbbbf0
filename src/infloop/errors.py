"""Every error infloop raises on purpose, drawn by who must act.

    InfloopError
    ├── UsageError            the person at the keyboard: a wrong argument, an unknown run
    │   ├── Conflict          … the thing exists, and its state does not allow this
    │   ├── Forbidden         … this caller may not do it
    │   ├── InvalidFile       … a trigger or connection that was sent is wrong (holds the problems)
    │   └── Overloaded        … not now: a queue or a limit is full
    │       └── RateLimited   … too many attempts
    ├── WorkflowError         the author of a workflow: a file that cannot run (holds the problems)
    ├── SettingsError         the operator: a setting or the machine itself
    │   └── MissingPart       … a program or library that is not installed
    ├── BudgetError           the operator: what may be spent is spent (a run that meets it fails)
    ├── StepError             a step could not do its work (the run records it and goes on)
    ├── GuardError            the operator: a guard cannot start or died (a run that meets it fails)
    ├── EgressError           the operator's lists, or the far side: a connection refused or failed
    └── StoreError            the data directory
        ├── Fenced            another process took the run over: stop, write nothing
        ├── NotFound          no such run, step or blob
        ├── Stale             a file was changed by somebody else since it was read
        └── AuditError        the audit log cannot be written: change nothing

A message holds the offending value and the way out. Nothing else is caught broadly
except at the edge of a task. What is wrong with a file is not raised one by one: it is a `Problem`,
and all of them are reported together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

Severity: TypeAlias = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a file, where, and what to do."""

    place: str
    message: str
    hint: str = ""
    severity: Severity = "error"

    def __str__(self) -> str:
        said = f"{self.place}: {self.message}" if self.place else self.message
        return f"{said} ({self.hint})" if self.hint else said


class InfloopError(Exception):
    """Base of all expected errors; its text is meant for a person."""


class UsageError(InfloopError):
    """The request cannot be understood or names something that is not there.

    `code` is stable, for programs.
    """

    def __init__(self, message: str, code: str = "invalid-request") -> None:
        super().__init__(message)
        self.code = code


class Conflict(UsageError):
    """The request is understood, and the state of what it names does not allow it."""

    def __init__(self, message: str, code: str = "conflict") -> None:
        super().__init__(message, code)


class Forbidden(UsageError):
    """The caller may not do this; the message says who may."""

    def __init__(self, message: str, code: str = "forbidden") -> None:
        super().__init__(message, code)


class InvalidFile(UsageError):
    """A definition that was sent cannot be used; `reason` names the first problem in short."""

    def __init__(
        self, message: str, code: str, problems: Sequence[Problem] = (), reason: str = ""
    ) -> None:
        super().__init__(message, code)
        self.problems = tuple(problems)
        self.reason = reason


class Overloaded(UsageError):
    """There is no room at the moment; the same request may succeed later."""

    def __init__(self, message: str, code: str, retry_after_s: int) -> None:
        super().__init__(message, code)
        self.retry_after_s = retry_after_s


class RateLimited(Overloaded):
    """There were too many attempts."""

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message, "rate-limited", retry_after_s)


class WorkflowError(InfloopError):
    """A workflow cannot be used as it is written."""

    def __init__(self, message: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class SettingsError(InfloopError):
    """A setting is wrong, or this machine cannot do what it asks for."""


class MissingPart(SettingsError):
    """A program or library is needed that is not installed here."""


class BudgetError(InfloopError):
    """No more money may be spent; a step that meets this ends the whole run."""


class StepError(InfloopError):
    """A step failed before or beside its child; the text becomes its `errorMessage`."""


class GuardError(InfloopError):
    """What confines a child cannot be put up, or broke; a step that meets this ends the run."""


EgressFailure: TypeAlias = Literal["refused", "unreachable", "timeout", "broken", "too-large"]


class EgressError(InfloopError):
    """A connection was refused by our rules, or failed; `failure` says which, for who may retry."""

    def __init__(self, message: str, failure: EgressFailure = "refused") -> None:
        super().__init__(message)
        self.failure: EgressFailure = failure


class StoreError(InfloopError):
    """The data directory cannot be used as asked."""


class Fenced(StoreError):
    """The run belongs to another process now; nothing more may be written or done."""


class NotFound(StoreError):
    """The store holds nothing under that name. `code` is stable, for programs."""

    def __init__(self, message: str, code: str = "not-found") -> None:
        super().__init__(message)
        self.code = code


class Stale(StoreError):
    """The file was changed by somebody else; nothing was written."""


class AuditError(StoreError):
    """The audit log cannot be written or read; what would have been recorded must not be done."""
