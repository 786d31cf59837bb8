# What can be done here; `make help` lists it.
# Everything shares one target directory. The models have their own inside of it, because they are
# built with another view of locks and threads. The benchmarks are a workspace of their own: of them, `make test`
# checks only that they compile.

CARGO ?= cargo
RUST_MIN := 1.95
# One set of features for lint, docs and tests: each further set would compile everything once more.
FEATURES := comporta/scheduler,comporta/stream,comporta/tokio
BENCH := --manifest-path bench/Cargo.toml --target-dir target
# Where rustup puts cargo, for shells that have not been told.
export PATH := $(HOME)/.cargo/bin:$(PATH)

.DEFAULT_GOAL := help
.PHONY: help run test bench bench-test doc deny tidy msrv toolchain format lint docs tests features examples models integrations

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: toolchain ## build and run the main example: sessions, scans and alarms of a made-up web log
	$(CARGO) run --release -p comporta-example-weblog

test: toolchain format lint docs tests features examples models ## everything that must pass
	@echo "all checks passed"

bench: toolchain ## measure against peers, a few minutes
	$(CARGO) run --release $(BENCH) -- pipeline

bench-test: toolchain ## the tests of the benchmarks, which build every peer
	$(CARGO) test $(BENCH)
	$(CARGO) run -q $(BENCH) -- list

doc: toolchain ## build the documentation and say where it is
	$(CARGO) doc --workspace --no-deps --features $(FEATURES)
	@echo "open target/doc/comporta/index.html"

deny: toolchain ## licences and known faults of dependencies, if cargo-deny is there or can be had
	@$(CARGO) deny --version >/dev/null 2>&1 || $(CARGO) install --locked cargo-deny
	$(CARGO) deny check
	$(CARGO) deny --manifest-path bench/Cargo.toml check --config deny.toml

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
	$(CARGO) +$(RUST_MIN) check $(BENCH)

# --- the parts of `test`, cheapest first

toolchain:
	@sh .ci/toolchain $(RUST_MIN)

format:
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path bench/Cargo.toml --check

# The benchmarks too: a change of the library that they do not compile with is noticed here.
lint:
	$(CARGO) clippy --workspace --all-targets --features $(FEATURES) -- -D warnings
	$(CARGO) clippy $(BENCH) --all-targets -- -D warnings

docs:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --features $(FEATURES)

# Doc-tests, the code blocks of README.md and the rules of the house (xtask) are among them.
tests:
	$(CARGO) test --workspace --features $(FEATURES)

# Whether each feature compiles alone; `tests` has them together.
features:
	for feature in "" plan cli json scheduler stream tokio tracing; do \
		$(CARGO) check -q -p comporta --no-default-features --features "$$feature" || exit 1; done

# As `tests` built them: a build in release would take longer than all tests. One command with the same features, since
# others would compile the dependencies once more.
examples:
	$(CARGO) build -q --workspace --features $(FEATURES)
	rm -rf target/weblog
	target/debug/words
	target/debug/weblog --lines 200000 --verify --out target/weblog
	target/debug/auctions --verify
	target/debug/extrusion
	target/debug/images --count 20 --verify
	target/debug/fleet --virtual --accounts 400 --seconds 100 --verify -q
	target/debug/fleet --accounts 400 --seconds 100 --speed 50 --verify -q
	target/debug/rpc
	target/debug/callbacks
	target/debug/enrich
	target/debug/api check

# Interleavings of the runtime's and the scheduler's own locks and threads, explored by shuttle.
models:
	RUSTFLAGS="--cfg shuttle" CARGO_TARGET_DIR=target/shuttle \
		$(CARGO) test -p comporta-runtime -p comporta-scheduler --lib models
