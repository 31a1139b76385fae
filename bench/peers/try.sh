#!/bin/sh
# try.sh <peer> [measure…]: runs one peer's measures, or those named, with small numbers, each on a
# server of its own, and prints their output. It is for people who add a peer.
#
# KEYLAPSE_SERVER is the program of the server, as for the tests, and PORT its port. BENCH_* are passed on.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
run=$here/${1:?"which peer? one of: $(cd "$here" && ls -d */run | xargs dirname | tr '\n' ' ')"}/run
shift
measures=${*:-throughput lateness arm arm_cancel lives bytes idle kill}

server=${KEYLAPSE_SERVER:-redis-server}
port=${PORT:-22750}
export BENCH_URL="redis://127.0.0.1:$port"
export BENCH_CONCURRENCY="${BENCH_CONCURRENCY:-100}" BENCH_RATE="${BENCH_RATE:-1000}" BENCH_ORDER="${BENCH_ORDER:-shuffled}"
export BENCH_PAYLOAD='{"merchant":"merchant-00042","order":"order-0000001234","amount":129.99}'

dir=$(mktemp -d)
pid=
worker=
trap 'stop_worker; stop_server; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM

start_server() {
	: >"$dir/log"
	"$server" --port "$port" --bind 127.0.0.1 --save '' --appendonly no --dir "$dir" >>"$dir/log" 2>&1 &
	pid=$!
	while ! grep -q "Ready to accept connections" "$dir/log"; do
		kill -0 "$pid" 2>/dev/null || { cat "$dir/log" >&2; exit 1; }
		sleep 0.05
	done
}

stop_server() {
	[ -n "$pid" ] || return 0
	kill "$pid" 2>/dev/null || true
	wait "$pid" 2>/dev/null || true
	pid=
}

stop_worker() {
	[ -z "$worker" ] || kill -9 "$worker" 2>/dev/null || true
	worker=
}

# The last line is the result. The lines before it are shown as well.
measure() {
	code=0
	printf '%s: ' "$1"
	BENCH_COUNT=$2 "$run" "$1" || code=$?
	[ "$code" = 0 ] || echo "exit code $code"
}

kill_and_again() {
	"$run" kill >"$dir/kill" &
	worker=$!
	until [ -s "$dir/kill" ] || ! kill -0 "$worker" 2>/dev/null; do sleep 0.05; done
	kill -9 "$worker" 2>/dev/null || true
	code=0
	wait "$worker" 2>/dev/null || code=$?
	printf 'kill: %s\n' "$(cat "$dir/kill")"
	[ "$code" = 137 ] || { echo "exit code $code"; return; }
	measure kill_again 10
}

"$run" check
"$run" describe
for name in $measures; do
	start_server
	case $name in
	throughput) measure throughput "${BENCH_COUNT:-10000}" ;;
	lateness) measure lateness "${BENCH_COUNT:-2000}" ;;
	arm | arm_cancel | lives | bytes) measure "$name" "${BENCH_COUNT:-5000}" ;;
	idle) measure idle 3 ;;
	kill) kill_and_again ;;
	*) measure "$name" "${BENCH_COUNT:-1000}" ;;
	esac
	stop_server
done
