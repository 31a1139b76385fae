#!/usr/bin/env bash
# Builds the image of packaging/Dockerfile and tests it without privileges, with a read-only file system and a Redis server.
#
# KEYLAPSE_ENGINE is docker or podman, possibly with options. If the engine cannot build the first stage, this script builds
# the program here, tests only the last stage, and prints a message.
set -euo pipefail

cd "$(dirname "$0")/.."
engine=${KEYLAPSE_ENGINE:-$(command -v podman || command -v docker || true)}
if [ -z "$engine" ] || ! $engine info >/dev/null 2>&1; then
    echo "test-image.sh: skipped: no container engine replies: set KEYLAPSE_ENGINE to docker or podman" >&2
    exit 0
fi
image=keylapse-test
folder=$(mktemp -d)
server=
cleanup() {
    for name in run serve; do $engine rm --force "$image-$name" >/dev/null 2>&1 || true; done
    if [ -n "$server" ]; then kill "$server" && wait "$server" || true; fi
    rm -rf "$folder"
}
trap cleanup EXIT

# Builds the last stage from a folder with the output of the first.
build_last_stage() {
    local target
    target=$(uname -m)-unknown-linux-musl
    rustup target add "$target" >/dev/null 2>&1
    cargo build --quiet --release --locked -p keylapse-cli --target "$target"
    mkdir -p "$folder/etc/ssl/certs"
    install -s "${CARGO_TARGET_DIR:-target}/$target/release/keylapse" "$folder/keylapse"
    cp /etc/ssl/certs/ca-certificates.crt "$folder/etc/ssl/certs/"
    sed -n '/^FROM scratch/,$p' packaging/Dockerfile | sed 's/ --from=build//' >"$folder/Dockerfile"
    $engine build --quiet --tag "$image" "$folder" >/dev/null
}

if ! $engine build --quiet --tag "$image" --file packaging/Dockerfile . >/dev/null 2>"$folder/why"; then
    echo "test-image.sh: cannot build the first stage, testing only the last: $(tail -1 "$folder/why")"
    build_last_stage
fi

port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# run_as NAME ARGUMENTS…: starts a container with the same privileges as in the compose file.
run_as() {
    local name=$1
    shift
    # With the host network, the container uses the loopback ports of this machine, so no port is published.
    $engine run --detach --name "$image-$name" --network host --read-only --cap-drop ALL \
        --security-opt no-new-privileges --ulimit nofile=1024:1024 --ulimit nproc=100:100 \
        --env KEYLAPSE_URL="redis://127.0.0.1:$redis/" --env WEBHOOK_SECRET="whsec_$(head -c 32 /dev/zero | base64)" \
        --volume "$PWD/packaging/keylapse.toml:/etc/keylapse.toml:ro" "$image" "$@" >/dev/null
}

# wait_until_healthy NAME PORT: waits until the probe succeeds.
wait_until_healthy() {
    for _ in $(seq 50); do
        if $engine exec "$image-$1" /keylapse health --at "http://127.0.0.1:$2"; then return; fi
        sleep 0.2
    done
    $engine logs "$image-$1" >&2
    return 1
}

redis=$(port) run=$(port) serve=$(port)
"$(scripts/server.sh)" --port "$redis" --bind 127.0.0.1 --save '' --dir "$folder" --notify-keyspace-events 'KExg$' >/dev/null &
server=$!

$engine run --rm --network host --ulimit nofile=1024:1024 --ulimit nproc=100:100 "$image" --version
[ "$($engine inspect --format '{{.Config.User}}' "$image")" = 65532:65532 ]
run_as run run -c /etc/keylapse.toml --listen "127.0.0.1:$run"
run_as serve serve --listen "127.0.0.1:$serve"
wait_until_healthy run "$run"
wait_until_healthy serve "$serve"
for name in run serve; do
    $engine stop --time 10 "$image-$name" >/dev/null
    [ "$($engine inspect --format '{{.State.ExitCode}}' "$image-$name")" = 0 ]
done
echo "image: built, ran as 65532 with a read-only file system, was healthy, and shut down on SIGTERM"
