# make check runs what CI runs (.ci/run). Tools are pinned in tools.mod and built by the go command when first used.

GO       ?= go
LINT     := $(GO) tool -modfile=tools/tools.mod golangci-lint
BENCH    ?= .
COUNT    ?= 6
FUZZTIME ?= 60s

# What CI does not test with the race detector: packages that start no goroutines, nor do their tests, and some whose few it makes up to ten
# times as slow; the benchmark and the development servers, which run within the tests of nodes; and whole processes, of which CI runs two tests with
# it. make race runs all of them with it.
PLAIN := ./change ./change/extjson ./cluster ./cluster/plan ./dedup ./dev/bench ./dev/demo ./dev/etcd ./dev/mongo/... ./fault ./gap ./gateway/sse \
	./gateway/streampb ./internal/archtest ./internal/breaker ./internal/retry ./internal/s3/uri ./match/expr ./test/process

.PHONY: check test race rxdb lively benchmarks list-plain list-mongodb format fmt vet lint archtest generated proto bench microbench fuzz prove siege judge live live-typescript model build image release release-check set-version wheel clients manifests pin-images deploy-check browser browser-clients streams site versity s3 connect connect-check

check:
	.ci/run

test:
	$(GO) test ./...

race:
	$(GO) test -race -vet=off -timeout 20m ./...

# What talks to MongoDB, on servers that behave as real ones that others use too.
lively:
	STREAMER_TEST_MONGODB_PROFILE=lively $(GO) test -timeout 20m $$($(MAKE) -s list-mongodb)

list-plain:
	@echo $(PLAIN)

# The packages whose tests take a development MongoDB, without its own tests and the benchmark.
list-mongodb:
	@$(GO) list -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}}' ./... | \
		awk '/devmongotest/ && $$1 !~ "/(dev/bench|dev/mongo)(/|$$)" { print $$1 }'

# Runs every benchmark once: one that fails or panics is found where it breaks.
benchmarks:
	$(GO) test -vet=off -short -run '^$$' -bench . -benchtime 1x $$(grep -rlE --include='*_test.go' '^func Benchmark' . | xargs -n 1 dirname | sort -u)

format:
	@bad=$$(gofmt -l .); [ -z "$$bad" ] || { printf 'not formatted (make fmt):\n%s\n' "$$bad"; exit 1; }

fmt:
	$(LINT) fmt ./...

vet:
	$(GO) vet -tags prove,clients,s3 ./...

# go vet, what a newer Go writes more simply, and the rest of .golangci.yml.
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
BUF := cd proto && $(GO) tool -modfile=../tools/buf.mod buf
proto:
	$(BUF) lint
	$(BUF) breaking --against "../.git#branch=main,subdir=proto"
	$(BUF) generate

# RxDB's own replication over /v1/snapshot and /v1/events, in Node: needs node and npm.
rxdb:
	$(GO) build -o bin/ ./dev/demo ./cmd/streamer
	cd examples/rxdb && npm ci --ignore-scripts --no-audit --no-fund && npm test

# The whole benchmark, a quarter of an hour on two cores, written into docs/benchmarks.md.
bench:
	$(GO) build -buildvcs=true -o bin/bench ./dev/bench
	bin/bench -o markdown -profile .bench/profile > bin/benchmarks.md
	mv bin/benchmarks.md docs/benchmarks.md
	$(GO) generate ./dev/bench

# Compares with .bench/old.txt where there is one; keep a run with: cp .bench/new.txt .bench/old.txt
microbench:
	@mkdir -p .bench
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) ./... | tee .bench/new.txt
	@if [ -f .bench/old.txt ]; then $(GO) tool -modfile=tools/tools.mod benchstat .bench/old.txt .bench/new.txt; fi

# Every fuzz target for FUZZTIME.
fuzz:
	@grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | sed -E 's|/[^/]+:func | |' | sort | while read -r dir target; do \
		echo "$$dir $$target"; \
		$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x "$$dir" || exit 1; \
	done

