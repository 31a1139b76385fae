#!/usr/bin/env bash
# The short form of scripts/test-servers.sh: a part of the attached suite and one seed of faults, on the newest Redis and on
# the newest Valkey, side by side. It fails where one of them cannot be had; with OFFLINE=1 it skips both and says so.
set -euo pipefail

cd "$(dirname "$0")/.."
# Tests of all servers at hand look at this; here each is tested by itself.
unset KEYLAPSE_SERVERS

if ! servers=$(scripts/servers.sh newest); then
    if [ "${OFFLINE:-}" != 1 ]; then
        echo "test-newest.sh: the newest servers cannot be had, see above; OFFLINE=1 skips them" >&2
        exit 1
    fi
    echo "skipped: the tests on the newest Redis and the newest Valkey, which cannot be had offline"
    exit 0
fi

# Of attached topics, what servers differ in: the order of events and answers, gaps, and what each command announces.
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
