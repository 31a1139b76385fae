#!/bin/sh
# start.sh <peer> <measure>: builds the Rust peers if asked to check, and else runs one of them.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
peer=$1
shift

if [ "${1:-}" = check ]; then
	command -v cargo >/dev/null || { echo "cargo is missing" >&2; exit 77; }
	cargo build --quiet --release --locked --manifest-path "$here/Cargo.toml" --target-dir "$here/.installed" >&2
	exit
fi
exec "$here/.installed/release/$peer" "$@"
