"""Workflow files in Python: they are built in the sandbox, and every mistake has its position."""

from __future__ import annotations

import json
import os
import socket
import threading
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from infloop.catalog.python_files import BuildPlace, Built, build_file
from infloop.errors import UsageError
from infloop.model.loop_file.built import parse_built
from infloop.model.nodes import CommandNode
from infloop.sandbox.base import ChildRequest, ChildResult, Sandbox, SandboxWrapper
from infloop.sandbox.levels.host import HostSandbox
from support.canaries import PATH, PYTHON, USER, place
from support.confinement import give, sandbox_at

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from infloop.sandbox.base import OnOutput, OnStarted

levels = pytest.mark.parametrize("level", ["guard", "sandbox"])
HEAD = "from infloop import agent, command, loop, workflow\n"
FLOW = "flow = workflow(steps=[command('true')])\n"


@pytest.fixture
def top() -> Iterator[Path]:
    """A place that children can enter, with a folder `project` for a file."""
    with place() as folder:
        (folder / "project").mkdir(0o755)
        yield folder


@asynccontextmanager
async def opened(level: str, top: Path) -> AsyncIterator[BuildPlace]:
    async with sandbox_at(level, top) as sandbox:
        environment = {"PATH": PATH, "HOME": str(top / "home")}
        yield BuildPlace(sandbox, PYTHON, environment, homes=(str(top / "home"),), user=USER)


async def built_at_host(path: Path, ref: str = "") -> Built:
    sandbox = HostSandbox()
    try:
        return await build_file(ref or str(path), BuildPlace(sandbox, PYTHON, {"PATH": PATH}))
    finally:
        await sandbox.close()


def problems(built: Built) -> list[str]:
    return [f"{one.line}:{one.column}: {one}" for one in built.parsed.problems]


# -- what strangers try --------------------------------------------------------------------------

# What each file tries ends up in a prompt: the workflow would carry it out.
ATTEMPTS = {
    "reads a key in the home": "open(HOME + '/.ssh/id_ed25519').read()",
    "reads the environment of infloop": "open('/proc/%d/environ' % PARENT).read()",
    "writes beside itself": "open(HERE + '/planted.py', 'w').write('x') and 'wrote'",
    "changes itself": "open(__file__, 'a').write('x') and 'wrote'",
    "writes to the home": "open(HOME + '/planted', 'w').write('x') and 'wrote'",
    "connects to a port": "socket.create_connection(('127.0.0.1', PORT), 2) and 'connected'",
    "lists the folder above": "' '.join(os.listdir(os.path.dirname(HERE)))",
    "starts a program that writes": "subprocess.run(['cp', __file__, HOME]).returncode or 'wrote'",
}


class Refusing(SandboxWrapper):
    """Starts nothing; keeps the requests."""

    def __init__(self, inner: Sandbox) -> None:
        super().__init__(inner)
        self.requests: list[ChildRequest] = []

    async def run(
        self,
        request: ChildRequest,
        *,
        on_output: OnOutput | None = None,
        on_started: OnStarted | None = None,
    ) -> ChildResult:
        self.requests.append(request)
        return ChildResult(exit_code=1)


async def test_a_file_that_becomes_a_link_meanwhile_sees_no_other_folder(tmp_path: Path) -> None:
    keys, folder = tmp_path / "keys", tmp_path / "project"
    keys.mkdir()
    folder.mkdir()
    (keys / "own.py").write_text("")
    mine, link, file = folder / "mine.py", folder / "link.py", folder / "flow.py"
    ended = threading.Event()

    def exchange() -> None:
        while not ended.is_set():
            mine.write_text("hostile")
            mine.replace(file)
            link.symlink_to(keys / "own.py")
            link.replace(file)

    file.write_text("hostile")
    sandbox = Refusing(HostSandbox())
    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        for _ in range(300):
            with suppress(UsageError):  # it was exchanged while its path was resolved
                await build_file(str(file), BuildPlace(sandbox, PYTHON, {"PATH": PATH}))
    finally:
        ended.set()
        thread.join()
    seen = [(one.stdin, str(keys) in one.access.read) for one in sandbox.requests if one.access]
    assert (b"hostile", False) in seen
    assert (b"hostile", True) not in seen


