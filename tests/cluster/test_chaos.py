"""Workers on machines of their own are killed, frozen and cut off while they run what is accepted.

Each worker is in a network namespace, PostgreSQL is on their bridge, and webhooks arrive at two
servers. Each step writes marks into a file when it begins and ends, outside of everything that
infloop records, so that what happened can be compared with what was recorded.

`make test-thorough` has four workers, hundreds of runs and overlapping faults, kills a server and
restarts PostgreSQL. CHAOS_SEED repeats the choices of an earlier run.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

from infloop.app.storage import open_store
from infloop.model.events import (
    Recorded,
    RunFinished,
    RunResumed,
    RunStarted,
    StepFinished,
    StepStarted,
)
from infloop.settings import Settings
from support.cluster import WorkerProcess
from support.eventually import eventually
from support.networks import Networks
from support.postgresql import Server
from support.processes import is_running
from support.runs import scripted
from support.server import PATIENCE, Process, put_workflow, workflow
from support.thorough import FACTOR, amount

RUNS = amount(20, thorough=400)
MACHINES = ("one", "two", "three", "four")[: 4 if FACTOR else 2]
LANES = 2 if FACTOR else 1
FAULTS = amount(3, thorough=16)
WAITING = 24
CAP = 2
PRICE_USD = 0.25
PATIENCE_S = 120.0

pytestmark = [pytest.mark.heavy, pytest.mark.slow, pytest.mark.timeout(1800)]


# -- what is run -----------------------------------------------------------------------------------


def marked(effects: Path, step: str, work: str) -> dict[str, Any]:
    """A command that marks its begin and its end, and prints by what it is recognised."""
    mark = f'$NAME {step} $$ $(date +%s%N)" >> {effects}'
    line = f'echo "begin {mark}; {work}; echo "end {mark}; echo token=$$'
    return {"cmd": line, "env": {"NAME": "{{inputs.name}}"}}


def marking(name: str, effects: Path, *works: str, paid: bool = False, **more: Any) -> Any:
    """A workflow of such commands; a paid one asks an agent first."""
    made = workflow(name, *works, **more)
    for number, (node, work) in enumerate(zip(made["nodes"][1:], works, strict=True), 1):
        node["config"]["command"] = marked(effects, f"c{number}", work)
    if paid:
        agent = {"providerId": "dear", "prompt": "think"}
        made["nodes"].append({"id": "agent", "type": "agent", "config": agent})
        made["edges"][0]["target"] = "agent"
        made["edges"].append({"source": "agent", "sourceHandle": "next", "target": "c1"})
    return {**made, "inputs": [{"name": "name", "type": "string", "default": ""}]}


def workflows(effects: Path, gate: Path) -> list[dict[str, Any]]:
    capped: dict[str, Any] = {"limits": {"maxConcurrentRuns": CAP}}
    resume: dict[str, Any] = {"onCrash": "resume"}
    kinds = [
        marking("plain", effects, "sleep 0.2", "sleep 0.2"),
        marking("resumed", effects, "sleep 0.2", "sleep 0.3", "sleep 0.1", **resume),
        marking("capped", effects, "sleep 0.3", **capped),
        marking("capped-resumed", effects, "sleep 0.3", **capped, **resume),
        marking("paid", effects, "sleep 0.1", paid=True, **resume),
    ]
    wait = f"while [ ! -e {gate} ]; do sleep 0.1; done"
    return kinds + [marking(f"on-{name}", effects, wait, requires=[name]) for name in MACHINES]


KINDS = ("plain", "resumed", "capped", "capped-resumed", "paid")


def put_files(data: Path, effects: Path, gate: Path) -> None:
    """What a server has: workflows, and a trigger for each that webhooks start."""
    for each in workflows(effects, gate):
        put_workflow(data, each)
    (data / "triggers").mkdir()
    for kind in KINDS:
        trigger = {"id": trigger_id(kind), "enabled": True, "workflowId": kind}
        path = data / "triggers" / f"{trigger_id(kind)}.json"
        path.write_text(json.dumps({**trigger, "inputs": {"name": "{{body.name}}"}}))
        path.chmod(0o600)


def trigger_id(kind: str) -> str:
    return f"{kind:x<24}"


class Mark(NamedTuple):
    """What a step wrote into the file of effects."""

    what: str
    name: str
    step: str
    pid: int
    at_ms: float


def marks(effects: Path) -> list[Mark]:
    lines = effects.read_text().splitlines() if effects.exists() else []
    rows = (line.split() for line in lines)
    return [Mark(what, name, step, int(p), int(at) / 1e6) for what, name, step, p, at in rows]


# -- the cluster -----------------------------------------------------------------------------------


class Cluster:
    """PostgreSQL on the bridge, two servers that accept runs, and what the test knows of them."""

    def __init__(self, folder: Path, networks: Networks, database: Server) -> None:
        self.folder = folder
        self.networks = networks
        self.database = database
        self.effects, self.gate = folder / "effects", folder / "gate"
        self.accepted: dict[str, str] = {}
        database.execute("CREATE DATABASE chaos")
        self.address = database.address("chaos")
        self.settings = {"worker_timeout_ms": "5000", "queue_limit": "100000"}
        self.servers: list[Process] = []
        for name in ("server-a", "server-b"):
            (folder / name / "data").mkdir(parents=True)
            put_files(folder / name / "data", self.effects, self.gate)
            self.servers.append(self.start_server(name))

    def start_server(self, name: str) -> Process:
        made = Process(
            self.folder / name,
            "--no-runs",
            database=self.address,
            webhook_rate_limit="0",
            **self.settings,
        )
        assert made.client.port
        return made

    def restart_server(self, number: int) -> None:
        """Kill a server; the other one goes on."""
        self.servers[number].end(signal.SIGKILL)
        close_output(self.servers[number])
        before = len(self.accepted)
        eventually(lambda: len(self.accepted) > before + 3 or len(self.accepted) >= RUNS)
        self.servers[number] = self.start_server(self.servers[number].folder.name)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Ask the database; nothing if it is not there at the moment."""
        try:
            return self.database.execute(sql, "chaos")
        except psycopg.OperationalError:
            return []

    def settled(self) -> int:
        found = self.query("SELECT count(*) FROM infloop.run WHERE status <> 'running'")
        return int(found[0][0]) if found else 0

    def has_settled(self, run_id: str) -> bool:
        sql = f"SELECT status FROM infloop.run WHERE id = '{run_id}' AND status <> 'running'"
        return bool(self.query(sql))

    def send(self, path: str, name: str, content: dict[str, Any], rng: random.Random) -> Any:
        """Send a request to any server, again until one accepts it."""
        headers = {"Idempotency-Key": name, "Content-Type": "application/json"}
        body = json.dumps(content).encode()

        def accepted() -> Any:
            server = rng.choice(self.servers)
            try:
                answer = server.client.ask("POST", path, body=body, headers=headers)
            except OSError:
                return None  # it was killed, whatever it had done by then
            assert answer.status in (202, 503), (path, answer.status, answer.body)
            return answer.json() if answer.status == 202 else None

        return eventually(accepted, f"{name} is accepted", within_s=PATIENCE_S)

    def send_webhooks(self, seed: str) -> None:
        """Send all webhooks, as fast as runs end."""
        rng = random.Random(seed)
        for number in range(RUNS):
            eventually(
                lambda: len(self.accepted) - self.settled() < WAITING,
                "runs end",
                within_s=PATIENCE_S,
            )
            kind, name = KINDS[number % len(KINDS)], f"{KINDS[number % len(KINDS)]}-{number}"
            answer = self.send(f"/api/webhook/{trigger_id(kind)}", name, {"name": name}, rng)
            self.accepted[name] = answer["queueId"].removeprefix("q-")


