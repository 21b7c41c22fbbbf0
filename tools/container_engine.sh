#!/bin/sh
# Provides what the tests of the container need: podman, and runc, which works with every version of
# cgroups. Root gets what is missing on Debian and Ubuntu; anybody else is told.
set -eu

# catatonit is the first process of a container (`init: true`).
missing=$(for program in podman runc catatonit; do
    command -v "$program" >/dev/null || test -e "/usr/libexec/podman/$program" || echo "$program"
done | xargs)
if [ -z "$missing" ]; then
    exit
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "missing: $missing; install them, and run this as root" >&2
    exit 1
fi
echo "installing system parts: $missing"
apt-get update -qq
# shellcheck disable=SC2086  (a list of names)
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
