#!/bin/sh
# Runs the tests on each server of scripts/servers.sh, one after the other. `make test-more SUITE=newest` runs fewer tests.
#
#     scripts/test-servers.sh                                # the whole suite
#     scripts/test-servers.sh --test suite                   # the arguments of `cargo test`
#
# The last line is a summary. The script exits with 1 if a test fails on a server.
set -eu

cd "$(dirname "$0")/.."
# Tests that run on all available servers read this variable. Here each run tests one server.
unset KEYLAPSE_SERVERS

suite() {
    if [ $# -gt 0 ]; then
        cargo test --no-fail-fast "$@"
        return
    fi
    make --keep-going test-all KEEP=--no-fail-fast
}

servers=$(scripts/servers.sh)
echo "$servers" | sed 's/^/=== /'
summary=''
status=0
while read -r family version path; do
    result=$path
    if [ "$path" != skipped ]; then
        echo "=== $family $version: $path"
        result=passed
        export KEYLAPSE_SERVER="$path"
        suite "$@" </dev/null || { result=FAILED; status=1; }
    fi
    summary="$summary${summary:+, }$family $version $result"
done <<END
$servers
END
echo "=== $summary"
exit $status
