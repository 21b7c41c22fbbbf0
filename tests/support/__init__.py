"""What several test files use.

    paths               where the project, its tests and their fixtures are
    parts               programs and kernels that a test needs, and what a skip means
    eventually          waits until something is true, with a deadline

Workflows and runs

    workflows           builds nodes, edges and workflows
    random_workflows    random workflows that always end
    playbook            drives the engine by hand
    runs                a whole application in a temporary directory
    stores              every implementation of the store, and runs and events to put into one
    audit_logs          audit logs with a clock that tests set

The command line and the server

    user_machine        a user's home and repository, and commands run there
    forkserver          `infloop` commands and servers that start at once
    terminal            a command on a terminal of its own
    server              the server and a client of it
    login               logging in as a browser does
    trigger_requests    triggers made over HTTP, and deliveries to them
    webhooks            webhooks without a server
    hostile_text        text that would steer a terminal

Agents and models

    fake_model          a model API on loopback
    scripted_http       a server that plays what a test gives it, byte by byte
    provider_conformance, http_conformance   what every provider must do
    acp_agents, cli_agents   agents that do what a script says
    prompt_agent        an agent that executes its prompt as Python
    agent_programs, confined_agents   the real `claude` and `codex`

Confinement

    canaries            what a confined child must not reach
    confinement         the levels, and directories that children can use
    service_user        the user as whom the children of a whole run work
    sandbox_attacks     the table of attacks on a sandbox
    attack_tables       the other tables of attacks
    small_disk          disks that are small, or never answer
    containers          a container engine
    egress_proxy        a run's proxy and a server behind it
    egress_broker       a credential broker and a provider behind it
    repositories        git repositories and directories

Processes

    processes           which processes are alive
    child_records       records of children in a data directory
    forking             processes that are killed at random points
    children            programs that tests start
"""
