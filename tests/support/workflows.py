"""Builds workflows: nodes, edges, and the workflow of both."""

from __future__ import annotations

from typing import Any


def node(id: str, type: str, children: list[Any] | None = None, **config: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"id": id, "type": type, "config": config}
    if children is not None:
        made["children"] = children
    return made


def agent(id: str, prompt: str = "go") -> dict[str, Any]:
    return node(id, "agent", providerId="fake", prompt=prompt)


def edges(*chains: str) -> list[dict[str, str]]:
    """Edges from lines such as `start next a next b` or `c error end-failed`."""
    made = [
        {"source": words[at], "sourceHandle": words[at + 1], "target": words[at + 2]}
        for words in (chain.split() for chain in chains)
        for at in range(0, len(words) - 2, 2)
    ]
    return [{"id": f"e{index}", **edge} for index, edge in enumerate(made)]


def workflow(nodes: list[Any], links: list[Any], id: str = "w", **more: Any) -> dict[str, Any]:
    return {"id": id, "name": id, "nodes": nodes, "edges": links, **more}
