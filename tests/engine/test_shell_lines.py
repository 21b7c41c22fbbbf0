"""A value in a shell line is one word, for `sh` and for `bash`, in every line that is accepted."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from infloop.engine.shellline import UnusableReference, shell_line
from infloop.model.shell_references import reference_positions
from infloop.model.template import Template

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHELLS = ("sh", "bash")

ACCEPTED = [
    "test {{a}} = ok",
    "dump \"x {{a}} y\" '{{b}}' z{{a}}{{b}}",
    'dump "$(echo x)" "{{a}}" `echo y` ${HOME:-x} $((1 + 2)) {{b}}',
    '[ "$(printf %s x)" = "{{a}}" ] || dump {{a}}',
    "if ! test {{a}} = ok; then dump {{b}}; else dump no; fi",
    'for f in {{a}} b; do dump "$f"; done',
    "while dump {{a}}; do break; done",
    "( dump {{a}} ) && { dump {{b}}; }",
    "dump {{a}} | dump {{b}} & wait",
    "X=1 Y='2 3' dump {{a}} 2>&1 >/dev/null",
    "dump --file={{a}} -- {{b}} # a comment",
    "# a comment\ndump {{a}} \\\n  {{b}}",
    'dump "$HOME/{{a}}" ~/{{b}} HEAD~{{a}}',
    'dump a=~/{{a}} "it\'s {{b}}"',
    "sh -c 'dump \"$1\"' sh {{a}}",
    "bash -eu -o pipefail -c 'dump \"$@\"' name {{a}} {{b}}",
    "env A=b command dump {{a}}",
    "printf '%s\\n' {{a}} {{b}}",
    "cd . && dump {{a}}",
    "sed -n p {{a}}; awk -v x={{b}} 'BEGIN {print x}' {{a}}; true",
    "find . -name {{a}} -exec sh -c 'dump \"$1\"' sh {} ';'; dump {{a}}",
    'dump \\"{{a}}\\" "\\"{{b}}"',
    'dump {{a}} > "./{{b}}"',
    'dump {{a}} 2>> "out-{{a}}-{{b}}"; dump {{b}} < "/tmp/{{a}}"; dump {{a}} >| out"{{b}}"',
]

REFUSED = {
    "is in a command substitution": [
        '"$(find {{a}})"',
        'echo "$(find "{{a}}")"',
        "echo $(cat <x {{a}})",
        'echo "$(echo "$(echo {{a}})")"',
        "echo $(echo '{{a}}')",
    ],
    "is in or after a command substitution": ["echo `find {{a}}`", 'echo "`echo \\`x\\` {{a}}`"'],
    "is in or after arithmetic": [
        *("echo $(( {{a}} ))", 'echo "$(({{a}}+1))"', "(( {{a}} )) && x", "((x)); echo {{a}}"),
        "echo $((x[{{a}}]))",
    ],
    "is in or after '$['": ["echo $[ {{a}} ]"],
    "is in or after an expansion": ['echo "${v:-{{a}}}"', "echo ${v#{{a}}}", "echo ${v[{{a}}]}"],
    "is in or after a here-document": [
        "cat <<EOF\n{{a}}\nEOF",
        "cat <<-'E'\n{{a}}\nE",
        "cat <<<{{a}}",
    ],
    "is in or after a process substitution": ["cat <(echo {{a}})", "tee >(cat {{a}})"],
    "is in a comment": ["true # {{a}}", "# {{a}}\ntrue"],
    "is in an assignment": [
        "X={{a}}",
        "X={{a}} dump",
        "X+={{a}}",
        "x[{{a}}]=1",
        "X=1 Y={{a}} dump",
    ],
    "is the target of a redirection": [
        "echo > {{a}}",
        "cat < {{a}}",
        "echo 2>> {{a}}",
        "x >& {{a}}",
        'x >& "./{{a}}"',
        'x <& "./{{a}}"',
        "x > ./{{a}}",
        "x > './{{a}}'",
        "x > \"./{{a}}\"'{{b}}'",
    ],
    "begins the target of a redirection": [
        *(
            'echo > "{{a}}"',
            'cat < "/{{a}}"',
            'x >> "/dev/{{a}}"',
            'x > "/d{{a}}"',
            'x > "{{a}}/b"',
        ),
        *('x > "$HOME/{{a}}"', 'x > "//{{a}}"', 'x > "/dev/tcp/{{a}}"'),
    ],
    "would name the program": [
        *(
            "{{a}}",
            "{{a}} x",
            'true && "{{a}}/x" y',
            "! {{a}}",
            "if {{a}}; then x; fi",
            "( {{a}} )",
        ),
        *(
            "env {{a}}",
            "exec {{a}}",
            "command {{a}}",
            "timeout 5 {{a}}",
            "sudo -E {{a}}",
            "time {{a}}",
        ),
        *("nice -n 5 env A=b {{a}}", "find . -exec {{a}} ';'", ">x {{a}}", "xargs {{a}}"),
    ],
    "where its value would be read again": [
        *(
            "eval {{a}}",
            'eval "echo {{a}}"',
            "2>x eval {{a}}",
            "let {{a}}",
            ". {{a}}",
            "source {{a}}",
        ),
        *("trap {{a}} EXIT", "unset {{a}}", "read {{a}}", "declare {{a}}", "export {{a}}=1"),
        *("command eval {{a}}", "env X=1 command eval {{a}}", "builtin eval {{a}}", "'eval' {{a}}"),
        *('ssh host "x {{a}}"', "e\\val {{a}}", "python3 -c \"x('{{a}}')\"", "perl -we '{{a}}'"),
        *("node --eval={{a}}", "python3.12 -Bc {{a}}", "find . -exec sh -c 'x {{a}}' ';'"),
        *("docker run x bash -lc 'x {{a}}'", "sed 's/a/{{a}}/' f", "sed -i -e '{{a}}' f"),
        *("awk '/{{a}}/' f", "awk -F : '{{a}}' f", "su bob -c {{a}}", "ruby -e{{a}}"),
    ],
    "is code or the name of a script": [
        *('sh -c "x {{a}}"', "sh {{a}}", "bash -euo pipefail -c {{a}}", "/bin/sh -c{{a}}"),
        *("env sh -c {{a}}", "timeout 5 bash -c '{{a}}'", "sh -e -- {{a}}"),
    ],
    "operand of": ["test -v {{a}}", "[ -v {{a}} ]", "test {{a}} {{b}}", "[ {{a}} {{b}} x ]"],
    "options of 'printf'": ["printf {{a}} x", "printf -v {{a}} x", 'printf "{{a}}\\n" x'],
    "is in a word with an unquoted pattern": [
        "dump {{a}}*",
        "dump [ab]{{a}}",
        "dump ?{{a}}",
        "x a[{{a}}]",
    ],
    "is in a word with an unquoted brace": ["dump {{{a}},b}", "dump {a,b}{{a}}"],
    "is in a word with an unquoted expansion": [
        "dump $HOME/{{a}}",
        "dump $(x){{a}}",
        "dump `x`{{a}}",
    ],
    "several words": ['dump "$@{{a}}"', 'dump "x$*{{a}}"', 'dump "${@}{{a}}"'],
    "is after a tilde": ["dump ~{{a}}"],
    "which shells read differently": ["dump $'{{a}}'", 'dump $"{{a}}"', "dump $'x' {{a}}"],
    "which is not followed here": [
        *("case {{a}} in x) y;; esac", "[[ {{a}} -eq 1 ]]", "[[ -f x ]] && dump {{a}}"),
        *("alias x=eval\nx {{a}}", "dump x &> f eval {{a}}", "select x in {{a}}; do y; done"),
        *("function f { eval $1; }; f {{a}}", "coproc dump {{a}}"),
    ],
    "with a parenthesis": ['f() { eval "$1"; }; f {{a}}', "x=({{a}})", "dump @({{a}})"],
    "a function": ["f () { eval $1; }; f {{a}}"],
    "not closed": ["dump '{{a}}", 'dump "{{a}}', '( dump {{a}}; dump "{{b}}'],
    "was not opened": ["dump x) dump {{a}}"],
    "too many parentheses": ["( " * 100 + "dump {{a}}"],
    "more than 256 words": ["dump" + " x" * 300 + " {{a}}"],
}

HOSTILE = [
    *("$(touch OWNED)", "`touch OWNED`", "; touch OWNED;", "' ; touch OWNED ; '", "&& touch OWNED"),
    *('" ; touch OWNED ; "', "a b  c\td", "*", "~", "~root", "{a,b}", "\n touch OWNED\n", "\\"),
    *("a\\", "$HOME", "${IFS}", "a[$(touch OWNED)]", "x[$(touch OWNED)]=1", "", "#", "!", "eval"),
    *(
        "-c",
        "-v",
        "-va[$(touch OWNED)]",
        "<(touch OWNED)",
        "\u00e9\u0301\x7f\x81",
        "%s%d",
        "$VALUE_1",
    ),
    *("(", ")", "[", "]", "-eq", "=", "done", "x=1", "'", '"', "$'", "\r", "|touch OWNED"),
]


class Values:
    def __init__(self, **values: str) -> None:
        self._values = values

    def lookup(self, path: Any) -> Any:
        return self._values[path[0]]


@pytest.mark.parametrize("line", ACCEPTED)
def test_a_reference_in_an_argument_is_accepted(line: str) -> None:
    problems = [each.problem for each in reference_positions(Template(line).pieces())]
    assert set(problems) == {""}


@pytest.mark.parametrize(
    ("reason", "line"), [(reason, line) for reason, lines in REFUSED.items() for line in lines]
)
def test_a_reference_anywhere_else_is_refused(reason: str, line: str) -> None:
    # A template takes some of these for literal text. The shell line does not rely on that.
    literals = re.split(r"\{\{([ab])\}\}", line)
    pieces = tuple((part,) if at % 2 else part for at, part in enumerate(literals))
    problems = [each.problem for each in reference_positions(pieces)]
    assert any(reason in problem for problem in problems), problems
    with pytest.raises(UnusableReference):
        shell_line(pieces, Values(a="x", b="y"))


def test_the_line_of_each_reference_is_known() -> None:
    found = reference_positions(Template("dump {{a}}\ndump {{b}} \\\n {{c}}\n{{d}}").pieces())
    assert [each.line for each in found] == [1, 2, 3, 4]


def test_a_variable_never_has_a_name_that_the_line_uses() -> None:
    line, variables = shell_line(Template("VALUE_1=x; dump {{a}}").pieces(), Values(a="v"))
    assert line == 'VALUE_1=x; dump "${VALUE_2}"'
    assert variables == {"VALUE_2": "v"}


PIECES = [
    *("dump", " ", " ", " ", " ", "{{a}}", "{{a}}", "{{b}}", '"', '"', "'", "'", ";", "\n", "&&"),
    *(
        "|",
        "||",
        "&",
        "(",
        ")",
        "{ ",
        "; }",
        "$(",
        "`",
        "$((",
        "))",
        "${",
        "}",
        "$HOME",
        "$x",
        "\\",
    ),
    *("#", "=", "x=", "*", "?", "[", "]", "~", "<", ">", ">&", "2>", "<<E", "<<<", "<(", "eval "),
    *("sh -c ", "if ", "; then ", "; fi", "for x in ", "; do ", "; done", "! ", "test ", "printf "),
    *("case x in ", "x) ", ";; esac", "[[ ", " ]]", "command ", "env ", "exec ", "let ", "echo "),
    *("$'", '$"', "$@", "dump {{a}}", 'dump "{{b}}"', "dump 'x{{a}}'", "\\\n", "-c ", "x", "y z"),
    *("read ", "export ", "set -- ", "time ", "{x,y}", "&>", "|&", "1", "-v ", ": ", "true"),
]


def soup(chance: random.Random) -> str:
    """Make a line of pieces that mean something to a shell, sometimes in a sensible order."""
    words = [chance.choice(PIECES) for _ in range(chance.randint(2, 14))]
    if chance.random() < 0.6:
        sensible = ["dump ", chance.choice(('"', "'", "")), "{{a}}"]
        words[: chance.randint(0, 2)] = [*sensible, sensible[1], chance.choice((" ", ";", "\n"))]
    return "".join(words)


def accepted_lines(seed: int, number: int) -> Iterator[str]:
    chance = random.Random(seed)
    found = 0
    while found < number:
        line = soup(chance)
        positions = reference_positions(Template(line).pieces())
        if positions and not any(each.problem for each in positions):
            found += 1
            yield line


class Shell:
    """Runs lines with a program `dump` that records the words it gets."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._programs = folder / "bin"
        self._programs.mkdir()
        self._numbers = count()
        dump = self._programs / "dump"
        dump.write_text('#!/bin/sh\nprintf \'%s\\0\' "$@" >> "$RECORD"\n')
        dump.chmod(0o755)
        for name in (*SHELLS, "touch", "env"):
            (self._programs / name).symlink_to(shutil.which(name) or name)

    def run(self, shell: str, line: str, values: dict[str, str]) -> list[str]:
        """Run a line in an empty directory; return the words that `dump` got."""
        work = self.folder / f"work-{next(self._numbers)}"
        work.mkdir()
        record = work.with_suffix(".record")
        text, variables = shell_line(Template(line).pieces(), Values(**values))
        subprocess.run(
            [self._programs / shell, "-c", text],
            cwd=work,
            env={**variables, "PATH": str(self._programs), "HOME": "/h o", "RECORD": str(record)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=20,
            check=False,
        )
        assert not (work / "OWNED").exists(), (shell, line, text, values)
        return os.fsdecode(record.read_bytes()).split("\0")[:-1] if record.exists() else []


def marked(value: str, number: int) -> str:
    return f"\u27ea{number}{value}\u27eb"


def whole(word: str, values: dict[str, str]) -> int:
    """Return how many values are in a word; fail if there is a part of one."""
    found = 0
    for value in values.values():
        found += word.count(value)
        word = word.replace(value, "")
    assert "\u27ea" not in word, word
    assert "\u27eb" not in word, word
    return found


@pytest.mark.parametrize("shell", SHELLS)
def test_a_value_arrives_as_one_word(tmp_path: Path, shell: str) -> None:
    running, chance, arrived = Shell(tmp_path), random.Random(1), 0
    lines = [*ACCEPTED, *accepted_lines(seed=7, number=150)]
    for line in lines:
        values = {name: chance.choice(HOSTILE) for name in "ab"}
        running.run(shell, line, values)
        numbers = count(1)
        together = {name: marked(value, next(numbers)) for name, value in values.items()}
        words = running.run(shell, line, together)
        arrived += sum(whole(word, together) for word in words)
    assert arrived > len(lines) / 2


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("value", HOSTILE)
def test_each_hostile_value_arrives_as_it_is(tmp_path: Path, shell: str, value: str) -> None:
    line = "dump {{a}} \"{{a}}\" '{{a}}' x{{a}} \"y {{a}}\" '{{a}} z'; sh -c 'dump \"$1\"' sh {{a}}"
    words = Shell(tmp_path).run(shell, line, {"a": value})
    expected = [value, value, value, f"x{value}", f"y {value}", f"{value} z", value]
    assert words == expected
