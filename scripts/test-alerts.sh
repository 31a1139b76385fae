#!/bin/sh
# Tests the alert rules of docs/alerts.yml on the series of tests/published/alerts.test.yml. promtool comes from the PATH. Otherwise, on
# Debian and its derivatives, the script extracts it from the package `prometheus` into .tools/, without installing the
# package. If neither is possible, the test is skipped with a message.
set -eu

cd "$(dirname "$0")/.."
promtool=$(command -v promtool) || promtool=.tools/promtool
if [ ! -x "$promtool" ]; then
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    if ! (cd "$folder" && apt-get download prometheus && dpkg -x prometheus_*.deb .) >"$folder/log" 2>&1; then
        echo "test-alerts.sh: skipped: promtool is not available: install Prometheus" >&2
        exit 0
    fi
    mkdir -p .tools
    mv "$folder/usr/bin/promtool" "$promtool"
fi
"$promtool" check rules docs/alerts.yml
"$promtool" test rules tests/published/alerts.test.yml
