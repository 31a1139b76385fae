#!/bin/sh
# Builds the guide in docs/ as a book, and prints where it begins. mdBook is taken from the PATH, or else compiled into
# .tools/, which takes some minutes once. The programs and links of the book need none of this: `make test` tests them.
set -eu

repository=$(cd "$(dirname "$0")/.." && pwd)
# Pinned, so that a new release is tried on purpose and not by surprise.
version=0.5.4

mdbook=$(command -v mdbook) || mdbook=$repository/.tools/bin/mdbook
if [ ! -x "$mdbook" ]; then
    echo "book.sh: there is no mdbook on the PATH; compiling mdbook $version into .tools/" >&2
    cargo install mdbook --version "$version" --locked --root "$repository/.tools" >&2
fi
"$mdbook" build "$repository" >&2
echo "$repository/target/book/index.html"
