"""`infloop loop`, `--detach` and `attach`: a task, a check, and an agent that is a real program."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support import forkserver
from support.eventually import eventually
from support.repositories import git
from support.server import environment, infloop
from support.terminal import on_terminal

# Adds one to a number at each call, and keeps the prompt.
AGENT = """#!/bin/sh
cat > "$PROMPTS/$(date +%s%N)"
echo $(( $(cat number) + 1 )) > number
"""
CHECK = 'echo "the number is $(cat number)"; test "$(cat number)" -ge 2'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a number, and an agent `bot` that counts."""
    repository = tmp_path / "project"
    repository.mkdir()
    git("init", cwd=repository)
    (repository / "number").write_text("0\n")
    git("add", ".", cwd=repository)
    git("commit", "-m", "zero", cwd=repository)
    program = tmp_path / "bot"
    prompts = tmp_path / "prompts"
    prompts.mkdir()
    program.write_text(AGENT.replace("$PROMPTS", str(prompts)))
    program.chmod(0o755)
    providers = tmp_path / "data" / "providers"
    providers.mkdir(parents=True)
    manifest = {"id": "bot", "label": "Bot", "description": "counts", "transport": "cli"}
    manifest |= {"bin": str(program), "promptVia": "stdin", "outputFormat": "plain"}
    (providers / "bot.json").write_text(json.dumps(manifest))
    return repository


