"""The configuration of a development loop: what is read, what is refused, in which words."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from infloop.catalog.dev_files import load_dev_file
from infloop.model.dev.config import DevConfig
from infloop.model.dev.reading import ConfigError, parse_config, unknown_keys
from infloop.model.dev.template import render
from support.server import infloop

BASE = """
root = "."
[watch.content]
paths = ["content/**"]
[workflow.content]
steps = [{ action = "log", message = "changed" }]
"""


def refusal(folder: Path, text: str) -> list[str]:
    """The error and its causes."""
    (folder / "devloop.toml").write_text(text)
    with pytest.raises(ConfigError) as refused:
        load_dev_file(None, str(folder))
    return [str(refused.value), *refused.value.causes]


def loaded(folder: Path, text: str) -> DevConfig:
    (folder / "devloop.toml").write_text(text)
    return load_dev_file(None, str(folder)).config


def test_defaults_are_those_of_the_original(tmp_path: Path) -> None:
    more = '[process.p]\ncommand = ["x"]\n[hook.h]\ncommand = ["y"]\n'
    config = loaded(tmp_path, BASE + more)
    assert (config.debounce_ms, config.startup_workflows) == (250, [])
    assert config.state_path == f"{tmp_path}/.devloop/state.json"
    assert (config.watcher.kind, config.watcher.poll_interval_ms) == ("native", 250)
    assert config.event_server.bind == config.browser_reload_server.bind == "127.0.0.1:0"
    process, hook = config.process["p"], config.hook["h"]
    assert (process.autostart, process.restart, process.env) == (True, "never", {})
    assert (process.output.inherit, process.output.body_style) == (True, "plain")
    assert (hook.output.inherit, hook.output.body_style, hook.capture) == (True, "dim", None)
    assert config.workflow_of("content") == "content"


def test_paths_are_relative_to_the_file_and_not_to_where_one_stands(tmp_path: Path) -> None:
    (tmp_path / "site/deep").mkdir(parents=True)
    text = BASE.replace('root = "."', 'root = "./deep"\nstate_file = "x/s.json"')
    (tmp_path / "site/dev.toml").write_text(text)
    config = load_dev_file("site/dev.toml", str(tmp_path)).config
    assert config.root == f"{tmp_path}/site/deep"
    assert config.state_path == f"{tmp_path}/site/x/s.json"


def test_the_tables_may_be_in_infloop_toml(tmp_path: Path) -> None:
    (tmp_path / "infloop.toml").write_text(
        '[dev]\nroot = "."\n[dev.watch.a]\npaths = ["a"]\n'
        '[dev.workflow.a]\nsteps = [{ action = "notify_reload" }]\n'
    )
    assert load_dev_file(None, str(tmp_path)).config.watch["a"].paths == ["a"]


WRONG_TYPES = {
    "no root": "debounce_ms = 1",
    "a negative number": 'root = "."\ndebounce_ms = -1',
    "a float": 'root = "."\ndebounce_ms = 1.0',
    "a boolean as a number": 'root = "."\ndebounce_ms = true',
    "too large a number": f'root = "."\ndebounce_ms = {2**63 - 1}0',
    "a text as a number": 'root = "."\ndebounce_ms = "1"',
    "an unknown watcher": 'root = "."\nwatcher = { kind = "magic" }',
    "a number in env": 'root = "."\n[process.p]\ncommand = ["x"]\nenv = { PORT = 8080 }',
    "an unknown action": 'root = "."\n[workflow.w]\nsteps = [{ action = "explode" }]',
    "an unknown probe": 'root = "."\n[process.p]\ncommand = ["x"]\nreadiness = { kind = "x" }',
    "no TOML": "root = ",
    "a multi-line inline table": 'root = "."\nwatcher = {\n kind = "native"\n}',
}


@pytest.mark.parametrize("text", WRONG_TYPES.values(), ids=WRONG_TYPES)
def test_what_has_the_wrong_type_is_a_parse_error(text: str, tmp_path: Path) -> None:
    message, *causes = refusal(tmp_path, text)
    assert message == f"failed to parse config at {tmp_path}/devloop.toml"
    assert causes


def w(steps: str, triggers: str = "") -> str:
    return f"steps = [{steps}]\ntriggers = [{triggers}]\n"


def run(name: str) -> str:
    return f'{{ action = "run_workflow", workflow = "{name}" }}'


LOG = '{ action = "log", message = "x" }'
INVALID = {
    "root": ('root = "/nowhere"\n', ["config root '/nowhere' does not exist"]),
    "no group": ('root = "."\n', ["config must define at least one watch group"]),
    "no path": (
        'root = "."\n[watch.g]\npaths = []',
        ["watch group 'g' must define at least one path"],
    ),
    "group without workflow": (
        'root = "."\n[watch.g]\npaths = ["x"]',
        ["watch group 'g' references missing workflow 'g'"],
    ),
    "bad glob": (
        BASE.replace('"content/**"', '"a[b"'),
        [
            "invalid glob 'a[b' in watch group 'content'",
            "unclosed character class; missing ']'",
        ],
    ),
    "process command": (
        BASE + "[process.p]\ncommand = []",
        ["invalid process 'p'", "process command must not be empty"],
    ),
    "http url": (
        BASE + '[process.p]\ncommand = ["x"]\nreadiness = { kind = "http", url = " " }',
        ["invalid process 'p'", "http probe url must not be empty"],
    ),
    "state key": (
        BASE + '[process.p]\ncommand = ["x"]\nliveness = { kind = "state_key", key = "" }',
        ["invalid process 'p'", "state_key probe key must not be empty"],
    ),
    "rule key": (
        BASE + '[process.p]\ncommand = ["x"]\noutput = { rules = [{ state_key = "" }] }',
        ["invalid process 'p'", "output rule state_key must not be empty"],
    ),
    "dependency": (
        BASE + '[process.p]\ncommand = ["x"]\ndepends_on = ["q"]',
        ["invalid process 'p'", "process depends on missing process 'q'"],
    ),
    "dependency cycle": (
        BASE
        + '[process.p]\ncommand = ["x"]\ndepends_on = ["q"]\n'
        + '[process.q]\ncommand = ["x"]\ndepends_on = ["p"]',
        ["process dependency cycle: p -> q -> p"],
    ),
    "hook command": (
        BASE + "[hook.h]\ncommand = []",
        ["invalid hook 'h'", "hook command must not be empty"],
    ),
    "text capture": (
        BASE + '[hook.h]\ncommand = ["x"]\ncapture = "text"',
        ["invalid hook 'h'", "text capture requires state_key"],
    ),
    "observe nothing": (
        BASE + '[hook.h]\ncommand = ["x"]\nobserve = { workflow = "" }',
        ["invalid hook 'h'", "observed hook workflow must not be empty"],
    ),
    "observe always": (
        BASE + '[hook.h]\ncommand = ["x"]\nobserve = { workflow = "w", interval_ms = 0 }',
        ["invalid hook 'h'", "observed hook interval_ms must be greater than zero"],
    ),
    "observe missing": (
        BASE + '[hook.h]\ncommand = ["x"]\nobserve = { workflow = "w" }',
        ["hook 'h' observes missing workflow 'w'"],
    ),
    "event bind": (
        BASE + '[event_server]\nbind = "localhost:0"',
        ["event_server bind 'localhost:0' is not a valid socket address"],
    ),
    "reload bind": (
        BASE + '[browser_reload_server]\nbind = "127.0.0.1"',
        ["browser_reload_server bind '127.0.0.1' is not a valid socket address"],
    ),
    "poll": (
        BASE + "[watcher]\npoll_interval_ms = 0",
        ["watcher poll_interval_ms must be greater than zero"],
    ),
    "event key": (
        BASE + '[event.e]\nstate_key = ""\nworkflow = "content"',
        ["invalid event 'e'", "event state_key must not be empty"],
    ),
    "event workflow": (
        BASE + '[event.e]\nstate_key = "k"\nworkflow = ""',
        ["invalid event 'e'", "event workflow must not be empty"],
    ),
    "event missing": (
        BASE + '[event.e]\nstate_key = "k"\nworkflow = "w"',
        ["event 'e' references missing workflow 'w'"],
    ),
    "no steps": (
        BASE + "[workflow.w]\nsteps = []",
        ["invalid workflow 'w'", "workflow must contain at least one step"],
    ),
    "missing process": (
        BASE + "[workflow.w]\n" + w('{ action = "stop_process", process = "P" }'),
        ["invalid workflow 'w'", "workflow references missing process 'P'"],
    ),
    "missing hook": (
        BASE + "[workflow.w]\n" + w('{ action = "run_hook", hook = "H" }'),
        ["invalid workflow 'w'", "workflow references missing hook 'H'"],
    ),
    "missing workflow": (
        BASE + "[workflow.w]\n" + w(run("W")),
        ["invalid workflow 'w'", "workflow references missing workflow 'W'"],
    ),
    "startup": (
        'startup_workflows = ["s"]\n' + BASE,
        ["startup workflow references missing workflow 's'"],
    ),
    "recursion": (
        BASE + "[workflow.a]\n" + w(run("b")) + "[workflow.b]\n" + w(LOG, '"a"'),
        ["workflow recursion detected: b -> a -> b"],
    ),
    "the first problem wins": (
        BASE + "[hook.h]\ncommand = []\n[process.p]\ncommand = []\n[process.a]\ncommand = []",
        ["invalid process 'a'", "process command must not be empty"],
    ),
}


@pytest.mark.claim("D16")
@pytest.mark.parametrize(("text", "words"), INVALID.values(), ids=INVALID)
def test_a_configuration_is_refused_in_the_documented_words(
    text: str, words: list[str], tmp_path: Path
) -> None:
    assert refusal(tmp_path, text) == words


RESERVED = {
    "an event": '[event.e]\nstate_key = "root"\nworkflow = "content"',
    "a hook": '[hook.h]\ncommand = ["x"]\ncapture = "text"\nstate_key = "last_workflow"',
    "a rule": '[process.p]\ncommand=["x"]\noutput={rules=[{state_key="last_changed_files"}]}',
    "a step": '[workflow.w]\nsteps = [{ action = "write_state", key = "root", value = "/" }]',
}


@pytest.mark.claim("D23")
@pytest.mark.parametrize("text", RESERVED.values(), ids=RESERVED)
def test_a_key_of_the_engine_cannot_be_declared(text: str, tmp_path: Path) -> None:
    assert "is reserved" in refusal(tmp_path, BASE + text)[-1]


@pytest.mark.claim("D19")
@pytest.mark.parametrize("pattern", ["[", "(?=x)", r"(a)\\1", "x{9999999}"])
def test_a_pattern_that_cannot_be_used_fails_the_check(pattern: str, tmp_path: Path) -> None:
    event = f'[event.e]\nstate_key = "k"\nworkflow = "content"\npattern = "{pattern}"'
    message, cause, *_ = refusal(tmp_path, BASE + event)
    assert message == "invalid event 'e'"
    assert cause.startswith("invalid event regex '")


OVERLAPS = {
    "run and triggered": ({"a": (["c"], ["c"]), "c": ([], [])}, "c"),
    "through another trigger": ({"a": ([], ["b", "c"]), "b": (["c"], []), "c": ([], [])}, "c"),
    "two levels down": (
        {"a": ([], ["b", "c"]), "b": ([], ["d"]), "c": (["d"], []), "d": ([], [])},
        "d",
    ),
    "a trigger of an inline child": (
        {"a": (["b"], ["c"]), "b": ([], ["d"]), "c": ([], []), "d": ([], [])},
        "",
    ),
    "the same trigger of an inline child": (
        {"a": (["b"], ["c"]), "b": ([], ["c"]), "c": ([], [])},
        "c",
    ),
}


@pytest.mark.parametrize(("graph", "both"), OVERLAPS.values(), ids=OVERLAPS)
def test_what_runs_in_place_is_not_triggered_as_well(
    graph: dict[str, tuple[list[str], list[str]]], both: str, tmp_path: Path
) -> None:
    text = BASE
    for name, (inline, triggers) in graph.items():
        steps = ", ".join([LOG, *map(run, inline)])
        text += f"[workflow.{name}]\n" + w(steps, ", ".join(f'"{each}"' for each in triggers))
    if both:
        (message,) = refusal(tmp_path, text)
        assert message == (
            f"workflow '{both}' is reachable both as a trigger target and via run_workflow in the "
            "same execution tree"
        )
    else:
        loaded(tmp_path, text)


def test_unknown_keys_are_warnings_with_the_nearest_key() -> None:
    data = tomllib.loads(
        'root = "."\ndebounce = 1\n[process.p]\ncommand = ["x"]\nrestrt = "always"\n'
        'readiness = { kind = "http", url = "x", intervall_ms = 1 }\n'
        '[workflow.w]\nsteps = [{ action = "log", message = "x", stile = "boxed" }]\n'
    )
    parse_config(data, "here")
    assert unknown_keys(data) == [
        "unknown key debounce is ignored; did you mean 'debounce_ms'?",
        "unknown key process.p.restrt is ignored; did you mean 'restart'?",
        "unknown key process.p.readiness.intervall_ms is ignored; did you mean 'interval_ms'?",
        "unknown key workflow.w.steps.0.stile is ignored; did you mean 'style'?",
    ]


def test_a_value_is_inserted_and_never_expanded_again() -> None:
    state = {"a": "{{b}}", "b": "secret", "n": 1, "x.y-z": "dotted"}
    assert render("{{ a }}|{{a}}|{{n}}|{{none}}|{{x.y-z}}|{{ a b }}", state) == (
        "{{b}}|{{b}}|||dotted|{{ a b }}"
    )


@pytest.mark.claim("D28")
def test_validate_says_nothing_or_warns_or_refuses(tmp_path: Path) -> None:
    file = tmp_path / "devloop.toml"
    file.write_text(BASE)
    assert infloop(tmp_path, "dev", "validate").stderr == ""
    hook = '[hook.h]\ncommand = ["x"]\n[event.e]\nstate_key = "k"\nworkflow = "w"\n'
    file.write_text(BASE + hook + "[workflow.w]\n" + w('{ action = "run_hook", hook = "h" }'))
    warned = infloop(tmp_path, "dev", "validate")
    assert "event 'e' has no pattern, and its workflow 'w' runs hook 'h'" in warned.stderr
    file.write_text(BASE + "[process.p]\ncommand = []")
    refused = infloop(tmp_path, "dev", "validate", "--config", "devloop.toml", code=1)
    assert refused.stderr == (
        "Error: invalid process 'p'\n\nCaused by:\n    process command must not be empty\n"
    )
    file.unlink()
    missing = infloop(tmp_path, "dev", code=1)
    assert missing.stderr == (
        f"Error: no devloop config provided and no ./devloop.toml found in {tmp_path}\n"
    )
    infloop(tmp_path, "dev", "dance", code=2)


def test_the_schema_names_every_table(tmp_path: Path) -> None:
    printed = infloop(tmp_path, "schema", "dev").stdout
    for word in ("browser_reload_server", "poll_interval_ms", "capture_group", "stop_grace_ms"):
        assert f'"{word}"' in printed
