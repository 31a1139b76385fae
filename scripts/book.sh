#!/bin/sh
# Builds the guide in docs/ as a book, and prints the path of its first page. If mdBook is not on the PATH, the script
# compiles it into .tools/, which takes some minutes once. `make test` tests the programs and links of the book without it.
set -eu

repository=$(cd "$(dirname "$0")/.." && pwd)
# The version is pinned, so that the script never uses a new release by accident.
version=0.5.4

mdbook=$(command -v mdbook) || mdbook=$repository/.tools/bin/mdbook
if [ ! -x "$mdbook" ]; then
    echo "book.sh: mdbook is not on the PATH: compiling mdbook $version into .tools/" >&2
    cargo install mdbook --version "$version" --locked --root "$repository/.tools" >&2
fi
"$mdbook" build "$repository" >&2
echo "$repository/target/book/index.html"
