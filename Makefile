# The tasks of a contributor. `make` lists the main targets, and `make help-all` lists the others.

.DEFAULT_GOAL := help
.PHONY: advice help help-all server demo test test-all test-rest test-more test-providers faults bench bench-quick recipes recipes-record lint \
	msrv fuzz mutants package book clean-server

# Recipes that need a server start with this. It finds or fetches a server, and stops if this fails.
with_server = KEYLAPSE_SERVER=$$(scripts/server.sh) && export KEYLAPSE_SERVER

show_targets = awk -F ':[^\#]*$(1) ' '/^[a-z-]+:[^\#]*$(1) / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

help: # List the main targets
	@$(call show_targets,\#\#)
	@echo "  make help-all        List the other targets"

help-all: help
	@$(call show_targets,\#)

# $(call one_of,NAME,VALUES): stops if a parameter has none of these values.
one_of = @$(if $(filter $($(1)),$(2)),,$(error $(1) is one of: $(2)))

# ------------------------------------------------------------------------------------------------ Demos

# `release`, because all demos except the first measure, or `dev` to use the build of the tests.
PROFILE = release
folder = $${CARGO_TARGET_DIR:-target}/$(PROFILE:dev=debug)
# $(call built,PACKAGE,ARGUMENTS): builds with the features of the tests if PROFILE is `dev`, so that nothing is built twice.
built = cargo build --profile $(PROFILE) $(if $(filter dev,$(PROFILE)),$(rest_packages) --example certificates,-p $(1)) $(2)
shows = notices attach cluster sentinel operate webhooks
SHOW = notices
# QUICK=--quick shortens the demos of clusters and sentinels to a third.
QUICK =

demo: ## Run payment notices under faults; SHOW=attach, cluster, sentinel, operate or webhooks runs another demo
	$(call one_of,SHOW,$(shows))
	@$(MAKE) --no-print-directory demo-$(SHOW)

# Delivers payment notices with retries, and compares this with plain subscribers, which lose some.
demo-notices:
	@echo "Compiling 85 crates, which takes about a minute the first time; the demo takes 12 seconds."
	@scripts/demo.sh

# Follows 10,000 keys of another program among 1,000,000 keys. ATTACH_KEYS and ATTACH_FOREIGN set these numbers. The
# defaults take 90 s, and 1000 and 50000 take 15 s. examples/attach_at_scale/settings.rs has the other settings.
demo-attach:
	@echo "Compiling 85 crates, which takes some minutes the first time; the demo takes a minute and a half."
	@$(with_server) && cargo run --profile $(PROFILE) -p keylapse-examples --bin attach_at_scale

# Runs 800 timers a second while primaries are killed and suspended and slots move, or while sentinels replace the master.
demo-cluster demo-sentinel:
	@echo "Compiling 110 crates, which takes some minutes the first time; the demo takes a minute."
	@$(call built,keylapse-faults,--bin faults)
	@$(with_server) && $(folder)/faults $@ $(QUICK)

# Both demos run the program `keylapse`, which examples do not build.
demo-operate demo-webhooks:
	@echo "Compiling 270 crates, which takes some minutes the first time; the demo takes half a minute."
	@$(call built,keylapse-cli,--bin keylapse --example $(subst -,_,$@))
	@$(with_server) && $(folder)/examples/$(subst -,_,$@)

# ------------------------------------------------------------------------------------------------ Tests

server: ## Print the path of a Redis or Valkey server; fetch one into .server/ if necessary
	@scripts/server.sh

# The tests of one server mostly wait, above all those of attached topics, so many run in parallel. Tests of time limits
# run alone.
untimed = --skip ::timed_
# With `--no-fail-fast` the tests of the next crate run even if those of one crate fail.
KEEP =
one_server = $(with_server) && cargo test -q $(KEEP)
# Only `make test-all` runs these long tests.
long = model::machine:: kit::determinism:: server::on_time:: server::priorities:: server::repartitioning:: server::subscription::
attached = agreed:: changes:: deadlines:: fields:: once:: order:: rows:: slice::

test: test-compiled test-units test-suite test-attached ## Run unit tests and the suites on one server

test-compiled:
	@echo "Compiling 114 crates, which takes about two minutes the first time; the tests take two minutes."
	cargo test --no-run

test-units:
	$(one_server) --lib --bins --test scripts -- $(untimed)

test-suite:
	$(one_server) --test suite -- --test-threads=12 $(untimed) $(long:%=--skip %)

test-attached:
	$(one_server) --test attached -- --test-threads=24 $(untimed) $(attached)

# The library's crates, the console and the test kit, which `cargo test` without options tests.
parts = connection console pattern testing wire
# One selection of packages, so that each crate is built only once, with all features.
rest_packages = --workspace --exclude keylapse --exclude keylapse-examples --exclude keylapse-tests \
	--exclude keylapse-tests-attached $(parts:%=--exclude keylapse-%)
rest = cargo test $(KEEP) $(rest_packages)
# `--tests` and `--all-targets` do not select these, because they mostly wait.
unselected = --test matrix --test clusters
# Tests that mostly wait.
mostly_waits = run:: stories::
# Tests that compile. They run next to the tests of clusters, with low priority.
compiles = users::

test-all: test test-rest ## Run all tests: also clusters, faults, programs, pages, packages and the protocol model

# With `make --keep-going` each of these runs even if another fails.
test-rest: rest-compiled rest-busy rest-documentation rest-waiting rest-clusters rest-timed

rest-compiled:
	$(rest) --no-run
	$(rest) --no-run $(unselected)

rest-busy:
	$(with_server) && $(rest) -q --tests -- --test-threads=4 $(untimed) $(mostly_waits:%=--skip %) $(compiles:%=--skip %)

# The tests in which the servers' replies differ. scripts/test-newest.sh runs them.
advice:
	$(with_server) && $(rest) -q --test cli -- advice::

rest-documentation:
	cargo test -q --doc
	$(rest) -q --doc

rest-waiting:
	$(with_server) && scripts/side-by-side.sh \
		"cargo test -q --test suite -- --test-threads=4 $(untimed) $(long)" \
		"cargo test -q --test attached -- --test-threads=16 $(untimed) $(attached:%=--skip %)" \
		"$(rest) -q --test matrix -- --test-threads=4 $(untimed)" \
		"$(rest) -q --test cli --test recipes -- --test-threads=4 $(untimed) $(mostly_waits)"

rest-clusters:
	$(with_server) && scripts/side-by-side.sh \
		"$(rest) -q --test clusters -- --test-threads=6 $(untimed)" \
		"nice -n 19 $(rest) -q --test published -- $(compiles)"

rest-timed:
	$(with_server) && export KEYLAPSE_TIMED=1 && cargo test -q --test suite --test attached -- --test-threads=1 ::timed_ && \
		$(rest) -q --test clusters --test matrix -- --test-threads=1 ::timed_

# The services of docs/providers.md, which tests/support/src/provider imitates. PROVIDERS="upstash envoy" selects some.
PROVIDERS = $(shell sed -n 's/^| \([a-z-]*\) | [yn].*/\1/p' docs/providers.md)
# The tests of managed topics without marker keys, which all services support.
core = server::life:: producing::each_answer producing::a_topic_can_do producing::many_timers producing::of_a_key \
	producing::what_is_armed producing::a_paused bulk::many_are_withdrawn bulk::what_has_come bulk::progress \
	holding::p4_ holding::p7_ holding::p9_un holding::p9_shut holding::panics holding::snoozes holding::dead_letters \
	owning::nothing_is_left destroying::who_listens repartitioning::all_that

test-providers: ## Run the main tests on imitations of services that support only a part of Redis
	@cargo test --no-run --test suite
	@$(with_server) && cargo test -q --test suite -- server::providers && failed= && for provider in $(PROVIDERS); do \
		echo "Testing as on $$provider" && KEYLAPSE_TEST_PROVIDER=$$provider cargo test -q --test suite -- --test-threads=12 $(core) || \
		failed="$$failed $$provider"; done; \
		if [ -n "$$failed" ]; then echo "failed on:$$failed" >&2; exit 1; fi

suites = newest servers proxies rolling tls cluster-rights clusters-long random-writers operate-scale web-scale alerts packaging
SUITE =

test-more: ## Run a suite that takes long or needs more, such as SUITE=newest; without SUITE, list all
	$(call one_of,SUITE,$(suites))
	@$(MAKE) --no-print-directory suite-$(SUITE)

# A part of the tests on the newest Redis and the newest Valkey. OFFLINE=1 skips them if they are not available.
suite-newest:
	scripts/test-newest.sh

# All tests on Redis 7.0, 8.2 and 8.6, and Valkey 8.1 and 9.1, as far as they are available.
suite-servers:
	scripts/test-servers.sh

# Tests behind HAProxy and twemproxy, which come from Debian's packages if they are not installed.
suite-proxies:
	scripts/proxies.sh
	$(one_server) --test suite -- --nocapture server::proxies::

# Runs this build and the one before the last change of the wire version together. It compiles both.
suite-rolling:
	$(with_server) && scripts/rolling.sh

# tests/support/src/reach.rs describes the variables. The server must be built with TLS. Debian's is the default, and is
# built with it.
certificates = $(CURDIR)/target/certificates
suite-tls:
	cargo run -q -p keylapse-support --features tls --example certificates $(certificates)
	export KEYLAPSE_SERVER=$${KEYLAPSE_SERVER:-$$(scripts/servers.sh oldest)} KEYLAPSE_TEST_TLS=$(certificates) && \
		export SSL_CERT_FILE=$(certificates)/ca.pem && \
		cargo test -p keylapse-tests --features tls --test suite -- --test-threads=4 server::

# Runs the suite of one server on clusters of one primary, as the user of redis.conf, and then the suite of clusters.
suite-cluster-rights:
	$(with_server) && KEYLAPSE_TEST_TOPOLOGY=cluster cargo test --test suite -- --test-threads=4 server:: model::rules::attached::
	$(with_server) && $(rest) --test clusters -- --test-threads=4

# Takes ten minutes.
suite-clusters-long:
	$(with_server) && $(rest) --test clusters -- --ignored

# Tests attached topics with EXPIRIES random expiries, for several numbers of listeners, on each server version.
EXPIRIES = 100000
suite-random-writers:
	KEYLAPSE_EXPIRIES=$(EXPIRIES) scripts/test-servers.sh --test attached random_writers

# Runs each command of the program and each web request with a million timers and dead letters. Takes minutes and 2 GB.
suite-operate-scale:
	$(with_server) && cargo test --release -p keylapse-cli --test cli scale -- --ignored --nocapture
	$(with_server) && cargo test --release -p keylapse-web --test web http::scale -- --ignored --nocapture

# Loads each page of the dashboard in a browser, with a million timers and 100,000 dead letters. Takes minutes and 1 GB.
suite-web-scale:
	$(with_server) && cargo test --release -p keylapse-web --test web browser::scale -- --ignored --nocapture

# Tests the alert rules of docs/alerts.yml on the series of tests/published/alerts.test.yml. promtool comes from the PATH. On Debian it
# is otherwise extracted from the package `prometheus`, without installing it.
suite-alerts:
	scripts/test-alerts.sh

# Builds the image of packaging/ and runs it without privileges, if a container engine is available.
suite-packaging:
	scripts/test-image.sh

# ------------------------------------------------------------------------------------------------ Faults

plans = seeds table cluster cluster-table kills kills-webhooks soak
PLAN = seeds
# The number of seeds, the seconds of faults in each before it drains, and the minutes of the soak test.
SEEDS = 20
FAULT_SECONDS = 12
CLUSTER_SECONDS = 20
MINUTES = 30
faults = $(call built,keylapse-faults,--bin faults) && $(with_server) && $(folder)/faults

faults: ## Inject faults by SEEDS=20 random plans and check every timer; other plans: PLAN=table, cluster, kills, soak …
	$(call one_of,PLAN,$(plans))
	@$(MAKE) --no-print-directory faults-$(PLAN)

faults-seeds:
	$(faults) seeds --count $(SEEDS) --seconds $(FAULT_SECONDS)

# Causes one kind of fault after the other, and measures the lateness under each.
faults-table:
	$(faults) each

# Each seed has its own cluster, which takes some seconds to start, and to recover at the end.
faults-cluster:
	$(faults) cluster-seeds --count $(SEEDS) --seconds $(CLUSTER_SECONDS)

# Causes one kind of fault after the other on a cluster and with sentinels.
faults-cluster-table:
	$(faults) cluster-each

# Kills 1,000 listeners, and 200 servers that flush each write.
faults-kills:
	$(faults) kill-listeners --times 1000
	$(faults) kill-servers --times 200

# Kills `keylapse run` 100 times during deliveries.
faults-kills-webhooks:
	$(with_server) && $(rest) --test cli -- --ignored --nocapture run::killed

# Fails if memory or file descriptors grow.
faults-soak:
	$(faults) soak --minutes $(MINUTES)

# ------------------------------------------------------------------------------------------------ Measurements

# The repetitions of each measurement, and further arguments of the benchmark. BENCH=--help lists them.
ROUNDS = 3
BENCH =
benches = all attach webhooks scale scale-record
OF = all
run_bench = $(with_server) && cargo run --release -p keylapse-$(1) --bin keylapse-$(2) --

bench-quick: ## Run the most important measurements in under four minutes; the last line is a summary
	@echo "Compiling 114 crates with all optimisations, which takes about two minutes the first time."
	@$(call run_bench,bench,bench) --rounds $(ROUNDS) --quick $(BENCH)

bench: ## Measure keylapse and other systems for an hour; other benchmarks: OF=attach, webhooks or scale
	$(call one_of,OF,$(benches))
	@$(MAKE) --no-print-directory bench-$(OF)

bench-all:
	$(call run_bench,bench,bench) --rounds $(ROUNDS) --records target/bench.jsonl --plots target/bench $(BENCH)

# Measures extended sessions, hot keys and a flood in half an hour. BENCH="--scenes hot --minutes 1" takes less time.
bench-attach:
	$(call run_bench,bench,bench-attach) $(BENCH)

# Measures webhooks per second of `keylapse run`, and of its HTTP client alone, in a minute. BENCH="--beside 20" measures how
# late calls to a good host are while other hosts fail.
bench-webhooks:
	$(call run_bench,bench-webhooks,bench-webhooks) $(BENCH)

# Measures the cost of timers on one server and on clusters in half an hour. BENCH="--timers-per-s 50000 --armed 1e7" sets a
# goal.
bench-scale:
	$(call run_bench,bench,bench-scale) --rounds $(ROUNDS) $(BENCH)

# Runs bench-scale, and writes its figures into docs/internals/benchmarks.md.
bench-scale-record:
	$(call run_bench,bench,bench-scale) --rounds $(ROUNDS) $(BENCH) --record bench/scale/recorded.json
	KEYLAPSE_BLESS=1 cargo test -q -p keylapse-bench --test bench scale

# The seed of random numbers in the recipes, and further arguments in RECIPES.
SEED = 1
run_recipes = $(with_server) && cargo run --release -q -p recipes --

recipes: ## Compare eleven queue and delay designs, written by hand and with keylapse, under the same faults
	$(run_recipes) --seed $(SEED) all $(RECIPES)

recipes-record: # Run recipes, and write the figures into docs/comparison.md and docs/internals/benchmarks.md
	$(run_recipes) --seed $(SEED) --record recipes/recorded.jsonl all $(RECIPES)
	KEYLAPSE_BLESS=1 cargo test -q -p recipes --test recipes page

# ------------------------------------------------------------------------------------------------ Other targets

# The workspace enables all features of the library. The third run of clippy has none.
lint: ## Check formatting, sentences, lints and documentation; warnings are errors
	python3 -B -m unittest discover -q scripts
	scripts/prose
	scripts/names
	cargo fmt --all --check
	rustfmt --edition 2024 --check tests/rolling/rolling.rs
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy --workspace $(unselected) -- -D warnings
	cargo clippy -p keylapse -p keylapse-support --lib -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

# rustup installs this version if necessary. It has its own target folder, because otherwise each toolchain would rebuild
# everything.
msrv: # Build everything with the oldest Rust that keylapse supports
	rust=$$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml) && rustup toolchain install --profile minimal $$rust && \
		CARGO_TARGET_DIR=target/msrv cargo +$$rust check --workspace --all-targets --all-features

# The seconds for each target. Fuzzing needs cargo-fuzz and a nightly toolchain.
SECONDS_EACH = 60
fuzz: # Run each fuzz target for SECONDS_EACH=60
	scripts/fuzz.sh $(SECONDS_EACH)

# MUTANTS has the arguments, such as MUTANTS="--only lua --minutes 15 --jobs 2". MUTANTS=--help lists them.
mutants: # Change the code in one place at a time, and list changes that no test detects; takes hours
	$(with_server) && scripts/mutants.py $(MUTANTS)

# Needs Cargo 1.90 or newer, which orders packages by their dependencies and leaves out those with `publish = false`.
# `cargo publish --workspace` publishes them.
package: # Create all packages and build them as users do, without publishing them
	cargo publish --dry-run --allow-dirty --workspace

book: # Build the guide in docs/ as a book in target/book
	scripts/book.sh

clean-server: # Delete the servers in .server/
	rm -rf .server