@levels
async def test_a_file_reaches_nothing_but_its_own_folder(top: Path, level: str) -> None:
    home = top / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/id_ed25519").write_text("private")
    give(home)
    (top / "project/neighbour.py").write_text("WORD = 'from the neighbour'\n")
    (top / "project/data.txt").write_text("from a file")
    with socket.create_server(("127.0.0.1", 0)) as server:
        known = {"HOME": str(home), "PORT": server.getsockname()[1], "PARENT": os.getpid()}
        text = "import os, socket, subprocess\nfrom neighbour import WORD\n" + HEAD
        text += "".join(f"{name} = {value!r}\n" for name, value in known.items())
        text += (
            "HERE = os.path.dirname(__file__)\nsteps = [command(WORD + open('data.txt').read())]\n"
        )
        for name, attempt in ATTEMPTS.items():
            text += f"try:\n    got = {attempt}\nexcept OSError:\n    got = 'nothing'\n"
            text += f"steps.append(command(str(got), label={name!r}))\n"
        text += "flow = workflow(steps=steps)\n"
        (top / "project/flow.py").write_text(text)
        give(top / "project")
        before = sorted(each.name for each in (top / "project").iterdir())
        async with opened(level, top) as where:
            built = await build_file(str(top / "project/flow.py"), where)
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert built.parsed.workflow is not None, built
    commands = [one for one in built.parsed.workflow.nodes if isinstance(one, CommandNode)]
    first, *others = commands
    assert first.config.cmd == "from the neighbourfrom a file"
    got = {node.label: node.config.cmd for node in others}
    if level == "sandbox":  # its own home is at the path of the real one
        allowed = {"writes to the home": "wrote", "starts a program that writes": "wrote"}
        allowed["lists the folder above"] = "project home"
    else:
        allowed = {"starts a program that writes": "1"}
    assert got == dict.fromkeys(ATTEMPTS, "nothing") | allowed
    assert sorted(each.name for each in (top / "project").iterdir()) == before
    assert [each.name for each in home.iterdir()] == [".ssh"]
    assert (top / "project/flow.py").read_text() == text


# What a file does, the time that it has, and what is said.
ENDLESS = [
    ("while True: print('x' * 9999)", 500, "building it took longer than 0.5 s"),
    ("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", 500, "took longer"),
    # Zeros that nobody touches: to write a gigabyte takes longer than that on a busy machine.
    ("big = [bytes(1 << 26) for _ in range(1 << 14)]", 20_000, "MemoryError"),
]


@levels
async def test_a_file_that_takes_too_much_is_ended_and_named(top: Path, level: str) -> None:
    async with opened(level, top) as where:
        for number, (text, milliseconds, said) in enumerate(ENDLESS):
            file = top / f"project/endless-{number}.py"
            file.write_text(HEAD + text)
            give(file)
            built = await build_file(str(file), replace(where, timeout_ms=milliseconds))
            assert built.parsed.workflow is None
            assert said in problems(built)[0], text
            assert len(str(built)) < 10_000


async def test_a_home_is_not_shown_to_a_file_that_is_in_it(top: Path) -> None:
    home = top / "home"
    home.mkdir()
    (home / "secret.py").write_text("KEY = 1\n")
    (home / "flow.py").write_text(f"import os\n{HEAD}print(os.listdir({str(home)!r}))\n{FLOW}")
    give(home)
    async with opened("sandbox", top) as where:
        built = await build_file(str(home / "flow.py"), where)
        assert built.notes == ("flow.py printed: []",)  # a home of its own
        (home / "flow.py").write_text(HEAD + FLOW)
        assert (await build_file(str(home / "flow.py"), where)).parsed.usable
    (home / "flow.py").write_text(f"{HEAD}import secret\n{FLOW}")
    async with opened("guard", top) as where:
        hidden = replace(where, homes=(), hidden=(str(home / "data"),))
        assert "ModuleNotFoundError" in problems(await build_file(str(home / "flow.py"), hidden))[0]


# -- mistakes ------------------------------------------------------------------------------------

MISTAKES = [
    ("import os\nos._exit(3)", "1:1: file: ended with code 3 before it was built"),
    ("import os\nos.kill(os.getpid(), 9)", "1:1: file: ended with signal 9 before it was built"),
    ("flow = workflow('x' * (17 << 20), steps=[])", "1:1: file: built more than 16 MiB"),
    ("steps = []\nsteps.append(steps)\nflow = workflow(steps=steps)", "4:8: file: RecursionError"),
    ("def nest(n): return loop(steps=[nest(n - 1)] if n else [])\nf = workflow(steps=[nest(90)])",
     "2:21: file: nested deeper than 128 levels"),
    ("flow = workflow(steps=[\n", "2:23: file: SyntaxError: '[' was never closed"),
    ("flow = workflow(steps=[command('x', tmeout='1s')])",
     "2:24: file: TypeError: command() got an unexpected keyword argument 'tmeout'"),
    ("def made():\n    return 1 / 0\nmade()", "3:12: file: ZeroDivisionError: division by zero"),
    ("import helper\nhelper.fail('x\\x1b[31m')",
     "3:1: file: ValueError: x\\x1b[31m (raised in helper.py:2 in fail)"),
    ("import broken", "2:1: file: SyntaxError: invalid syntax (raised in broken.py:1)"),
    ("raise SystemExit('no')", "2:1: file: SystemExit: no"),
    ("class Odd(Exception):\n    def __str__(self): raise self\nraise Odd", "an exception without"),
    ("x = 1", "1:1: file: makes no workflow (assign one: flow = workflow(…))"),
    (FLOW + "other = workflow(steps=[])",
     "1:1: file: makes 2 workflows: flow, other (name one of them: flow.py:flow)"),
    ("flow = workflow(steps=[command({1, 2})])", "TypeError: set cannot be part of a workflow"),
    ("flow = workflow(steps=[command(b'x')])", "TypeError: bytes cannot be part of a workflow"),
    ("flow = workflow(steps=[command('é', timeout=float('nan'))])", "nan cannot be part"),
    ("flow = workflow(steps=[command('é', timeout='5')])",
     "2:45: steps[0] 'command' timeout: '5' cannot be used here"),
    ("flow = workflow(limits={'cost': 'much'}, steps=[])", "2:33: limits.cost: 'much' cannot"),
    ("flow = workflow(steps=['x', command('y')])", "2:24: steps[0]: expected a step, got 'x'"),
    ("flow = workflow(steps=[command('x\\0')])", "2:32: file: holds a NUL character"),
    ("flow = workflow(steps=[command('x\\ud800')])", "2:24: file: UnicodeEncodeError: "),
    ("flow = workflow(steps=[agent('claude', prompt_file='../x.md')])",
     "2:52: steps[0] 'agent' prompt_file: the file '../x.md' is not beneath the folder"),
    ("import os\nos.write(os.dup(1), b'x')\nimport infloop\ninfloop.nope",
     "AttributeError: module 'infloop' has no attribute 'nope'"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), MISTAKES)
