# Writ: the targets a person needs. `make help` lists them.
GO ?= go
PKGS ?= ./...
FUZZTIME ?= 20s
export GOFLAGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo build setup test check format-check vet staticcheck tidy-check generated-check update crash fuzz bench clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

demo: ## run the demo: recorded model, real tools, a ledger; needs Go alone
	@CGO_ENABLED=0 $(GO) run ./cmd/writ demo

build: ## build the one binary into bin/writ, without cgo
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/writ ./cmd/writ

setup: ## install what the tests need and is not there (C compiler for -race, Python, Node, npm packages)
	@scripts/setup

test: setup ## install what the tests need, then run all tests with the race detector
	CGO_ENABLED=1 $(GO) test -race -shuffle=on $(PKGS)

check: format-check vet staticcheck tidy-check generated-check test ## everything CI checks: format, vet, staticcheck, tidy, generated files, tests

format-check:
	@unformatted=$$(git ls-files '*.go' | xargs gofmt -l); if [ -n "$$unformatted" ]; then echo "gofmt: $$unformatted"; exit 1; fi

vet:
	CGO_ENABLED=0 $(GO) vet ./...

staticcheck:
	CGO_ENABLED=0 $(GO) tool -modfile=tools/go.mod staticcheck ./...

tidy-check:
	$(GO) mod tidy -diff
	cd tools && $(GO) mod tidy -diff

generated-check: ## writ.schema.json is what the configuration's types say
	@CGO_ENABLED=0 $(GO) run ./cmd/writ schema | diff -u docs/writ.schema.json - || { echo "run make update"; exit 1; }

update: ## rewrite what transcripts and generated files say comes out; read the diff before you commit it
	$(GO) run ./cmd/writ schema > docs/writ.schema.json
	$(GO) test ./runtime -run 'TestTranscripts' -update
	$(GO) test ./config -update

crash: ## the crash matrix and the kill -9 tests, at length
	WRIT_CRASH_ALL=1 WRIT_KILLS=200 $(GO) test -count=1 -v -timeout 60m -run 'TestCrashMatrix|TestKill' ./runtime ./cmd/writ

fuzz: ## run every fuzz target for FUZZTIME (20s)
	@scripts/fuzz $(FUZZTIME)

bench: ## measure, and print ratios beside the goals
	$(GO) run ./bench/report

clean: ## remove what was built
	rm -rf bin
