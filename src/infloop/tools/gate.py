"""The gate: the only way to call a tool.

Every call passes the same steps, in this order:

    parse      the tool exists and its arguments are valid
    list       the agent has this tool
    secrets    what leaves the machine holds no secret
    policy     what the call needs is allowed, asked or denied
    approval   a person allows this exact call, if the policy asks
    audit      the call is in the audit log before it runs, with a digest of its arguments
    run        the tool does it
    leaks      secrets are removed from the text, or the call fails
    cap        the text is cut to what a model gets
    audit      the outcome is in the audit log

Leaks come before the cap, because a cut could hide a part of a secret from the guard. A call that
cannot be recorded does not run.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import msgspec

from infloop.errors import BudgetError, EgressError, GuardError, InfloopError, StoreError
from infloop.model.approval import question
from infloop.policy.leaks.guard import BLOCKED
from infloop.policy.tool_policy import decide_call, is_listed
from infloop.tools.base import ToolError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Mapping, Sequence

    from infloop.model.capabilities import Need
    from infloop.model.values import JsonObject
    from infloop.policy.leaks.guard import LeakGuard
    from infloop.policy.permissions import AskPerson
    from infloop.policy.tool_policy import ToolPolicy
    from infloop.tools.base import Tool, ToolFamily

MAX_TEXT_CHARS = 15_000
"""How much of a tool's text a model gets."""
MAX_ARGUMENT_BYTES = 1 << 20

_NETWORK = frozenset({"network-read", "network-write", "private-network"})

ToolEvent: TypeAlias = Literal["tool.called", "tool.refused", "tool.finished"]


class RecordCall(Protocol):
    """Writes to the audit log."""

    def __call__(self, event: ToolEvent, outcome: str, details: JsonObject) -> Awaitable[None]:
        """Write one entry durably; raise AuditError if that is not possible."""


class ToolResult(msgspec.Struct, frozen=True):
    """What a model gets of a call. With a `code` the call failed or was refused.

    `reason` is for the operator: the rule that refused the call.
    """

    text: str
    code: str = ""
    leaks: tuple[str, ...] = ()
    reason: str = ""


class ToolDefinition(msgspec.Struct, frozen=True):
    """A tool as a model sees it."""

    name: str
    description: str
    schema: dict[str, Any]


class _Call(msgspec.Struct, frozen=True):
    tool: Tool[Any]
    arguments: Any
    raw: JsonObject
    needs: tuple[Need, ...]
    digest: str

    @property
    def details(self) -> JsonObject:
        """What the audit log says of the call: digests and capabilities, no contents."""
        return {
            "tool": self.tool.name,
            "digest": self.digest,
            "capabilities": [*sorted({need.capability for need in self.needs})],
        }


