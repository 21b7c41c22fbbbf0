"""Where the database is: `postgresql://user@host:port/database?sslmode=…`.

The password may be part of the address or come from one of libpq's own places, such as its password
file. It is never part of a message: what is shown of an address has no password.
"""

from __future__ import annotations

from ipaddress import ip_address

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from infloop.errors import SettingsError

_CONNECTION: dict[str, str | int | None] = {
    "application_name": "infloop",
    "connect_timeout": 10,
    # Notice within seconds that a machine or a network is gone.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
    "target_session_attrs": "primary",
}


class Address:
    """An address of a database. `shown` is the part of it that may be printed."""

    def __init__(self, text: str) -> None:
        try:
            given = conninfo_to_dict(text)
        except psycopg.Error:
            # Not `from error`: its message may repeat the address, and the password in it.
            raise SettingsError(
                "the address of the database is invalid; write it as "
                "postgresql://user@host:port/database?sslmode=verify-full"
            ) from None
        host = str(given.get("host") or "")
        self.shown = _shown(given, host)
        # Without this libpq falls back to a connection that anybody on the way can read.
        default_mode = {} if _is_local(host) or "service" in given else {"sslmode": "require"}
        self._options = str(given.pop("options", None) or "")
        self._given: dict[str, str | int | None] = {**_CONNECTION, **default_mode, **given}

    def conninfo(self, options: str) -> str:
        """Return what libpq connects with; it may contain the password."""
        return make_conninfo("", **self._given, options=f"{self._options} {options}".strip())

    def __repr__(self) -> str:
        return f"Address({self.shown!r})"


def _shown(given: dict[str, str | int | None], host: str) -> str:
    user = f"{given['user']}@" if given.get("user") else ""
    port = f":{given['port']}" if given.get("port") else ""
    return f"postgresql://{user}{host}{port}/{given.get('dbname') or ''}"


def _is_local(host: str) -> bool:
    """Return whether connections to a host stay on this machine."""
    if not host or host.startswith(("/", "@")) or host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
