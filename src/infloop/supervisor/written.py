"""Who changed a file while a workflow ran: one of its children, or a person.

The kernel does not say who writes a file. It counts the bytes that each process writes, and it
stores with each file when its content was written. Both together tell:

  * Written at a moment when no child wrote: a person did it.
  * Written while children wrote at least as much as the file needs: a child did it.
  * Written while they wrote less: it is not clear.
  * What a process sends to others counts as written too. A process that wrote, and nothing of it to
    a disk, leaves it unclear. A hook has a single purpose, so what it may have done it did.
  * A file that was removed or emptied, or whose content is older than the workflow, tells nothing.
    While a hook runs, the hook did it.

What a child printed is subtracted. It is known a little later than what was written, so the totals
may fall again: the true total of a moment is the least that was seen from then on.

Pure: the caller brings the time and the numbers.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Verdict: TypeAlias = Literal["person", "child", "unclear"]

_FILE_TIMES_MS = 15
"""The time that is stored with a file may be so far behind the moment of the write.

A write is counted a little later still, when the system call returns.
"""

_KEPT_SPANS = 10_000


class Child(Protocol):
    """A hook or process, and what it and its descendants have written to files and sockets.

    `written` is None when that is not known: its process id is not known yet, or it is a run.
    `to_disk` are bytes that certainly go to files. With `ended` the numbers are the last ones.
    """

    @property
    def name(self) -> str: ...
    @property
    def is_hook(self) -> bool: ...
    @property
    def written(self) -> int | None: ...
    @property
    def to_disk(self) -> int: ...
    @property
    def ended(self) -> bool: ...


class Moment(NamedTuple):
    """A change: when it was last noticed, and the time of the content, 0 if there is none."""

    noticed_ms: int
    content_ms: int = 0


class _Span(NamedTuple):
    """The time between two looks, and the totals at its end."""

    begin_ms: int
    end_ms: int
    written: float
    to_disk: int


class _Track(msgspec.Struct):
    """What one child wrote, and when."""

    is_hook: bool
    begin_ms: int
    looked_ms: int
    base: float = 0
    base_to_disk: int = 0
    spans: deque[_Span] = msgspec.field(default_factory=lambda: deque(maxlen=_KEPT_SPANS))
    end_ms: int | None = None
    is_unknown: bool = True
    """Nothing was known at the last look."""

    def look(self, written: int | None, to_disk: int, now_ms: int) -> None:
        self.is_unknown = written is None
        if written is None:
            return
        last = self.spans[-1] if self.spans else None
        before = (last.written, last.to_disk) if last else (self.base, self.base_to_disk)
        if (written, to_disk) != before:
            self.spans.append(_Span(self.looked_ms, now_ms, written, to_disk))
        self.looked_ms = now_ms

    def end(self, now_ms: int) -> None:
        """Note that it ended, and may have written anything since the last look."""
        self.end_ms = now_ms
        self.spans.append(_Span(self.looked_ms, now_ms, inf, 0))

    def during(self, begin_ms: int, end_ms: int) -> tuple[float, int]:
        """Return how much was written in a time, and how much of it certainly to files."""
        written, to_disk = 0.0, 0
        if self.end_ms is None and self.is_unknown and end_ms >= self.looked_ms:
            return inf, 0
        for span, more, more_to_disk in self._growth():
            if span.begin_ms <= end_ms and span.end_ms >= begin_ms:
                # A file that is mapped is written without a system call. Otherwise the bytes of the
                # calls are the better number: what goes to a disk is counted in pages.
                written += more or more_to_disk
                to_disk += more_to_disk
        return written, to_disk

    def _growth(self) -> Iterator[tuple[_Span, float, int]]:
        true, least = [], inf
        for span in reversed(self.spans):
            least = min(least, span.written)
            true.append(least)
        before, before_to_disk = self.base, self.base_to_disk
        for span, total in zip(self.spans, reversed(true), strict=True):
            yield span, max(0, total - before), max(0, span.to_disk - before_to_disk)
            before, before_to_disk = total, max(before_to_disk, span.to_disk)


class Written:
    """What the children of a workflow wrote while it ran; `begin` starts again."""

    def __init__(self) -> None:
        self._tracks: dict[str, _Track] = {}
        self._begun_ms = 0
        self._looked_ms = 0

    def begin(self, children: Iterable[Child], now_ms: int) -> None:
        """A workflow begins; these run already, and what they have written does not count."""
        self._begun_ms = self._looked_ms = now_ms
        self._tracks = {
            child.name: _Track(
                child.is_hook, now_ms, now_ms, child.written or 0, base_to_disk=child.to_disk
            )
            for child in children
        }

    def look(self, children: Iterable[Child], now_ms: int) -> None:
        """Note what has been written until now. To be called often while a workflow runs."""
        present = set()
        for child in children:
            present.add(child.name)
            track = self._tracks.get(child.name)
            if track is None:
                track = _Track(child.is_hook, self._looked_ms, self._looked_ms)
                self._tracks[child.name] = track
            track.look(child.written, child.to_disk, now_ms)
            if child.ended and child.written is not None:
                track.end_ms = now_ms
        for name, track in self._tracks.items():
            if name not in present and track.end_ms is None:
                track.end(now_ms)
        self._looked_ms = now_ms

    def verdict(self, moments: Iterable[Moment], needed: int) -> Verdict:
        """Tell who changed a file, after a look; it needed so many bytes, 0 means unknown."""
        moments = list(moments)
        times = [each.content_ms for each in moments if self._tells(each)] if needed else []
        if not times:
            hook_ran = any(self._hook_ran(each.noticed_ms) for each in moments)
            return "child" if hook_ran else "person"
        if any(self._is_quiet(each) for each in times):
            return "person"
        return "child" if self._by_children(min(times), max(times)) >= needed else "unclear"

    def _tells(self, moment: Moment) -> bool:
        """Tell whether the content was written while the workflow ran, as far as its time says."""
        latest = moment.noticed_ms + _FILE_TIMES_MS
        return self._begun_ms - _FILE_TIMES_MS <= moment.content_ms <= latest

    def _hook_ran(self, now_ms: int) -> bool:
        return any(
            track.is_hook
            and track.begin_ms <= now_ms
            and (track.end_ms is None or track.end_ms >= now_ms - _FILE_TIMES_MS)
            for track in self._tracks.values()
        )

    def _is_quiet(self, content_ms: int) -> bool:
        """Tell whether no child wrote anything at a moment."""
        end = content_ms + _FILE_TIMES_MS
        return not any(track.during(content_ms, end)[0] for track in self._tracks.values())

    def _by_children(self, first_ms: int, last_ms: int) -> float:
        """Return how many bytes children may have written to files from one moment to another."""
        budget = 0.0
        for track in self._tracks.values():
            written, to_disk = track.during(first_ms, last_ms + _FILE_TIMES_MS)
            if track.is_hook or to_disk or written == inf:
                budget += written
        return budget
