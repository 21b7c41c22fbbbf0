"""Runs: the list, its search and filters, and what did not become a run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from support.console import console
from support.server import Client, process, put_workflow, workflow
from support.trigger_requests import make, send

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A server where three runs have ended and one firing was refused."""
    folder = tmp_path_factory.mktemp("runs")
    put_workflow(folder / "data", workflow("quick", "echo a needle in here"))
    put_workflow(folder / "data", workflow("deploy", "echo 2 failed >&2; exit 1", strict=True))
    put_workflow(folder / "data", workflow("gone", "true"))
    with process(folder) as server:
        trigger = make(server.client, workflowId="gone", name="nightly build", inputs={})
        (folder / "data/workflows/gone.json").unlink()
        send(server.client, trigger["id"])
        for name in ("quick", "deploy", "quick"):
            server.client.run(name)
        yield server.client


def test_runs_are_found_filtered_and_compared(client: Client, browser: Browser) -> None:
    runs = client.get("/api/runs").json()["runs"]
    status = {run["workflowId"]: run["status"] for run in runs}
    short = {run["runId"]: run["runId"][:8] for run in runs}
    with console(browser, client) as tabs:
        page = tabs.open("/runs")
        table = page.get_by_role("table", name="Runs")
        for run in runs:
            name = f"{run['workflowName']} {short[run['runId']]}, {status[run['workflowId']]}"
            expect(table.get_by_role("row", name=name, exact=True)).to_have_count(1)
        expect(page.get_by_role("img", name="Outcomes per day")).to_be_visible()
        expect(page.get_by_role("img", name="Cost per day")).to_be_visible()
        refused = page.get_by_role("region", name="Held and refused")
        expect(refused).to_contain_text("nightly build did not start gone")

        page.get_by_label("Search runs").fill("needle")
        expect(table.get_by_role("row")).to_have_count(2)
        expect(table.get_by_role("row").first).to_contain_text("needle")
        assert "q=needle" in page.url
        page.get_by_label("Search runs").fill("")
        expect(table.get_by_role("row")).to_have_count(3)
        page.get_by_label("Workflow").select_option("deploy")
        expect(table.get_by_role("row")).to_have_count(1)
        page.reload()
        expect(table.get_by_role("row")).to_have_count(1)
        expect(page.get_by_label("Workflow")).to_have_value("deploy")
        page.get_by_label("Since").select_option("1h")
        expect(table.get_by_role("row")).to_have_count(1)

        page.goto(tabs.origin + "/runs")
        boxes = table.get_by_role("checkbox")
        boxes.nth(0).check()
        expect(page.get_by_role("button", name="Compare")).to_be_disabled()
        boxes.nth(1).check()
        page.get_by_role("button", name="Compare").click()
        page.wait_for_url(f"**/compare/{runs[1]['runId']}/{runs[0]['runId']}")


def test_on_a_phone_the_filters_are_in_a_sheet(client: Client, browser: Browser) -> None:
    with console(browser, client, size=(390, 844)) as tabs:
        page = tabs.open("/runs")
        expect(page.get_by_role("row")).to_have_count(3)
        page.get_by_role("button", name="Filters").click()
        sheet = page.get_by_role("dialog", name="Filters")
        sheet.get_by_label("Workflow").select_option("quick")
        sheet.get_by_role("button", name="Show").click()
        expect(page.get_by_role("row")).to_have_count(2)
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide == 390


def test_a_new_run_comes_to_the_top_by_itself(client: Client, browser: Browser) -> None:
    with console(browser, client) as tabs:
        page = tabs.open("/runs?status=succeeded")
        table = page.get_by_role("table", name="Runs")
        before = len(client.get("/api/runs?status=succeeded").json()["runs"])
        expect(table.get_by_role("row")).to_have_count(before)
        new = client.run("quick")["runId"]
        expect(table.get_by_role("row").first).to_contain_text(new[:8])
