# What a contributor does, in few words. `make` alone lists it.

# Every recipe that needs a server starts with this: it finds or fetches one, and stops if it cannot.
with_server = KEYLAPSE_SERVER=$$(scripts/server.sh) && export KEYLAPSE_SERVER

.DEFAULT_GOAL := help
.PHONY: help server test fuzz demo lint clean-server

help: ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

server: ## Find a Redis or Valkey server, or fetch one into .server/, and print its path
	@scripts/server.sh

# Cargo runs one test binary at a time, and in it as many tests as there are cores. Most tests have
# a server of their own and several measure time, so more at once would be slower and less exact.
test: ## Run all tests and the examples in the documentation, against a real server
	$(with_server) && cargo test --workspace --lib --bins --tests --examples
	$(with_server) && cargo test --workspace --doc

# How long each target runs; cargo-fuzz and a nightly toolchain are needed.
SECONDS_EACH = 60

fuzz: ## Feed hostile input to the fuzz targets, SECONDS_EACH=60 each
	scripts/fuzz.sh $(SECONDS_EACH)

demo: ## Watch a payment notice be retried until its receiver is back
	$(with_server) && cargo run --release --example payment_notice

# Tests have the feature `testing`, users' programs have not: the library is looked at both ways.
lint: ## Check formatting, lints and documentation; each warning is an error
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy --lib -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --all-features

clean-server: ## Remove the server that was fetched into .server/
	rm -rf .server
