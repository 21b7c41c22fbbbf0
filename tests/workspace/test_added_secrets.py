"""`infloop apply` asks before it takes a file to which a secret was added."""

from __future__ import annotations

import json
from pathlib import Path

from support.repositories import git
from support.user_machine import Machine, agent, machine

GITHUB = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
SLACK = "xoxb-" + "123456789012-1234567890123-AbCdEfGhIjKlMnOpQrStUvWx"
KNOWN = "correct-horse-battery-staple-9"
MODES = ("off", "warn", "redact", "enforce")


def worked(tmp_path: Path, files: dict[str, str], *actions: dict[str, str]) -> Machine:
    """Return a machine on which an agent has changed a repository of these files."""
    here = machine(tmp_path, files)
    here.variables["DEPLOY_TOKEN"] = KNOWN
    here.bot([*actions])
    here.infloop("run", here.file("w", [agent(useWorktree=True)], "start next work"))
    return here


def shell(line: str) -> dict[str, str]:
    return {"shell": line}


def found(here: Machine) -> list[str]:
    """Return what `infloop diff` says about secrets."""
    said = here.infloop("diff", "last", "--stat")
    assert GITHUB not in said.stdout + said.stderr
    return [line for line in said.stderr.splitlines() if "secret" in line]


def test_a_file_with_a_new_secret_is_applied_only_if_it_is_allowed(tmp_path: Path) -> None:
    here = worked(
        tmp_path,
        {"a.py": "a = 1\n", "Makefile": "all:\n"},
        {"write": "a.py", "content": f"a = 1\ntoken = {GITHUB!r}\n"},
        {"write": "notes/b.md", "content": f"use {KNOWN} to deploy\n"},
        {"write": "Makefile", "content": f"all:\n\tcurl -H 'X: {SLACK}' example.org\n"},
        {"write": "c.py", "content": "token = read_token()\n"},
    )
    assert found(here) == [
        "Makefile holds a secret: slack",
        "a.py holds a secret: github",
        "notes/b.md holds a secret: env:DEPLOY_TOKEN",
    ]
    to_branch = ["--to", "result"]
    for to in ([], to_branch):
        refused = here.infloop("apply", "last", *to, code=1)
        assert refused.stdout == ""
        assert refused.stderr.splitlines()[1:-1] == [
            "  Makefile  (make and other task runners execute it; holds a secret: slack)",
            "  a.py  (holds a secret: github)",
            "  notes/b.md  (holds a secret: env:DEPLOY_TOKEN)",
        ]
        for value in (GITHUB, KNOWN, SLACK):
            assert value not in refused.stderr
    assert git("status", "--porcelain", cwd=here.repo) == ""
    assert git("branch", "--list", "result", cwd=here.repo) == ""
    some = ["--protected", "Makefile", "--protected", "notes"]
    assert "  a.py  (" in here.infloop("apply", "last", *some, code=1).stderr
    for to in ([], to_branch):
        applied = here.infloop("apply", "last", *to, *some, "--protected", "a.py")
        assert "4 files changed" in applied.stdout
        assert "a.py holds a secret: github" in applied.stderr
        assert GITHUB not in applied.stdout + applied.stderr
    # The file itself is never edited.
    assert GITHUB in (here.repo / "a.py").read_text()
    assert GITHUB in git("show", "result:a.py", cwd=here.repo)


def test_the_mode_of_the_leak_guard_decides_about_new_secrets_in_files(tmp_path: Path) -> None:
    here = worked(tmp_path, {}, {"write": "a.py", "content": f"token = {GITHUB!r}\n"})

    def apply(mode: str, *more: str, code: int) -> str:
        here.variables["INFLOOP_LEAKS_MODE"] = mode
        done = here.infloop("apply", "last", "--to", mode, *more, code=code)
        assert GITHUB not in done.stdout + done.stderr
        return done.stderr

    assert "--protected PATH" in apply("redact", code=1)
    # No permission helps against `enforce`.
    enforced = apply("enforce", "--allow-protected", "--protected", "a.py", code=1)
    assert "a.py holds a secret: github" in enforced
    assert "INFLOOP_LEAKS_MODE=enforce" in enforced
    assert apply("warn", code=0) == "a.py holds a secret: github\n"
    assert apply("off", code=0) == ""
    made = [mode for mode in MODES if git("branch", "--list", mode, cwd=here.repo)]
    assert made == ["off", "warn"]
    entries = here.infloop("audit", "--json", "--event", "leak.found").stdout.splitlines()
    assert [json.loads(each)["outcome"] for each in entries] == ["warn", "enforce", "redact"]
    for each in entries:
        assert json.loads(each)["details"]["detectors"] == ["github"]
        assert GITHUB not in each


