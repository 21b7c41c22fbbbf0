"""An MCP server on standard input and output that behaves as a script says, well or badly.

The script is a JSON file: `tools` is what it lists; `later` replaces that after a call of `change`.
The tools of these names do what they say; every other one returns its arguments.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

Message = dict[str, Any]


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:  # noqa: PTH123
        script = json.load(file)
    if script.get("mute"):
        time.sleep(1000)
    if "exit" in script:
        print("\x1b[31mcannot start", file=sys.stderr)
        sys.exit(script["exit"])
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            answer(message, script)


def answer(message: Message, script: Message) -> None:
    if message["method"] == "initialize":
        reply(
            message,
            {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "a server", "version": "1"},
            },
        )
    elif message["method"] == "tools/list":
        reply(message, {"tools": script["tools"], **script.get("page", {})})
    elif message["method"] == "tools/call":
        params = message["params"]
        call(message, params["name"], params.get("arguments") or {}, script)


def call(message: Message, name: str, arguments: Message, script: Message) -> None:
    match name:
        case "hang":
            time.sleep(1000)
        case "die":
            os._exit(7)
        case "long":
            say({"jsonrpc": "2.0", "id": message["id"], "result": "x" * (6 << 20)})
        case "endless":
            while True:
                sys.stdout.write("x" * 65536)
        case "flood":
            for number in range(2_000):
                say({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": 1}})
                say({"jsonrpc": "2.0", "id": f"s{number}", "method": "sampling/createMessage"})
                print("no JSON at all", flush=False)
            text(message, "after the flood")
        case "environment":
            text(message, json.dumps(dict(os.environ)))
        case "start":
            subprocess.Popen(["sleep", arguments["token"]], start_new_session=True)
            text(message, "started")
        case "change":
            script["tools"] = script["later"]
            say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            text(message, "changed")
        case "blocks":
            blocks = [
                {"type": "text", "text": "\x1b[2Jred\u202e\x07"},
                {"type": "image", "data": "AAAA", "mimeType": "image/png"},
                {"type": "resource_link", "uri": "file:///etc/passwd", "name": "x"},
            ]
            reply(message, {"content": blocks})
        case "wrong":
            reply(message, {"content": "no list"})
        case "fail":
            reply(message, {"content": [{"type": "text", "text": "no"}], "isError": True})
        case "refuse":
            error = {"code": -32000, "message": "\x1b[2Jnot today"}
            say({"jsonrpc": "2.0", "id": message["id"], "error": error})
        case _:
            text(message, json.dumps(arguments))


def text(message: Message, words: str) -> None:
    reply(message, {"content": [{"type": "text", "text": words}]})


def reply(message: Message, result: Message) -> None:
    say({"jsonrpc": "2.0", "id": message["id"], "result": result})


def say(message: Message) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


main()
