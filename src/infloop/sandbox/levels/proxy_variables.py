"""The environment variables that tell programs where their proxy is."""

from __future__ import annotations

_NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def proxy_variables(port: int, credentials: str = "") -> dict[str, str]:
    """Return the variables for a proxy on a port of 127.0.0.1, in upper and lower case.

    `credentials` is the part before the `@` of its URL. Loopback itself is not proxied.
    """
    user = f"{credentials}@" if credentials else ""
    variables = dict.fromkeys(_NAMES, f"http://{user}127.0.0.1:{port}")
    variables["NO_PROXY"] = "127.0.0.1,localhost"
    return variables | {name.lower(): value for name, value in variables.items()}
