# What a contributor does, in few words. `make` alone lists it.

# Every recipe that needs a server starts with this: it finds or fetches one, and stops if it cannot.
with_server = KEYLAPSE_SERVER=$$(scripts/server.sh) && export KEYLAPSE_SERVER

.DEFAULT_GOAL := help
.PHONY: help server test test-busy test-waiting test-timed test-newest test-tls test-cluster-rights test-clusters-long test-servers test-rolling msrv fuzz faults fault-table faults-cluster fault-table-cluster kills kills-webhooks soak random-writers demo demo-attach demo-cluster demo-sentinel demo-operate demo-webhooks operate-scale web-scale test-alerts test-packaging recipes recipes-record mutants package bench bench-quick bench-attach bench-webhooks bench-scale bench-scale-record book lint clean-server

help: ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

server: ## Find a Redis or Valkey server, or fetch one into .server/, and print its path
	@scripts/server.sh

# Cargo runs one test binary at a time. Most tests have a server of their own and several measure time, so many more at
# once than there are cores would be slower and less exact. Those that mostly wait run by themselves, many at a time, and
# some beside others. They are built with the features that the workspace has, as above: else much is built once more.
test: test-busy test-waiting test-timed ## Run all tests and the examples in the documentation, against a real server

test-busy: ## The part of them that keeps the machine busy
	$(with_server) && RUST_TEST_THREADS=4 cargo test --workspace --lib --bins --tests --examples -- $(untimed)
	$(with_server) && cargo test --workspace --doc

# What promises a time is tested where nothing competes.
untimed = --skip ::timed_
timed = --test server --test crash --test attached --test clusters

waiting = cargo test --workspace

waiting_tests = --test attached --test stories --test matrix --test crash --test run --test clusters

test-waiting: ## And the part that waits: attached topics, faults, crashes, the program that relays, clusters, stories
	$(waiting) $(waiting_tests) --no-run
	$(with_server) && scripts/side-by-side.sh "$(waiting) --test attached --test stories -- --test-threads=16 $(untimed)" \
		"$(waiting) --test matrix --test crash --test run -- --test-threads=4 $(untimed)"
	$(with_server) && $(waiting) --test clusters -- --test-threads=6 $(untimed)

test-timed: ## And those whose promise is a time, alone: half a minute
	$(waiting) $(timed) --no-run
	$(with_server) && KEYLAPSE_TIMED=1 $(waiting) $(timed) -- --test-threads=1 ::timed_

# tests/support/src/reach.rs says what these variables do. The server has to be built with TLS, as Debian's is, which is
# taken unless another is named.
certificates = $(CURDIR)/target/certificates
with_tls = KEYLAPSE_TEST_TLS=$(certificates) SSL_CERT_FILE=$(certificates)/ca.pem
on_cluster = KEYLAPSE_TEST_TOPOLOGY=cluster

test-tls: ## Run the suite of one server over TLS, by the lines of redis.conf
	$(call run_dev,keylapse-support,example,certificates) $(certificates)
	KEYLAPSE_SERVER=$${KEYLAPSE_SERVER:-$$(scripts/servers.sh oldest)} $(with_tls) $(waiting) --test server -- --test-threads=4

test-cluster-rights: ## Run it on clusters of one primary, and the suite of clusters, as the user of redis.conf
	$(with_server) && $(on_cluster) $(waiting) --test server -- --test-threads=4
	$(with_server) && $(waiting) --test clusters -- --test-threads=4

test-clusters-long: ## Run the tests of clusters that take long: ten minutes
	$(with_server) && $(waiting) --test clusters -- --ignored

test-newest: ## Run a short form of them on the newest Redis and the newest Valkey; OFFLINE=1 goes without
	scripts/test-newest.sh

test-servers: ## Run the tests on Redis 7.0, 8.2 and 8.6, Valkey 8.1 and 9.1, as far as they can be had
	scripts/test-servers.sh

# It compiles both, which takes a minute or two the first time.
test-rolling: ## Run the build before the last change of the wire version beside this one
	$(with_server) && scripts/rolling.sh

# With rustup, which fetches that Rust if need be; in a folder of its own, or both would build anew each time.
msrv: ## Build everything with the oldest Rust that keylapse supports
	rust=$$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml) && rustup toolchain install --profile minimal $$rust && \
		CARGO_TARGET_DIR=target/msrv cargo +$$rust check --workspace --all-targets --all-features

# How long each target runs; cargo-fuzz and a nightly toolchain are needed.
SECONDS_EACH = 60

