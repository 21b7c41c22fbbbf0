"""No page leads a browser where it may not go, whichever way the browser runs."""

from __future__ import annotations

import json
from ipaddress import ip_address

import pytest

from infloop.lowlevel.own_ports import OwnPorts
from infloop.model.agent_config import EgressRule
from infloop.policy.browser_hosts import BrowserHosts, websockets_are_open
from infloop.policy.hosts import Allowlist, parse_rules
from infloop.tools.base import ToolError
from infloop.tools.browser.request_guard import RequestGuard
from infloop.tools.browser.session import OwnServerRefused
from support.browsers import BrowserBench, browser_bench
from support.eventually import eventually_async
from support.thorough import FACTOR
from support.web_site import SCRIPT, Site, web_site

backends = pytest.mark.parametrize("backend", ["sandbox", "endpoint"])

# How pages ask for something at {to}. The page itself stays what it is.
PARTS = {
    "image": "<img src={to}/image>",
    "frame": "<iframe src={to}/frame></iframe>",
    "script": "<script src={to}/script></script>",
    "style": "<link rel=stylesheet href={to}/style>",
    "prefetch": "<link rel=prefetch href={to}/prefetch>",
    "image by redirect": "<img src=/to/image-by-redirect>",
    "fetch": "<script>fetch('{to}/fetch', {{mode: 'no-cors'}}).catch(() => 0)</script>",
    "fetch by redirect": "<script>fetch('/to/fetch-by-redirect').catch(() => 0)</script>",
    "post": "<script>fetch('{to}/post', {{mode: 'no-cors', method: 'POST', body: 'x'}})"
    ".catch(() => 0)</script>",
    "beacon": "<script>navigator.sendBeacon('{to}/beacon', 'x')</script>",
    "events": "<script>new EventSource('{to}/events')</script>",
    "worker": "<script>new Worker('/worker.js')</script>",
    "shared worker": "<script>new SharedWorker('/shared.js')</script>",
    "worker from a blob": "<script>new Worker(URL.createObjectURL(new Blob(["
    "`fetch('{to}/from-blob', {{mode: 'no-cors'}}).catch(() => 0)`])))</script>",
}
ASKS = {
    *("/image", "/frame", "/script", "/style", "/prefetch", "/image-by-redirect", "/fetch"),
    *("/fetch-by-redirect", "POST /post", "POST /beacon", "/events", "/from-worker"),
    *("/from-shared", "/from-blob"),
}
# How a page becomes another one.
MOVES = {
    "redirect": "location:{to}/moved",
    "refresh": "<meta http-equiv=refresh content='0;url={to}/moved'>",
    "location": "<script>location = '{to}/moved'</script>",
    "form": "<form action={to}/moved></form><script>document.forms[0].submit()</script>",
}


def worker(to: str, path: str) -> str:
    return f"{SCRIPT}fetch('{to}{path}', {{mode: 'no-cors'}}).catch(() => 0)"


def make_pages(site: Site, to: str) -> None:
    site.pages = {
        "/": "<title>start</title>",
        "/parts": "<title>parts</title>" + "".join(PARTS.values()).format(to=to),
        "/worker.js": worker(to, "/from-worker"),
        "/shared.js": worker(to, "/from-shared"),
        "/to/image-by-redirect": f"location:{to}/image-by-redirect",
        "/to/fetch-by-redirect": f"location:{to}/fetch-by-redirect",
        "/links": f"<title>links</title><a href={to}/moved>go there</a>"
        f"<form action={to}/moved><input id=box></form>",
        "/pushed": "<title>pushed</title>",
        **{f"/{name}": page.format(to=to) for name, page in MOVES.items()},
    }


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.claim("L20", "L22", "L23", "L25", "L27", "L32", "L33")
@backends
async def test_no_page_leads_to_a_private_address(backend: str) -> None:
    with web_site() as site, web_site() as canary:
        here, there = f"http://site.test:{site.port}", f"http://inner.test:{canary.port}"
        make_pages(site, there)
        async with browser_bench(backend) as bench:
            for url in (there, f"http://127.0.0.1:{canary.port}", f"http://[::1]:{canary.port}"):
                assert await bench.code("navigate", url=f"{url}/") == "private-address"
            await bench.text("navigate", url=f"{here}/", allow_private=True)
            assert "parts" in await bench.text("navigate", url=f"{here}/parts")
            await eventually_async(lambda: {"/shared.js", "/worker.js"} <= set(site.asked))
            await _settle(bench)
            for name in MOVES:
                code = await bench.code("navigate", url=f"{here}/{name}")
                code = code or await bench.code("wait_for", text="moved", timeout_ms=200)
                assert code in ("private-address", "unknown-address"), name
                assert await bench.code("read_page"), name
                assert await bench.code("screenshot"), name
                assert await bench.code("type", selector="body", text="x"), name
            await _by_hand(bench, here, "private-address")
            assert canary.asked == []
            if FACTOR or backend == "endpoint":
                await _gets_there_where_it_may(bench, here, there, canary)


