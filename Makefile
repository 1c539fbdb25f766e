# make check runs what CI runs (.ci/run). Tools are pinned in tools.mod and built by the go command when first used.

GO       ?= go
LINT     := $(GO) tool -modfile=tools.mod golangci-lint
BENCH    ?= .
COUNT    ?= 6
FUZZTIME ?= 60s

# What CI tests without the race detector: packages without goroutines that it makes up to ten times as slow; the benchmark; and whole
# processes, of which CI runs two tests with it. make race runs all of them with it.
PLAIN := ./cluster/plan ./cmd/bench ./internal/archtest ./test

.PHONY: check test race lively benchmarks list-plain list-mongodb format fmt vet fix lint archtest generated proto bench microbench fuzz prove siege model

check:
	.ci/run

test:
	$(GO) test ./...

race:
	$(GO) test -race -vet=off ./...

# What talks to MongoDB, on servers that behave as real ones that others use too.
lively:
	STREAMER_TEST_MONGODB_PROFILE=lively $(GO) test $$($(MAKE) -s list-mongodb)

list-plain:
	@echo $(PLAIN)

# The packages whose tests take a development MongoDB, without its own tests and the benchmark.
list-mongodb:
	@$(GO) list -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}}' ./... | \
		awk '/devmongotest/ && $$1 !~ "/(cmd/bench|internal/devmongo)(/|$$)" { print $$1 }'

# Runs every benchmark once: one that fails or panics is found where it breaks.
benchmarks:
	$(GO) test -vet=off -short -run '^$$' -bench . -benchtime 1x $$(grep -rlE --include='*_test.go' '^func Benchmark' . | xargs -n 1 dirname | sort -u)

format:
	@bad=$$(gofmt -l .); [ -z "$$bad" ] || { printf 'not formatted (make fmt):\n%s\n' "$$bad"; exit 1; }

fmt:
	$(LINT) fmt ./...

vet:
	$(GO) vet -tags prove ./...

# Says what a newer Go writes more simply.
fix:
	$(GO) fix -diff ./...

lint:
	$(LINT) run ./...

archtest:
	$(GO) test ./internal/archtest

# Generates again, and fails where that changes anything.
generated:
	@before=$$(git status --porcelain; git diff HEAD); $(GO) generate ./...; after=$$(git status --porcelain; git diff HEAD); \
	[ "$$before" = "$$after" ] || { echo 'generated files were not fresh: look at git diff and commit'; exit 1; }

# Generates the gateways' protocol, and holds it against the rules and against what has been committed. A test says when this is due;
# buf is built when first used, which takes some minutes.
BUF := $(GO) tool -modfile=buf.mod buf
proto:
	$(BUF) lint
	$(BUF) breaking --against '.git#branch=main'
	$(BUF) generate

# The whole benchmark, ten minutes on two cores, written into docs/benchmarks.md.
bench:
	@mkdir -p .bench/profile
	$(GO) build -buildvcs=true -o bin/bench ./cmd/bench
	bin/bench -o markdown -profile .bench/profile > bin/benchmarks.md
	mv bin/benchmarks.md docs/benchmarks.md

# Compares with .bench/old.txt where there is one; keep a run with: cp .bench/new.txt .bench/old.txt
microbench:
	@mkdir -p .bench
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) ./... | tee .bench/new.txt
	@if [ -f .bench/old.txt ]; then $(GO) tool -modfile=tools.mod benchstat .bench/old.txt .bench/new.txt; fi

# Every fuzz target for FUZZTIME.
fuzz:
	@grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | sed -E 's|/[^/]+:func | |' | sort | while read -r dir target; do \
		echo "$$dir $$target"; \
		$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x "$$dir" || exit 1; \
	done

# Long tests: those behind the build tag prove, called TestProve…
prove:
	$(GO) test -race -tags prove -run '^TestProve' -timeout 60m ./...
	$(GO) test -tags prove -run '^TestProve' -timeout 60m ./internal/simulation # eight times as many seeds without the race detector

# Hostile identities beside honest ones. Then nodes under load while one of three members of etcd is isolated, stopped, paused, slow and replaced, a minute each. With
# STREAMER_TEST_ETCD_BINARY=/usr/bin/etcd the members are of that etcd.
siege:
	$(GO) run ./cmd/bench -race tenants
	$(GO) test -tags prove -v -run '^TestProveFaultsOfOneEtcdMember' -timeout 30m ./test

# Searches the model of the handoff exhaustively, some seconds; needs spin and gcc.
model:
	docs/model/run
