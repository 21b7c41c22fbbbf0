"""Providers: programs and models that answer a prompt.

    base               the interface: a request in; text, tool calls, usage, cost and a result out
    transports         makes the provider of a manifest: one case per transport
    context            what a transport may use
    cli/               transport `cli`: an agent that is a program
    acp/               transport `acp`: an agent that speaks the Agent Client Protocol
    http/              transport `http`: a model behind an HTTP API
    builtin/           transport `builtin`: infloop's own agent, with tools behind one gate
    scripted           transport `scripted`: plays a file of turns, for demos, documents and tests
    shipped/           the manifests that come with infloop

    programs           which program an agent is, and what to do if it is not installed
    process            runs a program and reads its output until it ends
    output_reader      turns a program's output into parts, in bounded memory
    idle_timeout       limits how long to wait for a provider that sends nothing
    approval_requests  an agent's open requests for a person's approval
    lines, json_lines  splits output into lines; reads one line of untrusted JSON
    prices             computes the cost of tokens, or leaves it unknown
    request_bound      the most tokens that a request to a model API can use

A new transport is a manifest class in `infloop.model.provider`, a file here, and a case in
`transports`.
"""

from __future__ import annotations

from pathlib import Path

SHIPPED_DIR = Path(__file__).parent / "shipped"
"""The manifests that come with infloop."""
