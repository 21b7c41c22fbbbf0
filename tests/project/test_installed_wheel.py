"""The first hour of a new user: install the wheel, let an agent work, review, apply, green.

`tests/agents/test_real_first_hour.py` does the same with the real `claude` and `codex`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from infloop import __version__
from support.installed import CHECK, FIXED, Installed, failing_project, is_green

AGENT = f"""#!/bin/sh
cat > prompt-was-read
rm prompt-was-read
cat > prices.py <<'END'
{FIXED}END
echo "A discount is a percentage."
"""


def test_from_the_wheel_to_a_green_check(tmp_path: Path) -> None:
    infloop = Installed(tmp_path / "installed")
    project = failing_project(tmp_path / "shop")
    home = tmp_path / "home"
    home.mkdir()
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "INFLOOP_ISOLATION": "host"}

    def run(*arguments: str, code: int = 0) -> str:
        return infloop.run(*arguments, cwd=project, env=env, code=code)

    assert run("--version").split() == ["infloop", __version__]
    assert "# Quickstart" in run("docs", "quickstart")

    script = tmp_path / "fix-prices"
    script.write_text(AGENT)
    script.chmod(0o755)
    manifest = {"id": "mine", "label": "Mine", "description": "my script", "bin": str(script)}
    manifest |= {"promptVia": "stdin", "outputFormat": "plain"}
    providers = home / ".local/share/infloop/providers"
    providers.mkdir(parents=True)
    (providers / "mine.json").write_text(json.dumps(manifest))

    assert not is_green(project)
    done = run("loop", "Fix the failing tests", "--check", CHECK, "--agent", "mine")
    assert "run succeeded" in done
    assert not is_green(project), "nothing is applied unasked"
    assert "-    return sum(prices) - discount" in run("diff", "last").splitlines()
    assert "1 file changed" in run("apply", "last")
    assert (project / "prices.py").read_text() == FIXED
    assert is_green(project)
