"""One prompt to an agent: the client's side of the Agent Client Protocol, version 1.

    initialize -> session/new, load or resume -> (select the model) -> session/prompt

Lines go in and parts come out; replies to the agent go to the outbox. Nothing blocks here: the
answer of a person arrives later, in a callback.

This is the only file that uses the package `agent-client-protocol`, and only its message classes.
Its connection is not used because it

- starts a task for every message, so an agent that writes without end uses memory without end,
- stops reading for good at a message whose id is a list,
- needs streams of its own.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from acp import schema
from acp.meta import AGENT_METHODS, CLIENT_METHODS, PROTOCOL_VERSION
from pydantic import BaseModel, ValidationError

from infloop import __version__
from infloop.errors import StepError
from infloop.model.approval import question
from infloop.policy.permissions import decide_permission
from infloop.providers.acp.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Call,
    Reply,
    call,
    notify,
    read_message,
    refuse,
    reply,
)
from infloop.providers.base import (
    NO_USAGE,
    AnswerPart,
    Cost,
    Done,
    ProviderNotice,
    Session,
    Stderr,
    Text,
    Tool,
    ToolResult,
    Usage,
    denied,
)
from infloop.providers.json_lines import (
    as_count,
    as_dollars,
    as_json,
    as_object,
    as_session_id,
    as_str,
    one_line,
)
from infloop.sandbox.keepers.capture import Capture

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from infloop.model.approval import Question
    from infloop.model.provider import AcpProvider
    from infloop.model.values import JsonObject
    from infloop.policy.permissions import PermissionDecision
    from infloop.providers.acp.files import AgentFiles
    from infloop.providers.acp.jsonrpc import Id
    from infloop.providers.acp.outbox import Outbox
    from infloop.providers.base import Request
    from infloop.providers.lines import Line

    SubmitQuestion = Callable[[Question, Callable[[PermissionDecision], AnswerPart]], None]
    """Submits a question to a person, with the function that turns the answer into a part."""

Message = TypeVar("Message", bound=BaseModel)

AUTH_REQUIRED = -32000
MAX_RESULT_BYTES = 1 << 20
MAX_TOOLS = 10_000
MAX_NAME_CHARS = 1_000

_WANTED_ACTION = {
    "execute": "to run",
    "edit": "to edit",
    "delete": "to delete",
    "move": "to move",
    "read": "to read",
    "search": "to search",
    "fetch": "to fetch",
}
_SHOWN_FIELDS = ("kind", "rawInput", "content", "locations")
"""The fields of a tool call that a person sees besides its title."""

_STOP_REASONS = {
    "max_tokens": "the agent reached its limit of tokens",
    "max_turn_requests": "the agent reached its limit of requests to its model",
    "refusal": "the agent refused to go on",
    "cancelled": "the agent was cancelled",
}


class _RunningTool(NamedTuple):
    """A tool call that has not ended; `yielded` if its part has been returned."""

    kind: str
    title: str
    answer: str = ""
    yielded: bool = False

    def part(self, call: str) -> Tool:
        return Tool(self.kind, self.title, id=call)


class Conversation:
    """Sends one request to an agent and parses its messages; see `output_reader.OutputParser`."""

    def __init__(
        self,
        request: Request,
        manifest: AcpProvider,
        outbox: Outbox,
        files: AgentFiles,
        submit: SubmitQuestion | None = None,
    ) -> None:
        self._request = request
        self._name = manifest.id
        self._permissions = manifest.permissions
        self._outbox = outbox
        self._files = files
        self._submit = submit
        self._open_requests: dict[Id, None] = {}
        self._calls = 0
        self._then: Callable[[Any], list[AnswerPart]] | None = None
        self._model = request.requested_model
        self._session = ""
        self._initialized = self._prompting = self._ended = False
        self._tools: dict[str, _RunningTool] = {}
        self._has_text = self._open_line = False
        self._message: str | None = None
        self._in_message = False
        self._last = Capture("stdout", MAX_RESULT_BYTES, None)
        self._counted = NO_USAGE
        self._spent = 0.0
        self._cost_reported = False

    # -- parsing -------------------------------------------------------------------------------

    @property
    def expects_result(self) -> bool:
        return not self._ended

    def read(self, line: Line) -> list[AnswerPart] | None:
        if self._ended:
            return None
        message = read_message(line)
        match message:
            case Reply():
                return self._on_reply(message)
            case Call(None, method, params):
                is_update = method == CLIENT_METHODS["session_update"]
                return self._on_update(params) if is_update else None
            case Call(caller, method, params) if caller is not None:
                return self._on_call(caller, method, params)
            case _:
                return [Stderr(line.text)] if line.text.strip() and not line.cut else None

    filters_stderr = False

    def read_stderr(self, line: Line) -> list[AnswerPart]:
        return []

    def finish(self) -> list[AnswerPart]:
        return []

    # -- requests to the agent -----------------------------------------------------------------

    def begin(self) -> None:
        """Send the first request."""
        files = schema.FileSystemCapabilities(
            read_text_file=self._rule("read").allowed, write_text_file=self._rule("edit").allowed
        )
        initialize = schema.InitializeRequest(
            protocol_version=PROTOCOL_VERSION,
            client_capabilities=schema.ClientCapabilities(fs=files, terminal=False),
            client_info=schema.Implementation(name="infloop", version=__version__),
        )
        self._call("initialize", initialize, self._on_initialized)

    @property
    def is_initialized(self) -> bool:
        """Whether the agent has answered a request, so it speaks the protocol."""
        return self._initialized

    def abort(self, reason: str) -> Done:
        """End the conversation with an error."""
        return self._end(reason)

    def cancel(self) -> None:
        """Tell the agent to stop, and close its input."""
        for caller in self._open_requests:
            self._outbox.put(_permission(caller, None))
        if self._prompting and not self._ended:
            stop = schema.CancelNotification(session_id=self._session)
            self._outbox.put(notify(AGENT_METHODS["session_cancel"], _json(stop)))
        self._outbox.close()

    def _call(
        self, method: str, params: BaseModel, then: Callable[[Any], list[AnswerPart]]
    ) -> None:
        """Send a request. Only one request is open at a time."""
        self._calls += 1
        self._then = then
        self._outbox.put(call(self._calls, AGENT_METHODS[method], _json(params)))

    def _end(self, error: str = "") -> Done:
        self._ended = True
        self._outbox.close()
        last = self._last.finish().text if self._has_text else None
        return Done(None, last, error)

    # -- replies of the agent ------------------------------------------------------------------

    def _on_reply(self, answer: Reply) -> list[AnswerPart] | None:
        then = self._then
        if answer.id != self._calls or then is None:
            return None
        self._then = None
        self._initialized = True
        if answer.error is None:
            return then(answer.result)
        if answer.code == AUTH_REQUIRED:
            return [self._end(f"{answer.error}; sign in with the agent's own program first")]
        return [self._end(answer.error)]

    def _on_initialized(self, result: object) -> list[AnswerPart]:
        response = _parsed(schema.InitializeResponse, result)
        if response is None:
            return [
                self._end("the agent's reply to initialize could not be read: does it speak ACP?")
            ]
        if response.protocol_version != PROTOCOL_VERSION:
            return [
                self._end(
                    f"the agent speaks version {response.protocol_version} of the protocol, "
                    f"not {PROTOCOL_VERSION}; use another version of the agent"
                )
            ]
        return self._open_session(response.agent_capabilities or schema.AgentCapabilities())

    def _open_session(self, agent: schema.AgentCapabilities) -> list[AnswerPart]:
        cwd, session = self._request.cwd, as_session_id(self._request.session_id)
        common: dict[str, Any] = {"cwd": cwd, "mcp_servers": []}
        if session and agent.session_capabilities and agent.session_capabilities.resume is not None:
            resume = schema.ResumeSessionRequest(session_id=session, **common)
            self._call("session_resume", resume, partial(self._on_continued, session))
        elif session and agent.load_session:
            load = schema.LoadSessionRequest(session_id=session, **common)
            self._call("session_load", load, partial(self._on_continued, session))
        else:
            self._call("session_new", schema.NewSessionRequest(**common), self._on_opened)
            if self._request.session_id:
                return [
                    ProviderNotice("[session] the agent cannot continue sessions: a new one begins")
                ]
        return []

    def _on_continued(self, session: str, result: object) -> list[AnswerPart]:
        self._session = session
        self._counted = self._request.session_usage
        if not self._cost_reported:
            self._spent = self._request.session_cost_usd
        return [Session(session), *self._select_model(as_object(result))]

    def _on_opened(self, result: object) -> list[AnswerPart]:
        opened = as_object(result)
        self._session = as_str(opened.get("sessionId"))
        if not 0 < len(self._session) <= MAX_NAME_CHARS:
            return [self._end("the agent opened a session without an id")]
        name = as_session_id(self._session)
        return [*([Session(name)] if name else []), *self._select_model(opened)]

    def _select_model(self, opened: JsonObject) -> list[AnswerPart]:
        """Select the requested model if the agent offers it; then send the prompt."""
        if not self._model:
            return self._prompt()
        option = _model_option(opened)
        if option and self._model in _values(option):
            chosen = schema.SetSessionConfigOptionSelectRequest(
                session_id=self._session, config_id=option.id, value=self._model
            )
            self._call("session_set_config_option", chosen, lambda _: self._prompt())
            return []
        notice = f"[model] the agent does not offer {one_line(self._model, 80)!r}: it is not used"
        self._model = ""
        return [ProviderNotice(notice), *self._prompt()]

    def _prompt(self) -> list[AnswerPart]:
        text = self._request.prompt.encode("utf-8", "replace").decode()
        block = schema.TextContentBlock(type="text", text=text)
        prompt = schema.PromptRequest(session_id=self._session, prompt=[block])
        self._prompting = True
        self._call("session_prompt", prompt, self._on_answered)
        return []

    def _on_answered(self, result: object) -> list[AnswerPart]:
        answer = as_object(result)
        used = self._new_usage(_usage(_parsed(schema.Usage, answer.get("usage")), self._model))
        stopped = as_str(answer.get("stopReason"))
        error = ""
        if stopped != "end_turn":
            error = _STOP_REASONS.get(stopped) or f"the agent stopped: {one_line(stopped, 80)!r}"
        pending = [tool.part(name) for name, tool in self._tools.items() if not tool.yielded]
        return [*pending, *([used] if used.has_tokens else []), self._end(error)]

    def _new_usage(self, total: Usage) -> Usage:
        """Return the usage of the session since it was last counted.

        A smaller total means that the agent has started to count from zero.
        """
        before = self._counted
        restarted = (
            total.input_tokens < before.input_tokens or total.output_tokens < before.output_tokens
        )
        return total if restarted else total.since(before)

    # -- updates -------------------------------------------------------------------------------

    def _on_update(self, params: JsonObject) -> list[AnswerPart] | None:
        notification = _parsed(schema.SessionNotification, params)
        if notification is None:
            return None
        if isinstance(notification.update, schema.UsageUpdate):
            return self._on_cost(notification.update.cost)
        if not self._prompting or notification.session_id != self._session:
            return []  # the agent replays earlier messages when a session is loaded
        match notification.update:
            case schema.AgentMessageChunk(content=schema.TextContentBlock(text=text)) as chunk:
                return self._add_text(text, chunk.message_id)
            case schema.ToolCallStart() | schema.ToolCallProgress() as tool:
                return self._on_tool(tool)
            case schema.AgentPlanUpdate(entries=entries):
                return _plan(entries)
            case _:
                return []

    def _add_text(self, text: str, message: str | None) -> list[AnswerPart]:
        """Return a piece of a message; each message begins on its own line."""
        if not text:
            return []
        if not self._in_message or message != self._message:
            self._last = Capture("stdout", MAX_RESULT_BYTES, None)
            separator = "\n" if self._open_line else ""
        else:
            separator = ""
        self._in_message = self._has_text = True
        self._message = message
        self._open_line = not text.endswith("\n")
        self._last.feed(text.encode("utf-8", "replace"))
        return [Text(separator + text)]

    def _on_cost(self, cost: schema.Cost | None) -> list[AnswerPart]:
        """Return the cost of the session since it was last counted.

        A smaller first total means that the agent has started to count from zero.
        """
        total = as_dollars(cost.amount) if cost and cost.currency.upper() == "USD" else None
        if total is None:
            return []
        if not self._cost_reported and total < self._spent:
            self._spent = 0.0
        self._cost_reported = True
        new, self._spent = total - self._spent, max(total, self._spent)
        return [Cost(new)] if new > 0 and self._prompting else []

    def _on_tool(self, call: schema.ToolCall | schema.ToolCallUpdate) -> list[AnswerPart]:
        """Return a tool call when its arguments are known, and its result when it has ended."""
        self._in_message = False
        before = self._tools.pop(call.tool_call_id, _RunningTool("other", "a tool"))
        # Many agents announce a tool while its arguments are still being written.
        announced = isinstance(call, schema.ToolCall) and call.status == "pending"
        tool = _RunningTool(
            call.kind or before.kind,
            one_line(call.title or before.title),
            _answer(call) or before.answer,
            yielded=before.yielded or not announced,
        )
        name = call.tool_call_id
        parts: list[AnswerPart] = [tool.part(name)] if tool.yielded and not before.yielded else []
        if call.status in ("completed", "failed"):
            failed = call.status == "failed"
            parts.append(ToolResult(tool.answer or str(call.status), id=name, failed=failed))
        elif len(self._tools) < MAX_TOOLS and len(call.tool_call_id) <= MAX_NAME_CHARS:
            self._tools[call.tool_call_id] = tool
        return parts

    # -- requests of the agent -----------------------------------------------------------------

    def _on_call(self, caller: Id, method: str, params: JsonObject) -> list[AnswerPart]:
        if self._outbox.is_full:
            return [self._end("the agent sends requests and does not read the replies")]
        if method == CLIENT_METHODS["session_request_permission"]:
            return self._on_permission(caller, params)
        if method == CLIENT_METHODS["fs_read_text_file"]:
            return self._on_read(caller, params)
        if method == CLIENT_METHODS["fs_write_text_file"]:
            return self._on_write(caller, params)
        unknown = f"{method[:MAX_NAME_CHARS]!r} is unknown"
        self._outbox.put(refuse(caller, METHOD_NOT_FOUND, unknown))
        return []

    def _on_permission(self, caller: Id, params: JsonObject) -> list[AnswerPart]:
        request = _parsed(schema.RequestPermissionRequest, params)
        if request is None:
            return self._refuse_params(caller, "session/request_permission")
        parts = self._on_tool(request.tool_call)
        known = self._tools.get(request.tool_call.tool_call_id, _RunningTool("other", "a tool"))
        # Read from the raw message: the package drops a kind that it does not know.
        kind = as_str(as_object(params.get("toolCall")).get("kind")) or known.kind
        what = request.tool_call.title or known.title

        def settle(ruling: PermissionDecision) -> AnswerPart:
            self._open_requests.pop(caller, None)
            option, ruling = _option(request.options, ruling)
            self._outbox.put(_permission(caller, option))
            return _decision_notice(ruling, kind, what)

        ruling = self._rule(kind)
        can_be_allowed = any(option.kind == "allow_once" for option in request.options)
        if self._submit is None or not ruling.asks or not can_be_allowed:
            return [*parts, settle(ruling)]
        self._open_requests[caller] = None
        self._submit(self._question(kind, what, as_object(params.get("toolCall"))), settle)
        return parts

    def _question(self, kind: str, what: str, tool: JsonObject) -> Question:
        action = _WANTED_ACTION.get(kind) or f"leave for a tool ({one_line(kind, 20)})"
        details = {name: tool[name] for name in _SHOWN_FIELDS if name in tool}
        return question("permission", f"{self._name} wants {action}: {one_line(what)}", details)

    def _on_read(self, caller: Id, params: JsonObject) -> list[AnswerPart]:
        request = _parsed(schema.ReadTextFileRequest, params)
        if request is None:
            return self._refuse_params(caller, "fs/read_text_file")
        ruling = self._rule("read")
        if not ruling.allowed:
            return self._deny(caller, ruling, "read", request.path)

        def work() -> bytes:
            try:
                text = self._files.read(request.path, request.line or 1, request.limit)
            except StepError as error:
                return refuse(caller, INTERNAL_ERROR, str(error))
            return reply(caller, _json(schema.ReadTextFileResponse(content=text)))

        self._outbox.put_work(work)
        return []

    def _on_write(self, caller: Id, params: JsonObject) -> list[AnswerPart]:
        request = _parsed(schema.WriteTextFileRequest, params)
        if request is None:
            return self._refuse_params(caller, "fs/write_text_file")
        ruling = self._rule("edit")
        if not ruling.allowed:
            return self._deny(caller, ruling, "edit", request.path)

        def work() -> bytes:
            try:
                self._files.write(request.path, request.content)
            except StepError as error:
                return refuse(caller, INTERNAL_ERROR, str(error))
            return reply(caller, _json(schema.WriteTextFileResponse()))

        self._outbox.put_work(work, len(request.content))
        return []

    def _rule(self, kind: str) -> PermissionDecision:
        return decide_permission(
            self._permissions, kind, skips_prompts=self._request.skip_permissions
        )

    def _deny(
        self, caller: Id, ruling: PermissionDecision, kind: str, path: str
    ) -> list[AnswerPart]:
        self._outbox.put(refuse(caller, INTERNAL_ERROR, f"not allowed: {ruling.why}"))
        return [_decision_notice(ruling, kind, path)]

    def _refuse_params(self, caller: Id, method: str) -> list[AnswerPart]:
        self._outbox.put(refuse(caller, INVALID_PARAMS, f"the params of {method} do not fit"))
        return [Stderr(f"{method} came with params that do not fit, and was refused\n")]


def _permission(caller: Id, option: str | None) -> bytes:
    """Return the reply to a permission request: the selected option, if any."""
    outcome: schema.AllowedOutcome | schema.DeniedOutcome
    if option is None:
        outcome = schema.DeniedOutcome(outcome="cancelled")
    else:
        outcome = schema.AllowedOutcome(outcome="selected", option_id=option)
    return reply(caller, _json(schema.RequestPermissionResponse(outcome=outcome)))


def _json(message: BaseModel) -> JsonObject:
    plain: JsonObject = message.model_dump(mode="json", by_alias=True, exclude_none=True)
    return plain


def _parsed(model: type[Message], value: object) -> Message | None:
    """Return the message, or None if the value is not valid."""
    try:
        return model.model_validate(value)
    except (ValidationError, RecursionError):
        return None


def _option(
    options: Sequence[schema.PermissionOption], ruling: PermissionDecision
) -> tuple[str | None, PermissionDecision]:
    """Return the option to select, or None, and the resulting ruling.

    Permission is given only once: the agent must ask again for the next call.
    """
    by_kind = {option.kind: option.option_id for option in reversed(options)}
    if ruling.allowed and "allow_once" not in by_kind:
        ruling = ruling._replace(allowed=False, why="it cannot be allowed just once")
    if ruling.allowed:
        return by_kind["allow_once"], ruling
    return by_kind.get("reject_once") or by_kind.get("reject_always"), ruling


def _decision_notice(ruling: PermissionDecision, kind: str, what: str) -> ProviderNotice:
    about = f"{one_line(kind, 20)} {one_line(what)}"
    if not ruling.allowed:
        return denied(about, ruling.why)
    return ProviderNotice(f"[permissions] allowed: {about} ({ruling.why})")


def _model_option(opened: JsonObject) -> schema.SessionConfigOptionSelect | None:
    """Return the option that chooses the model, from the answer that opened the session."""
    options = opened.get("configOptions")
    for raw in options if isinstance(options, list) else ():
        option = _parsed(schema.SessionConfigOptionSelect, raw)
        if option is not None and option.category == "model":
            return option
    return None


def _values(option: schema.SessionConfigOptionSelect) -> set[str]:
    values: set[str] = set()
    for one in option.options:
        if isinstance(one, schema.SessionConfigSelectGroup):
            values.update(inner.value for inner in one.options)
        else:
            values.add(one.value)
    return values


def _usage(reported: schema.Usage | None, model: str) -> Usage:
    """Return the tokens of the session.

    Agents differ in whether the input includes the cache; the total shows which is the case.
    """
    if reported is None:
        return Usage()
    cached = as_count(reported.cached_read_tokens)
    written = as_count(reported.cached_write_tokens)
    thought = as_count(reported.thought_tokens)
    read, output = reported.input_tokens, reported.output_tokens
    if reported.total_tokens >= read + output + cached + written + thought:
        read, output = read + cached + written, output + thought
    return Usage(as_count(read), as_count(output), cached, written, model)


def _answer(call: schema.ToolCall | schema.ToolCallUpdate) -> str:
    """Return the answer of a tool so far: text, the files it changed, or its raw output."""
    texts = []
    for one in call.content or ():
        match one:
            case schema.ContentToolCallContent(content=schema.TextContentBlock(text=text)):
                texts.append(text)
            case schema.FileEditToolCallContent(path=path):
                texts.append(path)
            case _:
                pass
    if not texts and call.raw_output is not None:
        texts = [as_str(call.raw_output) or as_json(call.raw_output)]
    return one_line("\n".join(texts))


def _plan(entries: Sequence[schema.PlanEntry]) -> list[AnswerPart]:
    done = sum(entry.status == "completed" for entry in entries)
    current = next((entry.content for entry in entries if entry.status == "in_progress"), "")
    return [ProviderNotice(f"[plan] {done} of {len(entries)} done {one_line(current)}".rstrip())]
