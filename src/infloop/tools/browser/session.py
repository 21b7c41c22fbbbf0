"""One open browser: its link, its page, and the guard over its requests.

Rules
  * The browser pauses before every request and asks; without an answer it waits for ever.
  * Before content of a page is returned, and before anything is typed into it, the address of the
    page is checked.
  * What was permitted on a private network is forgotten when the page becomes a public one.
  * Service workers, downloads and other windows are refused: their requests could come when nobody
    looks.
  * When the browser ends, by itself or by us, the next call says so; nothing of it is left.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from infloop.egress.resolve import SystemLookup
from infloop.lowlevel.own_ports import is_own_port
from infloop.lowlevel.uncancelled import run_uncancelled
from infloop.policy.browser_hosts import BrowserHosts, websockets_are_open
from infloop.policy.egress_rules import parse_request_url
from infloop.tools.base import ToolError
from infloop.tools.browser.chromium import ChromiumLink
from infloop.tools.browser.devtools import DevTools
from infloop.tools.browser.endpoint import EndpointLink
from infloop.tools.browser.page import Page
from infloop.tools.browser.request_guard import RequestGuard

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from infloop.egress.reports import Decision
    from infloop.policy.addresses import Address
    from infloop.sandbox.base import Sandbox
    from infloop.tools.browser.devtools import Params
    from infloop.tools.browser.links import BrowserOptions, Link

_START_S = 30.0
_LOAD_S = 30.0
_WINDOW_S = 1.0
_MAX_UNOPENED = 5
_MAX_URL = 2000
_NOWHERE = "127.0.0.1:9"
"""Where closed WebSockets are sent: nobody listens on the discard port."""


class OwnServerRefused(BrowserHosts):
    """Refuses the servers of infloop, which would take our requests for those of their user."""

    def refuse_address(self, host: str, port: int, address: Address) -> str:
        if is_own_port(address, port):
            return f"{host} is a server of infloop"
        return super().refuse_address(host, port, address)


class Session:
    """A browser with one page. It starts with the first page; its owner must close it."""

    def __init__(self, sandbox: Sandbox, options: BrowserOptions) -> None:
        self._hosts = OwnServerRefused(options.rules, options.hosts)
        self._lookup = options.lookup or SystemLookup()
        self._guard = RequestGuard(options.rules, self._hosts, self._lookup, options.hosts)
        self._websockets = websockets_are_open(options.rules)
        self._report = options.on_decision
        options = replace(options, on_decision=self._on_decision)
        self._link: Link = (
            EndpointLink(self._hosts, options)
            if options.cdp_url
            else ChromiumLink(sandbox, self._hosts, options)
        )
        self._devtools = DevTools(self._link.send, self._on_event)
        self._running: asyncio.Task[None] | None = None
        self._answers: set[asyncio.Task[None]] = set()
        self._page: Page | None = None
        self._refusals: dict[str, ToolError] = {}
        self._refused_places: dict[tuple[str, int], str] = {}
        self._context = ""
        self._windows: dict[str, asyncio.Event] = {}
        self._unopened: list[str] = []
        self.last_url = ""
        self.ended = ""

    @property
    def page(self) -> Page:
        """The page."""
        assert self._page is not None
        return self._page

    @property
    def is_open(self) -> bool:
        """Whether there is a page."""
        return self._page is not None

    async def _open(self) -> None:
        """Start the browser; ToolError if that fails, and then nothing of it is left."""
        self._running = asyncio.create_task(self._run())
        try:
            await self._prepare()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End the browser with everything that belongs to it."""
        await run_uncancelled(self._close())

    async def _close(self) -> None:
        self._devtools.end("the browser is closed")
        if self._running is not None:
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running
        for answer in list(self._answers):
            answer.cancel()
        if isinstance(self._lookup, SystemLookup):
            self._lookup.close()

    async def _run(self) -> None:
        reason = "the browser is closed"
        try:
            reason = await self._link.run(self._devtools.received)
        finally:
            self.ended = reason
            self._devtools.end(reason)

    async def _prepare(self) -> None:
        call = self._devtools.call
        await call("Browser.getVersion", timeout_s=_START_S)
        await call("Fetch.enable", patterns=[{"urlPattern": "*"}], handleAuthRequests=True)
        context = await call(
            "Target.createBrowserContext",
            proxyServer=self._proxy_rules(),
            proxyBypassList="<-loopback>",
            disposeOnDetach=True,
        )
        self._context = own = str(context["browserContextId"])
        await call("Browser.setDownloadBehavior", behavior="deny", browserContextId=own)
        made = await call("Target.createTarget", url="about:blank", browserContextId=own)
        target = str(made["targetId"])
        attached = await call("Target.attachToTarget", targetId=target, flatten=True)
        self._page = Page(self._devtools, target, str(attached["sessionId"]))
        await call("Target.setDiscoverTargets", discover=True)
        await self._page.call("Page.enable")

    def _proxy_rules(self) -> str:
        """Return where connections go. Only WebSockets use what is listed as `socks`."""
        proxy = self._link.proxy
        websockets = "" if self._websockets else f";socks={_NOWHERE}"
        return f"http={proxy};https={proxy}{websockets}"

    # -- what is done with the page ----------------------------------------------------------------

    def permit_private(self, url: str) -> None:
        """Allow the host and port of a URL, although its address may be private."""
        place = parse_request_url(url)
        self._hosts.permit_private(place.host, place.port)

    async def navigate(self, url: str) -> str:
        """Open a page; return a description of it. The browser starts if the page is allowed."""
        await self._guard.check_request("GET", url, is_page=True)
        if self._page is None:
            await self._open()
        page = self.page
        self._forget()
        page.loading = True
        answer = await page.call("Page.navigate", url=url, timeout_s=_LOAD_S)
        if answer.get("errorText") or answer.get("isDownload"):
            page.loading = False
            raise self._refusals.get(page.target) or ToolError(
                "navigation-failed", f"the page cannot be opened: {answer.get('errorText')}"
            )
        if not answer.get("loaderId"):  # only the fragment is another one
            page.loading = False
        await page.settle(_LOAD_S)
        return await self.describe()

    async def back(self) -> str:
        """Return to the page before; return a description of it."""
        entry, url = await self.page.history()
        if not entry or url == "about:blank":
            raise ToolError("no-history", "there is no page before this one")
        await self._guard.check_page(url)
        self._forget()
        await self.page.call("Page.navigateToHistoryEntry", entryId=entry)
        await self.page.settle()
        return await self.describe()

    async def check_current(self) -> tuple[str, str]:
        """Return the address and title of the page; ToolError if its content must not be used."""
        if refusal := self._refusals.get(self.page.target):
            raise refusal
        url, title = await self.page.place()
        await self._guard.check_page(url)
        place = parse_request_url(url)
        if reason := self._refused_places.get((place.host, place.port)):
            raise ToolError("egress-refused", f"the page is not used: {reason}")
        self.last_url = str(place)
        return url, title

    async def act(self) -> str:
        """Wait for what an action has caused; return a description of the page."""
        await self.page.settle()
        return await self.describe()

    async def describe(self) -> str:
        """Return the title and address of the page, and which windows it wanted to open."""
        url, title = await self.check_current()
        unopened, self._unopened = self._unopened[:_MAX_UNOPENED], []
        more = "".join(f"\nnot opened in a new window: {each}" for each in unopened)
        return f"title: {title}\nurl: {url}{more}"

    def _forget(self) -> None:
        self._refusals.clear()
        self._refused_places.clear()
        self._unopened.clear()

    # -- what the browser says ---------------------------------------------------------------------

    def _on_decision(self, decision: Decision) -> None:
        # The browser sends the token when it is asked for it.
        if decision.verdict == "refused" and decision.host and decision.cause != "token":
            self._refused_places[decision.host, decision.port] = decision.reason
        self._report(decision)

    def _on_event(self, method: str, params: Params) -> None:
        match method:
            case "Fetch.requestPaused":
                self._answer(self._judge(params))
            case "Fetch.authRequired":
                self._answer(self._authenticate(params))
            case "Page.javascriptDialogOpening":
                self._answer(self._close_dialog(params))
            case "Target.targetCreated":
                self._on_target(params.get("targetInfo") or {})
            case _ if self._page is not None:
                self._page.on_event(method, params)

    def _answer(self, answer: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(answer)
        self._answers.add(task)
        task.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._answers.discard(task)
        if not task.cancelled():
            task.exception()  # a browser that gets no answer does not continue

    async def _judge(self, params: Params) -> None:
        """Let one request continue, or fail it."""
        request, frame = params.get("request") or {}, str(params.get("frameId") or "")
        url, method = str(request.get("url") or ""), str(request.get("method") or "")
        is_page = params.get("resourceType") == "Document"
        try:
            self._refuse_unseen(request, frame, url)
            await self._guard.check_request(method, url, is_page=is_page)
        except ToolError as error:
            if is_page:
                self._refusals[frame] = error
            await self._devtools.call(
                "Fetch.failRequest", requestId=params["requestId"], errorReason="BlockedByClient"
            )
        else:
            if is_page and self._page is not None and frame == self._page.target:
                place = parse_request_url(url)
                self._hosts.entered(place.host, place.port)
            await self._devtools.call("Fetch.continueRequest", requestId=params["requestId"])

    def _refuse_unseen(self, request: Params, frame: str, url: str) -> None:
        """Raise ToolError for a request of a service worker or of another window."""
        names = {str(name).lower() for name in request.get("headers") or {}}
        if "service-worker" in names:
            raise ToolError("service-worker", "service workers are refused")
        if frame in self._windows:
            self._unopened.append(url[:_MAX_URL])
            self._windows[frame].set()
            raise ToolError("new-window", "pages in new windows are not opened")

    async def _authenticate(self, params: Params) -> None:
        """Give the proxy its token; nobody else gets anything."""
        challenge = params.get("authChallenge") or {}
        is_proxy = challenge.get("source") == "Proxy" and self._link.token
        origin = str(challenge.get("origin") or "").rpartition("/")[2]
        response: Params = {"response": "CancelAuth"}
        if is_proxy and origin == self._link.proxy:
            response = {
                "response": "ProvideCredentials",
                "username": "run",
                "password": self._link.token,
            }
        await self._devtools.call(
            "Fetch.continueWithAuth",
            requestId=params["requestId"],
            authChallengeResponse=response,
        )

    async def _close_dialog(self, params: Params) -> None:
        """Close a dialog, which would stop the page: accept what has no choice."""
        accept = params.get("type") in ("alert", "beforeunload")
        await self.page.call("Page.handleJavaScriptDialog", accept=accept)

    def _on_target(self, info: Params) -> None:
        """Close another window of the page."""
        target = str(info.get("targetId"))
        is_own = info.get("browserContextId") == self._context and info.get("type") == "page"
        if is_own and target != self.page.target and target not in self._windows:
            self._windows[target] = asyncio.Event()
            self._answer(self._close_window(target))

    async def _close_window(self, target: str) -> None:
        """Close a window once it is known which page it was for."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_WINDOW_S):
                await self._windows[target].wait()
        await self._devtools.call("Target.closeTarget", targetId=target)
