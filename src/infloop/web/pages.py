"""The server's own pages: plain HTML without scripts."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING

from infloop.application.triggers import kind_named

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from infloop.model.trigger import Trigger

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
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
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<button>Log in</button>
</form>
<p class="hint">It is what <code>INFLOOP_API_TOKEN</code> holds on the server. With
<code>--token auto</code> it is in the file <code>api-token</code> of the data directory.</p>"""

STYLE = """:root { color-scheme: light dark; font-family: system-ui, sans-serif; }
body { display: grid; place-items: center; min-height: 100vh; margin: 0; }
main { max-width: 32rem; padding: 2rem; }
label, input, button { display: block; width: 100%; box-sizing: border-box; margin: 0.5rem 0; }
input, button { padding: 0.6rem; font: inherit; }
.hint { opacity: 0.75; }
section { border-top: 1px solid; margin-top: 1.5rem; }
code { overflow-wrap: anywhere; }
.wrong { color: #c0392b; }
"""

HOME_PAGE = _PAGE.format(
    title="infloop",
    content="""<p>The server runs. The console is not part of this version yet.</p>
<ul>
<li><a href="/dispatch">Dispatch: what starts workflows by itself</a></li>
<li><a href="/api/openapi.json">The API, as an OpenAPI document</a></li>
<li><a href="/api/workflows">Workflows</a></li>
<li><a href="/api/runs">Runs</a></li>
<li><a href="/api/triggers/queue">The queue</a></li>
</ul>
<form method="post" action="/logout"><button>Log out</button></form>""",
)
LOGIN_PAGE = _PAGE.format(title="infloop: log in", content=_FORM)
LOGIN_REFUSED = _PAGE.format(
    title="infloop: log in",
    content=f'<p class="wrong">That is not the token.</p>\n{_FORM}',
)

LINK_REFUSED = _PAGE.format(
    title="infloop: log in",
    content=f'<p class="wrong">This link was used already, or is too old.</p>\n{_FORM}',
)

_SIGNING_FORM = """<form method="post" action="/dispatch/secret">
<input type="hidden" name="trigger" value="{id}">
<label for="secret-{id}">Signing secret ({state})</label>
<input id="secret-{id}" name="secret" type="password" autocomplete="off" required>
<button>Set secret</button>
</form>"""
_ADDRESS_FORM = """<form method="post" action="/dispatch/address">
<input type="hidden" name="trigger" value="{id}">
<button>New address</button>
</form>"""


def dispatch_page(triggers: Sequence[Trigger], signing: Collection[str], wrong: str = "") -> str:
    """Return the page with all triggers, and what was wrong with a change.

    `signing` are the plugins whose senders sign: only these have a secret.
    """
    refused = f'<p class="wrong">{escape(wrong)}</p>\n' if wrong else ""
    listed = "\n".join(_trigger(each, each.plugin_id in signing) for each in triggers) or (
        "<p>There is no trigger yet: <code>infloop triggers</code> makes one.</p>"
    )
    return _PAGE.format(title="infloop: dispatch", content=f"<h2>Dispatch</h2>\n{refused}{listed}")


def _trigger(trigger: Trigger, signed: bool) -> str:
    title = escape(trigger.display_name)
    state = "on" if trigger.enabled else "off"
    workflow = f"<code>{escape(trigger.workflow_id)}</code>"
    fired = _when(trigger.last_fired_at)
    lines = [
        f"<section><h3>{title}</h3>",
        f"<p>{trigger.kind}, {state}; starts {workflow}; last fired: {fired}.</p>",
    ]
    if kind_named(trigger.kind).takes_requests:
        lines += [
            f"<p>Address: <code>/api/webhook/{escape(trigger.id)}</code></p>",
            _ADDRESS_FORM.format(id=escape(trigger.id)),
        ]
        if signed:
            secret = "set" if trigger.secret else "not set"
            lines.append(_SIGNING_FORM.format(id=escape(trigger.id), state=secret))
    return "\n".join([*lines, "</section>"])


def _when(time_ms: int | None) -> str:
    if time_ms is None:
        return "never"
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
