"""Reads a shell line into its simple commands (pure).

It follows `;`, `&&`, `||`, `|`, `&`, subshells, substitutions, loops, conditions, functions, case
patterns and here-documents. It expands nothing: what a variable, a substitution or a pattern would
become is `UNKNOWN`. A line that it cannot follow is refused with UnclearLine.
"""

from __future__ import annotations

import re
from typing import NamedTuple

UNKNOWN = "\0"
"""Stands in a word for what only the shell knows."""

MAX_CHARS = 50_000
MAX_COMMANDS = 300
_MAX_DEPTH = 25

_BLANKS = " \t"
_ENDS_WORD = " \t\n;&|()<>"
_KEYWORDS = frozenset(
    (
        *("if", "then", "elif", "else", "fi", "while", "until", "do", "done", "esac"),
        *("{", "}", "!", "coproc"),
    )
)
# Our own fixed patterns: linear, no nested repeats.
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[[^]]*\])?\+?=")  # noqa: TID251
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!_-]")  # noqa: TID251
_ORDINARY = re.compile(r"[A-Za-z0-9_./:=,@%+-]+")  # noqa: TID251
_CLOSES = re.compile(r"[ \t]*\)")  # noqa: TID251
_REDIRECTION = re.compile(r"&>>|&>|<<<|<<-|<<|<>|<&|>&|>>|>\||<|>")  # noqa: TID251


class UnclearLine(ValueError):
    """The line cannot be followed; the text says why."""


class ShellCommand(NamedTuple):
    """One simple command.

    - `words`: its program and arguments without quotes; what is not known is `UNKNOWN`.
    - `text`: the command in one line, with what is expanded as it is written.
    - `writes`: the files that its output is redirected to.
    - `stdin`: the text of its here-document or here-string; None if it has none.
    """

    words: tuple[str, ...]
    text: str
    writes: tuple[str, ...] = ()
    stdin: str | None = None


def read_commands(line: str) -> list[ShellCommand]:
    """Return all simple commands of a line, those in substitutions too; raise UnclearLine."""
    if UNKNOWN in line:
        raise UnclearLine("it has a NUL character")
    return read_part(line)


def read_part(text: str, depth: int = 0) -> list[ShellCommand]:
    """Read as `read_commands` does a word that was itself read, so it may have `UNKNOWN` in it."""
    return [command.result() for command in _read(text, depth)]


class _Word:
    """A word while it is read: its value, and how it is shown."""

    def __init__(self) -> None:
        self.value: list[str] = []
        self.shown: list[str] = []
        self.text = ""
        """Its whole value, once it is read."""
        self.quoted = False
        self.has_pattern = False

    def add(self, text: str) -> None:
        self.value.append(text)
        self.shown.append(text)

    def expand(self, written: str) -> None:
        self.value.append(UNKNOWN)
        self.shown.append(written)

    def finish(self) -> _Word:
        self.text = "".join(self.value)
        return self


class _Command:
    """A simple command while it is read."""

    def __init__(self) -> None:
        self.words: list[_Word] = []
        self.writes: list[str] = []
        self.stdin: str | None = None

    @property
    def first(self) -> str:
        """Its first word, if that is written plainly."""
        return self.words[0].text if self.words and not self.words[0].quoted else ""

    @property
    def is_test(self) -> bool:
        """Whether it is `[[` and not closed yet."""
        return self.first == "[[" and self.words[-1].text != "]]"

    def result(self) -> ShellCommand:
        values = [word.text for word in self.words]
        start = 0
        while start < len(values) and _ASSIGNMENT.match(values[start]):
            start += 1
        if start < len(values) and self.words[start].has_pattern:
            values[start] = UNKNOWN
        shown = " ".join("".join(word.shown) for word in self.words)
        return ShellCommand(tuple(values[start:]), shown, tuple(self.writes), self.stdin)


def _read(text: str, depth: int) -> list[_Command]:
    if len(text) > MAX_CHARS:
        raise UnclearLine(f"it is longer than {MAX_CHARS} characters")
    reader = _Reader(text, depth)
    reader.commands("")
    return reader.found


