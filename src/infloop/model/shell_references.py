"""Where a reference may stand in a shell line: in an argument of a command, as one word.

It may also be part of the file of a redirection, in double quotes: `> "out/{{name}}.txt"`.

A value becomes a quoted variable (see `infloop.engine.shellline`). That keeps it one word at these
places, and nowhere else: the shell reads a substitution, arithmetic or a here-document again, and
some commands read their arguments again. A reference at such a place is refused.

- The line is read as both `sh` (dash) and `bash` read it. Where they differ, and where this reader
  cannot follow, every later reference is refused.
- A program that takes an argument for code is refused if it is in a table below. Others get the
  value as one word, and what they do with it is theirs.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Quote: TypeAlias = Literal["", "'", '"']

# A line cannot hold this character, so it can stand for a reference.
_REFERENCE = "\0"
_EXPANSION = "\1"

# Our own fixed patterns: no nested repeats.
_BACKTICKS = re.compile(r"`[^`\\\0]*`")  # noqa: TID251
_ARITHMETIC = re.compile(r"\$\(\([^()\"'`\\\0]*\)\)")  # noqa: TID251
_PARAMETER = re.compile(  # noqa: TID251
    r"\$\{[#!]?(?:[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-])(?:[-:=+?#%/^,@][^\"'`$\\{}\0]*)?\}"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]")  # noqa: TID251
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\+?=|\[)")  # noqa: TID251
_REDIRECTION = re.compile(r"<<|<>|<&|>>|>\||>&|<|>")  # noqa: TID251
# A relative path, or an absolute one outside of /dev: a reference or an expansion is not at the
# beginning.
_NAMED_FILE = re.compile(r"[^/\0\1]|/(?!dev/)[^/\0\1]+/")  # noqa: TID251
_VERSION = re.compile(r"[0-9.]+$")  # noqa: TID251
_OPTION_VALUE = re.compile(r"[0-9][0-9.]*[smhd]?")  # noqa: TID251

_MAX_DEPTH = 20
_MAX_WORDS = 256
"""A command with more words before a reference is not followed, so that the time stays linear."""
_BLANKS = " \t"
_ENDS_WORD = " \t\n;&|()<>"
_MANY = frozenset("@*!")

_BEFORE_COMMAND = frozenset(
    {"!", "{", "}", "do", "done", "elif", "else", "fi", "if", "then", "until", "while"}
)
_NOT_FOLLOWED = frozenset({"[[", "alias", "case", "coproc", "function", "select"})
_READ_AGAIN = frozenset(
    {
        *(".", "alias", "bind", "compgen", "complete", "declare", "enable", "eval", "export", "fc"),
        *("getopts", "jobs", "let", "local", "mapfile", "read", "readarray", "readonly", "source"),
        *("trap", "typeset", "unset", "wait"),
        *("mosh", "parallel", "rsh", "screen", "ssh", "tmux", "watch"),
    }
)
"""Commands that take an argument for code, for arithmetic or for the name of a variable."""
_START_PROGRAMS = frozenset(
    {
        *("builtin", "chroot", "command", "doas", "env", "exec", "ionice", "nice", "nohup"),
        *("setsid", "stdbuf", "strace", "sudo", "taskset", "time", "timeout", "unshare", "xargs"),
    }
)
"""Commands whose arguments are another command."""
_SHELLS = frozenset({"ash", "bash", "csh", "dash", "fish", "ksh", "mksh", "sh", "tcsh", "zsh"})
_CODE_OPTIONS = {
    **dict.fromkeys(_SHELLS, "c"),
    **dict.fromkeys(("flock", "psql", "python", "runuser", "script", "su", "vim", "nvim"), "c"),
    **dict.fromkeys(("bun", "lua", "mysql", "osascript", "perl", "ruby"), "eE"),
    "deno": "",
    "gdb": "",
    "node": "ep",
    "php": "r",
    "pwsh": "cC",
}
"""Programs with the options whose value is code, besides `_LONG_CODE_OPTIONS`."""
_LONG_CODE_OPTIONS = frozenset(
    {"--command", "--eval", "--exec", "--execute", "--print", "--session-command", "-ex", "eval"}
)
_SCRIPT_FIRST = frozenset({"awk", "ed", "gawk", "mawk", "nawk", "sed"})
"""Programs whose first argument is code."""
_RUN_OPTIONS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})

_AGAIN = "where its value would be read again"


class Position(NamedTuple):
    """Where a reference stands: its line, the quote around it, and why it may not stand there."""

    line: int
    quote: Quote
    problem: str = ""


@lru_cache(maxsize=256)
def reference_positions(pieces: tuple[str | tuple[str, ...], ...]) -> tuple[Position, ...]:
    """Return the position of each reference in a shell line, in their order."""
    text = "".join(piece if isinstance(piece, str) else _REFERENCE for piece in pieces)
    return tuple(_Reader(text).positions())


class _Unclear(Exception):
    """The rest of the line cannot be followed; the message says what is there."""


class _Word(msgspec.Struct):
    """A word: its text without quotes, its references, and what keeps it from being one word."""

    parts: list[str] = msgspec.field(default_factory=list)
    plain: bool = True  # without quotes, escapes and expansions
    quotes: dict[int, Quote] = msgspec.field(default_factory=dict)
    problem: str = ""

    @property
    def text(self) -> str:
        return "".join(self.parts)


class _Command(msgspec.Struct):
    """The words of a command that were read so far; the first one is its name."""

    words: list[str] = msgspec.field(default_factory=list)
    begun: bool = False  # an assignment or a redirection was read


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._count = 0
        self._depth = 0
        self._found: dict[int, Position] = {}
        self._lines = list(_lines_of_references(text))

    def positions(self) -> list[Position]:
        problem = ""
        try:
            self._commands()
        except _Unclear as unclear:
            problem = str(unclear)
        last = Position(0, "", problem or "is at a place that cannot be understood")
        return [
            self._found.get(index, last)._replace(line=line)
            for index, line in enumerate(self._lines)
        ]

    # -- commands ------------------------------------------------------------------------------

    def _commands(self, inside: str = "", *, until_closed: bool = False) -> None:
        """Read commands to the end, or to the closing parenthesis; `inside` forbids references."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _Unclear("is in or after too many parentheses")
        command = _Command()
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in _BLANKS:
                self._at += 1
            elif self._text.startswith("\\\n", self._at):
                self._at += 2
            elif char == "#":
                self._comment()
            elif char in "\n;&|":
                self._separator()
                command = _Command()
            elif char == "(":
                self._subshell(command, inside)
                command = _Command()
            elif char == ")":
                if not until_closed:
                    raise _Unclear("is after a parenthesis that was not opened")
                self._at += 1
                self._depth -= 1
                return
            elif char in "<>":
                self._redirection(command, inside)
            else:
                self._command_word(command, inside)
        if until_closed:
            raise _Unclear("is after a parenthesis that is not closed")

    def _comment(self) -> None:
        end = self._text.find("\n", self._at)
        end = len(self._text) if end < 0 else end
        for _ in range(self._text.count(_REFERENCE, self._at, end)):
            self._place(self._next_reference(), "", "is in a comment")
        self._at = end

    def _separator(self) -> None:
        two = self._text[self._at : self._at + 2]
        if two in (";;", ";&", "&>"):
            raise _Unclear(f"is after {two!r}, which is not followed here")
        self._at += 2 if two in ("&&", "||", "|&") else 1

    def _subshell(self, command: _Command, inside: str) -> None:
        if self._text.startswith("((", self._at):
            raise _Unclear(f"is in or after arithmetic, {_AGAIN}")
        if command.words or command.begun:
            raise _Unclear("is after the beginning of a function or a list")
        self._at += 1
        self._commands(inside, until_closed=True)

    def _redirection(self, command: _Command, inside: str) -> None:
        found = _REDIRECTION.match(self._text, self._at)
        assert found
        if found.group() == "<<":
            raise _Unclear(f"is in or after a here-document, {_AGAIN}")
        self._at = found.end()
        if self._text.startswith("(", self._at):
            raise _Unclear(f"is in or after a process substitution, {_AGAIN}")
        while self._text.startswith((*_BLANKS, "\\\n"), self._at):
            self._at += 2 if self._text[self._at] == "\\" else 1
        command.begun = True
        word = self._word(inside)
        self._end(word, inside or word.problem or _target_problem(found.group(), word))

    def _command_word(self, command: _Command, inside: str) -> None:
        word = self._word(inside)
        if self._text.startswith(("<", ">"), self._at):
            if word.plain and word.text.isdecimal():
                command.begun = True  # the number of a descriptor
                return
            if word.text.endswith("}"):
                raise _Unclear("is after a descriptor in braces")
        problem = _place_problem(command, word)
        self._end(word, inside or problem or word.problem)

    def _end(self, word: _Word, problem: str) -> None:
        for index, quote in word.quotes.items():
            self._place(index, quote, problem)

    # -- words ---------------------------------------------------------------------------------

    def _word(self, inside: str) -> _Word:
        word = _Word()
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in _ENDS_WORD:
                if char == "(" and (word.parts or not word.plain):
                    raise _Unclear("is in or after a word with a parenthesis")
                break
            if char == "\\":
                self._escape(word)
            elif char == "'":
                self._single_quoted(word)
            elif char == '"':
                self._double_quoted(word, inside)
            elif char == "`":
                self._backticks(word, quoted=False)
            elif char == "$":
                self._dollar(word, inside, quoted=False)
            elif char == _REFERENCE:
                self._reference(word, "")
            else:
                self._plain(word, char)
        if word.parts[:2] == ["~", _REFERENCE]:
            word.problem = "is after a tilde"
        return word

    def _plain(self, word: _Word, char: str) -> None:
        if char in "*?[":
            word.problem = "is in a word with an unquoted pattern; put the pattern in quotes"
        elif char in "{}":
            word.problem = "is in a word with an unquoted brace; put the brace in quotes"
        word.parts.append(char)
        self._at += 1

    def _reference(self, word: _Word, quote: Quote) -> None:
        word.quotes[self._next_reference()] = quote
        word.parts.append(_REFERENCE)
        self._at += 1

    def _escape(self, word: _Word) -> None:
        escaped = self._text[self._at + 1 : self._at + 2]
        self._at += 2
        if escaped == "\n":
            return
        word.plain = False
        if escaped == _REFERENCE:
            word.quotes[self._next_reference()] = ""
            word.problem = "is after a backslash"
        word.parts.append(escaped)

    def _single_quoted(self, word: _Word) -> None:
        word.plain = False
        self._at += 1
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == "'":
                self._at += 1
                return
            if char == _REFERENCE:
                self._reference(word, "'")
            else:
                word.parts.append(char)
                self._at += 1
        raise _Unclear("is in a quote that is not closed")

    def _double_quoted(self, word: _Word, inside: str) -> None:
        word.plain = False
        self._at += 1
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == '"':
                self._at += 1
                return
            if char == "\\":
                self._escape(word)
            elif char == "`":
                self._backticks(word, quoted=True)
            elif char == "$":
                self._dollar(word, inside, quoted=True)
            elif char == _REFERENCE:
                self._reference(word, '"')
            else:
                word.parts.append(char)
                self._at += 1
        raise _Unclear("is in a quote that is not closed")

    # -- expansions ----------------------------------------------------------------------------

    def _backticks(self, word: _Word, *, quoted: bool) -> None:
        self._skip(
            _BACKTICKS, word, f"is in or after a command substitution (`…`), {_AGAIN}", quoted
        )

    def _dollar(self, word: _Word, inside: str, *, quoted: bool) -> None:
        following = self._text[self._at + 1 : self._at + 2]
        if following == _REFERENCE:
            self._at += 1
            self._reference(word, '"' if quoted else "")
            word.problem = "is after a dollar sign"
        elif following == "(":
            self._parenthesis(word, quoted=quoted)
        elif following == "{":
            self._skip(_PARAMETER, word, f"is in or after an expansion (${{…}}), {_AGAIN}", quoted)
        elif following == "[" or (following in ("'", '"') and not quoted):
            raise _Unclear(f"is in or after '${following}', which shells read differently")
        elif name := _NAME.match(self._text, self._at + 1):
            self._expanded(word, quoted=quoted, many=name.group() in _MANY - {"!"})
            self._at = name.end()
        else:
            word.parts.append("$")
            self._at += 1

    def _parenthesis(self, word: _Word, *, quoted: bool) -> None:
        if self._text.startswith("$((", self._at):
            self._skip(_ARITHMETIC, word, f"is in or after arithmetic, {_AGAIN}", quoted)
            return
        self._at += 2
        self._commands(f"is in a command substitution ($(…)), {_AGAIN}", until_closed=True)
        self._expanded(word, quoted=quoted)

    def _skip(self, pattern: re.Pattern[str], word: _Word, unclear: str, quoted: bool) -> None:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise _Unclear(unclear)
        many = pattern is _PARAMETER and not _MANY.isdisjoint(found.group())
        self._expanded(word, quoted=quoted, many=many)
        self._at = found.end()

    def _expanded(self, word: _Word, *, quoted: bool, many: bool = False) -> None:
        word.plain = False
        word.parts.append(_EXPANSION)
        if many:
            word.problem = "is in a word that may become several words"
        elif not quoted:
            word.problem = "is in a word with an unquoted expansion; put the word in double quotes"

    # -- references ----------------------------------------------------------------------------

    def _next_reference(self) -> int:
        self._count += 1
        return self._count - 1

    def _place(self, index: int, quote: Quote, problem: str) -> None:
        self._found[index] = Position(0, quote, problem)


