"""Tools for models, behind one gate.

    base           the interface of a tool
    gate           the only way to call one: policy, approval, audit, leak guard
    http_requests  HTTP requests of tools, within the operator's rules
    workspace/     read, write, list, search, edit and patch files
    shell/         commands and processes
    web/           fetch pages, search, talk to other agents
    browser/       a browser whose traffic is limited by the same rules
    mcp/           tools of MCP servers
    toolset        which tools an agent gets

What a call may do is decided in `infloop.policy.tool_policy`, and what tools may reach in
`infloop.policy.egress_rules`.
"""
