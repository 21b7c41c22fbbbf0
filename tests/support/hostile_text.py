"""Text that would steer a terminal, and how to find it."""

from __future__ import annotations

import unicodedata

HOSTILE = {
    "colour": "\x1b[31mred\x1b[0m",
    "cursor": "a\x1b[2A\x1b[2Kb",
    "title": "\x1b]0;owned\x07",
    "link": "\x1b]8;;https://evil.example\x1b\\click\x1b]8;;\x1b\\",
    "clipboard": "\x1b]52;c;cm0gLXJmIC8K\x07",
    "device status": "\x1b[6n",
    "C1 sequence": "\x9b31m\x9d0;x\x9c",
    "carriage return": "failed\rsucceeded",
    "backspace": "rm -rf /\b\b\b\b\b\b\b\bls",
    "bell, null, delete": "\a\0\x7f",
    "bidi override": "\u202etxt.exe",
    "bidi isolate": "\u2066abc\u2069\u200f\u061c",
    "zero width": "pay\u200bpal\u200d\u2060\ufeff",
    "line separators": "one\u2028two\u2029three\x85four",
    "soft hyphen and tags": "a\u00adb\U000e0041",
    "half a pair": "\ud800",
    "form feed": "\f\v",
}


def unsafe(text: str) -> list[str]:
    """The characters a terminal might obey or hide; line ends and tabs are ours."""
    return [
        char
        for char in text
        if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") and char not in "\n\t"
    ]
