# What can be done here; `make help` lists it.
# Everything shares one target directory. The models have their own inside of it, because they are
# built with another view of locks and threads.

CARGO ?= cargo
RUST_MIN := 1.95
# Where rustup puts cargo, for shells that have not been told.
export PATH := $(HOME)/.cargo/bin:$(PATH)

.DEFAULT_GOAL := help
.PHONY: help run test bench doc deny tidy msrv toolchain format lint docs tests features examples models smoke integrations

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: toolchain ## build and run the main example: sessions, scans and alarms of a made-up web log
	$(CARGO) run --release -p comporta-example-weblog

test: toolchain format lint docs tests features examples models smoke ## everything that must pass
	@echo "all checks passed"

bench: toolchain ## measure against peers, a few minutes
	$(CARGO) run --release -p comporta-bench -- pipeline

doc: toolchain ## build the documentation and say where it is
	$(CARGO) doc --workspace --no-deps --features comporta/scheduler,comporta/tokio
	@echo "open target/doc/comporta/index.html"

deny: toolchain ## licences and known faults of dependencies, if cargo-deny is there or can be had
	@$(CARGO) deny --version >/dev/null 2>&1 || $(CARGO) install --locked cargo-deny
	$(CARGO) deny check

# A workspace of its own: what these crates cost to build is no cost of `test`.
integrations: toolchain ## handlers that wait with hyper, reqwest and sqlx; SQLite is built for it
	cd integrations && $(CARGO) fmt --check
	cd integrations && $(CARGO) clippy --all-targets --target-dir ../target/integrations -- -D warnings
	cd integrations && $(CARGO) test --target-dir ../target/integrations

tidy: toolchain ## the rules of the house for source files
	$(CARGO) run -q -p xtask -- tidy

msrv: ## whether the oldest Rust that is promised builds it; rustup fetches that one
	rustup toolchain install $(RUST_MIN) --profile minimal
	$(CARGO) +$(RUST_MIN) check --workspace --all-targets

# --- the parts of `test`, cheapest first

toolchain:
	@sh .ci/toolchain $(RUST_MIN)

format:
	$(CARGO) fmt --all --check

lint:
	$(CARGO) clippy --workspace --all-targets --features comporta/scheduler,comporta/tokio -- -D warnings

docs:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --features comporta/scheduler,comporta/tokio

# Doc-tests, the code blocks of README.md and the rules of the house (xtask) are among them.
tests:
	$(CARGO) test --workspace --features comporta/scheduler,comporta/tokio

# Each feature alone, and what only features bring.
features:
	for feature in "" plan cli stream tokio; do \
		$(CARGO) check -q -p comporta --no-default-features --features "$$feature" || exit 1; done
	$(CARGO) test -q -p comporta-runtime --features stream,tokio --lib -- sources
	$(CARGO) test -q -p comporta-runtime --features stream,tokio --doc -- sources

# In release, as users run it: more events pass than a test in debug has time for.
examples:
	$(CARGO) run -q --release -p comporta-example-words
	rm -rf target/weblog
	$(CARGO) run -q --release -p comporta-example-weblog -- --lines 200000 --verify --out target/weblog
	$(CARGO) run -q --release -p comporta-example-extrusion
	$(CARGO) run -q --release -p comporta-example-images -- --count 40 --verify
	$(CARGO) run -q --release -p comporta-example-rpc
	$(CARGO) run -q --release -p comporta-example-callbacks
	$(CARGO) run -q --release -p comporta-example-enrich
	$(CARGO) run -q --release -p comporta-example-api -- check

# Interleavings of the runtime's and the scheduler's own locks and threads, explored by shuttle.
models:
	RUSTFLAGS="--cfg shuttle" CARGO_TARGET_DIR=target/shuttle \
		$(CARGO) test -p comporta-runtime -p comporta-scheduler --lib models

# Shows that the benchmarks start; nothing is measured.
smoke:
	$(CARGO) run -q -p comporta-bench -- list
