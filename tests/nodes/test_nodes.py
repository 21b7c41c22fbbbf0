"""Script, command, judge and agent nodes, with real children, through a whole run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from infloop.engine.decide import DECISIONS
from infloop.model.nodes import NODE_MODELS
from infloop.nodes.node_types import NODE_TYPES
from support.runs import Finished, scripted, world
from support.workflows import edges, node, workflow

START = node("s", "start")


async def one(
    tmp_path: Path, made: dict[str, Any], *, inputs: Any = None, **settings: Any
) -> Finished:
    """Run a workflow of one node."""
    tree = workflow([START, made], edges(f"s next {made['id']}"), globals={"g": "G"})
    async with world(tmp_path, **settings) as here:
        return await here.run(tree, inputs=inputs)


def python(code: str, **config: Any) -> dict[str, Any]:
    return node("n", "script", language="py", code=code, **config)


def typescript(code: str, **config: Any) -> dict[str, Any]:
    return node("n", "script", language="ts", code=code, **config)


def command(cmd: str, **config: Any) -> dict[str, Any]:
    more = config.pop("command", {})
    return node("n", "condition", kind="command", command={"cmd": cmd, **more}, **config)


RETURNS_ALL = {
    "py": """
def run(a, b):
    print('hi')
    return {'text': a + b, 'n': 1.5, 'o': {'k': [1, None]}, 'z': None}
""",
    "ts": """
function run(a: string, b: string) {
  console.log('hi');
  return {text: a + b, n: 1.5, o: {k: [1, null]}, z: null};
}
""",
}


@pytest.mark.claim("I2", "I3")
@pytest.mark.parametrize("language", ["py", "ts"])
async def test_a_script_gets_its_inputs_in_order_and_returns_typed_and_text_outputs(
    tmp_path: Path, language: str
) -> None:
    made = node(
        "n", "script", language=language, code=RETURNS_ALL[language],
        inputs={"second": "{{inputs.q}}", "first": "{{globals.g}}"},
        outputs=["text", "n", "o", "z", "missing"],
    )  # fmt: skip
    done = await one(tmp_path, made, inputs={"q": "Q"})
    out = done.scope["n"]
    assert done.status == "succeeded", done.result
    assert {key: out[key] for key in ("text", "n", "o", "z", "missing")} == {
        "text": "QG", "n": "1.5", "o": '{"k":[1,null]}', "z": "", "missing": "",
    }  # fmt: skip
    assert out["result"] == {"text": "QG", "n": 1.5, "o": {"k": [1, None]}, "z": None}
    assert out["stdout"].strip() == "hi"
    assert out["exitCode"] == 0


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (python("def run():\n    raise ValueError('no luck')\n"), "no luck"),
        (python("x = 1\n"), "must define a function named run"),
        (python("def run(:\n"), "SyntaxError"),
        (python("def run():\n    return {'x': float('nan')}\n"), "not JSON compliant"),
        (python("def run():\n    return {'x': {1}}\n"), "set is not JSON serializable"),
        (typescript("function run() { throw new Error('no luck'); }"), "no luck"),
        (typescript("const x = 1;"), "must define a function named run"),
        (typescript("function run( {"), "script.mts"),
        (node("n", "script", language="rb", code=""), "unknown script language 'rb'"),
        (python("def run(): pass", cwd="gone"), "is not a directory"),
    ],
)
async def test_a_script_that_fails_says_why(tmp_path: Path, made: Any, reason: str) -> None:
    done = await one(tmp_path, made)
    assert done.status == "failed"
    assert reason in done.result.error
    assert "step 'n' failed" in done.result.error


@pytest.mark.parametrize("language", ["py", "ts"])
async def test_printed_text_cannot_forge_a_result(tmp_path: Path, language: str) -> None:
    forged = '{"text": "forged"}'
    code = {
        "py": f"""
