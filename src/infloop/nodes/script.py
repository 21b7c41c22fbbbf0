"""Node type `script`: runs inline Python or TypeScript with a function `run`.

- The inputs are passed by position, in the order in which they are declared.
- If `run` returns an object, each declared name in it becomes an output as text: null or missing is
  empty, other values are compact JSON. The whole object, types kept, is the output `result`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec

from infloop.model.values import JsonObject, JsonValue, as_text, compact_json, json_text
from infloop.nodes.base import Outcome, failed, tail, whole_number
from infloop.policy.command_time import TimeLimit, time_limit
from infloop.sandbox.base import ChildRequest

if TYPE_CHECKING:
    from infloop.nodes.base import StepContext
    from infloop.sandbox.base import ChildResult

SCRIPT_TIMEOUT_MS = 60_000
_HARNESS = Path(__file__).parent / "harness"


async def perform(step: StepContext, config: JsonObject) -> Outcome:
    """Run the script and read what it returns."""
    language = as_text(config.get("language")) or "ts"
    if language not in ("py", "ts"):
        return failed(f"unknown script language {language!r}; use py or ts", language=language)
    if language == "ts" and not step.interpreters.typescript:
        return failed(step.interpreters.typescript_missing, language=language)
    cwd = await step.directory(config.get("cwd"))
    inputs = config.get("inputs")
    arguments = list(inputs.values()) if isinstance(inputs, dict) else []
    timeout_ms = whole_number(config.get("timeoutMs"), SCRIPT_TIMEOUT_MS)
    limit = time_limit(timeout_ms, step.max_command_ms)
    with tempfile.TemporaryDirectory(prefix="infloop-script-") as folder:
        argv = _prepare(Path(folder), language, as_text(config.get("code")), step)
        request = ChildRequest(
            argv=argv,
            cwd=cwd,
            env=step.environment(),
            stdin=compact_json(arguments).encode(),
            timeout_ms=limit.ms,
            max_output_bytes=step.max_output_bytes,
            want_result=True,
            reads=(folder,),
            max_result_bytes=step.max_output_bytes,
        )
        async with step.workspace.snapshots(cwd) as snapshots:
            child = await step.sandbox().run(
                request, on_output=lambda stream, piece: step.write_output(piece, stream)
            )
    return _outcome(language, config, child, limit)._replace(tree=snapshots.tree)


def _prepare(folder: Path, language: str, code: str, step: StepContext) -> tuple[str, ...]:
    """Write the script to a private folder; return the command that runs it."""
    if language == "py":
        script, runner = folder / "script.py", folder / "run_python.py"
        script.write_text(code, encoding="utf-8")
        runner.write_text(
            (_HARNESS / "run_python.py").read_text(encoding="utf-8"), encoding="utf-8"
        )
        return (step.interpreters.python, str(runner), str(script))
    script = folder / "script.mts"
    footer = (_HARNESS / "run_typescript.ts").read_text(encoding="utf-8")
    script.write_text(code + footer, encoding="utf-8")
    return (*step.interpreters.typescript, str(script))


def _outcome(language: str, config: JsonObject, child: ChildResult, limit: TimeLimit) -> Outcome:
    outputs: JsonObject = {
        "stdout": child.stdout,
        "stderr": child.stderr,
        "exitCode": child.exit_code,
        "durationMs": child.duration_ms,
        "timedOut": child.timed_out,
        "language": language,
    }
    if child.error:
        reason = child.error
    elif child.timed_out:
        reason = f"the script did not finish within {limit.ms} ms{limit.note}"
    elif child.result_too_large:
        reason = "the script returned more than may be kept; write it to a file and return its name"
    elif child.exit_code != 0:
        how = (
            f"signal {child.signal}" if child.exit_code is None else f"exit code {child.exit_code}"
        )
        reason = f"the script ended with {how}{child.hint_suffix}: {tail(child.stderr)}"
    else:
        returned = _returned(child.result)
        if isinstance(returned, dict):
            outputs["result"] = returned
        declared = config.get("outputs")
        for name in declared if isinstance(declared, list) else []:
            value = returned.get(cast("str", name)) if isinstance(returned, dict) else None
            outputs[str(name)] = _text(value)
        return Outcome("next", outputs)
    return Outcome("error", {**outputs, "errorMessage": reason}, reason)


def _returned(data: bytes | None) -> JsonValue:
    """Return what the script returned, or None if that is not JSON."""
    if not data:
        return None
    try:
        value: JsonValue = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return None
    return value


def _text(value: JsonValue) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json_text(value)
