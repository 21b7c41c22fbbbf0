"""Error responses: one JSON shape with a stable code.

A program reads `error`, a person reads `message`; `problems` say what is wrong with a file, and
where. The table `STATUSES` maps errors to statuses; the first match counts.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated, Any, cast

from msgspec import Meta
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from infloop.application.models import Model, to_json
from infloop.application.problems import ShownProblem, shown_problems
from infloop.errors import (
    BudgetError,
    Conflict,
    EgressError,
    Fenced,
    Forbidden,
    GuardError,
    InfloopError,
    InvalidFile,
    NotFound,
    Overloaded,
    Problem,
    RateLimited,
    Stale,
    StepError,
    StoreError,
    UsageError,
    WorkflowError,
)
from infloop.model.inputs import InputError
from infloop.model.problems import place_of, short_repr

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fastapi import FastAPI
    from fastapi.exceptions import RequestValidationError
    from starlette.requests import Request
    from starlette.responses import Response

    from infloop.model.values import JsonObject

STATUSES: tuple[tuple[type[Exception], int, str], ...] = (
    (WorkflowError, 422, "invalid-workflow"),
    (BudgetError, 503, "budget-spent"),
    (NotFound, 404, "not-found"),
    (Fenced, 409, "taken-over"),
    (Stale, 409, "stale-version"),
    (StoreError, 503, "store-unavailable"),
    (Conflict, 409, "conflict"),
    (Forbidden, 403, "forbidden"),
    (RateLimited, 429, "rate-limited"),
    (Overloaded, 503, "overloaded"),
    (UsageError, 400, "invalid-request"),
    (GuardError, 503, "confinement-failed"),
    (StepError, 502, "provider-failed"),
    (EgressError, 502, "provider-failed"),
    (InfloopError, 500, "internal"),
)

_CODES = {
    400: "invalid-request",
    404: "not-found",
    405: "method-not-allowed",
    413: "too-large",
    415: "unsupported-media-type",
}

log = logging.getLogger("infloop.web")


class Refused(InfloopError):
    """An error of the HTTP layer itself, with its status and stable code."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        headers: Mapping[str, str] | None = None,
        **details: Any,
    ) -> None:
        super().__init__(message)
        self.status, self.code = status, code
        self.headers = dict(headers or {})
        self.details = details


class ApiError(Model, kw_only=True):
    """Why a request was refused or failed."""

    error: Annotated[str, Meta(description="A code that stays the same.")]
    message: Annotated[str, Meta(description="The same for a person.")]
    correlation_id: Annotated[str, Meta(description="The id of this request, as in the audit log.")]
    problems: Annotated[
        list[ShownProblem] | None, Meta(description="What is wrong with a file.")
    ] = None
    field: Annotated[str | None, Meta(description="The input that does not fit.")] = None
    reason: str | None = None
    expected: str | None = None
    got: str | None = None


API_ERROR = {"$ref": "#/components/schemas/ApiError"}


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the documentation of these statuses, each with an `ApiError`.

    It names the schema. FastAPI would build a validator for each of them from a model, 850 in all,
    which took a third of the time to the first answer.
    """
    return {
        status: {"content": {"application/json": {"schema": {**API_ERROR}}}} for status in statuses
    }


def problem_objects(problems: Sequence[Problem]) -> list[JsonObject]:
    """Return problems for another program."""
    return [to_json(problem) for problem in shown_problems(problems)]


def error_response(
    correlation_id: str,
    status: int,
    code: str,
    message: str,
    headers: Mapping[str, str] | None = None,
    **details: Any,
) -> Response:
    """Return an error in the one shape."""
    body = {"error": code, "message": message, "correlationId": correlation_id, **details}
    return JSONResponse(body, status, headers=dict(headers or {}))


def answer(error: Exception, correlation_id: str) -> Response:
    """Return the response to an expected error."""
    if isinstance(error, Refused):
        return error_response(
            correlation_id, error.status, error.code, str(error), error.headers, **error.details
        )
    if isinstance(error, InputError):
        details: dict[str, Any] = {"field": error.field, "reason": error.reason}
        if error.reason == "type":
            details |= {"expected": error.expected, "got": error.got}
        return error_response(correlation_id, 400, "invalid-inputs", str(error), **details)
    status, code = next((s, c) for kind, s, c in STATUSES if isinstance(error, kind))
    code = getattr(error, "code", code)
    more: dict[str, Any] = {}
    if isinstance(error, WorkflowError | InvalidFile) and error.problems:
        more["problems"] = problem_objects(error.problems)
    if isinstance(error, InvalidFile) and error.reason:
        more["reason"] = error.reason
    headers = {"retry-after": str(error.retry_after_s)} if isinstance(error, Overloaded) else None
    return error_response(correlation_id, status, code, str(error), headers, **more)


def correlation_id(request: Request) -> str:
    """Return the correlation id of a request."""
    return str(request.scope.get("state", {}).get("correlation_id", ""))


async def _expected(request: Request, error: Exception) -> Response:
    return answer(error, correlation_id(request))


async def _invalid(request: Request, error: Exception) -> Response:
    """Answer a request with invalid parameters or body; nothing of the body is repeated."""
    invalid = cast("RequestValidationError", error)
    problems = [_problem(each) for each in invalid.errors()[:50]]
    first = problems[0] if problems else Problem("", "cannot be read")
    return error_response(
        correlation_id(request),
        400,
        "invalid-request",
        str(first),
        problems=problem_objects(problems),
    )


def _problem(detail: Any) -> Problem:
    if detail["type"] == "json_invalid":
        return Problem("body", str(detail["ctx"]["error"]))
    return Problem(place_of([part for part in detail["loc"] if part != "body"]), detail["msg"])


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, Refused):  # raised by a guard while the framework read the body
        return answer(error.__cause__, correlation_id(request))
    code = _CODES.get(error.status_code, "refused")
    path = short_repr(request.url.path)
    said = {404: f"there is nothing at {path}", 405: f"{request.method} is not for {path}"}
    message = said.get(error.status_code, error.detail)
    return error_response(correlation_id(request), error.status_code, code, message, error.headers)


async def _unexpected(request: Request, error: Exception) -> Response:
    """Answer an unexpected error; the details are in the log, not in the response."""
    return error_response(
        correlation_id(request),
        500,
        "internal",
        "this should not have happened; the server's log says more under the correlation id",
    )


def handle_errors(app: FastAPI) -> None:
    """Answer every error of `app` in the one shape."""
    from fastapi.exceptions import RequestValidationError

    app.add_exception_handler(InfloopError, _expected)
    app.add_exception_handler(InputError, _expected)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)
