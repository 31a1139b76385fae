#!/usr/bin/env bash
# Runs commands at the same time, and shows what each has said, one after the other. Fails if one of them does.
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
