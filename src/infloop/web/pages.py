"""The addresses of pages. The login page is plain HTML; the console draws all others."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGES = (
    "/",
    "/workflows",
    "/w/{workflow_id}",
    "/runs",
    "/r/{run_id}",
    "/r/{run_id}/changes",
    "/compare/{first_run_id}/{second_run_id}",
    "/queue",
    "/workers",
    "/approvals",
    "/approvals/{approval_id}",
    "/dispatch",
    "/dispatch/{mark}",
    "/dev",
    "/dev/{process}",
    "/connections",
    "/settings",
    "/costs",
    "/audit",
    "/doctor",
)
"""The addresses of the console's pages; `console/src/app/routes.ts` draws them."""

_FIRST_PARTS = frozenset(page.split("/")[1] for page in PAGES if page != "/")

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/page.css">
</head>
<body>
<main>
<h1>infloop</h1>
{content}
</main>
</body>
</html>
"""

_FORM = """<form method="post" action="/login">
<input type="hidden" name="next" value="{next}">
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<button>Log in</button>
</form>
<p class="hint">It is what <code>INFLOOP_API_TOKEN</code> holds on the server. With
<code>--token auto</code> it is in the file <code>api-token</code> of the data directory.</p>"""

STYLE = """:root { color-scheme: light dark; --paper: #f5f6f2; --surface: #fff; --ink: #161917;
  --ink3: #5c635c; --edge: #7c847b; --bad: #b0241c; font: 15px/1.5 system-ui, sans-serif; }
@media (prefers-color-scheme: dark) { :root { --paper: #101311; --surface: #171b18;
  --ink: #e7ebe4; --ink3: #929b91; --edge: #717b72; --bad: #ff8b80; } }
body { display: grid; place-items: center; min-height: 100vh; margin: 0;
  background: var(--paper); color: var(--ink); }
main { width: min(24rem, 100vw); box-sizing: border-box; padding: 2rem; }
h1 { font-size: 1.1rem; }
label, input, button { display: block; width: 100%; box-sizing: border-box; margin: 0.5rem 0; }
label { font-weight: 600; }
input, button { min-height: 44px; padding: 0.6rem; font: inherit; color: inherit;
  border: 1px solid var(--edge); border-radius: 2px; background: var(--surface); }
button { background: var(--ink); color: var(--paper); cursor: pointer; }
:focus-visible { outline: 2px solid var(--ink); outline-offset: 2px; }
.hint { color: var(--ink3); }
code { overflow-wrap: anywhere; }
.wrong { color: var(--bad); }
"""

_REASONS: Mapping[str, str] = {
    "": "",
    "token": '<p class="wrong" role="alert">That is not the token.</p>\n',
    "link": '<p class="wrong" role="alert">This link was used already, or is too old.</p>\n',
}


def is_page(path: str) -> bool:
    """Return whether a path is one of the console's."""
    before, _, rest = path.partition("/")
    return path == "/" or (not before and rest.partition("/")[0] in _FIRST_PARTS)


def next_page(address: str) -> str:
    """Return where to go after a login: a page of the console, and never another site."""
    path = address.partition("?")[0]
    plain = address.isascii() and address.isprintable() and "\\" not in address
    if plain and not address.startswith("//") and len(address) <= _MAX_ADDRESS and is_page(path):
        return address
    return "/"


_MAX_ADDRESS = 2000


def login_page(next_address: str = "/", wrong: str = "") -> str:
    """Return the form that asks for the token; `wrong` says what was wrong with the last try."""
    form = _FORM.format(next=escape(next_address))
    return _PAGE.format(title="infloop: log in", content=f"{_REASONS[wrong]}{form}")
