"""The few pages that the server itself has, as plain HTML without scripts."""

from __future__ import annotations

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
<p class="hint">It is what <code>INFLOOP_API_TOKEN</code> holds on the server.</p>"""

STYLE = """:root { color-scheme: light dark; font-family: system-ui, sans-serif; }
body { display: grid; place-items: center; min-height: 100vh; margin: 0; }
main { max-width: 32rem; padding: 2rem; }
label, input, button { display: block; width: 100%; box-sizing: border-box; margin: 0.5rem 0; }
input, button { padding: 0.6rem; font: inherit; }
.hint { opacity: 0.75; }
.wrong { color: #c0392b; }
"""

HOME_PAGE = _PAGE.format(
    title="infloop",
    content="""<p>The server runs. The console is not part of this version yet.</p>
<ul>
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
