#!/bin/sh
# Tries the alert rules of docs/alerts.yml on the series of docs/alerts.test.yml. promtool is taken from the PATH, or else,
# on Debian and its like, out of the package `prometheus`, into .tools/: nothing is installed. Without either it says that
# it was skipped.
set -eu

cd "$(dirname "$0")/.."
promtool=$(command -v promtool) || promtool=.tools/promtool
if [ ! -x "$promtool" ]; then
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    if ! (cd "$folder" && apt-get download prometheus && dpkg -x prometheus_*.deb .) >"$folder/log" 2>&1; then
        echo "test-alerts.sh: skipped, as there is no promtool: install Prometheus" >&2
        exit 0
    fi
    mkdir -p .tools
    mv "$folder/usr/bin/promtool" "$promtool"
fi
"$promtool" check rules docs/alerts.yml
"$promtool" test rules docs/alerts.test.yml
