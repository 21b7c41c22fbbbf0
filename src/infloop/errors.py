"""All errors that infloop raises on purpose, by who must act.

    InfloopError
    ├── UsageError            the user: a wrong argument, an unknown run
    │   ├── Conflict          … the state of the thing does not allow this
    │   ├── Forbidden         … this caller may not do it
    │   ├── InvalidFile       … a trigger or connection that was sent is invalid (has the problems)
    │   └── Overloaded        … not now: a queue or a limit is full
    │       └── RateLimited   … too many attempts
    ├── WorkflowError         the author of a workflow: the file cannot run (has the problems)
    ├── SettingsError         the operator: a setting, or the machine itself
    │   └── MissingPart       … a program or library that is not installed
    ├── BudgetError           the operator: the budget is used up (fails the run)
    ├── StepError             a step failed (the run records it and continues)
    ├── GuardError            the operator: a confinement failed (fails the run)
    ├── EgressError           the operator or the remote side: a connection was refused or failed
    └── StoreError            the data directory
        ├── Fenced            another process took over the run: stop, write nothing
        ├── NotFound          no such run, step or blob
        ├── Stale             a file changed since it was read
        └── AuditError        the audit log cannot be written: change nothing

A message contains the offending value and what to do. Broad `except` clauses exist only at the
edge of a task. The problems of a file are not raised one by one: each is a `Problem`, and all of
them are reported together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

Severity: TypeAlias = Literal["error", "warning"]


class Problem(msgspec.Struct, frozen=True):
    """One problem of a file: where it is, what is wrong, and what to do.

    `line` and `column` count from 1. `file` is the path of the file, where it has one. `unsafe`
    means that the file is not even saved. In a workflow, `node_id` or `edge` (a number in `edges`)
    say what it is about, and `field` which part of that.
    """

    place: str
    message: str
    hint: str = ""
    severity: Severity = "error"
    line: int | None = None
    column: int | None = None
    file: str = ""
    unsafe: bool = False
    node_id: str | None = None
    edge: int | None = None
    field: str = ""

    def __str__(self) -> str:
        text = f"{self.place}: {self.message}" if self.place else self.message
        return f"{text} ({self.hint})" if self.hint else text

    @property
    def position(self) -> str:
        """Where it is, as editors and compilers write it: `fix.loop.yaml:12:9`; or empty."""
        return f"{self.file}:{self.line}:{self.column}" if self.file and self.line else ""


class InfloopError(Exception):
    """The base of all expected errors; the text is for a person."""


class UsageError(InfloopError):
    """The request is invalid or names something that does not exist.

    `code` is stable, for programs.
    """

    def __init__(self, message: str, code: str = "invalid-request") -> None:
        super().__init__(message)
        self.code = code


class Conflict(UsageError):
    """The state of what the request names does not allow it."""

    def __init__(self, message: str, code: str = "conflict") -> None:
        super().__init__(message, code)


class Forbidden(UsageError):
    """The caller may not do this; the message says who may."""

    def __init__(self, message: str, code: str = "forbidden") -> None:
        super().__init__(message, code)


class InvalidFile(UsageError):
    """A definition that was sent is invalid; `reason` is a short form of the first problem."""

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
    """A required program or library is not installed."""


class BudgetError(InfloopError):
    """No more money may be spent; the step that raises this fails the whole run."""


class StepError(InfloopError):
    """A step failed outside of its child; the text becomes its `errorMessage`."""


class GuardError(InfloopError):
    """The confinement of a child cannot be set up, or broke; this fails the run."""


EgressFailure: TypeAlias = Literal["refused", "unreachable", "timeout", "broken", "too-large"]


class EgressError(InfloopError):
    """A connection was refused by a rule, or failed; `failure` says which, for retries."""

    def __init__(self, message: str, failure: EgressFailure = "refused") -> None:
        super().__init__(message)
        self.failure: EgressFailure = failure


class StoreError(InfloopError):
    """The data directory cannot be used as requested."""


class Fenced(StoreError):
    """The run belongs to another process now; nothing more may be written or done."""


class NotFound(StoreError):
    """The store has nothing under that name. `code` is stable, for programs."""

    def __init__(self, message: str, code: str = "not-found") -> None:
        super().__init__(message)
        self.code = code


class Stale(StoreError):
    """The file was changed meanwhile; nothing was written."""


class AuditError(StoreError):
    """The audit log cannot be written or read; the action to be recorded must not happen."""
