"""Records: what they accept, what they keep, and what they never show."""

from __future__ import annotations

import math
from typing import Any

import pytest

from infloop.errors import SettingsError
from infloop.model.connection import Connection, ConnectionPort
from infloop.model.nodes import LoopConfig, LoopNode, ScriptConfig
from infloop.model.problems import Report
from infloop.model.provider import Auth
from infloop.model.schema import fit
from infloop.model.type_checks import ValidationError
from infloop.model.workflow import Workflow
from infloop.settings import Settings, load_settings


def test_a_record_is_made_by_the_names_of_fields_and_read_by_the_keys_of_a_file() -> None:
    assert LoopConfig(max_iterations=3) == LoopConfig.model_validate({"maxIterations": 3})
    with pytest.raises(ValidationError, match="max_iterations"):
        LoopConfig.model_validate({"max_iterations": 3})
    with pytest.raises(ValidationError, match="nonsense"):
        LoopConfig(nonsense=1)


def test_a_record_cannot_be_changed() -> None:
    made = LoopConfig()
    with pytest.raises(AttributeError, match="immutable"):
        made.infinite = True
    with pytest.raises(AttributeError, match="immutable"):
        del made.infinite
    assert made.model_copy(update={"infinite": True}) != made
    assert len({made, LoopConfig(), LoopConfig(infinite=True)}) == 2


def test_a_default_that_can_be_changed_is_not_shared() -> None:
    ScriptConfig().inputs["left"] = "behind"
    ScriptConfig.model_validate({}).inputs["left"] = "behind"
    assert ScriptConfig().inputs == {}


def test_a_secret_is_not_in_the_text_of_a_record() -> None:
    made = Connection(label="Box", token="hunter2", ports=(ConnectionPort(port=1),))
    assert made.token == "hunter2"
    assert "hunter2" not in repr((made, Auth(token="hunter2")))
    assert "hunter2" not in repr(Settings(api_token="hunter2", data_dir="/"))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"maxIterations": "3"}, "expected a whole number, got '3'"),
        ({"maxIterations": True}, "expected a whole number, got True"),
        ({"maxIterations": 1.5}, "expected a whole number, got 1.5"),
        ({"infinite": 1}, "expected true or false, got 1"),
        ({"mode": ["x"]}, "expected text, got ['x']"),
        ({"noProgressLimit": "x"}, "expected true or false, or a whole number, got 'x'"),
        ({"noProgressLimit": 1e99}, "out of range"),
        ("text", "expected an object, got 'text'"),
        ({"maxIteration": 1}, "unknown field 'maxIteration'"),
    ],
)
def test_a_value_of_another_type_is_one_mistake_and_the_rest_is_kept(
    config: Any, message: str
) -> None:
    report = Report()
    raw = {"id": "kept", "type": "loop", "config": config}
    made = fit(LoopNode, raw, report, "nodes[0]")
    (problem,) = report.problems
    assert message in problem.message
    assert made is not None
    assert made.id == "kept"


def test_every_mistake_of_a_file_is_found() -> None:
    edges = [{"source": 1}, {"target": 2}, {"source": "a", "target": "b"}]
    with pytest.raises(ValidationError) as caught:
        Workflow.model_validate({"edges": edges, "globals": {"a": 1}, "strict": "yes", "x": 0})
    assert [mistake.loc for mistake in caught.value.mistakes] == [
        ("globals", "a"),
        ("edges", 0, "source"),
        ("edges", 1, "target"),
        ("strict",),
        ("x",),
    ]


def test_a_node_of_an_unknown_type_says_which_there_are() -> None:
    with pytest.raises(ValidationError) as caught:
        Workflow.model_validate({"nodes": [{"id": "a", "type": "teleport"}]})
    (mistake,) = caught.value.mistakes
    assert mistake.loc == ("nodes", 0, "type")
    assert "agent" in mistake.choices


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("INFLOOP_PORT", "65536"),
        ("INFLOOP_PORT", "-1"),
        ("INFLOOP_PORT", "eighty"),
        ("INFLOOP_MAX_RUN_COST_USD", "nan"),
        ("INFLOOP_MAX_RUN_COST_USD", "inf"),
        ("INFLOOP_MAX_RUN_COST_USD", "-0.01"),
        ("INFLOOP_SNAPSHOTS", "perhaps"),
        ("INFLOOP_ISOLATION", "Host"),
    ],
)
def test_a_setting_that_means_nothing_is_refused_by_its_name(variable: str, text: str) -> None:
    with pytest.raises(SettingsError, match=f"{variable} is '{text}': expected "):
        load_settings({"HOME": "/nonexistent", variable: text})


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    [
        ("INFLOOP_PORT", "8080", 8080),
        ("INFLOOP_SNAPSHOTS", "off", False),
        ("INFLOOP_SNAPSHOTS", "Yes", True),
        ("INFLOOP_MAX_RUN_COST_USD", "2", 2.0),
        ("INFLOOP_NOTIFY_COMMAND", "1", "1"),
    ],
)
def test_a_variable_is_read_as_the_type_of_its_setting(
    variable: str, text: str, value: object
) -> None:
    loaded = load_settings({"INFLOOP_DATA_DIR": "/nonexistent", variable: text})
    found = getattr(loaded, variable.removeprefix("INFLOOP_").lower())
    assert (type(found), found) == (type(value), value)
    assert math.isfinite(loaded.max_run_cost_usd)
