#!/bin/sh
# Runs this build together with the one before the last change of the wire version, as during a rolling deployment.
#
# BEFORE is the last commit with wire version 4. When you raise the version, set BEFORE to the last commit of the old
# version.
set -eu

BEFORE=398e5b2e

cd "$(dirname "$0")/.."
before=target/rolling/before
if ! git cat-file -e "$BEFORE^{commit}" 2>/dev/null; then
    echo "skipped: commit $BEFORE is not in this clone's history: run git fetch --unshallow"
    exit 0
fi
rm -rf "$before"
mkdir -p "$before"
git archive "$BEFORE" | tar -x -C "$before"
# The versions must differ, because a lock file identifies a package of a folder only by name and version.
find "$before" -name Cargo.toml -exec sed -i 's/^version = "0.1.0"$/version = "0.0.1"/; s/version = "=0.1.0"/version = "=0.0.1"/' {} +
CARGO_TARGET_DIR=$PWD/target/rolling/build cargo test --manifest-path tests/rolling/Cargo.toml "$@"