def _lines_of_references(text: str) -> Iterator[int]:
    for number, line in enumerate(text.split("\n"), 1):
        for _ in range(line.count(_REFERENCE)):
            yield number


def _program(word: str) -> str:
    return word.rpartition("/")[2]


# -- places in a command -----------------------------------------------------------------------


def _target_problem(operator: str, word: _Word) -> str:
    """Return why a word with references may not be the target of a redirection."""
    if operator.endswith("&"):
        return "is the target of a redirection to a descriptor"
    if set(word.quotes.values()) != {'"'}:
        return "is the target of a redirection without double quotes around it"
    # bash connects to a host where a file is called /dev/tcp/HOST/PORT.
    if not _NAMED_FILE.match(word.text):
        return (
            "begins the target of a redirection, so its value could be a device or a connection "
            '(write "./{{…}}" for a file in the directory)'
        )
    return ""


def _place_problem(command: _Command, word: _Word) -> str:
    """Add a word to a command; return why it may hold no reference there."""
    if command.words:
        problem = _argument_problem(command.words, word.text) if word.quotes else ""
        if len(command.words) <= _MAX_WORDS:
            command.words.append(word.text)
        return problem
    text = word.text
    if word.plain and not command.begun and text in _BEFORE_COMMAND:
        return ""
    if word.plain and text in _NOT_FOLLOWED:
        raise _Unclear(f"is in or after {text!r}, which is not followed here")
    if _ASSIGNMENT.match(text):
        command.begun = True
        return "is in an assignment"
    command.words.append(text)
    return "would name the program"


