"""An agent that speaks the Agent Client Protocol and does what a file tells it to.

    python acp_agent.py SCRIPT.json

The script is an object. `do` is what it does with a prompt, one action after the other:

    say, think           a piece of what it says or thinks
    update               a session/update, as it is
    ask                  asks for leave to use a tool of these fields; "options" are by kind
    call                 a request to the client: [method, params]
    raw                  a line, as it is
    flood                asks for leave so many times, without reading an answer
    noise                what is no message at all
    wait                 until a file exists
    hang                 never ends, and has a child that never ends
    exit, kill           ends, with this code or by this signal
    fail                 answers the prompt with this error
    stop                 answers the prompt; with this stopReason, and `usage` if there is one
    stay                 does not leave when its input ends

`before` is what it does before anything else, `initialize` and `session` are merged into those
answers, `replay` is what it does when a session is loaded, and `later`, if there is one, what it
does with the prompt after that. What it reads is in `heard.jsonl`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

Json = dict[str, Any]
HERE = Path.cwd()
SESSION = "sess-1"
KINDS = ("allow_always", "allow_once", "reject_once", "reject_always")


class Agent:
    def __init__(self, script: Json) -> None:
        self.script = script
        self.session = SESSION
        self.calls = 0
        self.log = (HERE / "heard.jsonl").open("a")

    def send(self, **message: Any) -> None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()

    def hear(self) -> Json | None:
        line = sys.stdin.readline()
        self.log.write(line)
        self.log.flush()
        message: Json | None = json.loads(line) if line else None
        return message

    def update(self, **update: Any) -> None:
        params = {"sessionId": self.session, "update": update}
        self.send(method="session/update", params=params)

    def call(self, method: str, params: Json) -> None:
        """Ask the client something, and wait for its answer."""
        self.calls += 1
        self.send(id=f"c{self.calls}", method=method, params=params)
        while (message := self.hear()) is not None:
            if message.get("id") == f"c{self.calls}" and "method" not in message:
                return

    def run(self) -> None:
        self.perform(self.script.get("before", []), None)
        while (message := self.hear()) is not None:
            self.answer(message)
        if any("stay" in action for action in self.script.get("do", [])):
            time.sleep(1000)

    def answer(self, message: Json) -> None:
        number, method, params = message.get("id"), message.get("method"), message.get("params", {})
        if method == "initialize":
            greeting = {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}}
            self.send(id=number, result={**greeting, **self.script.get("initialize", {})})
        elif method == "session/new":
            self.send(id=number, result={"sessionId": SESSION, **self.script.get("session", {})})
        elif method in ("session/load", "session/resume"):
            self.session = params["sessionId"]
            self.script["do"] = self.script.get("later", self.script["do"])
            self.perform(self.script.get("replay", []), None)
            self.send(id=number, result=self.script.get("session", {}))
        elif method == "session/prompt":
            self.perform(self.script["do"], number)
        elif number is not None:
            self.send(id=number, result={})

    def perform(self, actions: list[Json], prompt: int | None) -> None:
        for action in actions:
            self.act(action, prompt)

    def act(self, action: Json, prompt: int | None) -> None:
        match next(iter(action.items())):
            case ("say", text):
                content = {"type": "text", "text": text}
                self.update(sessionUpdate="agent_message_chunk", content=content)
            case ("think", text):
                content = {"type": "text", "text": text}
                self.update(sessionUpdate="agent_thought_chunk", content=content)
            case ("update", update):
                self.update(**update)
            case ("ask", tool):
                kinds = tool.pop("options", KINDS)
                options = [{"optionId": f"{kind}-id", "name": kind, "kind": kind} for kind in kinds]
                asked = {"toolCallId": "t1", **tool}
                params = {"sessionId": self.session, "toolCall": asked, "options": options}
                self.call("session/request_permission", params)
            case ("call", [method, params]):
                self.call(method, params)
            case ("raw", line):
                sys.stdout.write(line + "\n")
                sys.stdout.flush()
            case ("flood", times):
                ask = "session/request_permission"
                for number in range(times):
                    self.send(id=number, method=ask, params={"sessionId": self.session})
            case ("noise", _):
                noise()
            case ("wait", name):
                while not (HERE / name).exists():
                    time.sleep(0.02)
            case ("hang", _):
                self.hang()
            case ("exit", code):
                os._exit(code)
            case ("kill", number):
                os.kill(os.getpid(), number)
            case ("fail", error):
                self.send(id=prompt, error=error)
            case ("stop", reason):
                usage = {"usage": action["usage"]} if "usage" in action else {}
                self.send(id=prompt, result={"stopReason": reason, **usage})
            case _:
                pass

    def hang(self) -> None:
        child = subprocess.Popen(["sleep", "1000"])
        for name, pid in (("grandchild", child.pid), ("child", os.getpid())):
            (HERE / f"{name}.new").write_text(str(pid))
            (HERE / f"{name}.new").rename(HERE / name)
        while self.hear() is not None:
            pass
        time.sleep(1000)


def noise() -> None:
    """Not UTF-8, half a message, control characters, a nesting, a long line, wrong messages."""
    wrong = [
        {"jsonrpc": "2.0"},
        {"id": [1], "result": {}},
        {"id": 10**400, "method": "x"},
        {"id": {}, "method": "fs/read_text_file"},
        {"id": 999, "result": {"sessionId": "other"}},
        {"id": True, "error": 7},
        {"method": "session/update", "params": [1]},
        {"method": "session/update", "params": {"sessionId": "sess-1", "update": {"x": 1}}},
        {"method": "session/update", "params": {"sessionId": SESSION, "update": None}},
        {"id": 5, "method": "terminal/create", "params": {"command": "rm"}},
        {"id": "p", "method": "session/request_permission", "params": {"options": 1}},
        {"id": None, "method": "session/request_permission", "params": {}},
    ]
    out = sys.stdout.buffer
    out.write(b'\xff\xfe\x00\x1b[2J\n{"jsonrpc":"2.0","meth\n\n\r\n[1,2]\n{"a":"\\ud800"}\n')
    out.write(b"[" * 40_000 + b"\n" + b'{"a":' * 40_000 + b"\n")
    out.writelines(json.dumps(message).encode() + b"\n" for message in wrong)
    out.write(b"x" * 9_000_000 + b"\n")
    out.flush()


if __name__ == "__main__":
    Agent(json.loads(Path(sys.argv[1]).read_text())).run()