async def _gets_there_where_it_may(
    bench: BrowserBench, here: str, there: str, canary: Site
) -> None:
    """Open the same pages: what refused them were the rules."""
    await bench.text("navigate", url=f"{there}/", allow_private=True)
    await bench.text("navigate", url=f"{here}/parts")
    await eventually_async(lambda: set(canary.asked) >= ASKS)
    for name in MOVES:
        canary.paths()
        await bench.text("navigate", url=f"{here}/{name}")
        await eventually_async(lambda: "/moved" in canary.asked)
    canary.paths()
    await _by_hand(bench, here, "")


async def _by_hand(bench: BrowserBench, here: str, expected: str) -> None:
    """Go to the other site by click, by key, by script and by history."""
    await bench.text("navigate", url=f"{here}/links")
    assert await bench.code("click", selector="go there") == expected
    await bench.text("navigate", url=f"{here}/links")
    assert await bench.code("press_key", key="Enter", selector="#box") == expected
    await bench.text("navigate", url=f"{here}/links")
    there = "document.querySelector('a').href"
    assert await bench.code("run_js", expression=f"location = {there}") == expected


async def _settle(bench: BrowserBench) -> None:
    await bench.text("run_js", expression="new Promise(done => setTimeout(done, 300))")


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.claim("L20", "L23")
@backends
async def test_rules_hold_for_each_request_also_inside_of_tls(backend: str) -> None:
    with web_site(tls=True) as site:
        here = f"https://far.test:{site.port}"
        allowed = EgressRule(
            host="far.test",
            tool="browser_navigate",
            ports=(site.port,),
            path_prefix="/ok",
            methods=("GET",),
        )
        site.pages = {
            "/ok": "<title>ok</title><img src=/secret><img src=/ok/r><img src=/ok/fine>"
            "<img src=/okay><img src=//other.test/ok><a href=/secret>leave</a>"
            "<form action=/ok/post method=post><button>send</button></form>"
            f"<script>new WebSocket('wss://far.test:{site.port}/ok/socket')</script>"
            "<script>navigator.serviceWorker.register('/ok/service.js').catch(() => 0)</script>",
            "/ok/r": "location:/secret",
            "/ok/moved": "location:/secret",
            "/ok/pushed": "<script>history.pushState(0, '', '/secret')</script>",
            "/ok/service.js": SCRIPT,
        }
        switches = ("--ignore-certificate-errors",)
        async with browser_bench(backend, egress=[allowed], switches=switches) as bench:
            await bench.text("navigate", url=f"{here}/ok", allow_private=True)
            await eventually_async(lambda: "/ok/fine" in site.asked)
            await _settle(bench)
            for path in ("/secret", "/okay", "/ok/../secret", "/ok/%2e%2e/secret", "/ok/moved"):
                assert await bench.code("navigate", url=f"{here}{path}") == "egress-refused", path
            await bench.text("navigate", url=f"{here}/ok")
            assert await bench.code("click", selector="leave") == "egress-refused"
            await bench.text("navigate", url=f"{here}/ok")
            assert await bench.code("click", selector="send") == "egress-refused"
            assert await bench.code("navigate", url=f"{here}/ok/pushed") == "egress-refused"
            assert await bench.code("read_page") == "egress-refused"
            assert await bench.code("navigate", url=f"http://far.test:{site.port}/ok")
        assert {"/ok", "/ok/fine", "/ok/r", "/ok/moved", "/ok/pushed"} == site.paths()
        assert site.upgraded == []
        details = [entry.details.get("detail", "") for entry in bench.audit.entries]
        assert any("no egress rule for path '/secret'" in str(each) for each in details)

        everything = EgressRule(host="far.test", ports=(site.port,))
        async with browser_bench(backend, egress=[everything], switches=switches) as bench:
            await bench.text("navigate", url=f"{here}/ok", allow_private=True)
            await eventually_async(lambda: {"/secret", "/okay"} <= set(site.asked))
            # A whole host is open, so its WebSockets are; service workers never are.
            await eventually_async(lambda: site.upgraded == ["/ok/socket"])
            assert await bench.code("click", selector="send") == ""
            assert "POST /ok/post" in site.asked
            assert "/ok/service.js" not in site.asked


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.claim("L26", "L33")
async def test_a_page_without_a_web_address_is_not_used() -> None:
    # What a script of the page says about its address does not count.
    liar = "<script>JSON.stringify = () => 0; Object.defineProperty(document, 'URL', {value: 'x'})"
    blank = "<body><script>function leave(where) { location = where }</script><input id=box>"
    with web_site() as site:
        here = f"http://site.test:{site.port}"
        site.pages = {"/": f"{liar}</script>{blank}"}
        async with browser_bench("sandbox") as bench:
            for address in ("about:blank", "blob"):
                said = await bench.text("navigate", url=f"{here}/", allow_private=True)
                assert f"url: {here}/" in said
                where = json.dumps(address)
                if address == "blob":
                    where = "URL.createObjectURL(new Blob(['text'], {type: 'text/html'}))"
                await bench.code("run_js", expression=f"leave({where})")
                for tool, arguments in (
                    ("read_page", {}),
                    ("screenshot", {}),
                    ("type", {"selector": "#box", "text": "x"}),
                    ("press_key", {"key": "a"}),
                    ("click", {"selector": "body"}),
                    ("scroll", {}),
                    ("run_js", {"expression": "1"}),
                    ("wait_for", {"text": "x"}),
                ):
                    assert await bench.code(tool, **arguments) == "unknown-address", (address, tool)


