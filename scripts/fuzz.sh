#!/usr/bin/env bash
# Runs each fuzz target for a number of seconds: `scripts/fuzz.sh 10`.
#
# The script needs a nightly toolchain and cargo-fuzz. If one is missing, it prints a message and succeeds, because `cargo test`
# replays the inputs without them (tests/fuzzing).
set -euo pipefail

seconds=${1:-10}
cd "$(dirname "$0")/.."

skip() {
    echo "fuzzing skipped: $1. cargo test replays the corpus without it." >&2
    exit 0
}

cargo +nightly --version >/dev/null 2>&1 || skip "no nightly toolchain (rustup toolchain install nightly)"
cargo +nightly fuzz --version >/dev/null 2>&1 || skip "no cargo-fuzz (cargo install cargo-fuzz --locked)"

cargo +nightly fuzz build
for target in $(cargo +nightly fuzz list); do
    echo "=== $target"
    # New inputs go into a folder that git ignores. The corpus is only read.
    mkdir -p "fuzz/found/$target"
    cargo +nightly fuzz run "$target" "fuzz/found/$target" "fuzz/corpus/$target" -- \
        -max_total_time="$seconds" -timeout=20 -print_final_stats=1 -verbosity=0
done
