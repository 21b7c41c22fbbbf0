"""What agents print, as parts: by transcripts of the real programs, and by lines nobody expects."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infloop.providers.base import (
    Answer,
    AnswerPart,
    Cost,
    Done,
    ProviderNotice,
    RateLimited,
    Session,
    Stderr,
    Text,
    Tool,
    ToolResult,
    Usage,
)
from infloop.providers.cli.claude_stream import ClaudeStream
from infloop.providers.cli.codex_json import CodexJson, limit_lifted_ms
from infloop.providers.cli.plain import PlainText
from infloop.providers.lines import Line, Lines
from infloop.providers.output_reader import OutputParser
from support.paths import TRANSCRIPTS

NOW = datetime(2026, 11, 15, 21, 0, tzinfo=UTC)
OPUS = "claude-opus-4-8"


def claude() -> ClaudeStream:
    return ClaudeStream()


def codex() -> CodexJson:
    return CodexJson(lambda: NOW, "gpt-5-codex")


JSON_FORMATS = [claude, codex]


def read(reader: OutputParser, text: str) -> list[AnswerPart]:
    lines = Lines()
    return [
        part
        for line in [*lines.feed(text), *lines.finish()]
        for part in reader.read(line) or ()
    ]  # fmt: skip


def transcript(name: str) -> str:
    return (TRANSCRIPTS / f"{name}.jsonl").read_text()


def frames(*objects: Any) -> str:
    return "".join(f"{json.dumps(one)}\n" for one in objects)


def said(parts: list[AnswerPart]) -> str:
    return "".join(part.text for part in parts if isinstance(part, Text))


def used(parts: list[AnswerPart]) -> Usage:
    return sum((part for part in parts if isinstance(part, Usage)), Usage())


def only(parts: list[AnswerPart], kind: type) -> list[Any]:
    return [part for part in parts if isinstance(part, kind)]


def result(**fields: Any) -> dict[str, Any]:
    whole = {"type": "result", "subtype": "success", "is_error": False, "result": "ok"}
    return {**whole, **fields}


def delta(text: str, **fields: Any) -> dict[str, Any]:
    event = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}
    return {"type": "stream_event", "event": event, **fields}


# -- the real programs -----------------------------------------------------------------------


def test_claude_says_its_text_as_it_comes() -> None:
    parts = read(claude(), transcript("claude.text"))
    assert only(parts, Text) == [Text("It"), Text(" is"), Text(" DONE")]
    assert only(parts, Session)[0].id.count("-") == 4
    assert used(parts) == Usage(100, 20, 30, 0, OPUS)
    assert only(parts, Cost) == [Cost(0.000865)]
    assert parts[-1] == Done(None, "It is DONE")


def test_claude_uses_a_tool_apart_from_what_it_says() -> None:
    parts = read(claude(), transcript("claude.tool"))
    assert said(parts) == "I will write.\nIt is DONE"
    assert only(parts, Tool) == [Tool("Write", "/workspace/hello.txt", id="toolu_1_1")]
    (answered,) = only(parts, ToolResult)
    assert answered.summary.startswith("File created successfully at: /workspace/hello.txt")
    assert used(parts) == Usage(200, 40, 60, 0, OPUS)


@pytest.mark.claim("I36")
def test_claude_is_denied_a_tool_and_a_notice_says_which() -> None:
    parts = read(claude(), transcript("claude.denied"))
    (notice,) = only(parts, ProviderNotice)
    assert notice.line.startswith("[permissions] denied: Write /workspace/hello.txt (")
    assert parts[-1] == Done(None, "It is DONE")


def test_what_a_sub_agent_says_is_not_what_the_agent_says() -> None:
    parts = read(claude(), transcript("claude.subagent"))
    assert said(parts) == "I ask another.\nAll is well"
    assert only(parts, Tool) == [
        Tool("general-purpose", "look around", "subagent", "toolu_1_1"),
        Tool("Bash", "echo DONE", id="toolu_2_1"),
    ]
    assert [part.kind for part in only(parts, ToolResult)] == ["tool", "subagent"]


def test_the_tokens_of_sub_agents_are_counted() -> None:
    assert used(read(claude(), transcript("claude.subagent"))) == Usage(400, 80, 120, 0, OPUS)


@pytest.mark.parametrize("name", ["claude.text", "claude.tool", "claude.denied", "claude.subagent"])
def test_without_partial_messages_the_same_is_said_and_counted(name: str) -> None:
    whole = transcript(name)
    fewer = "".join(
        line for line in whole.splitlines(keepends=True) if '"stream_event"' not in line
    )
    with_partial, without = read(claude(), whole), read(claude(), fewer)
    assert said(without) == said(with_partial)
    assert used(without) == used(with_partial)
    assert only(without, Tool) == only(with_partial, Tool)


def test_claude_that_is_killed_has_been_counted_up_to_then() -> None:
    text = transcript("claude.tool")
    cut = text[: text.index('{"type":"result"')]
    assert used(read(claude(), cut)) == Usage(200, 40, 60, 0, OPUS)


def test_an_error_of_the_api_is_why_claude_failed_and_nothing_it_said() -> None:
    parts = read(claude(), transcript("claude.error"))
    assert said(parts) == ""
    assert parts[-1] == Done(None, "API Error: 400 bad thing", "API Error: 400 bad thing")


def test_claude_at_its_limit_tells_when_it_ends() -> None:
    parts = read(claude(), transcript("claude.limit"))
    assert parts[-2] == RateLimited(1_800_000_000_000)
    ending = parts[-1]
    assert isinstance(ending, Done)
    assert ending.error == "rate limited until 2027-01-15T08:00:00Z"


def test_codex_says_its_messages() -> None:
    parts = read(codex(), transcript("codex.text"))
    assert said(parts) == "It is DONE"
    assert used(parts) == Usage(100, 20, 30, 0, "gpt-5-codex")
    assert only(parts, Cost) == []
    assert only(parts, Session)[0].id.count("-") == 4
    assert parts[-1] == Done(None, "It is DONE")


def test_codex_uses_tools_apart_from_what_it_says() -> None:
    parts = read(codex(), transcript("codex.tool"))
    assert said(parts) == "I will write.\nIt is DONE"
    assert only(parts, Tool) == [
        Tool("patch", "add /workspace/hello.txt", id="item_2"),
        Tool("shell", "/bin/bash -lc 'cat hello.txt; exit 3'", id="item_3"),
    ]
    assert only(parts, ToolResult) == [
        ToolResult("completed", id="item_2"),
        ToolResult("exit 3 hello", id="item_3", failed=True),
    ]
    assert parts[-1] == Done(None, "It is DONE")


@pytest.mark.claim("I36")
def test_codex_is_denied_a_tool_and_a_notice_says_why() -> None:
    told = (TRANSCRIPTS / "codex.denied.stderr").read_text()
    read_lines = [codex().read_stderr(Line(line)) for line in told.splitlines()]
    (notice,) = [part for parts in read_lines for part in parts or ()]
    assert isinstance(notice, ProviderNotice)
    assert notice.line.startswith("[permissions] denied: patch rejected: writing is blocked by")


def logged(tool: str = "exec_command") -> str:
    ids = "conversation.id=01a1eb12 turn_id=01a1eb13"
    more = f'tool_name={tool} call_id=call_1 tool_source="direct" execution_started=true'
    return (
        "2026-11-17T19:53:18Z  INFO codex_core::tools::parallel: tool call completed "
        f'event.name="codex.tool_call" trace_id= {ids} {more} total_duration_ms=12\n'
    )


ROUTER_ERROR = "2026-11-17T19:53:18Z ERROR codex_core::tools::router: error=exec_command failed\n"
COULD_NOT_START = {"type": "command_execution", "status": "failed", "exit_code": -1}
RAN = {"type": "command_execution", "command": "ls", "status": "completed", "exit_code": 0}
PATCHED = {"type": "file_change", "changes": [], "status": "completed"}


@pytest.mark.parametrize(
    ("items", "log", "stopped"),
    [
        ([], [logged()], "a command"),
        ([RAN], [logged(), logged(), logged()], "2 commands"),
        ([RAN, PATCHED], [logged(), logged()], ""),
        ([PATCHED], [logged("apply_patch")], ""),
        ([], [logged("write_stdin"), logged("view_image")], ""),
        ([], [ROUTER_ERROR, logged()], ""),
        ([COULD_NOT_START], [ROUTER_ERROR, logged(), logged()], "a command"),
        ([RAN, RAN], [], ""),
    ],
)
def test_a_command_that_codex_stopped_and_did_not_print_is_a_denial(
    items: list[dict[str, Any]], log: list[str], stopped: str
) -> None:
    parser = codex()
    lines = [
        {"type": "item.completed", "item": {"id": str(number), **item}}
        for number, item in enumerate(items)
    ]
    shown = [parser.read_stderr(Line(line)) for line in log]
    read(parser, frames(*lines, {"type": "turn.completed", "usage": {}}))
    assert [line for line, parts in zip(log, shown, strict=True) if parts is not None] == [
        line for line in log if line == ROUTER_ERROR
    ], "what is only for us is not shown"
    notices = [part.line for part in parser.finish() if isinstance(part, ProviderNotice)]
    assert [line.partition(", which")[0] for line in notices] == (
        [f"[permissions] denied: {stopped}"] if stopped else []
    )


def test_of_a_turn_that_broke_off_nothing_is_concluded() -> None:
    parser = codex()
    parser.read_stderr(Line(logged()))
    assert parser.finish() == []


def test_codex_fails_with_the_reason_of_its_turn() -> None:
    ending = read(codex(), transcript("codex.error"))[-1]
    assert isinstance(ending, Done)
    assert "bad thing" in ending.error


def test_codex_at_its_limit_tells_when_it_ends() -> None:
    parts = read(codex(), transcript("codex.limit"))
    ends = datetime(2026, 11, 17, 22, 54, tzinfo=UTC)
    assert parts[-2] == RateLimited(int(ends.timestamp() * 1000))
    ending = parts[-1]
    assert isinstance(ending, Done)
    assert ending.error == "rate limited until 2026-11-17T22:54:00Z"


def test_a_resumed_codex_session_is_counted_once_although_it_reports_its_total() -> None:
    reader = CodexJson(lambda: NOW, "", Usage(60, 15, 20))
    assert used(read(reader, transcript("codex.text"))) == Usage(40, 5, 10)


@pytest.mark.parametrize("name", sorted(path.stem for path in TRANSCRIPTS.glob("*.jsonl")))
def test_a_transcript_cut_anywhere_is_no_worse_than_cut(name: str) -> None:
    text = transcript(name)
    for end in range(0, len(text), 97):
        reader = claude() if name.startswith("claude") else codex()
        parts = read(reader, text[:end])
        assert reader.expects_result == (not only(parts, Done))
        assert '{"type"' not in said(parts)


@pytest.mark.parametrize("name", sorted(path.stem for path in TRANSCRIPTS.glob("*.jsonl")))
def test_what_comes_after_the_result_does_not_count(name: str) -> None:
    once = read(claude() if name.startswith("claude") else codex(), transcript(name))
    twice = read(claude() if name.startswith("claude") else codex(), transcript(name) * 2)
    assert twice == once


# -- claude: frames no model can be made to send -----------------------------------------------


@pytest.mark.parametrize(
    ("frame", "error"),
    [
        (result(is_error=True, result="it broke"), "it broke"),
        (result(subtype="error_max_turns", errors=["too many turns", 7]), "too many turns"),
        (result(subtype="error_during_execution", result=None), "error_during_execution"),
        (result(subtype=None, result=None), "the agent failed"),
        (result(), ""),
    ],
)
def test_a_result_is_a_failure_when_it_says_so_in_any_way(frame: Any, error: str) -> None:
    ending = read(claude(), frames(frame))[-1]
    assert isinstance(ending, Done)
    assert ending.error == error


@pytest.mark.parametrize("cost", [-1, "3", True, None, 1e999, [], 2**80])
def test_a_cost_that_cannot_be_one_is_unknown(cost: Any) -> None:
    assert only(read(claude(), frames(result(total_cost_usd=cost))), Cost) == []


@pytest.mark.parametrize("tokens", [-5, "100", True, None, 1e999, [], 2**80])
def test_a_count_that_cannot_be_one_is_nothing(tokens: Any) -> None:
    frame = result(usage={"input_tokens": tokens, "output_tokens": tokens})
    assert used(read(claude(), frames(frame))) == Usage()


@pytest.mark.parametrize(
    "info",
    [
        {"status": "allowed_warning", "resetsAt": 1_800_000_000},
        {"status": "rejected", "resetsAt": 1_800_000_000, "isUsingOverage": True},
        {"status": "rejected", "resetsAt": "soon"},
        {"status": "rejected"},
    ],
)
def test_a_limit_that_does_not_hold_or_has_no_end_is_only_an_error(info: Any) -> None:
    event = {"type": "rate_limit_event", "rate_limit_info": info}
    parts = read(claude(), frames(event, result(is_error=True, api_error_status=429)))
    assert only(parts, RateLimited) == []
    assert parts[-1] == Done(None, "ok", "ok")


def test_a_limit_that_was_overcome_does_not_fail_the_agent() -> None:
    info = {"status": "rejected", "resetsAt": 1_800_000_000}
    parts = read(claude(), frames({"type": "rate_limit_event", "rate_limit_info": info}, result()))
    assert parts == [Done(None, "ok")]


def test_an_attempt_to_reach_the_api_again_is_noticed() -> None:
    retry = {"attempt": 1, "max_retries": 10, "retry_delay_ms": 558.2, "error": "overloaded"}
    parts = read(claude(), frames({"type": "system", "subtype": "api_retry", **retry}))
    assert parts == [ProviderNotice("[retry] overloaded: attempt 1 of 10 in 1 s")]


def test_of_many_denials_the_first_are_named() -> None:
    denials = [{"tool_name": "Bash", "tool_input": {"command": f"rm {n}"}} for n in range(9)]
    (notice,) = only(read(claude(), frames(result(permission_denials=denials))), ProviderNotice)
    assert "Bash rm 4; and 4 more" in notice.line
    assert "rm 5" not in notice.line


def test_text_that_was_streamed_is_not_said_again_by_a_late_frame_for_the_whole_message() -> None:
    start = {"type": "stream_event", "event": {"type": "message_start", "message": {"id": "m"}}}
    block = {"type": "stream_event", "event": {"type": "content_block_start"}}
    content = [{"type": "text", "text": "hello"}, {"type": "tool_use", "name": "X", "input": {}}]
    whole = {"type": "assistant", "message": {"id": "m", "content": content}}
    parts = read(claude(), frames(start, block, delta("hello"), block, whole))
    assert said(parts) == "hello"
    assert only(parts, Tool) == [Tool("X", "{}")]


@pytest.mark.parametrize(
    ("name", "given", "shown"),
    [
        ("Bash", {"command": "make\ntest"}, "make↵test"),
        ("Edit", {"file_path": "/a", "old_string": "DONE"}, "/a"),
        ("Grep", {"pattern": "x+"}, "x+"),
        ("WebFetch", {"url": "http://a.test"}, "http://a.test"),
        ("WebSearch", {"query": "q"}, "q"),
        ("Glob", {"path": 1}, '{"path":1}'),
        ("Other", {"a": [1, None]}, '{"a":[1,null]}'),
        ("Bash", {"command": "x" * 300}, "x" * 200 + "…"),
        ("Bash", {"command": "\x1b[2J\x07\x9b\ttab"}, "�[2J�� tab"),
        ("Bash", {"command": "<b>{{globals.g}}</b>"}, "<b>{{globals.g}}</b>"),
    ],
)
def test_a_tool_is_shown_in_one_harmless_line(name: str, given: Any, shown: str) -> None:
    block = {"type": "tool_use", "name": name, "input": given}
    (tool,) = read(claude(), frames({"type": "assistant", "message": {"content": [block]}}))
    assert tool == Tool(name, shown)


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ("plain", "plain"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a↵b"),
        ([{"type": "image", "source": {}}], '[{"type":"image","source":{}}]'),
        (None, "null"),
    ],
)
def test_what_a_tool_answered_is_shown_in_one_line(content: Any, shown: str) -> None:
    block = {"type": "tool_result", "tool_use_id": "t", "content": content}
    assert read(claude(), frames({"type": "user", "message": {"content": [block]}})) == [
        ToolResult(shown, id="t")
    ]


# -- codex: items no model can be made to send -------------------------------------------------


@pytest.mark.parametrize(
    ("item", "shown"),
    [
        (
            {"type": "mcp_tool_call", "server": "s", "tool": "t", "arguments": {"a": 1},
             "result": {"content": [{"type": "text", "text": "fine"}]}, "status": "completed"},
            [Tool("s.t", '{"a":1}', id="1"), ToolResult("fine", id="1")],
        ),
        (
            {"type": "mcp_tool_call", "server": "s", "tool": "t",
             "error": {"message": "no"}, "status": "failed"},
            [Tool("s.t", "null", id="1"), ToolResult("no", id="1", failed=True)],
        ),
        (
            {"type": "collab_tool_call", "tool": "spawn_agent", "prompt": "look",
             "status": "completed"},
            [Tool("spawn_agent", "look", "subagent", "1"),
             ToolResult("completed", "subagent", "1")],
        ),
        (
            {"type": "web_search", "query": "q"},
            [Tool("web_search", "q", id="1"), ToolResult("done", id="1")],
        ),
        ({"type": "reasoning", "text": "DONE?"}, []),
        ({"type": "todo_list", "items": [{"text": "DONE", "completed": True}]}, []),
        ({"type": "something new", "text": "DONE"}, []),
    ],
)  # fmt: skip
def test_items_of_codex_are_tools_or_nothing(item: Any, shown: list[AnswerPart]) -> None:
    assert read(codex(), frames({"type": "item.completed", "item": {"id": "1", **item}})) == shown


def test_a_command_that_codex_declined_is_a_denial() -> None:
    item = {"id": "1", "type": "command_execution", "command": "rm -r /", "status": "declined"}
    parts = read(codex(), frames({"type": "item.completed", "item": item}))
    (notice,) = only(parts, ProviderNotice)
    assert notice.line.startswith("[permissions] denied: rm -r / (")


def at(*when: int) -> datetime:
    year, month, day, hour, minute = when
    return datetime(year, month, day, hour, minute, tzinfo=UTC)


EAST = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("message", "now", "ends"),
    [
        ("usage limit. … or try again at 9:51 PM.", NOW, at(2026, 11, 15, 21, 51)),
        ("Usage limit. Try again at 9:51 PM.", NOW, at(2026, 11, 15, 21, 51)),
        ("usage limit, try again at 12:05 AM.", NOW, at(2026, 11, 16, 0, 5)),
        ("usage limit, try again at 9:00 PM.", NOW, at(2026, 11, 15, 21, 0)),
        ("usage limit, try again at Jan 1st, 2027 1:00 AM", NOW, at(2027, 1, 1, 1, 0)),
        (
            "usage limit, try again at 11:30 PM.",
            NOW.astimezone(EAST),
            at(2026, 11, 15, 21, 30),
        ),
    ],
)
def test_the_end_of_a_limit_is_told_in_local_time(
    message: str, now: datetime, ends: datetime
) -> None:
    assert limit_lifted_ms(message, now) == int(ends.timestamp() * 1000)


@pytest.mark.parametrize(
    "message",
    [
        "",
        "usage limit reached, try again later",
        "usage limit, try again at 99:99 PM",
        "usage limit, try again at Foo 40th, 2026 1:00 AM",
        "rate limit, try again at 9:51 PM",
        "usage limit " + "try again at " * 10_000,
    ],
)
def test_a_limit_without_a_time_has_no_end(message: str) -> None:
    assert limit_lifted_ms(message, NOW) is None


# -- lines that nobody expects -------------------------------------------------------------------


@pytest.mark.parametrize("make", JSON_FORMATS)
@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("npm warn something\n", [Text("npm warn something\n")]),
        ("no newline at the end", [Text("no newline at the end")]),
        ("[debug] x\r\n", [Text("[debug] x\n")]),
        ("\ufeff\n\n \t\n", []),
        ("null\n", [Text("null\n")]),
        ('{"type":"assistant","message":{"con', [Stderr('{"type":"assistant","message":{"con')]),
        ("{'type': 'DONE'}\n", [Stderr("{'type': 'DONE'}\n")]),
        ("{" * 100_000 + "\n", [Stderr("{" * 100_000 + "\n")]),
        ('{"a":' * 100_000 + "1" + "}" * 100_000 + "\n", None),
        ('{"type":NaN}\n', []),
        ('{"type":"unheard of"}\n', []),
        ("{}\n", []),
        ('{"type":"\\ud83d"}\n', []),
        ('{"a":' + "9" * 10_000 + "}\n", [Stderr('{"a":' + "9" * 10_000 + "}\n")]),
        ("\0\x01\x1b[2J\n", [Text("\0\x01\x1b[2J\n")]),
    ],
)
def test_a_line_that_is_no_frame_is_kept_but_a_broken_frame_is_not_said(
    make: Callable[[], OutputParser], text: str, parts: list[AnswerPart] | None
) -> None:
    got = read(make(), text)
    assert got == parts if parts is not None else only(got, Text) == []


@pytest.mark.parametrize("make", JSON_FORMATS)
def test_a_frame_after_garbage_is_read(make: Callable[[], OutputParser]) -> None:
    frame = delta("hi") if make is claude else {
        "type": "item.completed", "item": {"type": "agent_message", "text": "hi"}
    }  # fmt: skip
    parts = read(make(), '{"type":\n\ufffd\ufffd\n' + frames(frame))
    assert parts[-1] == Text("hi")


def test_half_a_character_is_replaced() -> None:
    line = frames(delta("a\ud83d"), delta("\ude00b")) + frames(delta("\ud83d\ude00"))
    assert said(read(claude(), line)) == "a��b😀"


@pytest.mark.parametrize("make", JSON_FORMATS)
@pytest.mark.parametrize("bad", ["../../x", "a b", "", "x" * 129, "é", 7, None, "-\n", ["a"]])
def test_a_session_id_that_could_be_a_path_or_a_flood_is_none(
    make: Callable[[], OutputParser], bad: Any
) -> None:
    text = frames(
        {"type": "system", "subtype": "init", "session_id": bad},
        {"type": "thread.started", "thread_id": bad},
    )
    assert only(read(make(), text), Session) == []


@pytest.mark.parametrize(
    "beat", [{"type": "keep_alive"}, {"type": "stream_event", "event": {"type": "ping"}}]
)
def test_a_heartbeat_is_no_more_than_a_sign_of_life(beat: Any) -> None:
    assert claude().read(Line(json.dumps(beat))) is None
    assert claude().read(Line(json.dumps({"type": "system", "subtype": "status"}))) == []


def test_a_sentinel_cannot_match_inside_a_tool_call() -> None:
    answer = Answer(1 << 20)
    for part in read(claude(), transcript("claude.subagent")):
        answer.add(part)
    assert "DONE" not in answer.text
    assert "[tool: Bash] echo DONE" in answer.transcript
    assert "[subagent: general-purpose] look around" in answer.transcript
    assert "[subagent result] The other is DONE" in answer.transcript


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=True)
    | st.text(st.characters(exclude_categories=[]), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)
KEY_WORDS = """
type subtype message content event delta text id usage input_tokens output_tokens name input
tool_use_id parent_tool_use_id session_id result errors is_error modelUsage total_cost_usd
permission_denials tool_name tool_input rate_limit_info status resetsAt item thread_id error
command changes arguments exit_code aggregated_output description prompt
"""
TYPE_WORDS = """
system assistant user stream_event result rate_limit_event content_block_delta text_delta
message_start message_delta text tool_use tool_result thread.started item.started item.completed
turn.completed turn.failed error agent_message command_execution file_change mcp_tool_call
collab_tool_call api_retry init success rejected declined Task Bash
"""
KEYS = st.sampled_from(KEY_WORDS.split())
TYPES = st.sampled_from(TYPE_WORDS.split())
FRAMES = st.recursive(
    st.dictionaries(KEYS, VALUES | TYPES, max_size=6),
    lambda inner: st.dictionaries(KEYS, VALUES | TYPES | inner | st.lists(inner, max_size=3)),
    max_leaves=8,
)


@given(st.lists(FRAMES, max_size=6))
@pytest.mark.parametrize("make", JSON_FORMATS)
def test_no_frame_breaks_a_reader(
    make: Callable[[], OutputParser], given_frames: list[Any]
) -> None:
    for part in read(make(), frames(*given_frames)):
        match part:
            case Text(text) | Stderr(text):
                text.encode()
            case Tool() | ToolResult() | ProviderNotice():
                assert "\n" not in part.line
                part.line.encode()
            case Cost(usd):
                assert usd is not None
                assert 0 <= usd < float("inf")
            case Usage():
                assert min(part.input_tokens, part.output_tokens, part.cached_tokens) >= 0
            case RateLimited():
                assert part.reason.startswith("rate limited")
            case _:
                pass


# -- lines -----------------------------------------------------------------------------------


@given(st.text("ab\n\r\ufeff\u2028\x0b", max_size=40), st.lists(st.integers(0, 40), max_size=6))
def test_lines_do_not_depend_on_how_the_stream_was_cut_into_pieces(
    text: str, cuts: list[int]
) -> None:
    def lines_of(pieces: list[str]) -> list[Line]:
        lines = Lines(limit=10)
        return [*(line for piece in pieces for line in lines.feed(piece)), *lines.finish()]

    edges = [0, *sorted(cuts), len(text)]
    pieces = [text[a:b] for a, b in pairwise(edges)]
    assert lines_of(pieces) == lines_of([text])


def test_a_line_that_is_too_long_is_cut_and_the_next_one_is_whole() -> None:
    lines = Lines(limit=1000)
    for _ in range(50_000):
        assert lines.feed("x" * 100) == []
    assert lines.feed("\nnext\n") == [Line("x" * 1000 + "\n", cut=True), Line("next\n")]


@pytest.mark.parametrize("make", JSON_FORMATS)
def test_a_frame_that_was_cut_says_nothing(make: Callable[[], OutputParser]) -> None:
    assert make().read(Line('{"type":"result","result":"' + "DONE" * 1000, cut=True)) is None
    assert make().read(Line("DONE" * 1000, cut=True)) is None


def test_plain_text_is_said_as_it_is_printed() -> None:
    text = 'one\n\n\n{"type":"result"}\ntwo\r\nlast'
    assert said(read(PlainText(), text)) == text.replace("\r\n", "\n")
