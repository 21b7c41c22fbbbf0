"""How random a text looks."""

from __future__ import annotations

import math
from collections import Counter


def entropy(text: bytes | str) -> float:
    """Return the Shannon entropy of a text in bits per character."""
    counts = Counter(text).values()
    return -sum(count / len(text) * math.log2(count / len(text)) for count in counts)