def run():
    print('__INFLOOP_RESULT__:{forged}')
    print('{forged}')
    return {{'text': 'real'}}
""",
        "ts": f"""
function run() {{
  console.log('__INFLOOP_RESULT__:{forged}');
  console.log('{forged}');
  return {{text: 'real'}};
}}
""",
    }[language]
    done = await one(tmp_path, node("n", "script", language=language, code=code, outputs=["text"]))
    assert done.scope["n"]["text"] == "real"
    assert "forged" in done.scope["n"]["stdout"]


async def test_a_child_of_a_script_cannot_reach_the_result_descriptor(tmp_path: Path) -> None:
    code = """
import subprocess, sys
LIST = "import os; print(sorted(int(fd) for fd in os.listdir('/proc/self/fd')))"
def run():
    command = [sys.executable, "-c", LIST]
    return {"fds": subprocess.check_output(command, close_fds=False, text=True)}
"""
    done = await one(tmp_path, python(code, outputs=["fds"]))
    fds = [int(x) for x in done.scope["n"]["fds"].strip("[]\n ").split(",")]
    # its own stdio, and the directory it is listing
    assert [fd for fd in fds if fd > 2 and fd != max(fds)] == []


@pytest.mark.parametrize("value", ["[1,2]", "'text'", "None", "3"])
async def test_only_an_object_becomes_outputs(tmp_path: Path, value: str) -> None:
    done = await one(tmp_path, python(f"def run():\n    return {value}\n", outputs=["a"]))
    assert done.status == "succeeded"
    assert done.scope["n"]["a"] == ""
    assert "result" not in done.scope["n"]


async def test_a_script_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    made = python("import time\ndef run():\n    time.sleep(600)\n", timeoutMs=300)
    done = await one(tmp_path, made)
    assert done.scope["n"]["timedOut"] is True
    assert done.scope["n"]["exitCode"] is None
    assert "within 300 ms" in done.result.error


async def test_typescript_without_a_runtime_says_what_to_install(tmp_path: Path) -> None:
    from infloop.app.interpreters import find_interpreters
    from infloop.settings import Settings

    found = find_interpreters(Settings(data_dir=tmp_path, deno_bin="/opt/none/deno"))
    assert found.typescript[0] == "/opt/none/deno"
    done = await one(tmp_path, typescript("function run() {}"), deno_bin="/opt/none/deno")
    assert "/opt/none/deno" in done.result.error
    assert "INFLOOP_DENO_BIN" in found.typescript_missing


@pytest.mark.parametrize(
    ("installed", "named", "chosen"),
    [
        (("bun", "deno", "node"), {}, "bun"),
        (("deno", "node"), {}, "deno"),
        (("bun",), {"node_bin": "my-node"}, "my-node"),
        (("bun",), {"deno_bin": "my-deno"}, "my-deno"),
    ],
)
def test_typescript_runs_with_the_fastest_runtime_unless_one_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    installed: tuple[str, ...],
    named: dict[str, str],
    chosen: str,
) -> None:
    from infloop.app.interpreters import find_interpreters
    from infloop.settings import Settings

    for name in installed:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = find_interpreters(Settings(data_dir=tmp_path, **named))
    assert Path(found.typescript[0]).name == chosen


LISTS_ITS_MODULES = """
import sys
def run():
    heavy = ("asyncio", "inspect", "json")
    return {"heavy": [one for one in heavy if one in sys.modules]}
"""
AWAITS_A_GENERATOR = """
import types
@types.coroutine
def run():
    yield
    return {"heavy": "none"}
"""


@pytest.mark.parametrize(
    ("code", "heavy"), [(LISTS_ITS_MODULES, "[]"), (AWAITS_A_GENERATOR, "none")]
)
async def test_a_python_script_waits_only_for_modules_that_it_needs(
    tmp_path: Path, code: str, heavy: str
) -> None:
    done = await one(tmp_path, python(code, outputs=["heavy"]))
    assert done.scope["n"].get("heavy") == heavy, done.result


COMPARES_WITH_JSON = r"""
import json
import __main__ as harness