# Long tests: those behind the build tag prove, called TestProve…
prove:
	$(GO) test -race -tags prove -run '^TestProve' -timeout 90m ./...
	$(GO) test -tags prove -run '^TestProve' -timeout 90m ./internal/simulation # eight times as many seeds without the race detector

# Nodes under test as processes, whose subscribers' copies are held against MongoDB: a minute for each of SEEDS seeds, fresh ones unless SEED names one.
SEEDS ?= 20
judge:
	$(GO) build -o bin/ ./cmd/streamer ./dev/demo ./dev/judge
	@failed=0; for i in $$(seq $(if $(SEED),1,$(SEEDS))); do bin/judge -for 60s $(if $(SEED),-seed $(SEED)) $(JUDGE) || failed=1; done; exit $$failed

# Live queries beside everything that can be done to documents, LIVE steps of it, at twelve servers
# at once.
LIVE ?= 1000000
live:
	STREAMER_LIVE_STEPS=$(LIVE) $(GO) test -tags prove -v -run '^TestProveLiveQueriesFollowEverything$$' -timeout 0 ./test/node

# The same for the live queries of the TypeScript client: LIVE steps with each kind of server, some thousand a second. SEED repeats a run.
live-typescript:
	$(GO) build -o bin/ ./dev/demo ./cmd/streamer
	cd client/typescript && npm ci --ignore-scripts --no-audit --no-fund && npx tsc -p . && LIVE=$(LIVE) $(if $(SEED),SEED=$(SEED)) node --test test/model.test.mjs

# Hostile identities beside honest ones, at one of three nodes. Then nodes under load while one of three members of etcd is isolated, stopped, paused, slow and replaced, a minute each. With
# STREAMER_TEST_ETCD_BINARY=/usr/bin/etcd the members are of that etcd.
siege:
	$(GO) run ./dev/bench -race tenants
	$(GO) test -tags prove -v -run '^TestProveTenantsHarmNobody' -timeout 30m ./test/node
	$(GO) test -tags prove -v -run '^TestProveFaultsOfOneEtcdMember' -timeout 30m ./test/process

# Searches the model of the handoff exhaustively, some seconds; needs spin and gcc.
model:
	docs/model/run

# How a binary is built that runs without anything beside it: the same sources give the same bytes, wherever they lie.
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
REVISION ?= $(shell git rev-parse HEAD 2>/dev/null)
OUT      ?= bin/streamer
build:
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -tags timetzdata -ldflags '-s -w -X main.version=$(VERSION)' -o $(OUT) ./cmd/streamer

