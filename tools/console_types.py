"""Writes the console's types of the HTTP API: `console/src/api/generated.ts`.

tools/console_types.py [--check]

Starts a server of its own, reads its OpenAPI document and ends it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.request import urlopen

from api_types import typescript

TARGET = Path(__file__).parent.parent / "console/src/api/generated.ts"


def document() -> dict[str, object]:
    """Return the API's document, from a server with an empty data directory."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "INFLOOP_DATA_DIR": folder, "HOME": folder}
        command = [sys.executable, "-m", "infloop", "serve", "--port", "0"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=environment, cwd=folder
        ) as server:
            try:
                assert server.stdout is not None
                address = server.stdout.readline().split()[-1]
                with urlopen(f"{address}/api/openapi.json") as answer:
                    found: dict[str, object] = json.load(answer)
                    return found
            finally:
                server.terminate()


def main() -> int:
    """Write the file, or say that it is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare")
    check = parser.parse_args().check
    text = typescript(document())
    if check:
        if TARGET.read_text() == text:
            return 0
        print(f"{TARGET} does not fit the API: run `make console`", file=sys.stderr)
        return 1
    TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
