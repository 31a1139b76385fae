#!/bin/sh
# Runs the tests on each server of scripts/servers.sh, one after the other; `make test-more SUITE=newest` is a short form:
#
#     scripts/test-servers.sh                                # the whole suite
#     scripts/test-servers.sh --test suite                   # what `cargo test` is to be told
#
# The last line sums up. It ends with 1 if a test has failed on one of them.
set -eu

cd "$(dirname "$0")/.."
# Tests of all servers at hand look at this; here each is tested by itself.
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
