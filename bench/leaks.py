"""The leak guard on what agents print: all rules and 200 known secrets, beside detect-secrets.

The text is made of what agents print: test output, diffs, JSON lines, file listings, hashes, and
now and then a token. detect-secrets scans it line by line with all its plugins. It is slow, so it
gets a smaller part of the same text; figures are per megabyte.
"""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

from benchmark import Benchmark, Contender, Sample, Target, cpu, ratio, stopwatch

MEGABYTE = 1_000_000
PEER_BYTES = 200_000
CHUNK = 4_096
SECRETS = 200

LINES = (
    "tests/runtime/test_runs.py::test_a_run_ends[{word}-{number}] PASSED        [ {number:3d}%]",
    "+    return {word}({number}, key={word!r}, path=Path({word!r}))",
    "-        self._{word} = {word} or {number}",
    '{{"type":"assistant","message":{{"id":"msg_{number}","content":[{{"type":"text","text":"{word}"}}]}}}}',
    "-rw-r--r-- 1 user user {number:7d} Nov 17 20:{number:02d} src/{word}/{word}_{number}.py",
    "commit {digest}",
    '  File "/home/user/project/src/{word}.py", line {number}, in {word}',
    "I will look at {word} next, because the check of {word} says {number} instead of {word}.",
    "npm warn deprecated {word}@{number}.0.{number}: use {word}-next, integrity sha512-{digest}",
)
TOKENS = ("ghp_", "sk-ant-api03-", "AKIA", "glpat-", "npm_")


def write_text(megabytes: int, folder: Path) -> None:
    """Write the text, and the secrets that are known."""
    pick = random.Random(7)
    words = [
        "".join(pick.choices("abcdefghijklmnopqrstuvwxyz", k=pick.randint(3, 11)))
        for _ in range(900)
    ]
    lines: list[str] = []
    size = 0
    while size < megabytes * MEGABYTE:
        digest = hashlib.sha256(str(size).encode()).hexdigest()
        line = pick.choice(LINES).format(
            word=pick.choice(words), number=pick.randint(1, 99), digest=digest
        )
        if pick.random() < 0.001:
            line += f" {pick.choice(TOKENS)}{digest[:36]}"
        lines.append(line)
        size += len(line) + 1
    (folder / "log.txt").write_text("\n".join(lines))
    secrets = [hashlib.sha256(f"secret {n}".encode()).hexdigest()[:40] for n in range(SECRETS)]
    (folder / "secrets.txt").write_text("\n".join(secrets))


def measure_whole(megabytes: int, folder: Path) -> Sample:
    """Redact the text as one value."""
    guard, text = _guard(folder), (folder / "log.txt").read_text()
    guard.redact("warm up " * 10)
    with stopwatch(megabytes) as sample:
        guard.redact(text)
    return sample


def measure_stream(megabytes: int, folder: Path) -> Sample:
    """Redact the text in chunks, as a child prints it."""
    guard, text = _guard(folder), (folder / "log.txt").read_text()
    stream = guard.stream()
    stream.feed("warm up " * 10)
    chunks = [text[at : at + CHUNK] for at in range(0, len(text), CHUNK)]
    with stopwatch(megabytes) as sample:
        for chunk in chunks:
            stream.feed(chunk)
        stream.finish()
    return sample


def measure_detect_secrets(megabytes: int, folder: Path) -> Sample:
    """Scan a part of the text, line by line."""
    from detect_secrets.core.scan import scan_line
    from detect_secrets.settings import default_settings

    text = (folder / "log.txt").read_text()[:PEER_BYTES]
    with default_settings():
        list(scan_line("warm up"))
        with stopwatch(1) as sample:
            for line in text.splitlines():
                list(scan_line(line))
    scale = MEGABYTE / PEER_BYTES
    return Sample(1, sample.wall * scale, sample.cpu * scale)


def _guard(folder: Path):  # type: ignore[no-untyped-def]
    from infloop.policy.leaks.guard import LeakGuard
    from infloop.policy.leaks.known import Secret
    from infloop.policy.leaks.rules import shipped_rules

    secrets = (folder / "secrets.txt").read_text().splitlines()
    return LeakGuard([Secret("known", each) for each in secrets], shipped_rules)


WHOLE, STREAM, PEER = "infloop, whole text", "infloop, stream", "detect-secrets"

BENCHMARK = Benchmark(
    title="Leak guard: all rules, 200 known secrets",
    unit="MB",
    contenders=(
        Contender(WHOLE, measure_whole),
        Contender(STREAM, measure_stream),
        Contender(PEER, measure_detect_secrets, optional=True),
    ),
    targets=(
        Target(
            "MB/s of CPU, whole text",
            lambda r: [1 / cpu(s) for s in r[WHOLE]],
            50,
            "MB/s",
            at_least=True,
        ),
        Target(
            "MB/s of CPU, stream",
            lambda r: [1 / cpu(s) for s in r[STREAM]],
            50,
            "MB/s",
            at_least=True,
        ),
        Target("detect-secrets / infloop", ratio(PEER, WHOLE, cpu), 10, "x", at_least=True),
    ),
    size=20,
    quick_size=5,
    prepare=write_text,
)