# A container image for each Linux platform as an OCI archive, without a container engine.
PLATFORMS ?= linux-amd64 linux-arm64 darwin-amd64 darwin-arm64
LINUX      = $(filter linux-%,$(PLATFORMS))
image:
	@set -e; for platform in $(LINUX); do $(MAKE) -s build GOOS=linux GOARCH=$${platform#*-} OUT=bin/$$platform/streamer; done
	cd deploy/check && $(GO) run ./image -version '$(VERSION)' -revision '$(REVISION)' -o $(CURDIR)/bin/streamer.oci.tar \
		$(foreach p,$(LINUX),linux/$(p:linux-%=%)=$(CURDIR)/bin/$(p)/streamer)

# The engine with the input for Redpanda Connect, in bin/streamer-connect (docs/connect.md).
connect:
	cd connect && CGO_ENABLED=0 $(GO) build -trimpath -o $(CURDIR)/bin/streamer-connect ./cmd/streamer-connect

# The input against a server that plays a node, its documentation's configurations, and then engines and nodes that are killed while a shop is written to: a minute. The
# first run builds the engine.
connect-check:
	cd connect && $(GO) vet -tags prove ./... && $(GO) test -race . && $(GO) test -tags prove -v -timeout 1h -run '^TestProve' .

# The documentation as a site in bin/site. A link that leads nowhere is an error.
site:
	cd docs/site && $(GO) vet ./... && $(GO) test ./... && $(GO) run . -o $(CURDIR)/bin/site

# Everything of a release in bin/release, the same bytes for the same commit and tools (RELEASING.md): archives for each platform with what is in them (CycloneDX), the image, the chart,
# the packages of npm and Python, the site, and their checksums. RELEASE is in one place, the file VERSION; set-version writes it where tools want it.
RELEASE := $(shell cat VERSION)
PACK     = tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=go=rX,u+rw -cf -
release: SHELL = /bin/bash
release: .SHELLFLAGS = -o pipefail -c
release: export VERSION = v$(RELEASE)
release:
	@rm -rf bin/release bin/site && mkdir -p bin/release
	$(MAKE) -s image
	cd deploy/check && $(GO) build -o $(CURDIR)/bin/sbom ./sbom
	@set -e; for platform in $(PLATFORMS); do \
		name=streamer-$$VERSION-$$platform; \
		$(MAKE) -s build GOOS=$${platform%-*} GOARCH=$${platform#*-} OUT=bin/$$platform/streamer; \
		bin/sbom "$$VERSION" bin/$$platform/streamer > bin/release/$$name.cdx.json; \
		$(PACK) --transform "s|^|$$name/|" -C bin/$$platform streamer -C $(CURDIR) LICENSE README.md CHANGELOG.md config.yaml | gzip -9n > bin/release/$$name.tar.gz; \
	done
	cp bin/streamer.oci.tar bin/release/streamer-$$VERSION.oci.tar
	$(PACK) --transform 's|^\.|streamer|' -C deploy/chart . | gzip -9n > bin/release/streamer-chart-$(RELEASE).tgz
	umask 022 && rm -rf bin/npm && mkdir -p bin/npm && cd client/typescript && cp -r package.json package-lock.json README.md tsconfig.json src $(CURDIR)/bin/npm && chmod -R u=rwX,go=rX $(CURDIR)/bin/npm
	umask 022 && cd bin/npm && npm ci --ignore-scripts --no-audit --no-fund && npm pack --silent --pack-destination $(CURDIR)/bin/release
	rm -r bin/npm
	$(MAKE) -s wheel && cp bin/wheel/*.whl bin/release
	cd docs/site && $(GO) run . -o $(CURDIR)/bin/site
	$(PACK) --transform "s|^\.|streamer-$$VERSION-site|" -C bin/site . | gzip -9n > bin/release/streamer-$$VERSION-site.tar.gz
	cd bin/release && sha256sum * > SHA256SUMS && cat SHA256SUMS

# Builds the release of the commit in two fresh clones and compares the checksums. Both are of the same commit, whatever is committed meanwhile.
release-check:
	@set -e; dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; commit=$$(git rev-parse HEAD); for n in one two; do \
		git clone -q . "$$dir/$$n/streamer" && git -C "$$dir/$$n/streamer" checkout -q "$$commit" && $(MAKE) -C "$$dir/$$n/streamer" release PLATFORMS='$(PLATFORMS)' > "$$dir/$$n/log" 2>&1 || { tail -n 50 "$$dir/$$n/log"; exit 1; }; \
	done; cat "$$dir/one/streamer/bin/release/SHA256SUMS"; diff "$$dir/one/streamer/bin/release/SHA256SUMS" "$$dir/two/streamer/bin/release/SHA256SUMS" && echo 'both clones gave the same bytes'

# make set-version V=0.2.0
set-version:
	@echo '$(V)' | grep -qxE '[0-9]+\.[0-9]+\.[0-9]+(-[a-z0-9.]+)?' || { echo 'V is a version such as 0.2.0'; exit 1; }
	echo '$(V)' > VERSION
	sed -i 's/^version: .*/version: $(V)/; s/^appVersion: .*/appVersion: v$(V)/' deploy/chart/Chart.yaml
	sed -i 's/^version = .*/version = "$(V)"/' client/python/pyproject.toml
	cd client/typescript && npm version --no-git-tag-version --allow-same-version '$(V)'
	sed -i '/"name": "@mongostream\/streamer"/{n;s/"version": "[^"]*"/"version": "$(V)"/}' examples/react/package-lock.json
	sed -i 's/mongostream-streamer-[0-9].*\.tgz/mongostream-streamer-$(V).tgz/' client/typescript/README.md
	sed -i 's/streamer:v[0-9][^ ]*/streamer:v$(V)/' deploy/chart/README.md
	$(MAKE) manifests

# The Go client for Windows is built, and no more. The clients in other languages, against real nodes, and the examples of the documents; needs Node 18 and npm, and Python 3.8.
clients:
	GOOS=windows $(GO) build ./client
	$(MAKE) -s build
	$(GO) build -o bin/demo ./dev/demo
	cd client/typescript && npm ci --no-audit --no-fund && npm test
	node --test examples/gateway/page.test.mjs
	cd client/python && $(PYTHON) -B -W error -m unittest discover -s tests -t .
	cd examples/react && npm ci --ignore-scripts --no-audit --no-fund
	PYTHON=$(PYTHON) $(GO) test -tags clients -timeout 1h -run '^Test(ConsumerInPython|PythonClient|TypeScriptOf|PythonOf|PackageOfPython|VerificationInPython)' ./test/process ./test/node ./dev/demo

# The Python package in bin/wheel, the same bytes each time; needs Debian's python3-build, python3-setuptools and python3-wheel, no network.
PYTHON ?= /usr/bin/python3
wheel:
	@umask 022 && rm -rf bin/wheel && mkdir -p bin/wheel/src && cp -r client/python/pyproject.toml client/python/README.md client/python/mongostream_streamer bin/wheel/src && chmod -R u=rwX,go=rX bin/wheel/src
	umask 022 && cd bin/wheel/src && SOURCE_DATE_EPOCH=315532800 $(PYTHON) -B -m build --wheel --no-isolation -o ..
	@rm -r bin/wheel/src && ls bin/wheel

# Pins the images of deploy/compose.yaml by the digests of their versions; needs their registries.
pin-images:
	cd deploy/check && $(GO) run ./pin ../compose.yaml

# The plain manifests, from the chart.
manifests:
	cd deploy/check && $(GO) test -run '^TestManifestsAreRendered$$' . -args -rewrite

# Everything in deploy/ against the tools that it is for: Helm's and Compose's libraries, Kubernetes' types, Prometheus' parser and promtool, systemd, a
# node's own metrics, of which Prometheus draws the dashboards' panels. The first run builds these tools, which takes some minutes. Where promtool or Prometheus is missing, it is
# Debian's, taken from its package without installing it.
PROMTOOL := $(shell command -v promtool || echo $(CURDIR)/bin/promtool/usr/bin/promtool)
PROMETHEUS := $(shell command -v prometheus || echo $(CURDIR)/bin/promtool/usr/bin/prometheus)
deploy-check: $(PROMTOOL) $(PROMETHEUS)
	$(PROMTOOL) check rules deploy/prometheus/rules.yaml
	$(PROMTOOL) check config deploy/prometheus/prometheus.yml
	cd deploy/prometheus && $(PROMTOOL) test rules rules.test.yaml
	systemd-analyze security --offline=true --threshold=25 deploy/systemd/streamer.service
	systemd-analyze security --offline=true --threshold=25 deploy/systemd/streamer-backup.service
	cd deploy/check && $(GO) vet ./... && $(GO) test -timeout 1h ./...
	STREAMER_TEST_PROMETHEUS=$(PROMETHEUS) $(GO) test -tags clients -timeout 1h -run '^TestPanels' ./test/process
	$(GO) test -run '^Test(SampleFor|EveryAlert|Disasters|CheckpointsAreRestored)' ./test/process ./internal/config

$(CURDIR)/bin/promtool/usr/bin/promtool $(CURDIR)/bin/promtool/usr/bin/prometheus &:
	mkdir -p bin/promtool && cd bin/promtool && apt-get download prometheus && dpkg-deb -x prometheus_*.deb .

# The clients in a real Chromium (CHROMIUM, /usr/bin/chromium), against real nodes; needs Node 20 and npm.
browser-clients:
	$(GO) build -o bin/ ./dev/demo ./cmd/streamer
	cd test/browser && npm ci --ignore-scripts --no-audit --no-fund
	cd client/typescript && npm ci --ignore-scripts --no-audit --no-fund && npm run browser
	cd examples/rxdb && npm ci --ignore-scripts --no-audit --no-fund && npm run browser
	cd examples/react && npm ci --ignore-scripts --no-audit --no-fund && npm run browser

# Event streams as the libraries and proxies of others speak them: npm's in Node, Chromium and Firefox, Python's, Go's; proxies from npm and Debian, without and with
# compression by the node. Two minutes. Where a proxy is missing, all are Debian's, taken from their packages without installing them.
PROXIES := $(shell PATH="$$PATH:/usr/sbin" which nginx haproxy caddy varnishd apache2 > /dev/null || echo $(CURDIR)/bin/proxies)
streams: $(PROXIES)
	$(GO) build -o bin/ ./dev/demo
	cd test/streams/goclient && $(GO) vet . && $(GO) build -o $(CURDIR)/bin/streamclient .
	cd test/streams && npm ci --ignore-scripts --no-audit --no-fund
	for gzip in '' 1; do STREAMER_GZIP=$$gzip node test/streams/clients.mjs && STREAMER_GZIP=$$gzip PROXIES=$(PROXIES) node test/streams/proxies.mjs || exit 1; done

$(CURDIR)/bin/proxies:
	rm -rf $@.new && mkdir -p $@.new && cd $@.new && apt-get download nginx haproxy caddy varnish apache2-bin \
		libapr1 libaprutil1 libjemalloc2 liblua5.3-0 libopentracing-c-wrapper0 libopentracing1 libvarnishapi3
	cd $@.new && for package in *.deb; do dpkg-deb -x $$package . || exit 1; done && mv $@.new $@

# The retained log in a bucket of versitygw, which is built when first used (some minutes): the store's suite, and three nodes as processes while the writer, the store and its disk fail.
VERSITYGW := $(CURDIR)/bin/versitygw-1.8.0
versity: $(VERSITYGW)
$(VERSITYGW):
	GOBIN=$(CURDIR)/bin/versity $(GO) install -trimpath github.com/versity/versitygw/cmd/versitygw@v1.8.0
	mv bin/versity/versitygw $@
s3: versity
	STREAMER_TEST_VERSITYGW=$(VERSITYGW) $(GO) test -race -tags s3 -count 1 -run '^TestVersity' ./internal/s3
	STREAMER_TEST_VERSITYGW=$(VERSITYGW) $(GO) test -tags s3 -count 1 -v -timeout 30m -run '^TestVersity' ./test/process

# The status page in a real Chromium (CHROMIUM, /usr/bin/chromium), with three nodes behind it; needs Node.js. Writes the screenshots in docs/img, and runs or compiles the programs that the
# live view writes. Before that, the documentation, the tutorial (with Python as its web server), and pages of another origin, and with a name that is resolved to the node, in Chromium and Firefox (FIREFOX, /usr/bin/firefox-esr) against an open node.
browser: site
	$(GO) build -o bin/ ./dev/demo ./cmd/streamer
	cd test/browser && npm ci --ignore-scripts --no-audit --no-fund
	cd client/typescript && npm ci --ignore-scripts --no-audit --no-fund
	@mkdir -p docs/img
	node test/browser/site.mjs bin/site
	node test/browser/tutorial.mjs docs/img
	node test/browser/foreign.mjs
	node test/browser/rebind.mjs
	node test/browser/status.mjs docs/img
	STREAMER_TEST_PICTURES=$(CURDIR)/docs/img $(GO) test ./test/process -run '^TestOneProblemOnEverySurface$$' -count 1