VALUES = [
    None, True, 0, -1, 10**30, 1.5, -0.0, 1e300, "", "a\"b\\c\n\u2028é\U0001f600\ud800", [], {},
    (1, (2,)), {1: {None: [True]}, 2.5: False, "é": {}}, [[[[]]]], "\x00\x1f",
]
REFUSED = [float("nan"), float("inf"), {"a": object()}, {(1, 2): 3}, b"bytes", {1, 2}]

def outcome(function, value):
    try:
        return function(value)
    except Exception as error:
        return type(error).__name__, str(error)

def run(*given):
    loop = []
    loop.append(loop)
    for value in [*VALUES, *REFUSED, loop]:
        ours = outcome(harness.encode, value)
        theirs = outcome(lambda value: json.dumps(value, allow_nan=False), value)
        assert ours == theirs, (ours, theirs)
        text = json.dumps(value) if value in VALUES else "[]"
        assert repr(harness.decode(text)) == repr(json.loads(text))
    return {"same": list(given)}
"""


async def test_what_a_python_script_takes_and_returns_is_what_json_says(tmp_path: Path) -> None:
    given: dict[str, Any] = {"a": "é\n\U0001f600", "b": 10**20, "c": [1.5, None, {"k": True}]}
    done = await one(tmp_path, python(COMPARES_WITH_JSON, inputs=given))
    assert done.status == "succeeded", done.result
    assert done.scope["n"]["result"]["same"] == list(given.values())


# -- commands -------------------------------------------------------------------------------------


@pytest.mark.claim("I4")
@pytest.mark.parametrize(
    ("made", "met", "detail"),
    [
        (command("true"), True, "exit 0"),
        (command("exit 3"), False, "exit 3"),
        (command("kill -9 $$"), False, "killed by signal 9"),
        (command("sleep 600", command={"timeoutMs": 200}), False, "timed out after 200ms"),
        (command("test -f here.txt"), True, "exit 0"),
        (command("grep -q needle", against="hay needle hay"), True, "exit 0"),
        (command(""), False, "invalid command config"),
        (node("n", "condition", kind="command"), False, "invalid command config"),
    ],
)
async def test_a_command_says_met_by_its_exit_code(
    tmp_path: Path, made: Any, met: bool, detail: str
) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work/here.txt").touch()
    done = await one(tmp_path, made)
    assert done.scope["n"]["met"] is met
    assert detail in done.scope["n"]["detail"]


HOSTILE = (
    "$(touch PWN) `touch PWN` ; touch PWN && x | y > z \n touch PWN ' \" \\ -rf {{inputs.x}} *"
)


@pytest.mark.parametrize(
    "cmd",
    [
        'test {{inputs.title}} = "$WANT"',
        'test "{{inputs.title}}" = "$WANT"',
        "test '{{inputs.title}}' = \"$WANT\"",
        'test "x{{inputs.title}}y" = "x${WANT}y"',
        "printf %s {{inputs.title}} | cmp -s - want.txt",
    ],
)
async def test_a_value_reaches_a_command_whole_and_never_as_shell_text(
    tmp_path: Path, cmd: str
) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work/want.txt").write_text(HOSTILE)
    made = command(cmd, command={"env": {"WANT": "{{inputs.title}}"}})
    done = await one(tmp_path, made, inputs={"title": HOSTILE, "x": "expanded"})
    assert done.scope["n"]["met"] is True, done.scope["n"]
    assert [p.name for p in (tmp_path / "work").iterdir()] == ["want.txt"]


@pytest.mark.parametrize(
    "name", ["LD_PRELOAD", "BASH_ENV", "PYTHONSTARTUP", "NODE_OPTIONS", "GIT_DIR", "INFLOOP_X"]
)
async def test_a_workflow_cannot_set_variables_that_load_code(tmp_path: Path, name: str) -> None:
    done = await one(tmp_path, command("true", command={"env": {name: "x"}}))
    assert done.status == "failed"
    assert name in done.result.error


@pytest.mark.claim("I29", "I31", "I32", "I33")
@pytest.mark.parametrize("kind", ["script-py", "script-ts", "command", "agent"])
async def test_no_child_sees_the_servers_secrets(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", "planted-secret")
    monkeypatch.setenv("INFLOOP_PLANTED", "planted-secret")
    monkeypatch.setenv("CLAUDECODE", "1")
    monkeypatch.setenv("SITE_ONE", "passed-one")
    monkeypatch.setenv("NAMED", "passed-two")
    scripted(tmp_path / "data/providers", "fake", {"do": [{"shell": "env > env.txt"}]})
    made = {
        "script-py": python("""
