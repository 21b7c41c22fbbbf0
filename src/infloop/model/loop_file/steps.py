"""A loop file after reading and before linking: steps with their ids, values and positions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from infloop.model.loop_file.tree import Scalar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infloop.model.loop_file.keys import StepWords
    from infloop.model.loop_file.tree import Mark, Tree
    from infloop.model.positions import Path
    from infloop.model.values import JsonObject


class Spot(NamedTuple):
    """A part of the file: its name in the file's own words, and where it begins and ends."""

    words: str
    start: Mark
    end: int


class Arm(msgspec.Struct, frozen=True):
    """What follows a handle: a jump to a step, steps of its own, or nothing."""

    spot: Spot
    target: str | None = None
    steps: list[Step] | None = None


class Step(msgspec.Struct):
    """One step. `spots` are the positions of its parts, by their path in the node."""

    words: StepWords
    id: str
    spot: Spot
    label: str | None = None
    config: JsonObject = msgspec.field(default_factory=dict)
    spots: dict[Path, Spot] = msgspec.field(default_factory=dict)
    arms: dict[str, Arm] = msgspec.field(default_factory=dict)
    bodies: list[list[Step]] = msgspec.field(default_factory=list)
    until: Step | None = None
    has_own_place: bool = False
    broken: bool = False

    @property
    def outputs(self) -> Mapping[str, str]:
        """The outputs of its type."""
        return self.words.model.outputs

    @property
    def flows(self) -> bool:
        """Whether the step before leads to it: a note is not part of the order."""
        return self.words.model.runs or self.broken


def spot_of(words: str, tree: Tree, key: Mark | None = None) -> Spot:
    """Return the position of a value; that of its key if nothing is written there."""
    if key is not None and isinstance(tree, Scalar) and tree.end == tree.start.offset:
        return Spot(words, key, key.offset)
    return Spot(words, tree.start, tree.end)