def loop(project: Path, check: str, *more: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    given = ("loop", "Count to two", "--check", check, "--agent", "bot", "--cwd", str(project))
    return infloop(project.parent, *given, *more, code=code)


def prompts(project: Path) -> list[str]:
    return [file.read_text() for file in sorted((project.parent / "prompts").iterdir())]


def test_an_agent_works_until_the_check_succeeds_and_its_changes_are_applied(project: Path) -> None:
    done = loop(project, CHECK)
    assert "run succeeded" in done.stdout
    assert "infloop apply" in done.stdout
    assert "1 file changed, +1 -1\n  number  +1 -1\nnext:" in done.stdout
    assert "started by `infloop loop` at" in infloop(project.parent, "why", "last").stdout
    assert (project / "number").read_text() == "0\n"
    first, second = prompts(project)
    assert first.startswith("Count to two")
    assert "the number is 0" in first
    assert "the number is 1" in second
    infloop(project.parent, "apply", "last")
    assert (project / "number").read_text() == "2\n"


def test_a_check_that_succeeds_already_costs_nothing(project: Path) -> None:
    done = loop(project, "true")
    assert "run succeeded" in done.stdout
    assert "no round was needed" in done.stdout
    assert prompts(project) == []


@pytest.mark.parametrize("check", ["no-such-program-here", "./number", "exit 126"])
def test_a_check_that_cannot_run_stops_before_the_agent_is_asked(project: Path, check: str) -> None:
    done = loop(project, check, code=1)
    assert "the check cannot run" in done.stdout
    assert "no round was needed" not in done.stdout
    assert prompts(project) == []


def test_a_check_that_cannot_run_any_more_stops_the_loop(project: Path) -> None:
    done = loop(project, 'test "$(cat number)" = 0 && exit 1; exit 127', code=1)
    assert "the check cannot run" in done.stdout
    assert len(prompts(project)) == 1


def test_a_loop_that_used_up_its_rounds_has_failed_and_says_how(project: Path) -> None:
    done = loop(project, "echo still red; false", "--rounds", "2", code=1)
    assert "used up its 2 rounds, and its condition was not met: still red" in done.stdout
    assert len(prompts(project)) == 2


def test_uncommitted_changes_are_part_of_the_work(project: Path) -> None:
    (project / "number").write_text("7\n")
    loop(project, 'test "$(cat number)" = 8')
    infloop(project.parent, "apply", "last")
    assert (project / "number").read_text() == "8\n"


def test_in_place_the_agent_works_in_the_directory_itself(project: Path) -> None:
    loop(project, CHECK, "--in-place")
    assert (project / "number").read_text() == "2\n"


@pytest.mark.parametrize("name", ["count.workflow.json", "count.loop.yaml"])
def test_a_loop_is_saved_as_a_workflow_that_runs(project: Path, name: str) -> None:
    file = project.parent / name
    said = loop(project, CHECK, "--save", str(file)).stdout
    assert f"infloop run {file}" in said
    assert infloop(project.parent, "check", str(file)).stdout == f"{file}: ok\n"
    infloop(project.parent, "run", str(file), "--cwd", str(project))
    assert "exists already" in loop(project, CHECK, "--save", str(file), code=2).stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("x", "--check", "true"), "no agent is installed"),
        (("x", "--check", "true"), "`infloop demo` shows a loop without one"),
        (("x", "--check", "true", "--agent", "nobody"), "there is no agent 'nobody'"),
        (("x", "--check", "true", "--agent", "codex"), "npm install -g @openai/codex"),
        (("x", "--check", "true", "--agent", "openai-api"), "a model without tools"),
        ((" ", "--check", "true"), "the task is empty"),
        (("x", "--check", " "), "--check is empty"),
        (("x", "--check", "echo {{a.b}}"), "is a reference"),
        (("x", "--check", "true", "--rounds", "0"), "give at least 1"),
        (("x", "--check", "true", "--max-cost", "-1"), "not an amount"),
        (("x",), "--check"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    (tmp_path / "home").mkdir()
    settings = {**environment(tmp_path), "PATH": "/usr/bin:/bin"}
    done = forkserver.run(("loop", *arguments), tmp_path, settings, 60)
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.parametrize(
    ("logins", "said"),
    [
        ({}, "agent: claude (--agent names another)\nno login of claude was found; to log in: "),
        ({"CODEX_API_KEY": "sk-0"}, "agent: codex (--agent names another)\n"),
        ({"ANTHROPIC_API_KEY": "sk-0", "CODEX_API_KEY": "sk-0"}, "agent: claude (--agent names"),
    ],
)
def test_the_agent_that_is_installed_and_logged_in_is_taken_and_named(
    project: Path, logins: dict[str, str], said: str
) -> None:
    programs = project.parent / "programs"
    programs.mkdir()
    for name in ("claude", "codex"):
        (programs / name).write_text("#!/bin/sh\nexit 1\n")
        (programs / name).chmod(0o755)
    settings = environment(project.parent) | {"PATH": f"{programs}:/usr/bin:/bin"} | logins
    done = forkserver.run(("loop", "x", "--check", "true"), project, settings, 60)
    assert done.returncode == 0
    assert said in done.stderr
    assert ("no login" in done.stderr) == ("no login" in said)


# -- in the background ----------------------------------------------------------------------------


def test_a_detached_run_goes_on_after_the_terminal_and_can_be_watched(project: Path) -> None:
    gate = project.parent / "gate"
    check = f'while [ ! -e {gate} ]; do sleep 0.05; done; test "$(cat number)" -ge 1'
    folder, settings = project.parent, environment(project.parent)
    given = ("loop", "Count", "--check", check, "--agent", "bot", "--detach")
    with on_terminal(given, project, settings) as terminal:
        terminal.read_until("goes on in the background")
        assert terminal.end() == 0
    # The terminal is gone.
    run = json.loads(infloop(folder, "runs", "--json").stdout)
    assert run["status"] == "running"
    watching = forkserver.Command(("attach", "last"), folder, settings, stderr=forkserver.STDOUT)
    gate.touch()
    shown, _ = watching.communicate(timeout=60)
    assert watching.returncode == 0
    assert re.search("run .*succeeded", shown)
    eventually(lambda: not any((folder / "data" / "detached").iterdir()), "its log is removed")


def test_who_stops_watching_stops_nothing(project: Path) -> None:
    gate = project.parent / "gate"
    check = f"while [ ! -e {gate} ]; do sleep 0.05; done"
    folder, settings = project.parent, environment(project.parent)
    loop(project, check, "--detach")
    watching = forkserver.Command(("attach", "last"), folder, settings)
    assert watching.stderr is not None
    eventually(lambda: is_handled(watching.pid, signal.SIGTERM), "attach handles Ctrl+C")
    watching.send_signal(signal.SIGINT)
    _, said = watching.communicate(timeout=60)
    assert (watching.returncode, "goes on" in said) == (0, True)
    gate.touch()
    attached = infloop(folder, "attach", "last")
    assert "succeeded" in attached.stdout + attached.stderr


def test_a_detached_command_that_cannot_start_says_why(project: Path) -> None:
    done = infloop(project.parent, "run", "./missing.json", "--detach", code=2)
    assert "there is no workflow file" in done.stderr
    assert list((project.parent / "data" / "detached").iterdir()) == []


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (signal.SIGHUP, "its terminal was closed"),
        (signal.SIGTERM, "its process was asked to end (SIGTERM)"),
        (signal.SIGINT, "stopped at the terminal"),
    ],
)
def test_a_run_that_is_ended_says_who_ended_it(
    project: Path, sent: signal.Signals, reason: str
) -> None:
    folder, settings = project.parent, environment(project.parent)
    given = ("loop", "x", "--check", "touch started; sleep 600", "--agent", "bot", "--in-place")
    running = forkserver.Command(given, project, settings)
    eventually((project / "started").exists, "the check runs")
    running.send_signal(sent)
    running.communicate(60)
    assert running.returncode == 130
    assert reason in infloop(folder, "why", "last").stdout


def test_a_run_whose_terminal_is_closed_says_so(project: Path) -> None:
    folder, settings = project.parent, environment(project.parent)
    given = ("loop", "x", "--check", "touch started; sleep 600", "--agent", "bot", "--in-place")
    with on_terminal(given, project, settings) as terminal:
        eventually((project / "started").exists, "the check runs")
        terminal.close()
        assert terminal.process.wait(60) == 130
    assert "its terminal was closed" in infloop(folder, "why", "last").stdout


def test_a_run_under_nohup_survives_its_terminal(project: Path) -> None:
    gate = project.parent / "gate"
    check = f"touch started; while [ ! -e {gate} ]; do sleep 0.05; done"
    given = ("loop", "x", "--check", check, "--agent", "bot", "--in-place")
    running = subprocess.Popen(
        ["nohup", sys.executable, "-m", "infloop", *given],
        cwd=project,
        env=environment(project.parent),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    eventually((project / "started").exists, "the check runs")
    running.send_signal(signal.SIGHUP)
    gate.touch()
    assert running.wait(60) == 0


def is_handled(pid: int, number: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"^SigCgt:\s*(\w+)$", status, re.MULTILINE)
    return bool(found and int(found[1], 16) >> (number - 1) & 1)