import os
def run():
    open("env.txt", "w").write("\\n".join(f"{k}={v}" for k, v in os.environ.items()))
"""),
        "script-ts": typescript("""
function run() {
  const lines = Object.entries(Deno.env.toObject()).map(([k, v]) => k + "=" + v);
  Deno.writeTextFileSync("env.txt", lines.join("\\n"));
}
"""),
        "command": command("env > env.txt"),
        "agent": node("n", "agent", providerId="fake", prompt="go"),
    }[kind]
    done = await one(tmp_path, made, child_env_passthrough="SITE_*,NAMED")
    assert done.status == "succeeded", done.result
    seen = (tmp_path / "work/env.txt").read_text()
    assert "planted-secret" not in seen
    assert "INFLOOP_" not in seen
    assert "CLAUDECODE" not in seen
    assert "SITE_ONE=passed-one" in seen
    assert "NAMED=passed-two" in seen
    assert f"HOME={os.environ['HOME']}" in seen


# -- agents and judges ----------------------------------------------------------------------------


def agent(prompt: str = "go", **config: Any) -> dict[str, Any]:
    return node("n", "agent", **{"providerId": "fake", "prompt": prompt, **config})


async def test_an_agent_edits_files_runs_commands_and_reports_cost(tmp_path: Path) -> None:
    turn = {
        "do": [
            {"text": "working "},
            {"write": "sub/a.txt", "content": "one\n"},
            {"replace": "sub/a.txt", "old": "one", "new": "two"},
            {"shell": "cat sub/a.txt && echo DONE-IN-TOOL"},
            {"stderr": "warned"},
            {"tokens": {"input": 10, "output": 3}},
            {"cost": 0.25},
            {"cost": 0.5},
            {"text": "finished"},
        ]
    }
    scripted(tmp_path / "data/providers", "fake", turn)
    done = await one(tmp_path, agent())
    out = done.scope["n"]
    assert done.status == "succeeded"
    assert (tmp_path / "work/sub/a.txt").read_text() == "two\n"
    assert out["stdout"] == "working finished"
    assert "DONE-IN-TOOL" in out["transcript"]
    assert "DONE-IN-TOOL" in done.said("tool")
    assert done.said() == "working finished"
    assert out["costUsd"] == 0.75
    assert out["tokens"] == {"input": 10, "output": 3, "cached": 0}
    assert (out["exitCode"], out["timedOut"], out["stderr"]) == (0, False, "warned")
    assert out["errorMessage"] == ""


@pytest.mark.parametrize(
    ("turns", "config", "reason"),
    [
        ([{"do": [{"exit": 3}]}], {}, "exit code 3"),
        ([{"do": [{"delayMs": 600_000}]}], {"timeoutMs": 100}, "within 100 ms"),
        ([{"node": "other", "do": []}], {}, "has no turn for node 'n'"),
        ([{"do": [{"write": "../x", "content": ""}]}], {}, "outside"),
        ([{"do": [{"frob": 1}]}], {}, "frob"),
        ([], {"providerId": "nobody"}, "unknown provider 'nobody'; known are: fake"),
        ([], {"prompt": "  "}, "invalid agent config"),
        ([], {"prompt": "{{inputs.gone}}"}, "invalid agent config"),
        ([], {"cwd": "nowhere"}, "is not a directory"),
        ([], {"useWorktree": True}, "useWorktree: false"),
    ],
)
async def test_an_agent_that_cannot_work_says_why(
    tmp_path: Path, turns: Any, config: Any, reason: str
) -> None:
    scripted(tmp_path / "data/providers", "fake", *turns)
    done = await one(tmp_path, agent(**config))
    assert done.status == "failed"
    assert reason in done.result.error
    out = done.scope["n"]
    assert {"stdout", "stderr", "exitCode"} <= set(out)
    assert reason in out["errorMessage"]


async def test_a_file_of_turns_that_changes_is_played_as_it_is_now(tmp_path: Path) -> None:
    tree = workflow([START, agent()], edges("s next n"))
    async with world(tmp_path) as here:
        for said in ("first", "and then"):
            scripted(tmp_path / "data/providers", "fake", {"do": [{"text": said}]})
            assert (await here.run(tree)).scope["n"]["stdout"] == said


async def test_a_prompt_is_passed_verbatim(tmp_path: Path) -> None:
    odd = "$& $' $` \\n %s {x} \x07 é"
    scripted(tmp_path / "data/providers", "fake", {"contains": odd, "do": [{"text": "same"}]})
    done = await one(tmp_path, agent("{{inputs.p}}"), inputs={"p": odd})
    assert done.scope["n"]["stdout"] == "same"


def judge(**config: Any) -> dict[str, Any]:
    return node(
        "n",
        "judge",
        **{
            "criteria": "{{globals.g}}",
            "candidates": ["a", "{{inputs.b}}"],
            "providerId": "fake",
            **config,
        },
    )


async def test_a_judge_names_the_winner(tmp_path: Path) -> None:
    verdict = 'thinking…\n{"winner_index": 1, "scores": [3, 9], "reasoning": "b is better"}'
    scripted(
        tmp_path / "data/providers", "fake",
        {"contains": "Criteria: G\n\nCandidates:\n[0] a\n[1] bee", "do": [{"text": verdict}]},
    )  # fmt: skip
    done = await one(tmp_path, judge(), inputs={"b": "bee"})
    assert done.scope["n"] == {
        "winner_index": 1, "winner": "bee", "scores": [3, 9], "reasoning": "b is better",
    }  # fmt: skip


async def test_a_judge_is_asked_once_more_when_its_answer_cannot_be_read(tmp_path: Path) -> None:
    scripted(
        tmp_path / "data/providers", "fake",
        {"contains": "could not be read",
         "do": [{"text": "{\"winner_index\": 0, \"scores\": [5, 4]}"}]},
        {"do": [{"text": "I like both"}]},
    )  # fmt: skip
    done = await one(tmp_path, judge(), inputs={"b": "x"})
    assert done.scope["n"]["winner"] == "a"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("no idea", "no JSON object"),
        ('{"winner_index": 7, "scores": [1, 2]}', "winner_index 7"),
        ('{"winner_index": 0, "scores": [1]}', "scores"),
        ('{"winner_index": 0, "scores": [1, 11]}', "scores"),
        ('{"winner_index": "0", "scores": [1, 2]}', "not a verdict"),
    ],
)
async def test_a_judge_that_stays_unreadable_is_an_error_with_its_raw_answer(
    tmp_path: Path, answer: str, reason: str
) -> None:
    scripted(tmp_path / "data/providers", "fake", {"do": [{"text": answer}]})
    done = await one(tmp_path, judge(), inputs={"b": "x"})
    assert done.status == "failed"
    assert "judge failed" in done.result.error
    assert reason in done.result.error
    assert done.scope["n"]["raw"] == answer


@pytest.mark.parametrize(
    ("answer", "met", "detail"),
    [
        ("MET\nbecause", True, "because"),
        ("\n\n met \nok", True, "ok"),
        ("NOT_MET\nno", False, "no"),
        ("Sure, MET!", False, "unparseable"),
        ("METALLIC", False, "unparseable"),
    ],
)
async def test_a_judged_condition_reads_the_first_line(
    tmp_path: Path, answer: str, met: bool, detail: str
) -> None:
    scripted(tmp_path / "data/providers", "fake", {"do": [{"text": answer}]})
    made = node(
        "n", "condition", kind="judge", against="{{inputs.t}}",
        judge={"rubric": "is {{globals.g}}", "providerId": "fake"},
    )  # fmt: skip
    done = await one(tmp_path, made, inputs={"t": "text"})
    assert done.scope["n"]["met"] is met
    assert detail in done.scope["n"]["detail"]


@pytest.mark.claim("I35")
async def test_judges_are_asked_with_their_model_and_never_skip_permissions(tmp_path: Path) -> None:
    program = tmp_path / "claude"
    program.write_text(
        '#!/bin/sh\nprintf "%s\\0" "$@" >> asked; printf "\\n" >> asked\n'
        """case "$*" in