def _argument_problem(words: Sequence[str], argument: str) -> str:
    """Return why an argument that follows these words may hold no reference."""
    if len(words) > _MAX_WORDS:
        return f"is after more than {_MAX_WORDS} words of one command"
    # The command itself may be an argument of others, as in `env A=b timeout 5 command …`.
    start = next((index for index, word in enumerate(words) if _is_program(word)), len(words))
    if start == len(words) or words[-1] in _RUN_OPTIONS:
        return "would name the program"
    name, before, rest = _program(words[start]), words[-1], words[start + 1 :]
    if name in _READ_AGAIN:
        return f"is an argument of {name!r}, {_AGAIN}"
    if name in ("test", "[") and (before in ("-v", "-R") or _REFERENCE in before):
        return f"is an operand of {name!r} that is not clear; write the operator between two values"
    if name == "printf" and (before == "-v" or (not rest and argument[:1] == _REFERENCE)):
        return "would be the options of 'printf'; write printf '%s' before it"
    if name in _SHELLS and not _has_operand(rest):
        return f"is code or the name of a script for {name!r}"
    if name in _SCRIPT_FIRST and _is_script(rest):
        return f"is in the script of {name!r}, {_AGAIN}"
    for program in {_VERSION.sub("", _program(word)) for word in words} & _CODE_OPTIONS.keys():
        options = _CODE_OPTIONS[program]
        if _asks_for_code(before, options) or _holds_code(argument, options):
            return f"is code for {program!r}, {_AGAIN}"
    return ""


