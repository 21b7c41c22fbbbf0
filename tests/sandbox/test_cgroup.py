"""The bound on a child's memory as a whole, under a kernel whose groups are ours to divide.

Most machines have cgroup v2, and few let a test divide it; some have none. So a kernel of our own
is booted as a program (Debian: `apt-get install user-mode-linux`), with this machine's files, read
only, as its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.confinement import need_bubblewrap
from support.parts import need_program, ruled_out
from support.paths import CHILDREN

GUEST = CHILDREN / "cgroup_guest.py"
BOUNDS = [24 << 20, 0]  # without a bound the children do get more memory
INIT = f"""#!/bin/sh
TMPDIR=/run PYTHONDONTWRITEBYTECODE=1 {sys.executable} {GUEST} {" ".join(map(str, BOUNDS))} 2>&1
/bin/mount -t proc proc /proc 2>/dev/null
echo o > /proc/sysrq-trigger
sleep 60
"""


def kernel() -> str:
    if os.geteuid() != 0:
        ruled_out("the kernel starts as root, and reads this machine's files as root")
    need_bubblewrap()
    return need_program("linux.uml")


@pytest.mark.slow
@pytest.mark.heavy
@pytest.mark.timeout(240)
def test_all_processes_of_a_child_together_have_no_more_memory_than_its_bound(
    tmp_path: Path,
) -> None:
    program, init = kernel(), tmp_path / "init"
    init.write_text(INIT)
    init.chmod(0o755)
    console = ("con=null", "con0=null,fd:1", "quiet")
    booted = subprocess.run(
        [program, "rootfstype=hostfs", "rootflags=/", "ro", "mem=512M", f"init={init}", *console],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    (forked,) = [line for line in booted.stdout.splitlines() if line.startswith('{"forked"')]
    assert 15 < int(json.loads(forked)["forked"] or 0) < 30, forked
    told = [json.loads(line) for line in booted.stdout.splitlines() if line.startswith('{"name"')]
    found = {(each["name"], each["bound"] > 0): each for each in told}
    assert len(found) == 2 * len(BOUNDS), booted.stdout
    assert all((each["error"], each["during"]) == ("", each["bound"] > 0) for each in told), told
    assert all(each["nice"] == [10] * each["during"] for each in told), told
    assert int(found["many processes", True]["said"] or 4) > 0
    assert found["temporary files", True]["said"] != "0"
    assert found["many processes", False]["said"] == "0"
    assert found["temporary files", False]["said"] == "0"
