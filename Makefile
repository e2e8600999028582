# The implementation of the targets is in hack/.

SHELL    := /bin/bash
SEEDS    ?= 200
SEED     ?=
AGENTS   ?= 1000
APPS     ?= 10
RUNS     ?= 3
PART     ?= sync
FUZZTIME ?= 30s
ARGOCD   ?=
LAB_TOOLS ?=
VERSION  ?=
IMAGE    ?= argocd-agent/argocd-agent
KEY      ?= dist/release.key

# Directory of an Argo CD to test with: the binary argocd, manifests/crds and manifests/base/config. If unset, the pinned one.
ifneq ($(ARGOCD),)
export ARGOCD_AGENT_LAB_ARGOCD := $(abspath $(ARGOCD))
endif

# Directory of prebuilt tools of the lab, such as etcd and kube-apiserver. Tools that it does not have are built.
ifneq ($(LAB_TOOLS),)
export ARGOCD_AGENT_LAB_TOOLS := $(abspath $(LAB_TOOLS))
endif

.DEFAULT_GOAL := help
.PHONY: help demo screenshots build fmt lint generate ui test test-fast test-mixed test-all drill vulncheck mutants sim fuzz bench-engine bench bench-sync bench-live bench-fleet bench-query bench-compare profile-fleet lab-build docs release release-check clean

help: ## list the targets
	@printf 'Usage: make TARGET\n\n'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## run a hub and two clusters with real Argo CD until interrupted (ARGS=--exit: do not wait; ARGOCD=, LAB_TOOLS=)
	@echo 'building the demo (the first run downloads modules, which takes a minute or two)'
	@hack/fetch ./cmd/... ./lab/cmd/demo
	@go run ./lab/cmd/demo $(ARGS)

screenshots: ## write pictures of Argo CD's web UI into docs/images (ARGOCD=<directory> with the UI; needs chromium)
	@go run ./lab/cmd/demo -lab screenshots -screenshots docs/images

build: ## build the binaries into bin/
	@mkdir -p bin
	@hack/fetch ./cmd/... ./lab/cmd/...
	go build -trimpath -o bin/ ./cmd/... ./lab/cmd/...

lint: ## check format, vet, linters, retired words, generated code, module files, shell scripts, workflows
	@hack/lint

fmt: ## format the code and apply fixes of the linters
	@linter=$$(hack/tool golangci-lint) && "$$linter" fmt ./... && "$$linter" run --fix ./...

generate: ## generate Go code from the .proto files in api/
	@hack/generate

ui: ## build the fleet view of ui/ into internal/fleetui/dist; needs npm
	@hack/ui

test: ## run all tests; installs and builds dependencies (ARGOCD=<directory>: use that Argo CD)
	@hack/test

test-mixed: ## run principals and agents of older commits with those of this tree
	@hack/test-mixed

test-fast: ## run unit tests and simulation, about one minute
	@hack/test -short

test-all: test ## run test, test-mixed, vulncheck if online, fuzz targets, 10,000 seeds, mutants, drill and release-check
	@hack/test-mixed
	@hack/vulncheck --if-online
	@$(MAKE) --no-print-directory fuzz
	@$(MAKE) --no-print-directory sim SEEDS=10000
	@$(MAKE) --no-print-directory mutants
	@$(MAKE) --no-print-directory drill
	@$(MAKE) --no-print-directory release-check

drill: ## break real clusters while users edit, and compare (HOURS=2: a soak, SEED=, ARGS=-h: flags)
	@hack/drill $(if $(SEED),-seed $(SEED)) $(if $(HOURS),-hours $(HOURS)) $(ARGS)

vulncheck: ## fail if the programs call code with a known vulnerability; reads the Go vulnerability database
	@hack/vulncheck

mutants: ## run unit tests and simulator seeds against one-line mutants of the core (ARGS=-h: flags)
	go run ./test/mutants $(ARGS)

sim: ## run the simulator with SEEDS=200 seeds, or replay one SEED= with its transcript
	go run ./internal/sim/cmd/sim $(if $(SEED),-seed $(SEED),-seeds $(SEEDS))

fuzz: ## run every fuzz target for FUZZTIME=30s
	@hack/fuzz $(FUZZTIME)

bench-engine: ## measure the sync core: time, bytes, allocations
	@mkdir -p dist
	set -o pipefail; go test -run '^$$' -bench . -benchmem ./internal/engine/... | tee dist/bench-engine.txt

bench-sync: ## measure replication between two real API servers (ARGS=-h: flags)
	go run ./bench/sync $(ARGS)

bench-live: ## compare live access through the hub with direct access
	go run ./bench/live

bench-fleet: ## measure AGENTS=1000 agents with APPS=10 Applications each (ARGS=-h: flags)
	go run ./bench/fleet -agents $(AGENTS) -apps $(APPS) $(ARGS)

bench-query: ## measure searches over 10,000 agents with 10 Applications each (ARGS=-h: flags)
	go run ./bench/query $(ARGS)

profile-fleet: ## run bench-fleet and save profiles of the principal in dist/profiles
	go run ./bench/fleet -agents $(AGENTS) -apps $(APPS) -profiles dist/profiles $(ARGS)

bench: ## run all benchmarks; all figures are in dist/bench.json
	@rm -f dist/bench*.json dist/bench-engine.txt
	@$(MAKE) --no-print-directory bench-engine bench-live
	@$(MAKE) --no-print-directory bench-query ARGS=
	@$(MAKE) --no-print-directory bench-sync ARGS="-runs $(RUNS)"
	@$(MAKE) --no-print-directory bench-fleet ARGS="$(ARGS)"
	@go run ./bench/collect dist/bench-engine.txt dist/bench-*.json

bench-compare: ## compare this tree with BASE=<rev>, RUNS=3 runs each (PART=sync, live or fleet)
	@hack/bench-compare "$(BASE)" $(RUNS) $(PART) $(ARGS)

lab-build: ## build Kubernetes and Argo CD of the lab, once per version
	@hack/fetch ./lab/cmd/lab
	go run ./lab/cmd/lab build

docs: ## build the documentation site into dist/site
	@hack/fetch -C tools/docs .
	@GOWORK=off go -C tools/docs run . "$(CURDIR)/docs" "$(CURDIR)/dist/site"

release: ## build VERSION=v0.2.0 into dist/release: binaries, images, chart, manifests (IMAGE=, KEY=, ARGS=-h)
	@hack/release "$(VERSION)" -image "$(IMAGE)" -key "$(KEY)" $(ARGS)

release-check: ## build the artifacts of HEAD twice, and fail if they differ
	@hack/release --check $(ARGS)

clean: ## delete bin/ and dist/
	rm -rf bin dist