@pytest.mark.parametrize(
    ("rule", "is_open"),
    [
        ({}, True),
        ({"methods": ("get", "POST")}, True),
        ({"methods": ("POST",)}, False),
        ({"path_prefix": "/a"}, False),
        ({"schemes": ("https",)}, False),
        ({"schemes": ("https", "wss")}, True),
        ({"tool": "web_fetch", "path_prefix": "/a"}, True),
    ],
)
def test_websockets_are_open_where_the_host_says_everything(
    rule: dict[str, object], *, is_open: bool
) -> None:
    listed = EgressRule(host="a.test", **rule)  # type: ignore[arg-type]
    assert websockets_are_open([EgressRule(host="b.test"), listed]) is is_open


@pytest.mark.parametrize(
    ("method", "url", "is_page", "code"),
    [
        ("GET", "https://a.test/docs/x", True, ""),
        ("GET", "https://a.test/docs-evil/x", True, "egress-refused"),
        ("POST", "https://a.test/docs/x", False, "egress-refused"),
        ("GET", "https://b.test/", False, "egress-refused"),
        ("GET", "file:///etc/passwd", True, "unknown-address"),
        ("GET", "chrome://version", True, "unknown-address"),
        ("GET", "", True, "unknown-address"),
        ("GET", "data:text/html,x", False, ""),
        ("GET", "data:text/html,x", True, "unknown-address"),
        ("GET", "blob:https://a.test/1", True, "unknown-address"),
        ("GET", "https://private.test/", False, "private-address"),
    ],
)
async def test_each_request_is_judged_before_it_is_sent(
    method: str, url: str, *, is_page: bool, code: str
) -> None:
    async def lookup(name: str) -> list[str]:
        return ["10.0.0.1" if name == "private.test" else "93.184.216.34"]

    rules = [
        EgressRule(host="a.test", path_prefix="/docs", methods=("GET",)),
        EgressRule(host="private.test"),
    ]
    guard = RequestGuard(rules, BrowserHosts(rules), lookup)
    if not code:
        await guard.check_request(method, url, is_page=is_page)
        return
    with pytest.raises(ToolError) as refused:
        await guard.check_request(method, url, is_page=is_page)
    assert refused.value.code == code


