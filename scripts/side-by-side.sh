#!/usr/bin/env bash
# Runs commands in parallel, and prints their outputs one after the other. Fails if a command fails.
set -uo pipefail

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

pids=()
for command in "$@"; do
    bash -c "$command" >"$logs/${#pids[@]}" 2>&1 &
    pids+=($!)
done

failed=0
for number in "${!pids[@]}"; do
    wait "${pids[$number]}" || failed=1
    cat "$logs/$number"
done
exit $failed