def _is_program(word: str) -> bool:
    """Tell whether a word names a program, and not one that starts another or an option of it."""
    is_value = word[:1] in "-+" or "=" in word or _OPTION_VALUE.fullmatch(word)
    return not is_value and _program(word) not in _START_PROGRAMS


def _has_operand(words: Sequence[str]) -> bool:
    """Tell whether the arguments of a shell hold its code or its script; the rest is only data."""
    is_value = False
    for word in words:
        if is_value:
            is_value = False
        elif word[:1] in ("-", "+"):
            is_value = word[-1] in "oO" or word in ("--rcfile", "--init-file")
        else:
            return True
    return False


def _is_script(words: Sequence[str]) -> bool:
    """Tell whether the next argument of a stream editor is its script."""
    if words and words[-1] in ("-e", "--expression", "--source"):
        return True
    operands = [word for word in words if word[:1] != "-"]
    values = {"-v", "-F", "-f", "-l", "--assign", "--file", "--field-separator"}
    is_value = bool(words) and words[-1] in values
    given = {"-e", "-f", "--expression", "--file", "--source"} & set(words)
    taken = sum(word in values for word in words[:-1])
    return not given and not is_value and len(operands) <= taken


def _asks_for_code(option: str, letters: str) -> bool:
    is_cluster = option[:1] == "-" and option[:2] != "--" and option[-1] in letters
    return is_cluster or option in _LONG_CODE_OPTIONS


def _holds_code(argument: str, letters: str) -> bool:
    """Tell whether an argument is an option with code in the same word: `-e…`, `--eval=…`."""
    option = argument.partition(_REFERENCE)[0].partition("=")[0]
    return option[:1] == "-" and (option in _LONG_CODE_OPTIONS or _asks_for_code(option, letters))
