#!/bin/sh
# Installs the parts that some tests need and most machines lack:  tools/test_parts.sh [GROUP...]
#
#   browser    Chromium and its headless shell
#   container  podman, runc (works with every cgroup version) and catatonit (the container's init)
#   agents     the real agents, with npm, into .agents/ or $AGENTS_DIR
#   programs   bubblewrap, ripgrep, gcc, perl, iproute2, ssh, PostgreSQL, and user-mode-linux (a kernel
#              for the cgroup test)
#
# Without a group it installs all of them. On Debian and Ubuntu, root gets the missing packages
# installed. Anybody else gets the command to type. The agents need npm, and no root;
# AGENTS=latest installs the newest ones instead of the pinned versions.
set -eu
cd "$(dirname "$0")/.."

groups=${*:-browser container agents programs}
pinned=tests/agents/package.json
agents=${AGENTS_DIR:-.agents}
status=0

main() {
    for group in $groups; do
        case $group in
            browser | container | agents | programs) ;;
            *) fail "unknown group: $group (browser, container, agents or programs)" && exit 2 ;;
        esac
    done
    missing=$(for group in $groups; do list_missing "$group"; done | xargs)
    [ -z "$missing" ] || install_packages
    case " $groups " in *" agents "*) install_agents ;; esac
    exit "$status"
}

# Prints the Debian packages of a group whose programs are missing.
list_missing() {
    case $1 in
        browser)
            need chromium
            need chromium-headless-shell
            ;;
        container)
            need podman
            need runc
            [ -e /usr/libexec/podman/catatonit ] || need catatonit
            ;;
        programs)
            need bwrap bubblewrap
            need rg ripgrep
            need gcc
            need perl
            need ip iproute2
            need ssh openssh-client
            need linux.uml user-mode-linux
            [ -n "$(ls /usr/lib/postgresql/*/bin/postgres 2>/dev/null)" ] || need postgres postgresql
            ;;
    esac
}

# need PROGRAM [PACKAGE]
need() {
    command -v "$1" >/dev/null || echo "${2:-$1}"
}

install_packages() {
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        fail "missing: $missing
install with: sudo apt-get install --no-install-recommends $missing"
        return
    fi
    echo "installing system packages: $missing"
    apt-get update -qq
    # shellcheck disable=SC2086  (a list of names)
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing ||
        fail "apt-get could not install: $missing"
}

install_agents() {
    if [ -z "${AGENTS:-}" ] && cmp -s "$pinned" "$agents/installed.json"; then
        return
    fi
    if ! command -v npm >/dev/null; then
        fail "missing: npm
the agents are npm packages: install Node.js 20 or newer, which brings npm, and run this again"
        return
    fi
    newest=
    if [ "${AGENTS:-}" = latest ]; then
        newest=$(sed -n 's/^ *"\(@[^"]*\)": .*/\1@latest/p' "$pinned")
    fi
    echo "installing agents into $agents"
    mkdir -p "$agents"
    rm -f "$agents/installed.json"
    cp "$pinned" "$agents/package.json"
    # shellcheck disable=SC2086  (a list of names)
    npm install --prefix "$agents" --no-fund --no-audit --loglevel=error $newest ||
        { fail "npm could not install the agents" && return; }
    [ -n "$newest" ] || cp "$pinned" "$agents/installed.json"
}

# Says what is wrong and goes on: the other groups get their chance.
fail() {
    echo "$1" >&2
    status=1
}

main
