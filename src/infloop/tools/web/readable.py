"""Turns HTML into text that a model can read.

The page is untrusted, so this takes linear time: every search either moves on or ends the page. It
keeps what a reader sees: text, headings, list items, preformatted text and the targets of links.
"""

from __future__ import annotations

import html
import re

# Our own fixed patterns: no nested repeats over the same characters.
_MARKUP = re.compile(r"<(?=[a-zA-Z/!?])", re.ASCII)  # noqa: TID251
_TAG = re.compile(r"</?([a-zA-Z][a-zA-Z0-9-]*)", re.ASCII)  # noqa: TID251
_TAG_END = re.compile(r"=\s*[\"']|>")  # noqa: TID251
_HREF = re.compile(r"\shref\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s>]+))", re.IGNORECASE)  # noqa: TID251

_HIDDEN = frozenset(("script", "style", "template", "noscript", "svg", "iframe", "textarea"))
_ENDS = {tag: re.compile(f"</{tag}", re.IGNORECASE) for tag in _HIDDEN}  # noqa: TID251
_HEADINGS = {f"h{level}": f"{'#' * level} " for level in range(1, 7)}
_BLOCKS = frozenset(
    (
        *("address", "article", "aside", "blockquote", "body", "br", "caption", "dd", "div", "dl"),
        *("dt", "fieldset", "figure", "figcaption", "footer", "form", "head", "header", "hr"),
        *("html", "li", "main", "nav", "ol", "option", "p", "pre", "section", "table", "title"),
        *("tr", "ul", *_HEADINGS),
    )
)
_CELLS = frozenset(("td", "th"))
_NO_LINKS = ("#", "javascript:", "data:", "mailto:")


def readable_text(page: str) -> str:
    """Return the text of a page."""
    text = _Text()
    at = 0
    while (markup := _MARKUP.search(page, at)) is not None:
        start = markup.start()
        text.add(page[at:start])
        tag = _TAG.match(page, start)
        if tag is not None:
            at = _after_tag(page, tag.end())
            name = tag[1].lower()
            if page[start + 1] == "/":
                text.close(name)
            elif name in _HIDDEN:
                end = _ENDS[name].search(page, at)
                at = end.start() if end else len(page)
            else:
                text.open(name, page[tag.end() : at])
        elif page.startswith("<!--", start):
            at = _after(page, "-->", start + 4)
        else:
            at = _after(page, ">", start)
    text.add(page[at:])
    return text.finish()


def _after(page: str, end: str, start: int) -> int:
    found = page.find(end, start)
    return found + len(end) if found >= 0 else len(page)


def _after_tag(page: str, at: int) -> int:
    """Return where a tag ends; a `>` in a quoted value does not end it."""
    while (found := _TAG_END.search(page, at)) is not None:
        if found[0] == ">":
            return found.end()
        at = _after(page, found[0][-1], found.end())
    return len(page)


class _Text:
    """Collects text: single spaces, and at most one empty line between blocks."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._line: list[str] = []
        self._links: list[str] = []
        self._preformatted = 0

    def add(self, raw: str) -> None:
        text = _unescaped(raw)
        if not self._preformatted:
            self._line.append(text)
            return
        first, *others = text.split("\n")
        self._line.append(first)
        for line in others:
            self._break()
            self._line.append(line)

    def open(self, name: str, attributes: str) -> None:
        if name in _BLOCKS:
            self._break()
        if name == "pre":
            self._preformatted += 1
        elif name == "li":
            self._line.append("- ")
        elif name in _HEADINGS:
            self._line.append(_HEADINGS[name])
        elif name in _CELLS:
            self._line.append(" | ")
        elif name == "a":
            match = _HREF.search(attributes)
            self._links.append(_unescaped(next(filter(None, match.groups()), "")) if match else "")

    def close(self, name: str) -> None:
        if name == "a" and self._links:
            target = self._links.pop().strip()
            if target and not target.lower().startswith(_NO_LINKS):
                self._line.append(f" ({target})")
        if name in _BLOCKS:
            self._break()
        if name == "pre":
            self._preformatted = max(0, self._preformatted - 1)

    def finish(self) -> str:
        self._break()
        return "\n".join(self._lines).strip("\n")

    def _break(self) -> None:
        text = "".join(self._line)
        self._line.clear()
        line = text.rstrip() if self._preformatted else " ".join(text.split())
        if line or (self._lines and self._lines[-1]):
            self._lines.append(line)


def _unescaped(text: str) -> str:
    try:
        return html.unescape(text)
    except ValueError:  # a character reference with thousands of digits
        return text
