"""Machines on which no level holds, and on which bubblewrap is broken: what the commands say."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support import forkserver
from support.canaries import place
from support.confinement import need_bubblewrap, need_guard
from support.parts import missing, ruled_out_if
from support.server import workflow
from support.thorough import some

if TYPE_CHECKING:
    from collections.abc import Iterator

BWRAP = "/usr/bin/bwrap"
SECCOMP_ACTIONS = "/proc/sys/kernel/seccomp/actions_avail"

only_root = ruled_out_if(os.geteuid() != 0, "only root can change the machine for one process")


@pytest.fixture
def top() -> Iterator[Path]:
    need_bubblewrap()
    need_guard()
    with place() as folder:
        (folder / "work").mkdir()
        os.chown(folder / "work", 65534, 65534)
        (folder / "w.workflow.json").write_text(json.dumps(workflow("w", "touch made")))
        yield folder


def without(paths: dict[str, str], argv: list[str], top: Path, **settings: str) -> tuple[int, str]:
    """Run a command that sees other files at some paths; return its exit code and output."""
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(top),
        "INFLOOP_DATA_DIR": str(top / "data"),
        "INFLOOP_SERVICE_USER": "nobody",
        **settings,
    }
    with forkserver.Command(
        argv, top / "work", env, stderr=forkserver.STDOUT, binds=paths
    ) as command:
        said, _ = command.communicate(120)
        if "lets nobody change its mounts" in said:
            missing("this machine lets nobody change its mounts")
        return command.wait(), said


@only_root
def test_where_no_level_holds_a_person_has_to_choose_host_by_name(top: Path) -> None:
    nothing = {BWRAP: "/dev/null", SECCOMP_ACTIONS: "/dev/null"}
    run = ["run", str(top / "w.workflow.json")]
    code, said = without(nothing, run, top)
    assert code != 0
    assert "INFLOOP_ISOLATION=host" in said
    assert "Traceback" not in said
    assert not (top / "work/made").exists()
    code, said = without(nothing, run, top, INFLOOP_ISOLATION="host")
    assert code == 0, said
    assert (top / "work/made").exists()


@only_root
def test_the_demo_names_host_itself_where_no_level_holds(top: Path) -> None:
    nothing = {BWRAP: "/dev/null", SECCOMP_ACTIONS: "/dev/null"}
    code, said = without(nothing, ["demo"], top)
    assert code == 0, said
    assert "no isolation level works here" in said


ANSWER = "#!/bin/sh\nfor fd in 4 5 6 7 8 9; do echo '{\"child-pid\": %s}' >&$fd; done 2>&1\n"
BROKEN = {
    "garbage": "\x7fELF nothing of the kind",
    "another program": "#!/bin/sh\necho unknown option >&2; exit 1\n",
    "a crash": "#!/bin/sh\nkill -SEGV $$\n",
    "silence": "#!/bin/sh\nexit 0\n",
    "wrong answers": ANSWER % "x",
    "a wrong process": ANSWER % "0",
    "not executable": "",
}


@only_root
@pytest.mark.thorough
@pytest.mark.parametrize("what", some([*BROKEN], one_in=3))
def test_a_broken_bubblewrap_is_one_clear_error(top: Path, what: str) -> None:
    broken = top / "bwrap"
    broken.write_text(BROKEN[what])
    broken.chmod(0o644 if what == "not executable" else 0o755)
    run = ["run", str(top / "w.workflow.json")]
    code, said = without({BWRAP: str(broken)}, run, top, INFLOOP_ISOLATION="sandbox")
    assert code != 0
    assert "Traceback" not in said
    assert "level 'sandbox' does not hold here" in said
    assert "INFLOOP_ISOLATION names another one" in said
    assert not (top / "work/made").exists()
    code, said = without({BWRAP: str(broken)}, ["doctor"], top, INFLOOP_ISOLATION="sandbox")
    assert "isolation: INFLOOP_ISOLATION=sandbox does not hold here, so no run starts" in said
    code, said = without({BWRAP: str(broken)}, ["doctor"], top)
    assert "Traceback" not in said
    assert "guard     holds" in said
