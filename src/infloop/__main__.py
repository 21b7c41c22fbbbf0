"""The `infloop` command."""

from __future__ import annotations

import gc
import sys


def main() -> int:
    """Run the command line and return its exit code."""
    gc.disable()  # nothing that is imported is garbage; `app.run_async` enables it

    from infloop.cli import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
