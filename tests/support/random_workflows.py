"""Random workflows that always end: sequences, loops, parallels, calls, effects."""

from __future__ import annotations

import random
from typing import Any

from support.workflows import node, workflow


class Generator:
    """Makes one workflow and the workflows it calls from one seed."""

    def __init__(self, seed: int, *, size: int = 5, depth: int = 3) -> None:
        self._random = random.Random(seed)
        self._count = 0
        self._size = size
        self._depth = depth
        self.called: list[dict[str, Any]] = []

    def make(self, id: str) -> dict[str, Any]:
        start = node("start", "start")
        nodes, links, last = self._sequence(self._depth)
        end = node("end", "end", outcome="succeeded")
        links = [_edge("start", "next", nodes[0]["id"]), *links]
        for handle in _ways_out(last):
            links.append(_edge(last["id"], handle, "end"))
        return workflow([start, *nodes, end], _numbered(links), id=id, onCrash="resume")

    def _name(self, kind: str) -> str:
        self._count += 1
        return f"{kind}-{self._count}"

    def _sequence(self, depth: int) -> tuple[list[Any], list[Any], dict[str, Any]]:
        nodes: list[dict[str, Any]] = []
        links: list[dict[str, str]] = []
        for _ in range(self._random.randint(1, self._size)):
            made, inner = self._node(depth)
            links += inner
            if nodes:
                links += [_edge(nodes[-1]["id"], way, made["id"]) for way in _ways_out(nodes[-1])]
            nodes.append(made)
        return nodes, links, nodes[-1]

    def _node(self, depth: int) -> tuple[dict[str, Any], list[dict[str, str]]]:
        kinds = ["command", "agent", "branch", "command"]
        if depth > 0:
            kinds += ["loop", "parallel", "call"]
        kind = self._random.choice(kinds)
        return getattr(self, f"_{kind}")(depth)  # type: ignore[no-any-return]

    def _command(self, _: int) -> tuple[dict[str, Any], list[Any]]:
        name = self._name("command")
        cmd = f"echo {{{{inputs.run}}}} {name} >> effects.log"
        return node(name, "condition", kind="command", command={"cmd": cmd}, against=""), []

    def _agent(self, _: int) -> tuple[dict[str, Any], list[Any]]:
        return node(
            self._name("agent"), "agent", providerId="fake", prompt="say {{inputs.run}}"
        ), []

    def _branch(self, _: int) -> tuple[dict[str, Any], list[Any]]:
        value = self._random.choice(["a", "b"])
        return node(self._name("branch"), "branch", lhs="a", op="==", rhs=value), []

    def _loop(self, depth: int) -> tuple[dict[str, Any], list[Any]]:
        nodes, links, _ = self._sequence(depth - 1)
        # A command inside a body would end the round by its own handle: keep such bodies short.
        rounds = self._random.randint(1, 3)
        return node(self._name("loop"), "loop", nodes, maxIterations=rounds), links

    def _parallel(self, depth: int) -> tuple[dict[str, Any], list[Any]]:
        children: list[Any] = []
        links: list[Any] = []
        for _ in range(self._random.randint(2, 3)):
            nodes, inner, _ = self._sequence(depth - 1)
            children += nodes
            links += inner
        return node(self._name("parallel"), "parallel", children, mode="wait-all"), links

    def _call(self, depth: int) -> tuple[dict[str, Any], list[Any]]:
        inner = Generator(self._random.randrange(1 << 30), size=2, depth=depth - 1)
        inner._count = self._count + 1000
        child = inner.make(self._name("child"))
        self._count = inner._count
        self.called += [child, *inner.called]
        made = node(
            self._name("call"), "subworkflow",
            workflowId=child["id"], inputs={"run": "{{inputs.run}}"},
        )  # fmt: skip
        return made, []


def _ways_out(made: dict[str, Any]) -> list[str]:
    return {
        "condition": ["met", "not_met"],
        "branch": ["true", "false"],
        "parallel": ["all_done"],
    }.get(made["type"], ["next"])


def _edge(source: str, handle: str, target: str) -> dict[str, str]:
    return {"source": source, "sourceHandle": handle, "target": target}


def _numbered(links: list[dict[str, str]]) -> list[dict[str, str]]:
    return [{"id": f"e{index}", **link} for index, link in enumerate(links)]


def generate(seed: int, id: str = "w", **shape: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a workflow and those it calls."""
    generator = Generator(seed, **shape)
    return generator.make(id), generator.called
