#!/bin/sh
# Runs the demo. Finds or fetches a server while the demo is compiled.
set -eu

cd "$(dirname "$0")/.."
found=$(mktemp)
trap 'rm -f "$found"' EXIT
scripts/server.sh >"$found" &
cargo build --profile demo -p keylapse-examples --bin payment_notice
wait $!
KEYLAPSE_SERVER=$(cat "$found") "${CARGO_TARGET_DIR:-target}/demo/payment_notice"
