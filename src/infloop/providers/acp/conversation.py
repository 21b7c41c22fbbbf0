"""One prompt put to an agent in the Agent Client Protocol, version 1, as its client.

    initialize -> session/new, load or resume -> (the model is chosen) -> session/prompt

Lines go in; parts come out, and what is to be answered goes to the outbox. Nothing waits here: what
a person is asked is answered when it is.

This is the only file that knows the package `agent-client-protocol`, and it uses the package's
messages alone. Its connection starts a task for every message it reads, so that an agent that
writes without end takes memory without end; it stops reading for good at a message whose id is a
list, and it wants streams of its own. See jsonrpc for the lines.
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
    Cost,
    Done,
    Notice,
    Part,
    Session,
    Stderr,
    Text,
    Tool,
    ToolResult,
    Usage,
)
from infloop.providers.json_lines import (
    as_count,
    as_dollars,
    as_json,
    as_object,
    as_session,
    as_words,
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

    Consult = Callable[[Question, Callable[[PermissionDecision], Part]], None]
    """Asks a person, and has what is made of the answer told."""

Message = TypeVar("Message", bound=BaseModel)

AUTH_REQUIRED = -32000
MOST_RESULT_BYTES = 1 << 20
MOST_TOOLS = 10_000
LONGEST_NAME = 1_000

_WANTS = {
    "execute": "to run",
    "edit": "to edit",
    "delete": "to delete",
    "move": "to move",
    "read": "to read",
    "search": "to search",
    "fetch": "to fetch",
}
_TOLD = ("kind", "rawInput", "content", "locations")
"""What a person is shown of a tool beside its title."""

_STOPPED = {
    "max_tokens": "the agent reached its limit of tokens",
    "max_turn_requests": "the agent reached its limit of requests to its model",
    "refusal": "the agent refused to go on",
    "cancelled": "the agent was cancelled",
}


class _KnownTool(NamedTuple):
    """What is remembered of a tool that is at work."""

    kind: str
    title: str
    answer: str = ""
    shown: bool = False

    @property
    def part(self) -> Tool:
        """How it is shown."""
        return Tool(self.kind, self.title)


class Conversation:
    """Puts one request to an agent and reads what it says; see `hearing.Reader`."""

    def __init__(
        self,
        request: Request,
        manifest: AcpProvider,
        outbox: Outbox,
        files: AgentFiles,
        consult: Consult | None = None,
    ) -> None:
        self._request = request
        self._name = manifest.id
        self._permissions = manifest.permissions
        self._outbox = outbox
        self._files = files
        self._consult = consult
        self._unanswered: dict[Id, None] = {}
        self._calls = 0
        self._then: Callable[[Any], list[Part]] | None = None
        self._model = request.wanted_model
        self._session = ""
        self._greeted = self._prompting = self._ended = False
        self._tools: dict[str, _KnownTool] = {}
        self._said_any = self._line_open = False
        self._message: str | None = None
        self._speaking = False
        self._last = Capture("stdout", MOST_RESULT_BYTES, None)
        self._counted = NO_USAGE
        self._spent = 0.0
        self._told_spent = False

    # -- what a Reader does --------------------------------------------------------------------

    @property
    def is_owed(self) -> bool:
        """Whether the result has not come."""
        return not self._ended

    def read(self, line: Line) -> list[Part] | None:
        """Return what a line says; None when it is no more than a sign of life."""
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

    def diagnose(self, line: Line) -> list[Part]:
        """Return what a line of diagnostics gives reason for: nothing."""
        return []

    # -- from us -------------------------------------------------------------------------------

    def begin(self) -> None:
        """Greet the agent."""
        files = schema.FileSystemCapabilities(
            read_text_file=self._rule("read").allowed, write_text_file=self._rule("edit").allowed
        )
        greeting = schema.InitializeRequest(
            protocol_version=PROTOCOL_VERSION,
            client_capabilities=schema.ClientCapabilities(fs=files, terminal=False),
            client_info=schema.Implementation(name="infloop", version=__version__),
        )
        self._call("initialize", greeting, self._on_greeted)

    @property
    def is_greeted(self) -> bool:
        """Whether the agent has answered at all: it speaks the protocol."""
        return self._greeted

    def give_up(self, reason: str) -> Done:
        """End the conversation from our side."""
        return self._end(reason)

    def cancel(self) -> None:
        """Tell the agent to stop, and that there is no more to come."""
        for caller in self._unanswered:
            self._outbox.put(_permission(caller, None))
        if self._prompting and not self._ended:
            stop = schema.CancelNotification(session_id=self._session)
            self._outbox.put(notify(AGENT_METHODS["session_cancel"], _json(stop)))
        self._outbox.close()

    def _call(self, method: str, params: BaseModel, then: Callable[[Any], list[Part]]) -> None:
        """Send a request; one at a time is open."""
        self._calls += 1
        self._then = then
        self._outbox.put(call(self._calls, AGENT_METHODS[method], _json(params)))

    def _end(self, error: str = "") -> Done:
        self._ended = True
        self._outbox.close()
        last = self._last.finish().text if self._said_any else None
        return Done(None, last, error)

    # -- answers -------------------------------------------------------------------------------

    def _on_reply(self, answer: Reply) -> list[Part] | None:
        then = self._then
        if answer.id != self._calls or then is None:
            return None
        self._then = None
        self._greeted = True
        if answer.error is None:
            return then(answer.result)
        if answer.code == AUTH_REQUIRED:
            return [self._end(f"{answer.error}; sign in with the agent's own program first")]
        return [self._end(answer.error)]

    def _on_greeted(self, result: object) -> list[Part]:
        greeting = _fitting(schema.InitializeResponse, result)
        if greeting is None:
            return [self._end("the agent's greeting could not be read: does it speak ACP?")]
        if greeting.protocol_version != PROTOCOL_VERSION:
            return [
                self._end(
                    f"the agent speaks version {greeting.protocol_version} of the protocol, "
                    f"not {PROTOCOL_VERSION}; use another version of the agent"
                )
            ]
        return self._open_session(greeting.agent_capabilities or schema.AgentCapabilities())

    def _open_session(self, able: schema.AgentCapabilities) -> list[Part]:
        cwd, session = self._request.cwd, as_session(self._request.session_id)
        place: dict[str, Any] = {"cwd": cwd, "mcp_servers": []}
        if session and able.session_capabilities and able.session_capabilities.resume is not None:
            resume = schema.ResumeSessionRequest(session_id=session, **place)
            self._call("session_resume", resume, partial(self._on_continued, session))
        elif session and able.load_session:
            load = schema.LoadSessionRequest(session_id=session, **place)
            self._call("session_load", load, partial(self._on_continued, session))
        else:
            self._call("session_new", schema.NewSessionRequest(**place), self._on_opened)
            if self._request.session_id:
                return [Notice("[session] the agent cannot continue sessions: a new one begins")]
        return []

    def _on_continued(self, session: str, result: object) -> list[Part]:
        self._session = session
        self._counted = self._request.session_usage
        if not self._told_spent:
            self._spent = self._request.session_cost_usd
        return [Session(session), *self._choose_model(as_object(result))]

    def _on_opened(self, result: object) -> list[Part]:
        opened = as_object(result)
        self._session = as_words(opened.get("sessionId"))
        if not 0 < len(self._session) <= LONGEST_NAME:
            return [self._end("the agent opened a session without an id")]
        name = as_session(self._session)
        return [*([Session(name)] if name else []), *self._choose_model(opened)]

    def _choose_model(self, opened: JsonObject) -> list[Part]:
        """Set the model that was asked for, if the agent has it among its options; then ask."""
        if not self._model:
            return self._prompt()
        option = _model_option(opened)
        if option and self._model in _values(option):
            chosen = schema.SetSessionConfigOptionSelectRequest(
                session_id=self._session, config_id=option.id, value=self._model
            )
            self._call("session_set_config_option", chosen, lambda _: self._prompt())
            return []
        told = f"[model] the agent does not offer {one_line(self._model, 80)!r}: it is not used"
        self._model = ""
        return [Notice(told), *self._prompt()]

    def _prompt(self) -> list[Part]:
        text = self._request.prompt.encode("utf-8", "replace").decode()
        block = schema.TextContentBlock(type="text", text=text)
        prompt = schema.PromptRequest(session_id=self._session, prompt=[block])
        self._prompting = True
        self._call("session_prompt", prompt, self._on_answered)
        return []

    def _on_answered(self, result: object) -> list[Part]:
        answer = as_object(result)
        used = self._used(_usage(_fitting(schema.Usage, answer.get("usage")), self._model))
        stopped = as_words(answer.get("stopReason"))
        error = ""
        if stopped != "end_turn":
            error = _STOPPED.get(stopped) or f"the agent stopped: {one_line(stopped, 80)!r}"
        unseen = [tool.part for tool in self._tools.values() if not tool.shown]
        return [*unseen, *([used] if used.counts else []), self._end(error)]

    def _used(self, total: Usage) -> Usage:
        """Return what the session has used beyond what is counted already.

        A total that is less says that the agent does not remember the turns before.
        """
        before = self._counted
        forgot = (
            total.input_tokens < before.input_tokens or total.output_tokens < before.output_tokens
        )
        return total if forgot else total.beyond(before)

    # -- updates -------------------------------------------------------------------------------

    def _on_update(self, params: JsonObject) -> list[Part] | None:
        told = _fitting(schema.SessionNotification, params)
        if told is None:
            return None
        if isinstance(told.update, schema.UsageUpdate):
            return self._on_spent(told.update.cost)
        if not self._prompting or told.session_id != self._session:
            return []  # what was said before, when a session is loaded
        match told.update:
            case schema.AgentMessageChunk(content=schema.TextContentBlock(text=text)) as chunk:
                return self._speak(text, chunk.message_id)
            case schema.ToolCallStart() | schema.ToolCallProgress() as tool:
                return self._on_tool(tool)
            case schema.AgentPlanUpdate(entries=entries):
                return _plan(entries)
            case _:
                return []

    def _speak(self, text: str, message: str | None) -> list[Part]:
        """Say a piece of a message; each message begins on a line of its own."""
        if not text:
            return []
        if not self._speaking or message != self._message:
            self._last = Capture("stdout", MOST_RESULT_BYTES, None)
            apart = "\n" if self._line_open else ""
        else:
            apart = ""
        self._speaking = self._said_any = True
        self._message = message
        self._line_open = not text.endswith("\n")
        self._last.feed(text.encode("utf-8", "replace"))
        return [Text(apart + text)]

    def _on_spent(self, cost: schema.Cost | None) -> list[Part]:
        """Count what the session has cost beyond what is counted already.

        A first total that is less says that the agent does not remember the turns before.
        """
        total = as_dollars(cost.amount) if cost and cost.currency.upper() == "USD" else None
        if total is None:
            return []
        if not self._told_spent and total < self._spent:
            self._spent = 0.0
        self._told_spent = True
        beyond, self._spent = total - self._spent, max(total, self._spent)
        return [Cost(beyond)] if beyond > 0 and self._prompting else []

    def _on_tool(self, told: schema.ToolCall | schema.ToolCallUpdate) -> list[Part]:
        """Show a tool when it is known what it does, and its answer when it is over."""
        self._speaking = False
        before = self._tools.pop(told.tool_call_id, _KnownTool("other", "a tool"))
        # Many agents announce a tool while its arguments are still being written.
        announced = isinstance(told, schema.ToolCall) and told.status == "pending"
        tool = _KnownTool(
            told.kind or before.kind,
            one_line(told.title or before.title),
            _answer(told) or before.answer,
            shown=before.shown or not announced,
        )
        parts: list[Part] = [tool.part] if tool.shown and not before.shown else []
        if told.status in ("completed", "failed"):
            parts.append(ToolResult(tool.answer or str(told.status)))
        elif len(self._tools) < MOST_TOOLS and len(told.tool_call_id) <= LONGEST_NAME:
            self._tools[told.tool_call_id] = tool
        return parts

    # -- what it asks of us --------------------------------------------------------------------

    def _on_call(self, caller: Id, method: str, params: JsonObject) -> list[Part]:
        if self._outbox.is_full:
            return [self._end("the agent asks and asks, and does not read the answers")]
        if method == CLIENT_METHODS["session_request_permission"]:
            return self._on_permission(caller, params)
        if method == CLIENT_METHODS["fs_read_text_file"]:
            return self._on_read(caller, params)
        if method == CLIENT_METHODS["fs_write_text_file"]:
            return self._on_write(caller, params)
        self._outbox.put(refuse(caller, METHOD_NOT_FOUND, f"{method[:LONGEST_NAME]!r} is unknown"))
        return []

    def _on_permission(self, caller: Id, params: JsonObject) -> list[Part]:
        asked = _fitting(schema.RequestPermissionRequest, params)
        if asked is None:
            return self._unreadable(caller, "session/request_permission")
        shown = self._on_tool(asked.tool_call)
        known = self._tools.get(asked.tool_call.tool_call_id, _KnownTool("other", "a tool"))
        # By its own word: a kind that the package does not know is none of those it does.
        kind = as_words(as_object(params.get("toolCall")).get("kind")) or known.kind
        what = asked.tool_call.title or known.title

        def settle(ruling: PermissionDecision) -> Part:
            self._unanswered.pop(caller, None)
            option, ruling = _option(asked.options, ruling)
            self._outbox.put(_permission(caller, option))
            return _ruled(ruling, kind, what)

        ruling = self._rule(kind)
        can_be_allowed = any(option.kind == "allow_once" for option in asked.options)
        if self._consult is None or not ruling.asks or not can_be_allowed:
            return [*shown, settle(ruling)]
        self._unanswered[caller] = None
        self._consult(self._question(kind, what, as_object(params.get("toolCall"))), settle)
        return shown

    def _question(self, kind: str, what: str, tool: JsonObject) -> Question:
        wants = _WANTS.get(kind) or f"leave for a tool ({one_line(kind, 20)})"
        told = {name: tool[name] for name in _TOLD if name in tool}
        return question("permission", f"{self._name} wants {wants}: {one_line(what)}", told)

    def _on_read(self, caller: Id, params: JsonObject) -> list[Part]:
        asked = _fitting(schema.ReadTextFileRequest, params)
        if asked is None:
            return self._unreadable(caller, "fs/read_text_file")
        ruling = self._rule("read")
        if not ruling.allowed:
            return self._denied(caller, ruling, "read", asked.path)

        def work() -> bytes:
            try:
                text = self._files.read(asked.path, asked.line or 1, asked.limit)
            except StepError as error:
                return refuse(caller, INTERNAL_ERROR, str(error))
            return reply(caller, _json(schema.ReadTextFileResponse(content=text)))

        self._outbox.put_work(work)
        return []

    def _on_write(self, caller: Id, params: JsonObject) -> list[Part]:
        asked = _fitting(schema.WriteTextFileRequest, params)
        if asked is None:
            return self._unreadable(caller, "fs/write_text_file")
        ruling = self._rule("edit")
        if not ruling.allowed:
            return self._denied(caller, ruling, "edit", asked.path)

        def work() -> bytes:
            try:
                self._files.write(asked.path, asked.content)
            except StepError as error:
                return refuse(caller, INTERNAL_ERROR, str(error))
            return reply(caller, _json(schema.WriteTextFileResponse()))

        self._outbox.put_work(work, len(asked.content))
        return []

    def _rule(self, kind: str) -> PermissionDecision:
        return decide_permission(
            self._permissions, kind, skips_prompts=self._request.skip_permissions
        )

    def _denied(self, caller: Id, ruling: PermissionDecision, kind: str, path: str) -> list[Part]:
        self._outbox.put(refuse(caller, INTERNAL_ERROR, f"not allowed: {ruling.why}"))
        return [_ruled(ruling, kind, path)]

    def _unreadable(self, caller: Id, method: str) -> list[Part]:
        self._outbox.put(refuse(caller, INVALID_PARAMS, f"the params of {method} do not fit"))
        return [Stderr(f"{method} came with params that do not fit, and was refused\n")]


def _permission(caller: Id, option: str | None) -> bytes:
    """Return the answer to a request for leave: the option that is taken, if any."""
    outcome: schema.AllowedOutcome | schema.DeniedOutcome
    if option is None:
        outcome = schema.DeniedOutcome(outcome="cancelled")
    else:
        outcome = schema.AllowedOutcome(outcome="selected", option_id=option)
    return reply(caller, _json(schema.RequestPermissionResponse(outcome=outcome)))


def _json(message: BaseModel) -> JsonObject:
    plain: JsonObject = message.model_dump(mode="json", by_alias=True, exclude_none=True)
    return plain


def _fitting(model: type[Message], value: object) -> Message | None:
    """Return the message, or None for what is not one."""
    try:
        return model.model_validate(value)
    except (ValidationError, RecursionError):
        return None


def _option(
    options: Sequence[schema.PermissionOption], ruling: PermissionDecision
) -> tuple[str | None, PermissionDecision]:
    """Return the option to take, or None, and the ruling that it comes to.

    Nothing is allowed for longer than this once: what comes next is asked for again.
    """
    by_kind = {option.kind: option.option_id for option in reversed(options)}
    if ruling.allowed and "allow_once" not in by_kind:
        ruling = ruling._replace(allowed=False, why="it cannot be allowed just once")
    if ruling.allowed:
        return by_kind["allow_once"], ruling
    return by_kind.get("reject_once") or by_kind.get("reject_always"), ruling


def _ruled(ruling: PermissionDecision, kind: str, what: str) -> Notice:
    verdict = "allowed" if ruling.allowed else "denied"
    return Notice(f"[permissions] {verdict}: {one_line(kind, 20)} {one_line(what)} ({ruling.why})")


def _model_option(opened: JsonObject) -> schema.SessionConfigOptionSelect | None:
    """Return the option that chooses the model, from the answer that opened the session."""
    options = opened.get("configOptions")
    for raw in options if isinstance(options, list) else ():
        option = _fitting(schema.SessionConfigOptionSelect, raw)
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


def _usage(told: schema.Usage | None, model: str) -> Usage:
    """Return the tokens of the session; `total` shows whether the cache's are among those read."""
    if told is None:
        return Usage()
    cached, written = as_count(told.cached_read_tokens), as_count(told.cached_write_tokens)
    read, said, thought = told.input_tokens, told.output_tokens, as_count(told.thought_tokens)
    if told.total_tokens >= read + said + cached + written + thought:
        read, said = read + cached + written, said + thought
    return Usage(as_count(read), as_count(said), cached, written, model)


def _answer(told: schema.ToolCall | schema.ToolCallUpdate) -> str:
    """Return what a tool has answered so far: text, the files it changed, or its raw output."""
    texts = []
    for one in told.content or ():
        match one:
            case schema.ContentToolCallContent(content=schema.TextContentBlock(text=text)):
                texts.append(text)
            case schema.FileEditToolCallContent(path=path):
                texts.append(path)
            case _:
                pass
    if not texts and told.raw_output is not None:
        texts = [as_words(told.raw_output) or as_json(told.raw_output)]
    return one_line("\n".join(texts))


def _plan(entries: Sequence[schema.PlanEntry]) -> list[Part]:
    done = sum(entry.status == "completed" for entry in entries)
    current = next((entry.content for entry in entries if entry.status == "in_progress"), "")
    return [Notice(f"[plan] {done} of {len(entries)} done {one_line(current)}".rstrip())]
