# Thin on purpose: a target says what, hack/ says how.

SHELL    := /bin/bash
SEEDS    ?= 200
SEED     ?=
AGENTS   ?= 1000
APPS     ?= 10
RUNS     ?= 3
PART     ?= sync
FUZZTIME ?= 30s
ARGOCD   ?=

# An Argo CD to test with instead of the pinned one: a folder with the binary argocd, manifests/crds and manifests/base/config.
ifneq ($(ARGOCD),)
export ARGOCD_AGENT_LAB_ARGOCD := $(abspath $(ARGOCD))
endif

.DEFAULT_GOAL := help
.PHONY: help demo build fmt lint generate test test-fast test-all mutants sim fuzz bench-engine bench bench-sync bench-live bench-fleet bench-compare profile-fleet lab-build clean

help: ## list the targets
	@printf 'Usage: make TARGET\n\n'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## a hub and two clusters with real Argo CD, joined by token, and a tour; stays up until interrupted (ARGS=--exit: does not)
	@echo 'compiling the demo (a fresh machine first downloads its modules: a minute or two)'
	@hack/fetch ./cmd/... ./lab/cmd/demo
	@go run ./lab/cmd/demo $(ARGS)

build: ## compile the programs into bin/
	@mkdir -p bin
	@hack/fetch ./cmd/... ./lab/cmd/...
	go build -trimpath -o bin/ ./cmd/... ./lab/cmd/...

lint: ## format, vet, linters, generated code, module files, shell scripts
	@hack/lint

fmt: ## format the code and let the linters repair what they can
	@linter=$$(hack/tool golangci-lint) && "$$linter" fmt ./... && "$$linter" run --fix ./...

generate: ## generate Go code from the .proto files in api/
	@hack/generate

test: ## everything: unit, simulation, integration, end to end; installs and builds what it needs (ARGOCD=<folder>: with that Argo CD)
	@hack/test

test-fast: ## unit tests and simulation only, about a minute
	@hack/test -short

test-all: test ## test, and what takes longer: fuzz targets, many seeds, mutants of the core
	@$(MAKE) --no-print-directory fuzz
	@$(MAKE) --no-print-directory sim SEEDS=10000
	@$(MAKE) --no-print-directory mutants

mutants: ## one-line mutants of the core, each against the unit tests and seeds of the simulator; a table (ARGS=-h shows the flags)
	go run ./test/mutants $(ARGS)

sim: ## the simulator over SEEDS=200 seeds, or a replay of one SEED= with its transcript
	go run ./internal/sim/cmd/sim $(if $(SEED),-seed $(SEED),-seeds $(SEEDS))

fuzz: ## every fuzz target for FUZZTIME=30s
	@hack/fuzz $(FUZZTIME)

bench-engine: ## benchmarks of the sync core: time, bytes, allocations
	@mkdir -p dist
	set -o pipefail; go test -run '^$$' -bench . -benchmem ./internal/engine/... | tee dist/bench-engine.txt

bench-sync: ## synchronisation between two real API servers: latency, bursts, memory, bytes (ARGS=-h teaches)
	go run ./bench/sync $(ARGS)

bench-live: ## objects, logs, terminals and Redis through the hub, side by side with the same directly
	go run ./bench/live

bench-fleet: ## AGENTS=1000 agents with APPS=10 Applications each on one principal (ARGS=-h teaches what else there is)
	go run ./bench/fleet -agents $(AGENTS) -apps $(APPS) $(ARGS)

profile-fleet: ## bench-fleet that leaves CPU, heap, mutex and goroutine profiles of the principal in dist/profiles
	go run ./bench/fleet -agents $(AGENTS) -apps $(APPS) -profiles dist/profiles $(ARGS)

bench: ## all benchmarks, one after the other; tables, and all figures in dist/bench.json
	@rm -f dist/bench*.json dist/bench-engine.txt
	@$(MAKE) --no-print-directory bench-engine bench-live
	@$(MAKE) --no-print-directory bench-sync ARGS="-runs $(RUNS)"
	@$(MAKE) --no-print-directory bench-fleet ARGS="$(ARGS)"
	@go run ./bench/collect dist/bench-engine.txt dist/bench-*.json

bench-compare: ## this tree against BASE=<rev>, RUNS=3 runs each by turns, as ratios (PART=sync, live or fleet; ARGS= that both know)
	@hack/bench-compare "$(BASE)" $(RUNS) $(PART) $(ARGS)

lab-build: ## build the lab's clusters and Argo CD into the user's cache, once per version
	@hack/fetch ./lab/cmd/lab
	go run ./lab/cmd/lab build

clean: ## remove what build and test left in the checkout (caches of tools stay)
	rm -rf bin dist
