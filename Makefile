# Thin on purpose: a target says what, hack/ says how.

SHELL    := /bin/bash
SEEDS    ?= 200
SEED     ?=
FUZZTIME ?= 30s

.DEFAULT_GOAL := help
.PHONY: help build fmt lint generate test test-fast sim fuzz bench-engine bench-sync lab-build clean

help: ## list the targets
	@printf 'Usage: make TARGET\n\n'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## compile the programs into bin/
	@mkdir -p bin
	go build -trimpath -o bin/ ./cmd/... ./lab/cmd/...

lint: ## format, vet, linters, generated code, module files, shell scripts
	@hack/lint

fmt: ## format the code and let the linters repair what they can
	@linter=$$(hack/tool golangci-lint) && "$$linter" fmt ./... && "$$linter" run --fix ./...

generate: ## generate Go code from the .proto files in api/
	@hack/generate

test: ## everything: unit, simulation, integration, end to end; installs and builds what it needs
	@hack/test

test-fast: ## unit tests and simulation only, about a minute
	@hack/test -short

sim: ## the simulator over SEEDS=200 seeds, or a replay of one SEED= with its transcript
	go run ./internal/sim/cmd/sim $(if $(SEED),-seed $(SEED),-seeds $(SEEDS))

fuzz: ## every fuzz target for FUZZTIME=30s
	@hack/fuzz $(FUZZTIME)

bench-engine: ## benchmarks of the sync core: time, bytes, allocations
	go test -run '^$$' -bench . -benchmem ./internal/engine/...

bench-sync: ## synchronisation between two real API servers: latency, bursts, memory, bytes
	go run ./bench/sync

lab-build: ## build the lab's clusters and Argo CD into the user's cache, once per version
	go run ./lab/cmd/lab build

clean: ## remove what build and test left in the checkout (caches of tools stay)
	rm -rf bin dist
