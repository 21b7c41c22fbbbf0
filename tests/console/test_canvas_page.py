"""The canvas: every edit by mouse and by keys, in the graph and as text, saved and not lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from support.console import Console, console
from support.eventually import eventually
from support.server import Client, process

pytestmark = pytest.mark.browser


def node(node_id: str, kind: str, x: int, y: int, **more: Any) -> dict[str, Any]:
    position = {"x": x, "y": y}
    return {"id": node_id, "type": kind, "position": position, "config": {}, **more}


def command(node_id: str, x: int, y: int, cmd: str = "true") -> dict[str, Any]:
    return node(node_id, "command", x, y, config={"cmd": cmd})


def edge(source: str, target: str, handle: str = "next") -> dict[str, str]:
    return {"source": source, "sourceHandle": handle, "target": target}


def nested(workflow_id: str) -> dict[str, Any]:
    """A loop inside a parallel, with a step outside that belongs into it."""
    loop = node(
        "fix", "loop", 30, 60, config={"maxIterations": 2}, children=[command("work", 30, 60)]
    )
    both = node("both", "parallel", 240, 40, children=[loop])
    return {
        "id": workflow_id,
        "name": workflow_id,
        "nodes": [
            node("start", "start", 0, 80),
            both,
            command("lint", 0, 260),
            node("end", "end", 640, 80),
        ],
        "edges": [edge("start", "both"), edge("both", "end", "all_done")],
    }


def chain(workflow_id: str) -> dict[str, Any]:
    steps = [command(name, 220 * at, 80) for at, name in enumerate("abc", start=1)]
    return {
        "id": workflow_id,
        "name": workflow_id,
        "nodes": [node("start", "start", 0, 80), *steps, node("end", "end", 880, 80)],
        "edges": [edge("start", "a"), edge("a", "b"), edge("b", "c"), edge("c", "end")],
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with process(tmp_path_factory.mktemp("server")) as made:
        yield made.client


def stored(client: Client, workflow_id: str) -> dict[str, Any]:
    """The workflow on the server, without what counts its versions."""
    found = client.get(f"/api/workflows/{workflow_id}").json()["workflow"]
    return {
        key: value
        for key, value in found.items()
        if key not in ("version", "updatedAt", "createdAt")
    }


def arrows(workflow: dict[str, Any]) -> set[str]:
    return {
        f"{each['source']}.{each['sourceHandle']}>{each['target']}" for each in workflow["edges"]
    }


def path_to(workflow: dict[str, Any], node_id: str) -> list[str]:
    """The containers around a node, outermost first, and itself."""

    def look(nodes: list[dict[str, Any]]) -> list[str]:
        for each in nodes:
            if each["id"] == node_id:
                return [node_id]
            if inside := look(each.get("children", [])):
                return [each["id"], *inside]
        return []

    return look(workflow["nodes"])


def opened(tabs: Console, client: Client, workflow: dict[str, Any]) -> Page:
    answer = client.post("/api/workflows", workflow)
    assert answer.status == 201, answer.body
    page = tabs.open(f"/w/{workflow['id']}")
    expect(step(page, workflow["nodes"][0]["id"])).to_be_visible()
    return page


def step(page: Page, node_id: str) -> Locator:
    return page.locator(f'[data-node="{node_id}"]')


def save(page: Page) -> None:
    page.keyboard.press("Control+s")
    expect(page.get_by_role("status", name="Saved state")).to_have_text("Saved")


def drag(page: Page, what: Locator, to: Locator, *, at: tuple[float, float]) -> None:
    """Drag by the middle of one element to a place in another, given in parts of its size."""
    start, end = what.bounding_box(), to.bounding_box()
    assert start
    assert end
    page.mouse.move(start["x"] + start["width"] / 2, start["y"] + start["height"] / 2)
    page.mouse.down()
    x, y = end["x"] + end["width"] * at[0], end["y"] + end["height"] * at[1]
    page.mouse.move(x - 20, y, steps=4)
    page.mouse.move(x, y, steps=4)
    page.mouse.up()


def test_a_step_is_dragged_into_a_loop_inside_a_parallel(server: Client, browser: Browser) -> None:
    with console(browser, server) as tabs:
        page = opened(tabs, server, nested("by-mouse"))
        drag(page, step(page, "lint"), step(page, "fix"), at=(0.5, 0.8))
        save(page)
        kept = stored(server, "by-mouse")
        assert path_to(kept, "lint") == ["both", "fix", "lint"]
        page.reload()
        expect(page.get_by_role("group", name="lint, command")).to_be_visible()
        expect(page.get_by_role("status", name="Saved state")).to_have_text("Saved")
        assert stored(server, "by-mouse") == kept
        # Out again: past the border of both frames.
        drag(
            page, step(page, "lint"), page.get_by_role("application", name="Canvas"), at=(0.5, 0.9)
        )
        save(page)
        assert path_to(stored(server, "by-mouse"), "lint") == ["lint"]


def test_the_same_by_keys_alone_and_every_edit_is_undone(server: Client, browser: Browser) -> None:
    with console(browser, server) as tabs:
        page = opened(tabs, server, nested("by-keys"))
        first = stored(server, "by-keys")
        step(page, "start").focus()
        for expected in ("both", "fix", "work", "end", "lint"):
            page.keyboard.press("Tab")
            expect(step(page, expected)).to_be_focused()
        page.keyboard.press("m")
        page.get_by_role("combobox", name="Into").fill("fix")
        page.keyboard.press("Enter")
        expect(step(page, "lint")).to_be_focused()
        # work -> lint, from a list
        page.keyboard.press("Shift+Tab")
        expect(step(page, "work")).to_be_focused()
        page.keyboard.press("c")
        page.get_by_role("combobox", name="Lead to").fill("next → lint")
        page.keyboard.press("Enter")
        expect(step(page, "work")).to_be_focused()
        page.keyboard.press("ArrowRight")
        expect(step(page, "lint")).to_be_focused()
        # One edit each: two moves with a pause would be one, so other edits stand between them.
        page.keyboard.press("Alt+ArrowDown")
        page.keyboard.press("/")
        page.get_by_role("combobox", name="Add node").fill("agent")
        page.keyboard.press("Enter")
        expect(step(page, "agent-1")).to_be_focused()
        page.keyboard.press("Control+d")
        expect(step(page, "agent-2")).to_be_visible()
        page.keyboard.press("Control+g")
        expect(step(page, "loop-1")).to_be_visible()
        page.keyboard.press("Alt+g")
        expect(step(page, "parallel-1")).to_be_visible()
        page.keyboard.press("Control+Shift+g")
        expect(step(page, "parallel-1")).to_have_count(0)
        page.keyboard.press("Delete")
        expect(step(page, "loop-1")).to_have_count(0)
        page.keyboard.press("Shift+t")
        page.keyboard.press("Control+s")
        expect(page.get_by_role("status", name="Saved state")).to_have_text("Saved")
        last = stored(server, "by-keys")
        assert path_to(last, "lint") == ["both", "fix", "lint"]
        assert {"work.next>lint", "lint.next>agent-1"} <= arrows(last)
        undo, redo = (page.get_by_role("button", name=name) for name in ("Undo", "Redo"))
        for _ in range(10):
            page.keyboard.press("Control+z")
        expect(undo).to_be_disabled()
        save(page)
        assert stored(server, "by-keys") == first
        for _ in range(10):
            page.keyboard.press("Control+Shift+z")
        expect(redo).to_be_disabled()
        save(page)
        assert stored(server, "by-keys") == last


def test_grouped_nodes_take_their_edges_along(server: Client, browser: Browser) -> None:
    with console(browser, server) as tabs:
        page = opened(tabs, server, chain("grouping"))
        before = arrows(stored(server, "grouping"))
        step(page, "a").click()
        step(page, "b").click(modifiers=["Control"])
        page.get_by_role("button", name="Group as loop").click()
        save(page)
        grouped = stored(server, "grouping")
        assert path_to(grouped, "b") == ["loop-1", "b"]
        assert arrows(grouped) == {"start.next>loop-1", "a.next>b", "loop-1.next>c", "c.next>end"}
        # One leaves: what is left stays connected, and the one that left has no edge across.
        step(page, "b").click()
        page.keyboard.press("m")
        page.get_by_role("combobox", name="Into").fill("top")
        page.keyboard.press("Enter")
        save(page)
        out = stored(server, "grouping")
        assert path_to(out, "b") == ["b"]
        assert arrows(out) == {"start.next>loop-1", "loop-1.next>c", "c.next>end"}
        page.keyboard.press("Control+z")
        step(page, "loop-1").click(position={"x": 60, "y": 12})
        page.get_by_role("button", name="Ungroup").click()
        save(page)
        assert arrows(stored(server, "grouping")) == before
        # An edge by mouse replaces what its handle led to.
        source = step(page, "a").locator('[data-handleid="next"]')
        drag(page, source, step(page, "c").locator('[data-handleid="in"]'), at=(0.5, 0.5))
        save(page)
        assert "a.next>c" in arrows(stored(server, "grouping"))


def test_nodes_go_to_another_workflow_as_text(server: Client, browser: Browser) -> None:
    with console(browser, server) as tabs:
        text = chain("copy-from")
        text["nodes"][2]["config"]["cmd"] = "echo {{a.stdout}} {{inputs.x}}"
        page = opened(tabs, server, text)
        step(page, "a").click()
        step(page, "b").click(modifiers=["Control"])
        page.keyboard.press("Control+c")
        copied = json.loads(page.evaluate("navigator.clipboard.readText()"))
        assert copied["infloop"] == "nodes"
        assert [each["id"] for each in copied["nodes"]] == ["a", "b"]
        other = opened(tabs, server, chain("copy-to"))
        other.get_by_role("application", name="Canvas").click(position={"x": 40, "y": 600})
        other.keyboard.press("Control+v")
        expect(step(other, "b-2")).to_be_visible()
        save(other)
        kept = stored(server, "copy-to")
        assert "a-2.next>b-2" in arrows(kept)
        pasted = next(each for each in kept["nodes"] if each["id"] == "b-2")
        assert pasted["config"]["cmd"] == "echo {{a-2.stdout}} {{inputs.x}}"


def test_text_and_graph_are_one_document(server: Client, browser: Browser) -> None:
    with console(browser, server) as tabs:
        page = opened(tabs, server, chain("as-text"))
        page.get_by_role("button", name="Split").click()
        editor = page.get_by_role("textbox", name="Workflow text")
        expect(editor).to_be_visible()
        changed = stored(server, "as-text")
        changed["nodes"].append(command("typed", 220, 260, "echo typed"))
        retype(page, editor, json.dumps(changed))
        expect(step(page, "typed")).to_be_visible()
        retype(page, editor, json.dumps(changed)[:-1] + ",\n oops")
        expect(page.get_by_role("alert")).to_contain_text("Line 2")
        expect(page.get_by_role("alert")).to_contain_text("as it was")
        expect(step(page, "typed")).to_be_visible()
        page.get_by_role("button", name="Discard text").click()
        expect(page.get_by_role("alert")).to_have_count(0)
        page.get_by_role("combobox", name="Language").select_option("yaml")
        expect(editor).to_contain_text("echo typed")
        retype(page, editor, "name: From YAML\nsteps:\n  - command: echo yaml\n    id: said\n")
        expect(step(page, "said")).to_be_visible()
        page.get_by_role("button", name="Undo").click()
        expect(step(page, "typed")).to_be_visible()


def retype(page: Page, editor: Locator, text: str) -> None:
    editor.click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)


def test_a_problem_is_on_its_node_until_it_is_fixed(server: Client, browser: Browser) -> None:
    with console(browser, server) as tabs:
        broken = chain("problems")
        broken["nodes"][2]["config"]["cmd"] = ""
        page = opened(tabs, server, broken)
        expect(page.get_by_role("group", name="b, command, 1 problem")).to_be_visible()
        page.get_by_role("button", name="1 problem").click()
        expect(page.get_by_role("region", name="Problems")).to_contain_text("is empty")
        page.keyboard.press("F8")
        expect(step(page, "b")).to_be_focused()
        page.keyboard.press("Enter")
        settings = page.get_by_role("complementary", name="Node settings")
        expect(settings.get_by_text("is empty")).to_be_visible()
        # Nothing is saved by itself while there is an error.
        step(page, "a").click()
        page.keyboard.press("Alt+ArrowDown")
        expect(page.get_by_role("status", name="Saved state")).to_have_text("Draft")
        step(page, "b").click()
        field = settings.get_by_role("textbox", name="Command", exact=True)
        field.click()
        page.keyboard.insert_text("make test")
        expect(page.get_by_role("group", name="b, command", exact=True)).to_be_visible()
        expect(page.get_by_role("button", name="0 problems")).to_be_visible()
        # And now it is, without being asked.
        eventually(lambda: "make test" in json.dumps(stored(server, "problems")))
        expect(page.get_by_role("status", name="Saved state")).to_have_text("Saved")


def test_two_tabs_lose_nothing(server: Client, browser: Browser) -> None:
    with console(browser, server, expected=["409"]) as tabs:
        one = opened(tabs, server, chain("conflict"))
        other = tabs.open("/w/conflict")
        expect(step(other, "a")).to_be_visible()
        configure(one, "a", "echo one")
        configure(one, "b", "echo mine")
        save(one)
        configure(other, "c", "echo other")
        configure(other, "b", "echo theirs")
        other.keyboard.press("Control+s")
        asked = other.get_by_role("dialog")
        expect(asked).to_contain_text("saved while you edited")
        expect(asked.get_by_role("button", name="Save as copy")).to_be_visible()
        expect(asked.get_by_role("group")).to_have_count(1)
        asked.get_by_role("group", name="b").get_by_role("radio", name="Mine").check()
        asked.get_by_role("button", name="Merge and save").click()
        expect(other.get_by_role("status", name="Saved state")).to_have_text("Saved")
        found = {
            each["id"]: each["config"].get("cmd") for each in stored(server, "conflict")["nodes"]
        }
        assert (found["a"], found["b"], found["c"]) == ("echo one", "echo theirs", "echo other")


def configure(page: Page, node_id: str, cmd: str) -> None:
    step(page, node_id).click()
    settings = page.get_by_role("complementary", name="Node settings")
    field = settings.get_by_role("textbox", name="Command", exact=True)
    field.click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(cmd)
    expect(field).to_contain_text(cmd)


def test_a_draft_survives_the_server(tmp_path: Path, browser: Browser) -> None:
    with process(tmp_path) as first:
        port = first.client.port
        with console(browser, first.client, expected=["ERR_CONNECTION", "Failed to load"]) as tabs:
            page = opened(tabs, first.client, chain("draft"))
            configure(page, "b", "echo typed before")
            first.process.kill()
            first.process.wait()
            configure(page, "b", "echo not lost")
            page.keyboard.press("Control+s")
            expect(page.get_by_role("status", name="Saved state")).to_contain_text("server away")
            with process(tmp_path, port=str(port)) as second:
                page.reload()
                expect(page.get_by_text("Your unsaved work is here again.")).to_be_visible()
                expect(step(page, "b")).to_contain_text("echo not lost")
                save(page)
                assert "echo not lost" in json.dumps(stored(second.client, "draft"))


def test_the_overview_leads_to_what_is_out_of_sight(server: Client, browser: Browser) -> None:
    with console(browser, server) as tabs:
        wide = chain("wide")
        wide["nodes"][-1]["position"]["x"] = 4_000
        page = opened(tabs, server, wide)
        overview = page.get_by_role("img", name="Overview")
        expect(overview).to_have_count(0)
        # From far away nodes have no handles, and their edges are drawn all the same.
        expect(page.locator("[data-far]")).to_be_visible()
        expect(page.locator(".react-flow__edge-path")).to_have_count(len(wide["edges"]))
        for _ in range(8):
            page.get_by_role("button", name="Zoom in").click()
        expect(step(page, "end")).to_have_count(0)
        box = overview.bounding_box()
        assert box
        overview.click(position={"x": box["width"] - 8, "y": box["height"] / 2})
        expect(step(page, "end")).to_be_in_viewport()
        expect(step(page, "start")).to_have_count(0)


def test_a_workflow_is_not_painted_by_the_run_of_another(server: Client, browser: Browser) -> None:
    with console(browser, server) as tabs:
        assert server.post("/api/workflows", chain("painted")).status == 201
        page = opened(tabs, server, chain("unpainted"))
        other = tabs.open("/w/painted")
        other.get_by_role("button", name="Run", exact=True).click()
        other.wait_for_url("**/r/**")
        expect(other.get_by_role("status", name="Run state")).to_contain_text("succeeded")
        # Its own graph has the states; the other has none, although its nodes have the same ids.
        run_id = other.url.rpartition("/r/")[2].partition("?")[0]
        other.goto(f"{tabs.origin}/w/painted?run={run_id}")
        expect(other.get_by_role("group", name="b, command, succeeded")).to_be_visible()
        expect(page.get_by_role("group", name="b, command", exact=True)).to_be_visible()
        assert page.locator("[data-node][data-tone]").count() == 0
        # Not even if its address names the run.
        page.goto(f"{tabs.origin}/w/unpainted?run={run_id}")
        expect(page.get_by_role("group", name="b, command", exact=True)).to_be_visible()
        page.wait_for_load_state("networkidle")
        assert page.locator("[data-node][data-tone]").count() == 0


def test_a_node_type_that_only_the_catalog_knows(server: Client, browser: Browser) -> None:
    weather = {
        "type": "weather",
        "title": "Weather",
        "description": "Says how the weather is.",
        "group": "Scripts",
        "stamp": "WTH",
        "container": False,
        "runs": True,
        "isStart": False,
        "isEnd": False,
        "givesVerdict": False,
        "summary": ["city"],
        "variants": [],
        "handles": ["sunny", "rainy", "error"],
        "handlesBy": None,
        "outputs": {"degrees": "How warm it is."},
        "new": {"id": "", "type": "weather", "config": {"city": "Bern"}},
        "config": {
            "type": "object",
            "properties": {"city": {"type": "string", "title": "City", "description": "Where."}},
        },
    }
    with console(browser, server) as tabs:
        catalog = server.get("/api/catalog").json()
        catalog["nodes"].append(weather)
        tabs.context.route("**/api/catalog", lambda route: route.fulfill(json=catalog))
        page = opened(tabs, server, chain("made-up"))
        page.keyboard.press("/")
        page.get_by_role("combobox", name="Add node").fill("weath")
        page.keyboard.press("Enter")
        drawn = page.get_by_role("group", name="weather-1, weather")
        expect(drawn).to_contain_text("WTH")
        expect(drawn).to_contain_text("Bern")
        expect(drawn).to_contain_text("sunny")
        settings = page.get_by_role("complementary", name="Node settings")
        settings.get_by_role("textbox", name="City").fill("Oslo")
        expect(drawn).to_contain_text("Oslo")
        page.keyboard.press("Control+s")
        eventually(lambda: "Oslo" in json.dumps(stored(server, "made-up")))