class Gate:
    """The tools of one agent, behind their policies. Its owner must close it."""

    def __init__(
        self,
        families: Sequence[ToolFamily],
        policies: Sequence[ToolPolicy],
        *,
        record: RecordCall,
        leaks: LeakGuard,
        ask: AskPerson | None = None,
        max_text_chars: int = MAX_TEXT_CHARS,
    ) -> None:
        """Put tools behind a gate. Without `ask`, what would be asked is denied."""
        self._families = tuple(families)
        self._policies = tuple(policies)
        self._record = record
        self._leaks = leaks
        self._ask = ask
        self._max_text_chars = max_text_chars
        self._tools = _by_name(tool for family in families for tool in family.tools)

    def narrowed(self, policy: ToolPolicy) -> Gate:
        """Return the same tools for a sub-agent, with one more policy.

        The tools still belong to this gate, which closes them.
        """
        gate = Gate(
            (),
            (*self._policies, policy),
            record=self._record,
            leaks=self._leaks,
            ask=self._ask,
            max_text_chars=self._max_text_chars,
        )
        gate._tools = self._tools
        return gate

    def definitions(self) -> list[ToolDefinition]:
        """Return the tools that the agent has, as a model sees them."""
        return [
            ToolDefinition(name, tool.description, tool.schema())
            for name, tool in self._tools.items()
            if name == tool.name and is_listed(self._policies, name)
        ]

    async def call(self, name: str, arguments: bytes | JsonObject) -> ToolResult:
        """Call a tool for a model; what goes wrong with the call is a result with a code.

        Raises AuditError if the call cannot be recorded: then it did not run.
        """
        call: _Call | None = None
        try:
            call = self._parse(name, arguments)
            self._check_secrets(call)
            await self._permit(call)
        except ToolError as error:
            return await self._refused(name, call, error)
        await self._record("tool.called", "started", call.details)
        return await self._run(call)

    async def close(self) -> None:
        """End everything that the tools have started."""
        for family in reversed(self._families):
            await family.close()

    def _parse(self, name: str, arguments: bytes | JsonObject) -> _Call:
        tool = self._tools.get(name)
        if tool is None or not is_listed(self._policies, tool.name):
            raise ToolError("tool-not-allowed", f"there is no tool {name[:80]!r} here")
        try:
            data = arguments if isinstance(arguments, bytes) else msgspec.json.encode(arguments)
            if len(data) > MAX_ARGUMENT_BYTES:
                raise ToolError(
                    "arguments-too-large",
                    f"the arguments are larger than {MAX_ARGUMENT_BYTES} bytes",
                )
            raw = msgspec.json.decode(data or b"{}", type=dict[str, Any])
            parsed = msgspec.convert(raw, tool.arguments)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise ToolError("bad-arguments", f"{tool.name}: {error}") from None
        return _Call(tool, parsed, raw, tuple(tool.needs(parsed)), _digest(tool.name, raw))

    def _check_secrets(self, call: _Call) -> None:
        """Raise ToolError if the arguments would take a secret out of this machine."""
        if self._leaks.mode not in ("redact", "enforce"):
            return
        if not any(need.capability in _NETWORK for need in call.needs):
            return
        found: list[str] = []
        self._leaks.redact(call.raw, found.append)
        if found:
            raise ToolError(
                "secret-in-arguments",
                f"{call.tool.name} was not called: its arguments hold a secret",
                f"found: {', '.join(dict.fromkeys(found))}",
            )

    async def _permit(self, call: _Call) -> None:
        decision = decide_call(self._policies, call.needs)
        if decision.answer == "allow":
            return
        if decision.answer == "deny" or self._ask is None:
            why = decision.reason if decision.answer == "deny" else "nobody can be asked"
            raise ToolError("denied", f"{call.tool.name} is not allowed: {why}", decision.reason)
        answer = await self._ask(
            question(
                "tool",
                f"{call.tool.name}: {call.tool.summary(call.arguments)}",
                {**call.details, "arguments": call.raw, "reason": decision.reason},
            )
        )
        if not answer.allowed:
            raise ToolError(
                "denied", f"{call.tool.name} is not allowed: {answer.why}", decision.reason
            )

    async def _run(self, call: _Call) -> ToolResult:
        outcome, text, detail = "succeeded", "", ""
        try:
            text = await call.tool.run(call.arguments)
        except ToolError as error:
            outcome, text, detail = error.code, str(error), error.detail
        except EgressError as error:
            outcome, text, detail = f"network-{error.failure}", str(error), str(error)
        except StoreError:
            raise  # the audit log or the run itself cannot be written
        except (GuardError, BudgetError):
            await self._record("tool.finished", "interrupted", call.details)
            raise  # these fail the run: a model cannot go on without a guard or money
        except InfloopError as error:
            outcome, text = "failed", str(error)
        except BaseException:
            await self._record("tool.finished", "interrupted", call.details)
            raise
        return await self._finished(call, outcome, text, detail)

    async def _finished(self, call: _Call, outcome: str, text: str, detail: str) -> ToolResult:
        found: list[str] = []
        shown = self._leaks.redact(text, found.append)
        leaks = tuple(dict.fromkeys(found))
        details: JsonObject = {**call.details, "characters": len(text)}
        if detail:
            details["detail"] = self._leaks.redact(detail)
        if leaks:
            details["leaks"] = [*leaks]
        if leaks and self._leaks.mode == "enforce":
            outcome, shown = "leak-blocked", BLOCKED
        await self._record("tool.finished", outcome, details)
        code = "" if outcome == "succeeded" else outcome
        return ToolResult(cut_text(shown, self._max_text_chars), code, leaks)

    async def _refused(self, name: str, call: _Call | None, error: ToolError) -> ToolResult:
        known: JsonObject = call.details if call else {"tool": name[:80]}
        details: JsonObject = {**known, "reason": error.detail or str(error)}
        await self._record("tool.refused", error.code, self._leaks.redact(details))
        return ToolResult(
            self._leaks.redact(str(error)), error.code, reason=self._leaks.redact(error.detail)
        )


def cut_text(text: str, limit: int) -> str:
    """Return the start and the end of a text that is too long, and how much is missing."""
    if len(text) <= limit:
        return text
    head = limit // 2
    tail = limit - head
    return f"{text[:head]}\n[… {len(text) - limit} characters omitted …]\n{text[-tail:]}"


def _by_name(tools: Iterable[Tool[Any]]) -> Mapping[str, Tool[Any]]:
    """Return the tools by their names and aliases; two tools never share one."""
    named: dict[str, Tool[Any]] = {}
    for tool in tools:
        for name in (tool.name, *tool.aliases):
            if name in named:
                raise ValueError(f"two tools are called {name!r}")
            named[name] = tool
    return named


def _digest(name: str, arguments: JsonObject) -> str:
    """Return the digest of a call: equal for equal calls, whatever the order of fields."""
    data = msgspec.json.encode({"tool": name, "arguments": arguments}, order="sorted")
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