async def test_a_mistake_has_its_line_and_column(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("def fail(text):\n    raise ValueError(text)\n")
    (tmp_path / "broken.py").write_text("not python!\n")
    (tmp_path / "flow.py").write_text(HEAD + text, encoding="utf-8")
    built = await built_at_host(tmp_path / "flow.py")
    assert said in "\n".join(problems(built))
    assert "\x1b" not in str(problems(built))


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"\xff", "not UTF-8 text"), (b"x = 1\0", "holds a NUL"), (b"#" * (5 << 20) + b"##", "5 MiB")],
)
async def test_what_is_no_text_is_not_run(data: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_bytes(data)
    assert said in problems(await built_at_host(tmp_path / "flow.py"))[0]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        b"[1]",
        b'{"tree": 5}',
        b'{"tree": ["m", [], null]}',
        b'{"tree": ["s", 1, null]}',
        b'{"tree": ["m", {"name": ["s", 1e999, null]}, null]}',
        b'{"tree": ["m", {"name": ["s", 99999999999999999999, null]}, null]}',
        b'{"tree": ["m", {"steps": ["l", [["m", 5, [9999, -1, 0, 99999]]], null]}, [1,2,3,"x"]]}',
        b'{"names": [], "other": 1}',
        b'{"tree": ' + b"[" * 100_000,
        b'{"tree": ["l", [' + b",".join([b'["s",1,null]'] * 500_001) + b"], null]}",
    ],
    ids=lambda data: str(data[:60]),
)
def test_what_a_file_sends_is_read_as_data(data: bytes) -> None:
    """A file can write to the result itself."""
    parsed = parse_built(data, "x = 1\n", "flow.py", "", "flow", str)
    assert parsed.workflow is None
    (problem,) = parsed.problems
    assert problem.line


# -- what is right -------------------------------------------------------------------------------


async def test_a_name_chooses_one_of_several_workflows(tmp_path: Path) -> None:
    file = tmp_path / "flows.py"
    text = f"{HEAD}first = again = workflow('One', steps=[])\n_hidden = workflow(steps=[])\n"
    file.write_text(text)
    only = (await built_at_host(file)).parsed.workflow
    assert only is not None
    assert (only.id, only.name, only.strict) == ("flows", "One", True)
    file.write_text(text + "second = workflow(steps=[command('x')])\nprint('built')\n")
    built = await built_at_host(file, f"{file}:second")
    assert built.parsed.workflow is not None
    assert built.parsed.workflow.id == "flows-second"
    assert built.notes == (
        f"{file}: built without a sandbox, as you (level 'host')",
        "flows.py printed: built",
    )
    assert (
        "has no workflow 'secnd' (did you mean 'second'?)"
        in problems(await built_at_host(file, f"{file}:secnd"))[0]
    )


async def test_texts_from_files_and_the_positions_of_helpers(tmp_path: Path) -> None:
    (tmp_path / "parts.py").write_text(
        f"{HEAD}def fix(prompt):\n    return agent('claude', prompt=prompt, timeout='x')\n"
    )
    (tmp_path / "ask.md").write_text("Do it.")
    (tmp_path / "flow.py").write_text(
        "from infloop import agent, workflow\nfrom parts import fix\n\n"
        "flow = workflow(steps=[\n    agent('claude', prompt_file='ask.md'),\n    fix('go'),\n])\n"
    )
    built = await built_at_host(tmp_path / "flow.py")
    assert problems(built)[0].startswith("6:5: steps[1] 'agent-2' timeout: 'x' cannot")
    assert "Do it." in json.dumps(built.parsed.workflow and built.parsed.workflow.to_json())
    assert built.parsed.files == ("ask.md",)