fuzz: ## Feed hostile input to the fuzz targets, SECONDS_EACH=60 each
	scripts/fuzz.sh $(SECONDS_EACH)

# $(call run,PACKAGE,KIND,NAME): runs a `bin` or an `example`, as its users would build it. The gate says
# PROFILE=dev: then with the features that the workspace has, with which the tests have built most of it already.
PROFILE = release
run = $(or $(call run_$(PROFILE),$(1),$(2),$(3)),$(error PROFILE is release or dev, not $(PROFILE)))
run_release = cargo run --release --quiet -p $(1) --$(2) $(3) --
run_dev = cargo build --quiet --workspace --$(2) $(3) && $${CARGO_TARGET_DIR:-target}/debug/$(if $(filter example,$(2)),examples/)$(3)

# How many seeds, and how long each lasts before it drains.
SEEDS = 20
FAULT_SECONDS = 12
# How long the soak lasts.
MINUTES = 30
with_faults = $(with_server) && $(call run,keylapse-faults,bin,faults)

faults: ## Break processes, lines and servers by SEEDS=20 plans, and judge what became of every timer
	$(with_faults) seeds --count $(SEEDS) --seconds $(FAULT_SECONDS)

fault-table: ## One kind of fault after the other: what each does to lateness, as a table
	$(with_faults) each

# Each seed has a cluster of its own, which takes some seconds to come up, and to become well again in the end.
CLUSTER_SECONDS = 20

faults-cluster: ## Break nodes, lines and processes of a cluster by SEEDS=20 plans, move slots, and judge every timer
	$(with_faults) cluster-seeds --count $(SEEDS) --seconds $(CLUSTER_SECONDS)

fault-table-cluster: ## One kind of fault after the other on a cluster and with sentinels, as a table
	$(with_faults) cluster-each

kills: ## Kill 1,000 listeners, and 200 servers that sync each write, and lose nothing
	$(with_faults) kill-listeners --times 1000
	$(with_faults) kill-servers --times 200

kills-webhooks: ## Kill `keylapse run` a hundred times while receivers are told, and lose nothing
	$(with_server) && cargo test -q --workspace --test run -- --ignored --nocapture killed

soak: ## Break everything for MINUTES=30; memory and descriptors must not grow
	$(with_faults) soak --minutes $(MINUTES)

# With each number of listeners; for each server version it takes some minutes.
EXPIRIES = 100000

random-writers: ## EXPIRIES=100000 random expiries of attached topics on each server version: each is handled once
	KEYLAPSE_EXPIRIES=$(EXPIRIES) scripts/test-servers.sh --test attached random_writers

# Of the build nothing is shown but this line, and errors.
show = @echo "Building the demo, which takes some minutes the first time." && \
	$(with_server) &&

demo: ## Watch payment notices be retried until they are taken, beside a plain subscriber who loses some
	$(show) $(call run,keylapse,example,payment_notice)

# ATTACH_FOREIGN and ATTACH_KEYS say how many: 50000 and 1000 take a quarter of a minute, the defaults
# a minute and a half. examples/attach_at_scale/settings.rs names what else can be set.
demo-attach: ## Listen to 10,000 keys of other programs among 1,000,000, beside a plain subscriber
	$(show) $(call run,keylapse,example,attach_at_scale)

# SHOW=--quick is a third of it.
SHOW =
show_faults = $(show) $(call run,keylapse-faults,bin,faults)

demo-cluster: ## Kill and stop primaries of a cluster and move its slots, under 800 timers a second; judge every timer and attached key
	$(show_faults) demo-cluster $(SHOW)

demo-sentinel: ## The same where sentinels choose another master
	$(show_faults) demo-sentinel $(SHOW)

# The demo runs the program, which no example builds.
program_release = cargo build --release --quiet -p keylapse-cli --bin keylapse
program_dev = cargo build --quiet --workspace --bin keylapse

demo-operate: ## Be on call for half a minute: a doctor, dead letters, a killed listener, and a replay, by the program `keylapse`
	$(show) $(program_$(PROFILE)) && $(call run,keylapse-cli,example,demo_operate)

demo-webhooks: ## Let a shop be told of orders whose keys expire, by `keylapse run`, and look at it in a browser by `keylapse serve`
	$(show) $(program_$(PROFILE)) && $(call run,keylapse-cli,example,demo_webhooks)

# Chance in the stories is the same for the same seed. RECIPES says what else to tell the program.
SEED = 1
recipes: ## Play eleven designs of queues and delays by hand and with keylapse, under the same faults
	$(with_server) && cargo run --release -q -p recipes -- --seed $(SEED) all $(RECIPES)

