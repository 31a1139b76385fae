# What a contributor does, in few words. `make` alone lists what people use, `make help-all` the rest.

.DEFAULT_GOAL := help
.PHONY: advice help help-all server demo test test-all test-rest test-more test-providers faults bench bench-quick recipes recipes-record lint \
	msrv fuzz mutants package book clean-server

# Every recipe that needs a server starts with this: it finds or fetches one, and stops if it cannot.
with_server = KEYLAPSE_SERVER=$$(scripts/server.sh) && export KEYLAPSE_SERVER

show_targets = awk -F ':[^\#]*$(1) ' '/^[a-z-]+:[^\#]*$(1) / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

help: # List what people use
	@$(call show_targets,\#\#)
	@echo "  make help-all        List the rest"

help-all: help
	@$(call show_targets,\#)

# $(call one_of,NAME,VALUES): stops where a parameter has none of these values.
one_of = @$(if $(filter $($(1)),$(2)),,$(error $(1) is one of: $(2)))

# ------------------------------------------------------------------------------------------------ Demos

# `release`, as the demos but the first measure, or `dev` to go on with what the tests have built.
PROFILE = release
folder = $${CARGO_TARGET_DIR:-target}/$(PROFILE:dev=debug)
# $(call built,PACKAGE,ARGUMENTS): the dev-dependencies of an example are as the tests have them.
built = cargo build --profile $(PROFILE) $(if $(filter dev,$(PROFILE)),$(rest_packages) --example certificates,-p $(1)) $(2)
shows = notices attach cluster sentinel operate webhooks
SHOW = notices
# QUICK=--quick is a third of the demos of several servers.
QUICK =

demo: ## Run payment notices under faults; SHOW=attach, cluster, sentinel, operate or webhooks runs another demo
	$(call one_of,SHOW,$(shows))
	@$(MAKE) --no-print-directory demo-$(SHOW)

# Payment notices are retried until they are taken, beside plain subscribers who lose some.
demo-notices:
	@echo "Compiling 85 crates, which takes about a minute the first time; the demo takes 12 seconds."
	@scripts/demo.sh

# 10,000 keys of other programs among 1,000,000. ATTACH_FOREIGN and ATTACH_KEYS say how many: 50000 and 1000 take a
# quarter of a minute, the defaults a minute and a half. examples/attach_at_scale/settings.rs names what else can be set.
demo-attach:
	@echo "Compiling 85 crates, which takes some minutes the first time; the demo takes a minute and a half."
	@$(with_server) && cargo run --profile $(PROFILE) -p keylapse-examples --bin attach_at_scale

# Primaries are killed and stopped and slots moved, or masters by sentinels, under 800 timers a second.
demo-cluster demo-sentinel:
	@echo "Compiling 110 crates, which takes some minutes the first time; the demo takes a minute."
	@$(call built,keylapse-faults,--bin faults)
	@$(with_server) && $(folder)/faults $@ $(QUICK)

# Both run the program `keylapse`, which no example builds.
demo-operate demo-webhooks:
	@echo "Compiling 270 crates, which takes some minutes the first time; the demo takes half a minute."
	@$(call built,keylapse-cli,--bin keylapse --example $(subst -,_,$@))
	@$(with_server) && $(folder)/examples/$(subst -,_,$@)

# ------------------------------------------------------------------------------------------------ Tests

server: ## Find a Redis or Valkey server, or fetch one into .server/, and print its path
	@scripts/server.sh

# The tests of one server mostly wait, those of attached topics even more: many run at a time. What promises a time is
# tested where nothing competes.
untimed = --skip ::timed_
# `--no-fail-fast` has the tests of one crate run after those of another have failed.
KEEP =
one_server = $(with_server) && cargo test -q $(KEEP)
# The longest tests are left to `make test-all`.
long = model::machine:: kit::determinism:: server::on_time:: server::priorities:: server::repartitioning:: server::subscription::
attached = agreed:: changes:: deadlines:: fields:: once:: order:: rows:: slice::

test: test-compiled test-units test-suite test-attached ## Run units, rules, and the suites on one server

test-compiled:
	@echo "Compiling 114 crates, which takes about two minutes the first time; the tests take two minutes."
	cargo test --no-run

test-units:
	$(one_server) --lib --bins --test scripts -- $(untimed)

test-suite:
	$(one_server) --test suite -- --test-threads=12 $(untimed) $(long:%=--skip %)

test-attached:
	$(one_server) --test attached -- --test-threads=24 $(untimed) $(attached)

# The crates that the library consists of, the console and the test kit: `cargo test` alone tests them.
parts = connection console pattern testing wire
# Selected together, so that each crate is built once, with the features of all.
rest_packages = --workspace --exclude keylapse --exclude keylapse-examples --exclude keylapse-tests \
	--exclude keylapse-tests-attached $(parts:%=--exclude keylapse-%)
rest = cargo test $(KEEP) $(rest_packages)
# Cargo's `--tests` and `--all-targets` leave these out, as they mostly wait.
unselected = --test matrix --test clusters
# These mostly wait, too.
mostly_waits = run:: stories::
# These compile beside the clusters, and give way.
compiles = users::

test-all: test test-rest ## Run everything: that, clusters, faults, the programs, pages, packages, the protocol explored

# Each runs whatever becomes of the others, with `make --keep-going`.
test-rest: rest-compiled rest-busy rest-documentation rest-waiting rest-clusters rest-timed

rest-compiled:
	$(rest) --no-run
	$(rest) --no-run $(unselected)

rest-busy:
	$(with_server) && $(rest) -q --tests -- --test-threads=4 $(untimed) $(mostly_waits:%=--skip %) $(compiles:%=--skip %)

# A part of that, which servers answer in different ways: scripts/test-newest.sh runs it.
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

# The services of docs/providers.md, imitated by tests/support/src/provider. PROVIDERS="upstash envoy" are some of them.
PROVIDERS = $(shell sed -n 's/^| \([a-z-]*\) | [yn].*/\1/p' docs/providers.md)
# Managed topics without trigger keys: what every service can do.
core = server::life:: producing::each_answer producing::a_topic_can_do producing::many_timers producing::of_a_key \
	producing::what_is_armed producing::a_paused bulk::many_are_withdrawn bulk::what_has_come bulk::progress \
	holding::p4_ holding::p7_ holding::p9_un holding::p9_shut holding::panics holding::snoozes holding::dead_letters \
	owning::nothing_is_left destroying::who_listens repartitioning::all_that

test-providers: ## Run the core of the suite through services that offer a part of Redis, as they are imitated
	@cargo test --no-run --test suite
	@$(with_server) && cargo test -q --test suite -- server::providers && failed= && for provider in $(PROVIDERS); do \
		echo "As on $$provider" && KEYLAPSE_TEST_PROVIDER=$$provider cargo test -q --test suite -- --test-threads=12 $(core) || \
		failed="$$failed $$provider"; done; \
		if [ -n "$$failed" ]; then echo "These failed:$$failed" >&2; exit 1; fi

suites = newest servers proxies rolling tls cluster-rights clusters-long random-writers operate-scale web-scale alerts packaging
SUITE =

test-more: ## Run a suite that takes long or needs more: SUITE=newest, for one; without it, list all
	$(call one_of,SUITE,$(suites))
	@$(MAKE) --no-print-directory suite-$(SUITE)

# A short form on the newest Redis and the newest Valkey; OFFLINE=1 goes without.
suite-newest:
	scripts/test-newest.sh

# On Redis 7.0, 8.2 and 8.6, Valkey 8.1 and 9.1, as far as they can be had.
suite-servers:
	scripts/test-servers.sh

# Behind HAProxy and twemproxy, out of Debian's packages where they are not installed.
suite-proxies:
	scripts/proxies.sh
	$(one_server) --test suite -- --nocapture server::proxies::

# The build before the last change of the wire version beside this one: it compiles both.
suite-rolling:
	$(with_server) && scripts/rolling.sh

# tests/support/src/reach.rs says what these variables do. The server has to be built with TLS, as Debian's is, which is
# taken unless another is named.
certificates = $(CURDIR)/target/certificates
suite-tls:
	cargo run -q -p keylapse-support --features tls --example certificates $(certificates)
	export KEYLAPSE_SERVER=$${KEYLAPSE_SERVER:-$$(scripts/servers.sh oldest)} KEYLAPSE_TEST_TLS=$(certificates) && \
		export SSL_CERT_FILE=$(certificates)/ca.pem && \
		cargo test -p keylapse-tests --features tls --test suite -- --test-threads=4 server::

# On clusters of one primary, as the user of redis.conf; and the suite of clusters.
suite-cluster-rights:
	$(with_server) && KEYLAPSE_TEST_TOPOLOGY=cluster cargo test --test suite -- --test-threads=4 server:: model::rules::attached::
	$(with_server) && $(rest) --test clusters -- --test-threads=4

# Ten minutes.
suite-clusters-long:
	$(with_server) && $(rest) --test clusters -- --ignored

# EXPIRIES random expiries of attached topics, with each number of listeners, on each server version.
EXPIRIES = 100000
suite-random-writers:
	KEYLAPSE_EXPIRIES=$(EXPIRIES) scripts/test-servers.sh --test attached random_writers

# Each command of the program, and each request, beside a million timers and letters: minutes, and two gigabytes.
suite-operate-scale:
	$(with_server) && cargo test --release -p keylapse-cli --test cli scale -- --ignored --nocapture
	$(with_server) && cargo test --release -p keylapse-web --test web http::scale -- --ignored --nocapture

# Each page of the dashboard beside a million timers and 100,000 letters, in a browser: minutes, and a gigabyte.
suite-web-scale:
	$(with_server) && cargo test --release -p keylapse-web --test web browser::scale -- --ignored --nocapture

# The alert rules of docs/alerts.yml on the series of docs/alerts.test.yml, with promtool from the PATH or, on Debian, out
# of the package `prometheus`, which is not installed for that.
suite-alerts:
	scripts/test-alerts.sh

# The image of packaging/, run without rights, where there is something that can.
suite-packaging:
	scripts/test-image.sh

# ------------------------------------------------------------------------------------------------ Faults

plans = seeds table cluster cluster-table kills kills-webhooks soak
PLAN = seeds
# How many seeds, and how long each lasts before it drains; how long the soak lasts.
SEEDS = 20
FAULT_SECONDS = 12
CLUSTER_SECONDS = 20
MINUTES = 30
faults = $(call built,keylapse-faults,--bin faults) && $(with_server) && $(folder)/faults

faults: ## Break everything by SEEDS=20 plans and judge every timer; PLAN=table, cluster, kills, soak … is another kind
	$(call one_of,PLAN,$(plans))
	@$(MAKE) --no-print-directory faults-$(PLAN)

faults-seeds:
	$(faults) seeds --count $(SEEDS) --seconds $(FAULT_SECONDS)

# One kind of fault after the other: what each does to lateness.
faults-table:
	$(faults) each

# Each seed has a cluster of its own, which takes some seconds to come up, and to become well again in the end.
faults-cluster:
	$(faults) cluster-seeds --count $(SEEDS) --seconds $(CLUSTER_SECONDS)

# One kind after the other on a cluster and with sentinels.
faults-cluster-table:
	$(faults) cluster-each

# 1,000 listeners, and 200 servers that sync each write.
faults-kills:
	$(faults) kill-listeners --times 1000
	$(faults) kill-servers --times 200

# `keylapse run`, a hundred times while receivers are told.
faults-kills-webhooks:
	$(with_server) && $(rest) --test cli -- --ignored --nocapture run::killed

# Memory and descriptors must not grow.
faults-soak:
	$(faults) soak --minutes $(MINUTES)

# ------------------------------------------------------------------------------------------------ Measurements

# How often each measurement is made; BENCH says what else to tell a harness (BENCH=--help lists it).
ROUNDS = 3
BENCH =
benches = all attach webhooks scale scale-record
OF = all
run_bench = $(with_server) && cargo run --release -p keylapse-$(1) --bin keylapse-$(2) --

bench-quick: ## Measure the most important in under four minutes; the last line is the sum of it
	@echo "Compiling 114 crates with all optimisations, which takes about two minutes the first time."
	@$(call run_bench,bench,bench) --rounds $(ROUNDS) --quick $(BENCH)

bench: ## Measure keylapse and all other systems that can run here, for an hour; OF=attach, webhooks or scale is another
	$(call one_of,OF,$(benches))
	@$(MAKE) --no-print-directory bench-$(OF)

bench-all:
	$(call run_bench,bench,bench) --rounds $(ROUNDS) --records target/bench.jsonl --plots target/bench $(BENCH)

# Sessions that are extended, hot keys, and a flood: half an hour; BENCH="--scenes hot --minutes 1" is less.
bench-attach:
	$(call run_bench,bench,bench-attach) $(BENCH)

# Webhooks per second through `keylapse run`, and by the same HTTP client alone: a minute. BENCH="--beside 20" is how late a good
# host is called beside bad ones.
bench-webhooks:
	$(call run_bench,bench-webhooks,bench-webhooks) $(BENCH)

# What timers cost on one server and on clusters: half an hour; BENCH="--timers-per-s 50000 --armed 1e7" is a goal.
bench-scale:
	$(call run_bench,bench,bench-scale) --rounds $(ROUNDS) $(BENCH)

# The same, and its figures go into docs/scale.md.
bench-scale-record:
	$(call run_bench,bench,bench-scale) --rounds $(ROUNDS) $(BENCH) --record bench/scale/recorded.json
	KEYLAPSE_BLESS=1 cargo test -q -p keylapse-bench --test bench scale

# Chance in the stories is the same for the same seed. RECIPES says what else to tell the program.
SEED = 1
run_recipes = $(with_server) && cargo run --release -q -p recipes --

recipes: ## Play eleven designs of queues and delays by hand and with keylapse, under the same faults
	$(run_recipes) --seed $(SEED) all $(RECIPES)

recipes-record: # Play them, and write their figures into docs/comparison.md
	$(run_recipes) --seed $(SEED) --record recipes/recorded.jsonl all $(RECIPES)
	KEYLAPSE_BLESS=1 cargo test -q -p recipes --test recipes page

# ------------------------------------------------------------------------------------------------ The rest

# The workspace's packages turn all features of the library on; the third pass has none.
lint: ## Check formatting, sentences, lints and documentation; each warning is an error
	python3 -B -m unittest discover -q scripts
	scripts/prose
	scripts/names
	cargo fmt --all --check
	rustfmt --edition 2024 --check tests/rolling/rolling.rs
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy --workspace $(unselected) -- -D warnings
	cargo clippy -p keylapse -p keylapse-support --lib -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

# With rustup, which fetches that Rust if need be; in a folder of its own, or both would build everything each time.
msrv: # Build everything with the oldest Rust that keylapse supports
	rust=$$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml) && rustup toolchain install --profile minimal $$rust && \
		CARGO_TARGET_DIR=target/msrv cargo +$$rust check --workspace --all-targets --all-features

# How long each target runs; cargo-fuzz and a nightly toolchain are needed.
SECONDS_EACH = 60
fuzz: # Feed hostile input to the fuzz targets, SECONDS_EACH=60 each
	scripts/fuzz.sh $(SECONDS_EACH)

# MUTANTS says which: MUTANTS="--only lua --minutes 15 --jobs 2", say; MUTANTS=--help lists it.
mutants: # Change the code in one place at a time, and find what no test notices: hours for all
	$(with_server) && scripts/mutants.py $(MUTANTS)

# Cargo 1.90 or newer: it publishes each package that does not refuse it (`publish = false`), and first those that others
# need. `cargo publish --workspace` does the same without stopping short.
package: # Make all packages, build them as users would, and stop short of publishing
	cargo publish --dry-run --allow-dirty --workspace

book: # Build the guide in docs/ as a book, into target/book
	scripts/book.sh

clean-server: # Remove the servers that were fetched into .server/
	rm -rf .server
