#!/bin/sh
# start.sh <peer> <measure>: builds the Java peers if asked to check, and else runs one of them.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
peer=$1
shift

if [ "${1:-}" = check ]; then
	command -v java >/dev/null && command -v mvn >/dev/null || { echo "java or mvn is missing" >&2; exit 77; }
	major=$(java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p')
	[ "${major:-0}" -ge 17 ] || { echo "java is older than 17" >&2; exit 77; }
	cd "$here"
	if [ -f .installed/done ] && [ -z "$(find pom.xml src -newer .installed/done)" ]; then exit; fi
	mvn --quiet --batch-mode package >&2
	touch .installed/done
	exit
fi
exec java -Xms512m -Xmx1g -cp "$here/.installed/peers.jar:$here/.installed/lib/*" bench.Main "$peer" "$@"