class _Reader:
    """Reads a line from left to right."""

    def __init__(self, text: str, depth: int) -> None:
        self._text = text
        self._at = 0
        self._depth = depth
        self._here_documents: list[tuple[_Command, str, bool, bool]] = []
        self.found: list[_Command] = []

    # -- commands ------------------------------------------------------------------------------

    def commands(self, until: str) -> None:
        """Read commands to the closing parenthesis `until`, or to the end."""
        self._go_deeper()
        command, cases, in_pattern = _Command(), 0, False
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in _BLANKS:
                self._at += 1
            elif self._text.startswith("\\\n", self._at):
                self._at += 2
            elif char == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            elif char in ("(|\n" if in_pattern else "\n;&|()<>" if command.is_test else ""):
                self._at += 1
            elif in_pattern and char == ")":
                self._at += 1
                command, in_pattern = _Command(), False
            elif char in "\n;|" or (char == "&" and self._text[self._at + 1 : self._at + 2] != ">"):
                self._end(command)
                command = _Command()
                in_pattern = self._separator() and cases > 0
            elif char == "(":
                self._parenthesis(command)
                command = command if command.words else _Command()
            elif char == ")":
                if not until:
                    raise UnclearLine("it has a parenthesis that was not opened")
                self._at += 1
                self._end(command)
                self._depth -= 1
                return
            elif char in "<>&" and not self._text.startswith(("<(", ">("), self._at):
                self._redirection(command)
            else:
                self._command_word(command)
                if command.first == "case" and len(command.words) > 2:
                    command, cases, in_pattern = _Command(), cases + 1, True
                elif command.first == "esac" and cases:
                    command, cases, in_pattern = _Command(), cases - 1, False
        if until:
            raise UnclearLine("it has a parenthesis that is not closed")
        self._end(command)
        self._depth -= 1
        if self._here_documents and self._depth == 0:
            self._read_here_documents()

    def _go_deeper(self) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise UnclearLine("it is nested too deeply")

    def _end(self, command: _Command) -> None:
        """Note a command that is complete."""
        if command.first in ("for", "select", "[[") or not (command.words or command.writes):
            return
        self.found.append(command)
        if len(self.found) > MAX_COMMANDS:
            raise UnclearLine(f"it has more than {MAX_COMMANDS} commands")

    def _separator(self) -> bool:
        """Skip a separator; tell whether it ends a branch of a `case`."""
        two = self._text[self._at : self._at + 2]
        is_branch = two in (";;", ";&")
        newline = self._text[self._at] == "\n"
        self._at += 2 if is_branch or two in ("&&", "||", "|&") else 1
        if self._text.startswith("&", self._at) and two == ";;":
            self._at += 1
        if newline:
            self._read_here_documents()
        return is_branch

    def _parenthesis(self, command: _Command) -> None:
        if self._text.startswith("((", self._at):
            self._at += 2
            self._quoted_until("))", _Word())
            return
        closes = _CLOSES.match(self._text, self._at + 1)
        if not command.words:
            self._at += 1
            self.commands(")")
        elif closes and len(command.words) <= 2:  # a function
            self._at = self._text.index(")", self._at) + 1
            command.words.clear()
        elif command.words[-1].text.endswith("=") and not self._blank_before():
            self._at += 1
            self._array()
        else:
            raise UnclearLine("it has a parenthesis inside a command")

    def _array(self) -> None:
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == ")":
                self._at += 1
                return
            if char in " \t\n":
                self._at += 1
            elif char in ";&|(<>":
                break
            else:
                self._word()
        raise UnclearLine("it has an array that is not closed")

    def _blank_before(self) -> bool:
        return self._text[self._at - 1] in " \t\n"

    def _command_word(self, command: _Command) -> None:
        word = self._word()
        plain = not word.quoted and word.text
        if not command.words and plain in _KEYWORDS:
            if plain == "esac":
                command.words.append(word)
            return
        command.words.append(word)
        if command.first == "function" and len(command.words) == 2:
            command.words.clear()

    # -- redirections --------------------------------------------------------------------------

    def _redirection(self, command: _Command) -> None:
        found = _REDIRECTION.match(self._text, self._at)
        if found is None:
            raise UnclearLine("it has a redirection that is not understood")
        words = command.words
        if words and not words[-1].quoted and not self._blank_before():
            text = words[-1].text
            if text.isdecimal():  # the number of a descriptor
                words.pop()
            elif text.startswith("{") and text.endswith("}"):
                raise UnclearLine("it has a descriptor in braces")
        operator = found.group()
        self._at = found.end()
        while self._text.startswith((*_BLANKS, "\\\n"), self._at):
            self._at += 2 if self._text[self._at] == "\\" else 1
        target = self._word()
        if not target.value and not target.quoted:
            raise UnclearLine("it has a redirection to nothing")
        if operator in ("<<", "<<-"):
            self._here_documents.append(
                (command, target.text, target.quoted, operator.endswith("-"))
            )
        elif operator == "<<<":
            command.stdin = target.text
        elif ">" in operator:
            is_descriptor = target.text == "-" or target.text.removesuffix("-").isdecimal()
            if operator != ">&" or not is_descriptor:
                command.writes.append(target.text)

    def _read_here_documents(self) -> None:
        """Read the texts of here-documents, which begin on this line."""
        for command, delimiter, is_literal, strips in self._here_documents:
            body: list[str] = []
            while True:
                if self._at >= len(self._text):
                    raise UnclearLine("it has a here-document that is not closed")
                end = self._text.find("\n", self._at)
                end = len(self._text) if end < 0 else end
                line = self._text[self._at : end]
                self._at = end + 1
                line = line.lstrip("\t") if strips else line
                if line == delimiter:
                    break
                body.append(line)
            self._at = min(self._at, len(self._text))
            text = "\n".join(body)
            command.stdin = text if is_literal else self._expanded(text)
        self._here_documents.clear()

    def _expanded(self, text: str) -> str:
        """Return a text as in double quotes; its substitutions are read."""
        inner = _Reader(text, self._depth)
        word = _Word()
        inner._quoted_until("", word)
        self.found += inner.found
        return word.finish().text

    # -- words ---------------------------------------------------------------------------------

    def _word(self) -> _Word:
        word = _Word()
        while self._at < len(self._text):
            char = self._text[self._at]
            if self._text.startswith(("<(", ">("), self._at):
                begin = self._at
                self._at += 2
                self.commands(")")
                word.expand(self._text[begin : self._at])
            elif char in _ENDS_WORD:
                break
            elif char == "\\":
                escaped = self._text[self._at + 1 : self._at + 2]
                self._at += 2
                if escaped != "\n":
                    word.quoted = True
                    word.add(escaped)
            elif char == "'":
                self._single_quoted(word)
            elif char == '"':
                self._at += 1
                word.quoted = True
                self._quoted_until('"', word)
            elif char == "`":
                self._backticks(word)
            elif char == "$":
                self._dollar(word, quoted=False)
            elif run := _ORDINARY.match(self._text, self._at):
                word.add(run.group())
                self._at = run.end()
            else:
                self._plain(word, char)
        return word.finish()

    def _plain(self, word: _Word, char: str) -> None:
        following = self._text[self._at + 1 : self._at + 2]
        is_brace = char == "{" and following not in ("}", "", *_ENDS_WORD)
        if char in "*?" or is_brace or (char == "[" and following not in ("", *_ENDS_WORD, "[")):
            word.has_pattern = True
        word.add(char)
        self._at += 1

    def _single_quoted(self, word: _Word) -> None:
        end = self._text.find("'", self._at + 1)
        if end < 0:
            raise UnclearLine("it has a quote that is not closed")
        word.quoted = True
        word.add(self._text[self._at + 1 : end])
        self._at = end + 1

    def _quoted_until(self, end: str, word: _Word) -> None:
        """Read a text in which only `$`, backticks and backslashes are special."""
        self._go_deeper()
        while self._at < len(self._text):
            char = self._text[self._at]
            if end and self._text.startswith(end, self._at):
                self._at += len(end)
                self._depth -= 1
                return
            if char == "\\":
                escaped = self._text[self._at + 1 : self._at + 2]
                word.add(
                    escaped if escaped in '$`"\\' else "" if escaped == "\n" else f"\\{escaped}"
                )
                self._at += 2
            elif char == "`":
                self._backticks(word)
            elif char == "$":
                self._dollar(word, quoted=True)
            elif end == "}" and char in "'\"":
                self._single_quoted(word) if char == "'" else self._inner_quotes(word)
            elif run := _ORDINARY.match(self._text, self._at):
                word.add(run.group())
                self._at = run.end()
            else:
                word.add(char)
                self._at += 1
        self._depth -= 1
        if end:
            raise UnclearLine(f"it has no {end!r} where one is expected")

    def _inner_quotes(self, word: _Word) -> None:
        self._at += 1
        self._quoted_until('"', word)

    def _backticks(self, word: _Word) -> None:
        begin = self._at
        self._at += 1
        code: list[str] = []
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == "`":
                self._at += 1
                self.found += _read("".join(code), self._depth)
                word.expand(self._text[begin : self._at])
                return
            if char == "\\" and self._text[self._at + 1 : self._at + 2] in "`\\$":
                self._at += 1
                char = self._text[self._at : self._at + 1]
            code.append(char)
            self._at += 1
        raise UnclearLine("it has a backtick that is not closed")

    def _dollar(self, word: _Word, *, quoted: bool) -> None:
        begin = self._at
        following = self._text[self._at + 1 : self._at + 2]
        if self._text.startswith("$((", self._at):
            self._at += 3
            self._quoted_until("))", _Word())
        elif following == "(":
            self._at += 2
            self.commands(")")
        elif following == "{":
            self._at += 2
            self._quoted_until("}", _Word())
        elif following == "'" and not quoted:
            self._at += 1
            self._single_quoted(word)
            if "\\" in word.value[-1]:  # an escape may be any character
                word.value[-1] = UNKNOWN
            return
        elif following == '"' and not quoted:
            self._at += 1
            return
        elif following == "[":
            raise UnclearLine("it has arithmetic in brackets")
        elif name := _PARAMETER.match(self._text, self._at + 1):
            self._at = name.end()
        else:
            word.add("$")
            self._at += 1
            return
        word.expand(self._text[begin : self._at])
