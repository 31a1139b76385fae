#!/usr/bin/env bash
# Runs a part of the attached suite and one seed of faults, on the newest Redis and the newest Valkey in parallel. The script
# fails if one of the servers is not available. With OFFLINE=1 it then skips both. scripts/test-servers.sh runs all tests.
set -euo pipefail

cd "$(dirname "$0")/.."
# Tests that run on all available servers read this variable. Here each run tests one server.
unset KEYLAPSE_SERVERS

if ! servers=$(scripts/servers.sh newest); then
    if [ "${OFFLINE:-}" != 1 ]; then
        echo "test-newest.sh: the newest servers are not available, see above: OFFLINE=1 skips these tests" >&2
        exit 1
    fi
    echo "skipped: the tests on the newest Redis and the newest Valkey, which are not available offline"
    exit 0
fi

# The tests of attached topics in which servers differ: the order of events and replies, gaps, and the events of commands.
modules="order:: once:: loads:: subscription:: rows:: gaps:: recovery:: random::"
suite="KEYLAPSE_EXPIRIES=1000 cargo test --test attached -- --test-threads=8 $modules"
advice="make advice"
seed="make faults SEEDS=1 FAULT_SECONDS=8 PROFILE=dev"

cargo test --test attached --no-run
commands=()
for server in $servers; do
    commands+=("export KEYLAPSE_SERVER='$server' && echo '=== $server' && $suite && $advice && $seed")
done
scripts/side-by-side.sh "${commands[@]}"
