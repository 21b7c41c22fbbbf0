#!/bin/sh
# Makes a Python environment from a lock file:  tools/bootstrap.sh DIRECTORY LOCKFILE
#
# Needs Linux, Python 3.11 or newer with its venv module, and git. On Debian and Ubuntu root gets
# what is missing installed; anybody else is told what is missing and which command brings it. The same
# goes for bubblewrap, which is optional.
set -eu

environment=$1
lock=$2
updated=

main() {
    if [ "$(uname -s)" != Linux ]; then
        give_up "infloop runs on Linux; this is $(uname -s)"
    fi
    provide_missing
    provide_missing # a python3 that was just installed may still be too old
    provide_bubblewrap
    if ! is_new_enough "$environment/bin/python"; then
        rm -rf "$environment"
        "$(find_python)" -m venv "$environment"
    fi
    [ -x "$environment/bin/uv" ] || "$environment/bin/python" -m pip install --quiet uv || true
    install --require-hashes -r "$lock"
    install --no-deps -e .
    touch "$environment/.ready"
}

# uv is many times faster; pip knows more ways to reach packages (its own configuration, the system's
# certificates), so it gets its chance where uv fails.
install() {
    if [ -x "$environment/bin/uv" ] &&
        "$environment/bin/uv" pip install --quiet --python "$environment/bin/python" "$@"; then
        return
    fi
    "$environment/bin/python" -m pip install --quiet "$@"
}

provide_missing() {
    missing=$(list_missing | xargs)
    if [ -z "$missing" ]; then
        return
    fi
    if ! command -v apt-get >/dev/null; then
        give_up "missing: $missing
install Python 3.11 or newer with its venv module, and git, with your package manager"
    fi
    if [ "$(id -u)" != 0 ]; then
        give_up "missing: $missing
install with: sudo apt-get install $missing"
    fi
    echo "installing system parts: $missing"
    [ -n "$updated" ] || apt-get update -qq
    updated=yes
    # shellcheck disable=SC2086  (a list of names)
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing ||
        give_up "apt-get could not install: $missing
infloop needs Python 3.11 or newer with its venv module, and git"
}

# Agents can be confined without it, by level `guard`; level `sandbox` is made of it.
provide_bubblewrap() {
    if command -v bwrap >/dev/null; then
        return
    fi
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "installing system parts: bubblewrap"
        [ -n "$updated" ] || apt-get update -qq
        updated=yes
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends bubblewrap &&
            return
    fi
    echo "optional: install bubblewrap to run agents at level sandbox" >&2
}

list_missing() {
    python=$(find_python)
    if [ -n "$python" ]; then
        makes_environments "$python" || echo "$python-venv"
    elif command -v python3 >/dev/null; then
        echo "python3.11 python3.11-venv" # the system's python3 is too old
    else
        echo "python3 python3-venv"
    fi
    command -v git >/dev/null || echo "git"
}

# Prints a Python that can make environments; else one that lacks only that; else nothing.
find_python() {
    second_best=
    for name in python3.11 python3.12 python3.13 python3.14 python3; do
        is_new_enough "$name" || continue
        if makes_environments "$name"; then
            echo "$name"
            return
        fi
        second_best=${second_best:-$name}
    done
    echo "$second_best"
}

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

makes_environments() {
    "$1" -c 'import ensurepip, venv' >/dev/null 2>&1
}

give_up() {
    echo "$1" >&2
    exit 1
}

main
