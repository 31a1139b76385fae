#!/bin/sh
# Runs the build before beside this one: what a rolling deploy over a change of the wire version sees.
#
# BEFORE is the last commit with wire version 4. Whoever raises the version sets it to the last
# commit of the version that was.
set -eu

BEFORE=398e5b2e

cd "$(dirname "$0")/.."
before=target/rolling/before
if ! git cat-file -e "$BEFORE^{commit}" 2>/dev/null; then
    echo "skipped: $BEFORE, the build before, is not in this clone's history (git fetch --unshallow)"
    exit 0
fi
rm -rf "$before"
mkdir -p "$before"
git archive "$BEFORE" | tar -x -C "$before"
# A lock file names a package by its name and version, where it comes from a folder.
find "$before" -name Cargo.toml -exec sed -i 's/^version = "0.1.0"$/version = "0.0.1"/; s/version = "=0.1.0"/version = "=0.0.1"/' {} +
CARGO_TARGET_DIR=$PWD/target/rolling/build cargo test --manifest-path tests/rolling/Cargo.toml "$@"
