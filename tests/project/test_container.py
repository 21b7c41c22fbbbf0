"""The container: what its files say, and what is so inside, with a real engine.

What the files say is checked everywhere. The rest builds the image by its Dockerfile and starts it
by the compose file, with podman, as root; `make test-container` does that.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import socket
import tomllib
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml  # type: ignore[import-untyped]

from support.containers import NAME, built_image, podman, run_flags
from support.eventually import eventually
from support.parts import need_program
from support.paths import ROOT

UID = 10_001
PORT = 3000
HOME, WORKSPACES = "/var/lib/infloop", "/workspaces"
PATIENCE_S = 60

# The first test that needs the image waits until it is built.
pytestmark = pytest.mark.timeout(900)


def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "compose.yml").read_text()))


def service() -> dict[str, Any]:
    """Return the one service, read anew: a test may change what it got."""
    return dict(compose()["services"]["infloop"])


class Instruction(NamedTuple):
    """A line of the Dockerfile, with those that go on with it."""

    name: str
    text: str


def stages() -> list[list[Instruction]]:
    """Return the instructions of each stage; what comes before the first is left out."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    found: list[list[Instruction]] = []
    for line in filter(None, lines):
        instruction = Instruction(*line.split(" ", 1))
        if instruction.name == "FROM":
            found.append([])
        if found:
            found[-1].append(instruction)
    return found


def only(name: str) -> str:
    """Return what the one instruction of that name says in the last stage."""
    (text,) = [instruction.text for instruction in stages()[-1] if instruction.name == name]
    return text


def split(mounts: list[str]) -> list[tuple[str, str]]:
    """Return what stands before and behind the colon."""
    return [(before, behind) for before, _, behind in (mount.partition(":") for mount in mounts)]


# -- what compose.yml says -------------------------------------------------------------------------