class Machine:
    """A worker in a network of its own."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self._network = cluster.networks.add(name)
        self._rng = random.Random(name)
        self._asked = 0
        self._starts = 0
        scripted(
            cluster.folder / f"data-of-{name}" / "providers",
            "dear",
            {"do": [{"text": "hm"}, {"delayMs": 150}, {"cost": PRICE_USD}, {"delayMs": 50}]},
        )
        self.worker = self._start()

    def _start(self) -> WorkerProcess:
        self._starts += 1
        host, folder = Networks.HUB_ADDRESS, self.cluster.folder
        return WorkerProcess(
            folder,
            f"{self.name}",
            "--capacity",
            "4",
            "--label",
            self.name,
            network=self._network,
            database=f"postgresql://tester@{host}/chaos?sslmode=disable",
            max_total_cost_usd="1000",
            cost_window="day",
            **self.cluster.settings,
        )

    def occupy(self) -> tuple[str, int]:
        """Let it run something that does not end; return the run, and the process of its step."""
        self._asked += 1
        name = f"on-{self.name}-{self._asked}"
        content = {"workflowId": f"on-{self.name}", "inputs": {"name": name}}
        run_id = str(self.cluster.send("/api/run", name, content, self._rng)["runId"])
        self.cluster.accepted[name] = run_id
        begun = eventually(
            lambda: [mark for mark in marks(self.cluster.effects) if mark.name == name],
            f"{name} begins",
            within_s=PATIENCE_S,
        )
        return run_id, begun[0].pid

    def kill(self) -> None:
        run_id, child = self.occupy()
        self.worker.process.kill()
        eventually(partial(is_gone, child), "its keeper ends the children")
        self._is_taken_over(run_id)
        self.worker.process.wait(PATIENCE)
        close_output(self.worker)
        self.worker = self._start()

    def freeze(self) -> None:
        """Stop everything on the machine until others have taken over, and let it go on."""
        run_id, child = self.occupy()
        anew = self._times_registered_anew()
        stopped = self.cluster.networks.processes(self.name)
        for pid in stopped:
            send_signal(pid, signal.SIGSTOP)
        self._is_taken_over(run_id)
        assert is_running(child)
        for pid in stopped:
            send_signal(pid, signal.SIGCONT)
        self._comes_back(child, anew)

    def cut_off(self) -> None:
        """Pull its cable until others have taken over, and plug it in again."""
        run_id, child = self.occupy()
        anew = self._times_registered_anew()
        self.cluster.networks.cut(self.name)
        self._is_taken_over(run_id)
        self.cluster.networks.reconnect(self.name)
        self._comes_back(child, anew)

    def _is_taken_over(self, run_id: str) -> None:
        look = partial(self.cluster.has_settled, run_id)
        eventually(look, f"{run_id} of {self.name} is taken over", within_s=PATIENCE_S)

    def _comes_back(self, child: int, anew: int) -> None:
        eventually(partial(is_gone, child), "it ends what it ran", within_s=PATIENCE_S)
        eventually(
            lambda: self._times_registered_anew() > anew,
            lambda: f"{self.name} registers anew: {self.worker.log}",
            within_s=PATIENCE_S,
        )

    def _times_registered_anew(self) -> int:
        return self.worker.log.count("registered anew as")


def is_gone(pid: int) -> bool:
    return not is_running(pid)


def send_signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def disturb(machines: Sequence[Machine], faults: int, seed: str) -> None:
    """Let one fault after the other happen to these machines, spread over all runs."""
    rng = random.Random(seed)
    kinds: list[Callable[[Machine], None]] = [Machine.kill, Machine.freeze, Machine.cut_off]
    drawn = [kinds[number % len(kinds)] for number in range(faults)]
    rng.shuffle(drawn)
    for number, fault in enumerate(drawn, 1):
        machine = rng.choice(machines)
        enough = RUNS * number // (faults + 2)
        eventually(partial(has_progressed, machine.cluster, enough), within_s=PATIENCE_S)
        fault(machine)


def has_progressed(cluster: Cluster, enough: int) -> bool:
    return cluster.settled() >= enough


# -- the test --------------------------------------------------------------------------------------


def test_whatever_happens_to_workers_every_run_settles_once_and_the_books_balance(
    tmp_path: Path,
) -> None:
    seed = os.environ.get("CHAOS_SEED") or str(random.randrange(1_000_000))
    print(f"CHAOS_SEED={seed}")
    with ExitStack() as stack:
        networks = stack.enter_context(Networks())
        database = Server(networks.hub, Networks.HUB_ADDRESS)
        stack.callback(database.remove)
        cluster = Cluster(tmp_path, networks, database)
        machines = [Machine(cluster, name) for name in MACHINES]
        stack.callback(end_all, cluster, machines)
        with ThreadPoolExecutor() as threads:
            work = [threads.submit(cluster.send_webhooks, seed)]
            for lane in range(LANES):
                own = machines[lane::LANES]
                work.append(threads.submit(disturb, own, FAULTS // LANES, f"{seed} {lane}"))
            if FACTOR:
                disturb_the_middle(cluster, random.Random(seed))
            for each in work:
                each.result()
        cluster.gate.touch()
        eventually(
            lambda: all(map(cluster.has_settled, cluster.accepted.values())),
            lambda: f"all settle: {unsettled(cluster)}",
            within_s=PATIENCE_S,
        )
        for machine in machines:
            assert machine.worker.end() == 0, machine.worker.log
        left = {name: networks.processes(name) for name in MACHINES}
        assert not any(left.values()), left
        asyncio.run(check_records(cluster))


def disturb_the_middle(cluster: Cluster, rng: random.Random) -> None:
    """Kill a server and restart PostgreSQL meanwhile."""
    for enough, fault in (
        (RUNS // 4, partial(cluster.restart_server, rng.randrange(2))),
        (RUNS // 2, partial(restart_database, cluster)),
    ):
        eventually(partial(has_progressed, cluster, enough), within_s=PATIENCE_S)
        fault()


def restart_database(cluster: Cluster) -> None:
    cluster.database.stop("immediate")
    cluster.database.start()


def end_all(cluster: Cluster, machines: Sequence[Machine]) -> None:
    processes: list[Process | WorkerProcess] = [*cluster.servers]
    processes += [each.worker for each in machines]
    for each in processes:
        each.process.kill()
        each.process.wait(PATIENCE)
        close_output(each)
    for machine in machines:
        for pid in cluster.networks.processes(machine.name):
            send_signal(pid, signal.SIGKILL)


def close_output(ended: Process | WorkerProcess) -> None:
    assert ended.process.stdout is not None
    ended.process.stdout.close()


def unsettled(cluster: Cluster) -> list[str]:
    """Say of each run that has not settled where it is: in the queue, or with whom."""
    names = {run: name for name, run in cluster.accepted.items() if not cluster.has_settled(run)}
    rows = cluster.query(
        "SELECT queued.run, queued.state, held, reason, queued.owner, job.status, run.status,"
        " run.owner, (SELECT beat_at FROM infloop.instance WHERE instance.id = run.owner)"
        " FROM infloop.queued LEFT JOIN infloop.run ON run.id = queued.run"
        " LEFT JOIN infloop.procrastinate_jobs AS job ON job.id = queued.job"
    )
    return sorted(f"{names[run]} {rest}" for run, *rest in rows if run in names)


# -- what was recorded, and what happened ----------------------------------------------------------


async def check_records(cluster: Cluster) -> None:
    chosen = Settings(data_dir=cluster.folder / "reader", database=cluster.address)
    async with open_store(chosen) as store:
        rows = await store.run_log.runs(limit=100_000)
        recorded = {row.id: await store.run_log.events(row.id, limit=10_000) for row in rows}
        spent = await store.ledger.total()
        assert await store.queue.count() == 0
    names = {run_id: name for name, run_id in cluster.accepted.items()}
    assert set(recorded) == set(names), "one run for each request that was accepted"
    effects: dict[str, list[Mark]] = defaultdict(list)
    for mark in marks(cluster.effects):
        effects[mark.name].append(mark)
    assert set(effects) <= set(cluster.accepted)
    ends: list[tuple[float, int, str]] = []
    cost = 0.0
    for run_id, items in recorded.items():
        name = names[run_id]
        cost += check_run(name, items, effects[name])
        if name.startswith("capped"):
            ends += spans(items, effects[name], name.rpartition("-")[0])
    for kind in ("capped", "capped-resumed"):
        live = accumulate(change for _, change, of in sorted(ends) if of == kind)
        assert max(live, default=0) <= CAP
    check_costs(cluster, spent.usd, cost)
    outcomes = Counter(
        (names[run_id].rpartition("-")[0], describe(items)) for run_id, items in recorded.items()
    )
    print(
        *(f"{kind}: {count} {what}" for (kind, what), count in sorted(outcomes.items())), sep="\n"
    )


def describe(items: list[Recorded]) -> str:
    last = items[-1].event
    assert isinstance(last, RunFinished)
    resumed = sum(isinstance(item.event, RunResumed) for item in items)
    return f"{last.status}, resumed {resumed} times"


def check_run(name: str, items: list[Recorded], happened: list[Mark]) -> float:
    """Compare what a run recorded with what its steps did; return what they cost."""
    about = name, [item.event for item in items], happened
    events = [item.event for item in items]
    assert [type(event) for event in events].count(RunFinished) == 1, about
    last = events[-1]
    assert isinstance(last, RunFinished), about
    assert isinstance(events[0], RunStarted)
    resumes = "resumed" in name or name.startswith("paid")
    assert last.status == "succeeded" or (last.interrupted and not resumes), about
    started = Counter(event.path for event in events if isinstance(event, StepStarted))
    finished = [event for event in events if isinstance(event, StepFinished)]
    assert len({event.path for event in finished}) == len(finished), about
    begun = Counter(mark.step for mark in happened if mark.what == "begin")
    for step, times in begun.items():
        assert times <= started[step], about
    was_taken_over = last.interrupted or any(isinstance(event, RunResumed) for event in events)
    ended = {(mark.step, mark.pid) for mark in happened if mark.what == "end"}
    told = {(each.path, pid_of(each)) for each in finished if each.path.startswith("c")}
    assert told <= ended, about
    assert told == ended or was_taken_over, about
    return sum(float(str(event.outputs.get("costUsd", 0))) for event in finished)


def pid_of(step: StepFinished) -> int:
    return int(str(step.outputs["stdout"]).partition("token=")[2])


def spans(
    items: list[Recorded], happened: list[Mark], kind: str
) -> Iterator[tuple[float, int, str]]:
    """Yield when a step of a run began and ended; one that was cut off, when it was taken over.

    A worker that was frozen right before it began a step begins it when it wakes up, and then hears
    that the run is not its own any more: what it began is killed before its end.
    """
    take_overs = [item.time for item in items if isinstance(item.event, RunResumed | RunFinished)]
    ended = {mark.pid: mark.at_ms for mark in happened if mark.what == "end"}
    for mark in happened:
        if mark.what == "begin":
            after = [time for time in take_overs if time >= mark.at_ms - 1]
            assert after or mark.pid not in ended
            taken_over = after[0] if after else mark.at_ms
            until = min(ended.get(mark.pid, taken_over), taken_over)
            yield mark.at_ms, 1, kind
            yield max(until, mark.at_ms), -1, kind


def check_costs(cluster: Cluster, spent_usd: float, recorded_usd: float) -> None:
    """The ledger has each call that a step recorded, and besides only those that were cut off."""
    calls = cluster.query("SELECT run, attempt, cost, outcome FROM infloop.call")
    assert all(outcome in ("settled", "abandoned") for *_, outcome in calls)
    assert spent_usd == pytest.approx(sum(cost for _, _, cost, _ in calls) / 1e9)
    paid = {run for name, run in cluster.accepted.items() if name.startswith("paid")}
    assert {run for run, *_ in calls} == paid
    assert recorded_usd == pytest.approx(PRICE_USD * len(paid))
    price = int(PRICE_USD * 1e9)
    per_run = Counter(run for run, _, cost, outcome in calls if cost == price)
    assert set(per_run) == paid
    assert all(cost in (0, price) for _, _, cost, _ in calls)
    again = spent_usd - recorded_usd
    assert again == pytest.approx(PRICE_USD * (sum(per_run.values()) - len(paid)))
