#!/bin/sh
# Finds or fetches the proxies that keylapse is tested with, and prints a line for each: its name and its path, or "skipped"
# where it cannot be had. All else goes to stderr.
#
#     nutcracker /usr/sbin/nutcracker
#     haproxy skipped
#
# They are looked for on the PATH and in /usr/sbin, and else taken from Debian's packages, which are unpacked into .server/
# with the libraries that they need, and not installed. Tests look where this script leaves them.
set -eu

repository=$(cd "$(dirname "$0")/.." && pwd)
fetched=$repository/.server/proxies

say() {
    echo "proxies.sh: $*" >&2
}

. "$repository/scripts/debian.sh"

# offer NAME PATH: prints the proxy if it runs.
offer() {
    [ -x "$2" ] && { "$2" -v || "$2" -V; } >/dev/null 2>&1 && echo "$1 $2"
}

# fetched_one NAME PACKAGE…: a program that runs what the first package has, with the libraries of the others.
fetched_one() {
    name=$1 unpacked=$repository/.server/debian/$1
    shift
    [ -d "$unpacked" ] || unpack bookworm "$unpacked" "$@" || return 1
    libraries=$(find "$unpacked" -name '*.so*' -exec dirname {} + | sort -u | paste -s -d :)
    mkdir -p "$fetched"
    printf '#!/bin/sh\nLD_LIBRARY_PATH="%s" exec "%s" "$@"\n' "$libraries" "$unpacked/usr/sbin/$name" >"$fetched/$name.$$"
    chmod +x "$fetched/$name.$$"
    # At once: it may be running.
    mv "$fetched/$name.$$" "$fetched/$name"
    offer "$name" "$fetched/$name"
}

# proxy NAME PACKAGE…
proxy() {
    name=$1
    for path in "$(command -v "$name" || true)" "/usr/sbin/$name" "$fetched/$name"; do
        if offer "$name" "$path"; then return 0; fi
    done
    fetched_one "$@" || echo "$name skipped"
}

proxy nutcracker nutcracker libyaml-0-2
proxy haproxy haproxy liblua5.3-0 libopentracing-c-wrapper0 libopentracing1 libpcre2-8-0
