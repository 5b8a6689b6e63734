# Everything that CI runs, a person can run: see .ci/run.

.DEFAULT_GOAL := help
GO ?= go

.PHONY: help
help: ## Show what can be made
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' $(MAKEFILE_LIST) | expand -t 12

.PHONY: needs
needs: ## Install what the tests need and is missing
	@scripts/needs

.PHONY: test
test: needs ## Run the tests that a change needs, against real servers: ten minutes
	scripts/test

.PHONY: test-all
test-all: ## Run every test, on all variants of the stores and servers, and torture: about an hour
	@scripts/needs all
	scripts/test all
	$(MAKE) rounds torture for=1m

.PHONY: lint
lint: ## gofmt, vet for three systems, staticcheck, known vulnerabilities, tidy go.mod
	scripts/lint

.PHONY: tidy
tidy: ## Run "go mod tidy" in all modules
	scripts/tidy

.PHONY: build
build: ## Build holdfast, with holdfast-etcd and holdfast-s3 beside it, into bin/
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags="-s -w" -o bin/ ./cmd/holdfast ./etcdstore/cmd/holdfast-etcd ./s3store/cmd/holdfast-s3

.PHONY: packages
packages: ## Make the packages of the release that is checked out, in dist/
	scripts/packages

.PHONY: bench
bench: needs ## Measure ours and the rivals on the same servers: prints tables like those of docs/benchmarks.md
	cd tools && $(GO) run ./cmd/holdfast-bench

.PHONY: bench-local
bench-local: ## Measure: memory, files, and the command against flock(1)
	$(GO) test -run '^$$' -bench . -benchmem .
	$(GO) test -run "^$$" -bench . -benchtime 50x ./internal/command

.PHONY: rounds
rounds: ## The promise of "run" under kills and pauses, 100 rounds
	TEST_ROUNDS=100 $(GO) test -race -count=1 -timeout=60m ./internal/command

.PHONY: torture
torture: needs ## Find out whether the locks are locks, ten minutes for each store (for=1m: a minute)
	s3=$$(internal/servers/fromsource.sh versitygw) && cd tools && for store in memory file redis redis-failover redlock postgres postgres-advisory etcd s3; do \
		TEST_S3_SERVER=$$s3 $(GO) run ./cmd/holdfast-torture -own $$store -for $(or $(for),10m) -report ../torture || exit 1; \
	done

.PHONY: api
api: ## Write the listing of the exported API anew
	$(GO) test ./api -update