def test_the_proxy_of_a_browser_opens_only_the_hosts_of_its_rules() -> None:
    rules = [
        EgressRule(host="a.test", path_prefix="/x", methods=("POST",)),
        EgressRule(host="b.test", schemes=("http",), ports=(8080,)),
        EgressRule(host="c.test", tool="web_fetch"),
        EgressRule(host="d.test", schemes=("wss",)),
    ]
    hosts = BrowserHosts(rules)
    assert hosts.judge("a.test", 443, "https").allowed
    assert hosts.judge("b.test", 8080, "http").allowed
    assert hosts.judge("d.test", 443, "https").allowed
    for host, port, scheme in [
        ("a.test", 80, "http"),
        ("a.test", 444, "https"),
        ("b.test", 8080, "https"),
        ("c.test", 443, "https"),
        ("e.test", 443, "https"),
    ]:
        assert not hosts.judge(host, port, scheme).allowed, host  # type: ignore[arg-type]
    assert BrowserHosts([]).judge("e.test", 443, "https").allowed


def test_a_browser_reaches_only_hosts_that_its_run_and_its_rules_list() -> None:
    listed = parse_rules("the workflow", ["a.test", "*.b.test:8443", "127.0.0.1:80"])
    run = Allowlist((listed,), parse_rules("the operator", ["evil.b.test", "93.184.216.34"]))
    for rules in ([], [EgressRule(host="a.test"), EgressRule(host="x.b.test", ports=(8443,))]):
        hosts = BrowserHosts(rules, run)
        assert hosts.judge("a.test", 443, "https").allowed
        assert hosts.judge("x.b.test", 8443, "https").allowed
        assert not hosts.judge("a.test", 8443, "https").allowed
        assert not hosts.judge("c.test", 443, "https").allowed
        assert not hosts.judge("evil.b.test", 8443, "https").allowed
    # What the run lists does not open what the rules or the browser close.
    assert not BrowserHosts([EgressRule(host="c.test")], run).judge("a.test", 443, "https").allowed
    assert "loopback" in hosts.refuse_address("127.0.0.1", 80, ip_address("127.0.0.1"))
    hosts.permit_private("127.0.0.1", 80)
    assert hosts.refuse_address("127.0.0.1", 80, ip_address("127.0.0.1")) == ""
    assert "denied" in hosts.refuse_address("a.test", 443, ip_address("93.184.216.34"))


async def test_a_browser_never_reaches_a_server_of_infloop() -> None:
    hosts = OwnServerRefused([])
    hosts.permit_private("localhost", 8123)
    assert hosts.refuse_address("localhost", 8123, ip_address("127.0.0.1")) == ""
    with OwnPorts() as own:
        own.announce(8123)
        refused = hosts.refuse_address("localhost", 8123, ip_address("127.0.0.1"))
        assert refused == "localhost is a server of infloop"


def test_what_was_permitted_is_forgotten_on_a_page_of_somebody_else() -> None:
    hosts = BrowserHosts([])

    def refused(address: str, port: int = 80) -> str:
        return hosts.refuse_address("a.test", port, ip_address(address))

    assert "loopback" in refused("127.0.0.1")
    hosts.permit_private("a.test", 80)
    hosts.permit_private("b.test", 80)
    assert refused("127.0.0.1") == refused("10.0.0.1") == ""
    assert refused("127.0.0.1", 81)
    assert "metadata" in refused("169.254.169.254")
    hosts.entered("b.test", 80)
    assert refused("127.0.0.1") == ""
    hosts.entered("stranger.test", 80)
    assert "loopback" in refused("127.0.0.1")