*Candidates*) echo '{"winner_index": 1, "scores": [1, 2]}';;
*) echo MET;;
esac"""
    )
    program.chmod(0o755)
    arguments = ["--dangerously-skip-permissions", "--print", "--output-format", "stream-json"]
    manifest = {
        "id": "claude",
        "label": "Claude",
        "description": "spawn claude --print",
        "bin": str(program),
        "args": [*arguments, "--verbose", "--agent", "{agent}", "{prompt}"],
        "outputFormat": "claude-stream-json",
        "promptVia": "arg",
    }
    (tmp_path / "data/providers").mkdir(parents=True)
    (tmp_path / "data/providers/claude.json").write_text(json.dumps(manifest))
    check = node("c", "condition", kind="judge", against="t", judge={"rubric": "r", "model": "m1"})
    best = node("j", "judge", criteria="short", candidates=["a", "b"], model="m2")
    plain = node("d", "condition", kind="judge", against="t", judge={"rubric": "r"})
    tree = workflow([START, check, best, plain], edges("s next c met j next d"))
    async with world(tmp_path) as here:
        done = await here.run(tree)
    assert done.scope["j"]["winner"] == "b"
    assert done.scope["d"]["met"] is True
    calls = (tmp_path / "work/asked").read_bytes().decode().split("\0\n")[:3]
    common = ["--print", "--output-format", "stream-json", "--verbose"]
    for call, model in zip(calls, (["--model", "m1"], ["--model", "m2"], []), strict=True):
        *options, prompt = call.split("\0")
        assert options == [*common, *model]
        assert "judge" in prompt or "Candidates" in prompt


async def test_a_judge_that_breaks_is_not_met(tmp_path: Path) -> None:
    scripted(tmp_path / "data/providers", "fake", {"do": [{"exit": 2}]})
    made = node(
        "n", "condition", kind="judge", against="t", judge={"rubric": "r", "providerId": "fake"}
    )
    done = await one(tmp_path, made)
    assert done.scope["n"]["met"] is False
    assert "judge error" in done.scope["n"]["detail"]


# -- the lists of node types -----------------------------------------------------------------


def test_every_type_with_effects_is_performed_by_a_file_and_no_other() -> None:
    effects = {name for name, model in NODE_MODELS.items() if model.has_effects}
    assert set(NODE_TYPES) == effects


def test_every_type_without_effects_is_decided_or_opens_frames() -> None:
    passive = {
        name for name, model in NODE_MODELS.items() if not model.has_effects and not model.opens
    }
    assert passive <= set(DECISIONS) <= set(NODE_MODELS)