CASES: list[tuple[str, dict[str, str], str, list[str]]] = [
    # name, the files before, what the agent does, the files to which a secret was added
    ("binary", {}, "printf '\\0\\1TOKEN\\0' > b.bin", ["b.bin"]),
    ("target of a link", {}, "ln -s TOKEN a", ["a"]),
    ("program", {}, "printf TOKEN > a; chmod +x a", ["a"]),
    ("renamed", {"a": "x\nTOKEN\n"}, "mv a b", []),
    ("renamed and edited", {"a": "x\nTOKEN\n"}, "echo x >> a; mv a b", []),
    ("other permissions", {"a": "x\nTOKEN\n"}, "chmod +x a", []),
    ("another line added", {"a": "x\nTOKEN\n"}, "echo x >> a", []),
    ("its line edited", {"a": "key = TOKEN\n"}, "sed -i s/key/token/ a", []),
    ("removed", {"a": "x\nTOKEN\n"}, "rm a", []),
    ("moved", {"a": "TOKEN\n"}, "mv a b; echo 2 > a", []),
    ("copied", {"a": "TOKEN\n", "b": "b\n"}, "cat a > b", ["b"]),
    ("a second one", {"a": "TOKEN\n"}, f"echo {SLACK} >> a", ["a"]),
    ("encoded", {}, f"printf {KNOWN} | base64 > a", ["a"]),
    ("in UTF-16", {}, "printf TOKEN | iconv -t UTF-16 > a", ["a"]),
    ("with a mark of UTF-16", {}, "printf '\\377\\376 TOKEN' > a", ["a"]),
    ("ignored by git", {".gitignore": "a\n"}, "echo TOKEN > a", []),
    ("name of a file", {}, "echo 1 > TOKEN.txt", ["TOKEN.txt"]),
    ("name of a folder", {}, "mkdir TOKEN; echo 1 > TOKEN/a", ["TOKEN/a"]),
    ("name of a changed file", {"TOKEN": "1\n"}, "echo 2 > TOKEN", []),
    ("name of a removed file", {"TOKEN": "1\n"}, "rm TOKEN", []),
    ("file with such a name moved", {"TOKEN": "1\n"}, "mkdir b; mv TOKEN b", []),
    ("name and content", {"a": "1\n"}, "echo TOKEN > a; echo 1 > TOKEN", ["TOKEN", "a"]),
]


def test_only_a_secret_that_was_added_counts(tmp_path: Path) -> None:
    files: dict[str, str] = {}
    actions: list[dict[str, str]] = []
    expected: list[str] = []
    for number, (name, before, does, says) in enumerate(CASES):
        token = f"{GITHUB[:-2]}{number:02}"
        folder = name.replace(" ", "-")
        files |= {
            f"{folder}/{path}".replace("TOKEN", token): text.replace("TOKEN", token)
            for path, text in before.items()
        }
        actions.append(shell(f"mkdir -p {folder}; cd {folder}; {does.replace('TOKEN', token)}"))
        expected += [f"{folder}/{path}".replace("TOKEN", token) for path in says]
    here = worked(tmp_path, files, *actions)
    said = here.infloop("diff", "last", "--stat").stderr.splitlines()
    found = [line.partition(" ")[0] for line in said if "secret" in line]
    assert found == sorted(expected)


def test_a_secret_in_the_name_of_a_file_needs_permission_and_is_not_in_the_audit_log(
    tmp_path: Path,
) -> None:
    here = worked(tmp_path, {}, {"write": f"keys/{GITHUB}.txt", "content": "1\n"})
    refused = here.infloop("apply", "last", code=1)
    assert refused.stderr.splitlines()[1] == f"  keys/{GITHUB}.txt  (holds a secret: github)"
    assert git("status", "--porcelain", cwd=here.repo) == ""
    here.infloop("apply", "last", "--protected", "keys")
    assert (here.repo / f"keys/{GITHUB}.txt").exists()
    audit = here.infloop("audit", "--json").stdout
    assert '"keys/[redacted:github].txt"' in audit
    assert GITHUB not in audit