@pytest.mark.claim("I37")
def test_the_compose_file_takes_away_what_infloop_does_not_need() -> None:
    asked = service()
    assert asked["read_only"] is True
    assert asked["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in asked["security_opt"]
    assert 0 < asked["pids_limit"] <= 4096
    assert not {"cap_add", "privileged", "devices", "network_mode", "pid"} & set(asked)
    assert asked["user"] == f"{UID}:{UID}"


@pytest.mark.claim("I37")
def test_what_can_be_written_is_in_named_volumes_and_a_tmpfs() -> None:
    asked, named = service(), compose()["volumes"]
    volumes = dict(split(asked["volumes"]))
    assert volumes.keys() == named.keys()
    assert set(volumes.values()) == {HOME, WORKSPACES}
    tmpfs = {place: set(options.split(",")) for place, options in split(asked["tmpfs"])}
    assert [place for place in tmpfs if "ro" not in tmpfs[place]] == ["/tmp"]
    assert {"rw", "nosuid", "nodev", "mode=1777", "size=1g"} < tmpfs["/tmp"]


def test_memory_processors_and_descriptors_are_bounded() -> None:
    asked = service()
    assert asked["mem_limit"] == asked["memswap_limit"]
    assert asked["cpus"] > 0
    assert asked["ulimits"]["core"] == 0
    assert asked["ulimits"]["nofile"] > 0


def test_the_port_is_published_to_this_machine_alone() -> None:
    assert service()["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]


def test_the_level_is_asked_for_by_name_and_the_token_must_be_given() -> None:
    environment = service()["environment"]
    assert environment["INFLOOP_ISOLATION"] == "container"
    assert environment["INFLOOP_API_TOKEN"].startswith("${INFLOOP_API_TOKEN:?")


def test_the_server_is_watched_started_again_and_stopped_in_order() -> None:
    asked = service()
    assert asked["restart"] == "unless-stopped"
    assert asked["init"] is True
    assert asked["stop_grace_period"] == "30s"
    assert asked["healthcheck"]["test"][0] == "CMD"


# -- what the Dockerfile says ----------------------------------------------------------------------


def test_every_stage_begins_with_a_base_of_no_particular_registry() -> None:
    assert [stage[0].text.split()[0] for stage in stages()] == ["${BASE}", "${BASE}"]
    base = re.search(r"^ARG BASE=(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert base
    assert re.fullmatch(r"python:3\.\d+-slim", base[1])
    assert "/" not in service()["image"]


def test_the_image_runs_as_a_fixed_user_who_owns_the_volumes() -> None:
    assert only("USER") == f"{UID}:{UID}"
    assert json.loads(only("VOLUME")) == [HOME, WORKSPACES]
    assert only("ENV") == f"HOME={HOME}"
    prepared = next(i.text for i in stages()[-1] if i.name == "RUN")
    assert f"useradd --uid {UID} " in prepared
    assert re.search(rf"install -d -o {UID} -g {UID} -m 0700 {HOME}\b", prepared)
    assert "chmod 1777 /tmp" in prepared


def test_the_image_serves_on_all_addresses_of_the_container() -> None:
    assert json.loads(only("ENTRYPOINT")) == ["infloop"]
    assert json.loads(only("CMD")) == ["serve", "--host", "0.0.0.0", "--port", str(PORT)]
    assert only("EXPOSE") == str(PORT)


def test_image_and_compose_file_watch_the_server_in_the_same_way() -> None:
    options, _, command = only("HEALTHCHECK").partition("CMD ")
    asked = service()["healthcheck"]
    assert json.loads(command) == asked["test"][1:]
    for name in ("interval", "timeout", "start-period", "retries"):
        assert f"--{name}={asked[name.replace('-', '_')]}" in options.split()


def test_only_what_is_listed_gets_into_the_build() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().split("\n") if line[:1] != "#"]
    assert lines[0] == "*"
    copied = [i.text.split()[:-1] for i in stages()[0] if i.name == "COPY"]
    allowed = {line[1:] for line in lines if line.startswith("!")}
    assert {name for names in copied for name in names} == allowed


# -- what goes into the image ----------------------------------------------------------------------


def pins(name: str) -> dict[str, str]:
    """Return package and version of each requirement, every one of which has a hash."""
    entries = re.split(r"\n(?=\S)", (ROOT / name).read_text().strip())
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []
    heads = [entry.split()[0].partition("==") for entry in entries]
    return {package: version for package, _, version in heads}


def test_the_image_has_the_packages_that_the_tests_run_with_and_no_tools_of_ours() -> None:
    image, tested = pins("requirements-image.lock"), pins("requirements.lock")
    differing = {name for name in image.keys() & tested.keys() if image[name] != tested[name]}
    assert differing == set(), "make lock"
    assert not image.keys() & {"pytest", "mypy", "ruff", "pre-commit", "hypothesis", "psutil"}


def test_the_image_has_everything_that_infloop_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"].values()
    wanted = [*project["project"]["dependencies"], *(each for extra in extras for each in extra)]
    names = {re.split(r"[<>=!~ ;\[]", requirement)[0] for requirement in wanted}
    assert names <= pins("requirements-image.lock").keys(), "make lock"
    assert "hatchling" in pins("requirements-image.lock")


def test_packages_are_installed_by_their_hashes_alone() -> None:
    installs = [i.text for i in stages()[0] if i.name == "RUN" and " install " in i.text]
    assert len(installs) == 2
    assert "--require-hashes -r requirements-image.lock" in installs[0]
    assert "--no-deps --no-build-isolation ." in installs[1]


# -- the system calls ------------------------------------------------------------------------------

NEVER = (
    *("ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "bpf", "perf_event_open"),
    *("io_uring_setup", "io_uring_enter", "io_uring_register", "userfaultfd", "keyctl", "add_key"),
    *("request_key", "mount", "umount2", "pivot_root", "chroot", "setns", "unshare", "clone3"),
    *("open_tree", "move_mount", "fsopen", "mount_setattr", "open_by_handle_at", "init_module"),
    *("finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot", "swapon"),
    *("syslog", "acct", "quotactl", "iopl", "ioperm", "sethostname", "settimeofday", "modify_ldt"),
    *("fanotify_init", "name_to_handle_at", "shmget", "msgget", "semget", "mq_open", "vhangup"),
)
CLONE_NEW = 0x7E02_0000


def test_system_calls_are_those_of_a_list() -> None:
    profile = json.loads((ROOT / "seccomp.json").read_text())
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    assert {rule["action"] for rule in profile["syscalls"]} == {"SCMP_ACT_ALLOW"}
    allowed = {name for rule in profile["syscalls"] for name in rule["names"]}
    assert not allowed & set(NEVER)
    assert {"landlock_restrict_self", "seccomp", "pidfd_getfd"} <= allowed
    (clone,) = [rule for rule in profile["syscalls"] if "clone" in rule["names"]]
    assert clone["args"] == [
        {"index": 0, "value": CLONE_NEW, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}
    ]
    assert "seccomp=./seccomp.json" in service()["security_opt"]


# -- for real --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The project's image, built here; removed after the last test of this file."""
    for program in ("podman", "runc"):
        need_program(program)
    assert os.geteuid() == 0, "runc is started by root here"
    folder = tmp_path_factory.mktemp("image")
    with built_image(ROOT, folder) as name:
        shutil.rmtree(folder)
        yield name


class Server(NamedTuple):
    """A container that serves, under the compose file's own settings."""

    name: str
    port: int
    token: str

    def start(self, image: str) -> None:
        asked = service()
        asked["ports"] = [f"127.0.0.1:{self.port}:{PORT}"]
        asked["environment"]["INFLOOP_API_TOKEN"] = self.token
        podman("run", "--detach", *run_flags(asked, ROOT, self.name), image)
        self._wait_until_it_answers()

    def python(self, code: str) -> Any:
        """Run a program inside and return what it prints, as JSON."""
        return json.loads(podman("exec", self.name, "python3", "-I", "-c", code).stdout)

    def infloop(self, *arguments: str) -> str:
        done = podman("exec", self.name, "infloop", *arguments, check=False, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def _wait_until_it_answers(self) -> None:
        def answers() -> bool:
            try:
                self.get("/healthz")
            except (OSError, HTTPException):
                return False
            return True

        eventually(
            answers, lambda: podman("logs", self.name).stderr, within_s=PATIENCE_S, every_s=0.1
        )


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def remove(name: str) -> None:
    podman("rm", "--force", "--volumes", name, check=False)
    podman("volume", "rm", "--force", f"{name}-data", f"{name}-workspaces", check=False)


@pytest.fixture(scope="module")
def server(image: str) -> Iterator[Server]:
    """The service of the compose file; its port and its token are this test's own."""
    made = Server(f"{NAME}-server", free_port(), secrets.token_hex(32))
    try:
        made.start(image)
        yield made
    finally:
        remove(made.name)


def told(image: str, asked: dict[str, Any], *arguments: str) -> str:
    """Run one command at level `container`; return what it says."""
    return once(image, {**asked, "environment": {"INFLOOP_ISOLATION": "container"}}, *arguments)


def once(
    image: str, asked: dict[str, Any], *arguments: str, capabilities: tuple[str, ...] = ()
) -> str:
    """Run one command in a container without network; return what it says."""
    name = f"{NAME}-once"
    asked = {key: value for key, value in asked.items() if key != "ports"}
    added = [f"--cap-add={each}" for each in capabilities]
    try:
        flags = [*run_flags(asked, ROOT, name), *added]
        done = podman("run", "--network=none", *flags, image, *arguments, check=False)
    finally:
        remove(name)
    return done.stdout + done.stderr


@pytest.mark.container
@pytest.mark.claim("I37")
def test_inside_nobody_has_or_gains_a_privilege(server: Server) -> None:
    status = server.python(
        "import json; lines = open('/proc/1/status').read().splitlines();"
        "print(json.dumps(dict(line.split(':\\t', 1) for line in lines if ':\\t' in line)))"
    )
    assert status["Uid"].split() == [str(UID)] * 4
    assert status["Gid"].split() == [str(UID)] * 4
    assert {status[name] for name in ("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb")} == {
        "0" * 16
    }
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"


WRITABLE = """
import json, os
found = []
for folder, names, _ in os.walk("/"):
    if folder in ("/proc", "/sys"):
        names.clear()
        continue
    mine = os.path.join(folder, "planted")
    try:
        os.close(os.open(mine, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except OSError:
        continue
    os.unlink(mine)
    found.append(folder)
    names.clear()
print(json.dumps(sorted(found)))
"""


@pytest.mark.container
@pytest.mark.claim("I37")
def test_inside_only_the_volumes_and_tmp_can_be_written(server: Server) -> None:
    assert server.python(WRITABLE) == ["/tmp", HOME, WORKSPACES]
    mounts = server.python(
        "import json; print(json.dumps([l.split()[1:4] for l in open('/proc/mounts')]))"
    )
    options = {place: (kind, given.split(",")) for place, kind, given in mounts}
    assert "ro" in options["/"][1]
    assert options["/tmp"][0] == "tmpfs"
    assert {"rw", "nosuid", "nodev", "size=1048576k"} <= set(options["/tmp"][1])
    assert "ro" in options["/dev/shm"][1]


SET_UID = """
import json, os
places = [os.path.join(folder, name) for top in ("/usr", "/opt", "/etc")
          for folder, _, names in os.walk(top) for name in names]
print(json.dumps([place for place in places if os.lstat(place).st_mode & 0o6000]))
"""


@pytest.mark.container
def test_inside_no_program_is_set_uid(server: Server) -> None:
    assert server.python(SET_UID) == []


BOMB = """
import json, os, signal
children = []
try:
    while len(children) < 3000:
        child = os.fork()
        if child == 0:
            signal.pause()
        children.append(child)
    error = ""
except OSError as caught:
    error = type(caught).__name__
for child in children:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
print(json.dumps([len(children), error]))
"""


@pytest.mark.container
@pytest.mark.claim("I37")
def test_inside_a_fork_bomb_ends_at_the_limit(server: Server) -> None:
    count, error = server.python(BOMB)
    assert error == "BlockingIOError"
    assert 100 < count < service()["pids_limit"]


LIMITS = """
import json, pathlib as p
def first(*names):
    for name in names:
        file = p.Path("/sys/fs/cgroup", name)
        if file.exists():
            return file.read_text().split()[0]
print(json.dumps([first("memory.max", "memory/memory.limit_in_bytes"),
                  first("cpu.max", "cpu/cpu.cfs_quota_us")]))
"""


@pytest.mark.container
def test_inside_memory_and_processors_are_bounded(server: Server) -> None:
    assert server.python(LIMITS) == [str(4 << 30), "200000"]


@pytest.mark.container
def test_the_server_answers_on_the_published_port_and_wants_its_token(server: Server) -> None:
    assert server.get("/healthz")[0] == 200
    assert server.get("/api/runs")[0] == 401
    assert server.get("/api/runs", Authorization=f"Bearer {server.token}")[0] == 200


@pytest.mark.container
def test_the_engine_finds_the_server_healthy(server: Server) -> None:
    assert podman("healthcheck", "run", server.name, check=False).returncode == 0


WORKFLOW = {
    "id": "inside",
    "name": "Inside",
    "nodes": [
        {"id": "start", "type": "start"},
        {
            "id": "look",
            "type": "script",
            "config": {
                "language": "py",
                "code": (
                    "import os, pathlib\n"
                    "def run():\n"
                    "    pathlib.Path('made').write_text('here')\n"
                    "    status = pathlib.Path('/proc/self/status').read_text()\n"
                    "    print('filters', status.split('Seccomp_filters:')[1].split()[0])\n"
                    "    try:\n"
                    f"        print('seen', os.listdir('{HOME}'))\n"
                    "    except PermissionError:\n"
                    "        print('not shown')\n"
                ),
            },
        },
        {
            "id": "typed",
            "type": "script",
            "config": {"language": "ts", "code": "export function run() { console.log('deno'); }"},
        },
    ],
    "edges": [{"source": "start", "target": "look"}, {"source": "look", "target": "typed"}],
}


@pytest.mark.container
def test_a_run_inside_completes_behind_its_own_fence(server: Server) -> None:
    project, file = f"{WORKSPACES}/project", f"{WORKSPACES}/inside.workflow.json"
    server.python(
        f"import os, pathlib; os.mkdir({project!r});"
        f"print(pathlib.Path({file!r}).write_text({json.dumps(WORKFLOW)!r}))"
    )
    said = server.infloop("run", file, "--cwd", project)
    assert "look | filters 2\n" in said
    assert "look | not shown\n" in said
    assert "typed | deno\n" in said
    assert "run succeeded\n" in said
    made = server.python(f"import json; print(json.dumps(open('{project}/made').read()))")
    assert made == "here"


@pytest.mark.container
def test_the_whole_battery_of_attacks_is_withstood_inside(server: Server) -> None:
    found = json.loads(server.infloop("doctor", "--level", "container", "--attack", "--json"))
    assert found["levels"] == [{"level": "container", "holds": True, "reason": ""}]
    assert found["attacks"][0]["level"] == "container"
    assert [each for each in found["attacks"][0]["findings"] if not each["holds"]] == []


@pytest.mark.container
def test_the_demo_turns_green_inside(image: str) -> None:
    said = told(image, service(), "demo")
    assert "rounds[3]/check  met: exit 0" in said
    assert "$ infloop apply last" in said


@pytest.mark.container
def test_without_a_token_the_server_does_not_start(image: str) -> None:
    assert "will not listen on '0.0.0.0' without INFLOOP_API_TOKEN" in told(image, service())


@pytest.mark.container
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"read_only": False}, "infloop to run in a container with a read-only root"),
        ({"cap_drop": []}, "a container without capabilities (cap_drop: ALL)"),
        ({"security_opt": []}, "a container that gains no privileges (no-new-privileges)"),
        ({"pids_limit": -1}, "a limit on processes (pids_limit)"),
        ({"mem_limit": None, "memswap_limit": None}, "a limit on memory (mem_limit)"),
        ({"cpus": 0}, "a limit on processors (cpus)"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_container_that_lacks_a_piece_is_not_level_container(
    image: str, changes: dict[str, Any], named: str
) -> None:
    changed = {**service(), **changes}
    left = {key: value for key, value in changed.items() if value is not None}
    said = told(image, left, "doctor", "--level", "container")
    assert f"container no: level 'container' needs {named}\n" in said


@pytest.mark.container
def test_an_engine_that_refuses_a_needed_system_call_is_found_out(
    image: str, tmp_path: Path
) -> None:
    profile = json.loads((ROOT / "seccomp.json").read_text())
    for rule in profile["syscalls"]:
        rule["names"] = [name for name in rule["names"] if name != "pidfd_getfd"]
    file = tmp_path / "seccomp.json"
    file.write_text(json.dumps(profile))
    options = ["no-new-privileges:true", f"seccomp={file}"]
    changed = {**service(), "security_opt": options}
    said = told(image, changed, "doctor", "--level", "container")
    assert "container no: a promise was broken (use_proxy: " in said


@pytest.mark.container
def test_the_server_stops_in_order_and_what_it_kept_outlives_the_container(image: str) -> None:
    made = Server(f"{NAME}-stopped", free_port(), secrets.token_hex(32))
    try:
        made.start(image)
        podman("stop", made.name)
        state = podman("inspect", "--format", "{{.State.ExitCode}}", made.name).stdout
        podman("rm", made.name)
        made.start(image)
        audit = made.infloop("audit")
    finally:
        remove(made.name)
    assert state.strip() == "0"
    assert re.findall(r"server\.\w+", audit) == [
        "server.started",
        "server.stopped",
        "server.started",
    ]


AS_ROOT = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID", "SYS_PTRACE")


@pytest.mark.container
def test_as_root_the_container_runs_nothing_unconfined(image: str) -> None:
    """Without capabilities no level works; with some, children become another user."""
    asked = {**service(), "user": "0:0"}
    asked["environment"] = {"HOME": "/tmp", "INFLOOP_SERVICE_USER": "infloop"}
    said = once(image, asked, "doctor")
    assert "isolation: none works here" in said
    assert "INFLOOP_ISOLATION=host" in said
    said = once(image, asked, "doctor", "--level", "guard", capabilities=AS_ROOT)
    assert f"isolation: guard, and children run as user {UID}" in said, said
