"""Ids that are safe as file names: workflows and definitions are found by their id."""

from __future__ import annotations

import re

# Our own fixed patterns: no nested repeats.
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)  # noqa: TID251
_DEVICE = re.compile(r"(con|prn|aux|nul|(com|lpt)[0-9])(\..*)?", re.ASCII | re.IGNORECASE)  # noqa: TID251
FILE_NAME_RULE = (
    "use 1 to 128 letters, digits, dots, dashes and underscores, a letter or digit first, "
    "no '..', and no device name such as 'con'"
)


def is_file_name(text: str) -> bool:
    """Say whether `text` is a file name on every system and cannot lead out of its folder."""
    return bool(_FILE_NAME.fullmatch(text)) and ".." not in text and not _DEVICE.fullmatch(text)
