#!/bin/sh
# Finds or fetches the proxies of the tests. Prints the name and the path of each, or "skipped" if it is not available. All
# messages go to stderr.
#
#     nutcracker /usr/sbin/nutcracker
#     haproxy skipped
#
# The script searches the PATH and /usr/sbin. Otherwise it unpacks Debian's packages and their libraries into .server/,
# without installing them. Tests find the proxies there.
set -eu

repository=$(cd "$(dirname "$0")/.." && pwd)
fetched=$repository/.server/proxies

log() {
    echo "proxies.sh: $*" >&2
}

. "$repository/scripts/debian.sh"

# offer NAME PATH: prints the proxy if it runs.
offer() {
    [ -x "$2" ] && { "$2" -v || "$2" -V; } >/dev/null 2>&1 && echo "$1 $2"
}

# fetch_proxy NAME PACKAGE…: writes a program that runs the proxy of the first package with the libraries of the others.
fetch_proxy() {
    name=$1 unpacked=$repository/.server/debian/$1
    shift
    [ -d "$unpacked" ] || unpack bookworm "$unpacked" "$@" || return 1
    libraries=$(find "$unpacked" -name '*.so*' -exec dirname {} + | sort -u | paste -s -d :)
    mkdir -p "$fetched"
    printf '#!/bin/sh\nLD_LIBRARY_PATH="%s" exec "%s" "$@"\n' "$libraries" "$unpacked/usr/sbin/$name" >"$fetched/$name.$$"
    chmod +x "$fetched/$name.$$"
    # The replacement is atomic, because the old program may be running.
    mv "$fetched/$name.$$" "$fetched/$name"
    offer "$name" "$fetched/$name"
}

# proxy NAME PACKAGE…: finds or fetches a proxy, and prints its line.
proxy() {
    name=$1
    for path in "$(command -v "$name" || true)" "/usr/sbin/$name" "$fetched/$name"; do
        if offer "$name" "$path"; then return 0; fi
    done
    fetch_proxy "$@" || echo "$name skipped"
}

proxy nutcracker nutcracker libyaml-0-2
proxy haproxy haproxy liblua5.3-0 libopentracing-c-wrapper0 libopentracing1 libpcre2-8-0
