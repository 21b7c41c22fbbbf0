"""Writes the TypeScript types of the HTTP API from its OpenAPI document.

    tools/api_types.py < openapi.json > api.ts

Every schema becomes a named type; `Responses` maps an operation to what it answers. JSON whose
shape belongs to the user is `Json`.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

HEADER = """\
export type Json = string | number | boolean | null | Json[] | { [key: string]: Json };
"""
_PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean"}
_PLAIN |= {"null": "null"}


def typescript(document: dict[str, Any]) -> str:
    """Return the types of a whole document."""
    schemas = document["components"]["schemas"]
    types = [f"export type {_name(name)} = {_type(schemas[name])};" for name in sorted(schemas)]
    responses = [
        f"  {json.dumps(f'{method.upper()} {path}')}: {_answer(operation)};"
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    return "\n".join([HEADER, *types, "", "export interface Responses {", *responses, "}", ""])


def _answer(operation: dict[str, Any]) -> str:
    """Return the type of what an operation answers when it succeeds."""
    found = []
    for status, response in operation["responses"].items():
        content = response.get("content", {}).get("application/json")
        if status.startswith("2") and content is not None:
            found.append(_type(content["schema"]))
    return " | ".join(dict.fromkeys(found)) or "null"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return _name(schema["$ref"].rpartition("/")[2])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " | ".join(dict.fromkeys(map(_type, schema[key])))
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " | ".join(map(json.dumps, schema["enum"]))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(_type({**schema, "type": each}) for each in kind)
    if kind == "array":
        return f"({_type(schema.get('items', {}))})[]"
    if kind == "object":
        return _object(schema)
    return _PLAIN.get(str(kind), "Json")


def _object(schema: dict[str, Any]) -> str:
    required = schema.get("required", [])
    fields = [
        f"{_key(name)}{'' if name in required else '?'}: {_type(field)}"
        for name, field in schema.get("properties", {}).items()
    ]
    if fields:
        return "{ " + "; ".join(fields) + " }"
    more = schema.get("additionalProperties")
    return f"{{ [key: string]: {_type(more) if isinstance(more, dict) else 'Json'} }}"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else json.dumps(name)


def _name(name: str) -> str:
    return re.sub(r"\W", "_", name)


if __name__ == "__main__":
    print(typescript(json.load(sys.stdin)), end="")