recipes-record: ## The same, and its figures go into docs/comparison.md
	$(with_server) && cargo run --release -q -p recipes -- --seed $(SEED) --record recipes/recorded.jsonl all $(RECIPES)
	KEYLAPSE_BLESS=1 cargo test -q -p recipes --test page

# How often each measurement is made; BENCH says what else to tell the harness (BENCH=--help lists it).
ROUNDS = 3
with_bench = $(with_server) && cargo run --release -q -p keylapse-bench --bin keylapse-bench -- --rounds $(ROUNDS)

bench: ## Measure keylapse and all other systems that can run here, side by side: somewhat over an hour
	$(with_bench) --records target/bench.jsonl --plots target/bench $(BENCH)

bench-quick: ## The most important of it in under three minutes; the last line is the sum of it
	$(with_bench) --quick $(BENCH)

# BENCH says how large and how long (BENCH=--help lists it), or which scenes: BENCH="--scenes hot --minutes 1".
bench-attach: ## Attached topics: sessions that are extended, hot keys, and a flood; a line for each; half an hour
	$(with_server) && cargo run --release -q -p keylapse-bench --bin keylapse-bench-attach -- $(BENCH)

bench-webhooks: ## Webhooks per second through `keylapse run`, and by the same HTTP client alone; a minute
	$(with_server) && cargo run --release -q -p keylapse-bench --bin keylapse-bench-webhooks -- $(BENCH)

# SCALE says how much, or for which goal (SCALE=--help lists it): SCALE="--timers-per-s 50000 --armed 1e7".
with_scale = $(with_server) && cargo run --release -q -p keylapse-bench --bin keylapse-bench-scale -- --rounds $(ROUNDS)

bench-scale: ## What timers cost on one server and on clusters, and what a goal would take: half an hour
	$(with_scale) $(SCALE)

bench-scale-record: ## The same, and its figures go into docs/scale.md
	$(with_scale) $(SCALE) --record bench/scale/recorded.json
	KEYLAPSE_BLESS=1 cargo test -q -p keylapse-bench --test scale

# MUTANTS says which: MUTANTS="--only lua --minutes 15 --jobs 2", say; MUTANTS=--help lists it.
mutants: ## Change the code in one place at a time, and find what no test notices: hours for all
	$(with_server) && scripts/mutants.py $(MUTANTS)

operate-scale: ## Run each command of the program, and each request, beside a million timers and letters: minutes, and two gigabytes
	$(with_server) && cargo test --release -p keylapse-cli --test commands scale -- --ignored --nocapture
	$(with_server) && cargo test --release -p keylapse-web --test http scale -- --ignored --nocapture

web-scale: ## Look at each page of the dashboard beside a million timers and 100,000 letters, in a browser: minutes, and a gigabyte
	$(with_server) && cargo test --release -p keylapse-web --test browser scale -- --ignored --nocapture

# With promtool, from the PATH or, on Debian, out of the package `prometheus`, which is not installed for that.
# It says what it could not try: without a container engine nothing.
test-packaging: ## Build the image of packaging/ and run it without rights, where there is something that can
	scripts/test-image.sh

test-alerts: ## Try the alert rules of docs/alerts.yml on the series of docs/alerts.test.yml, if promtool can be had
	scripts/test-alerts.sh

# Published in this order, as keylapse can be only once the registry has the test server that its
# feature `testing` needs: `cargo publish -p keylapse-testserver`, then `cargo publish -p keylapse`.
# Cargo 1.90 and newer do both, in this order, where both are named.
package: ## Make both packages, build them as users would, and stop short of publishing
	cargo publish --dry-run --allow-dirty -p keylapse-testserver -p keylapse

book: ## Build the guide in docs/ as a book, into target/book
	scripts/book.sh

# Tests have the feature `testing`, users' programs have not, and fuzz targets see what neither does: the
# library is looked at in all three ways.
lint: ## Check formatting, lints and documentation; each warning is an error
	cargo fmt --all --check
	rustfmt --edition 2024 --check tests/rolling/rolling.rs
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy --workspace $(waiting_tests) -- -D warnings
	cargo clippy --lib -- -D warnings
	cargo clippy --lib --features tls,console -- -D warnings
	cargo clippy --lib -- -D warnings --cfg fuzzing
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --all-features

clean-server: ## Remove the servers that were fetched into .server/
	rm -rf .server
