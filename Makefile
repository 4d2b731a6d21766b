# Everything that CI does, a laptop does with the same target. `make help` lists them.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

include tools/versions.mk

# The first of these that can be written to. An account without a home (or with another account's) keeps its Go caches there too.
CACHE := $(shell for dir in "$${XDG_CACHE_HOME:-$${HOME:-/nonexistent}/.cache}" "$${TMPDIR:-/tmp}/cache-$$(id -u)"; do \
	if mkdir -p "$$dir/lockstep" 2>/dev/null && test -w "$$dir/lockstep"; then echo "$$dir"; break; fi; done)
ifneq ($(shell dir="$$(go env GOCACHE)"; mkdir -p "$$dir" 2>/dev/null && test -w "$$dir" && echo yes),yes)
export GOCACHE := $(CACHE)/go-build
endif
ifneq ($(shell dir="$$(go env GOMODCACHE)"; mkdir -p "$$dir" 2>/dev/null && test -w "$$dir" && echo yes),yes)
export GOPATH := $(CACHE)/go
export GOMODCACHE := $(CACHE)/go/pkg/mod
endif
# A checkout that belongs to another account builds as well, and one in another folder uses what has been compiled before.
export GOFLAGS := $(GOFLAGS) -buildvcs=false -trimpath

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -X github.com/lockstep-cd/lockstep/pkg/build.version=$(VERSION) -X github.com/lockstep-cd/lockstep/pkg/build.commit=$(shell git rev-parse HEAD 2>/dev/null)
MODULES  = $(shell go list -m -f '{{.Dir}}')

# --- tools, each in a folder of its own named for its version: $(BIN)/buf-v1.70.0/buf

BIN                := $(CACHE)/lockstep/bin
BUF                := $(BIN)/buf-$(BUF_VERSION)/buf
PROTOC_GEN_GO      := $(BIN)/protoc-gen-go-$(PROTOC_GEN_GO_VERSION)/protoc-gen-go
PROTOC_GEN_GO_GRPC := $(BIN)/protoc-gen-go-grpc-$(PROTOC_GEN_GO_GRPC_VERSION)/protoc-gen-go-grpc
SQLC               := $(BIN)/sqlc-$(SQLC_VERSION)/sqlc
GOLANGCI_LINT      := $(BIN)/golangci-lint-$(GOLANGCI_LINT_VERSION)/golangci-lint
KUSTOMIZE          := $(BIN)/kustomize-$(KUSTOMIZE_VERSION)/kustomize
HELM               := $(BIN)/helm-$(HELM_VERSION)/helm
KUBECONFORM        := $(BIN)/kubeconform-$(KUBECONFORM_VERSION)/kubeconform
KUBE_SCORE         := $(BIN)/kube-score-$(KUBE_SCORE_VERSION)/kube-score
HUGO               := $(BIN)/hugo-$(HUGO_VERSION)/hugo
VERSITYGW          := $(BIN)/versitygw-$(VERSITYGW_VERSION)/versitygw
PROMETHEUS         := $(BIN)/prometheus-$(PROMETHEUS_VERSION)/prometheus
COSIGN             := $(BIN)/cosign-$(COSIGN_VERSION)/cosign
GITEA              := $(BIN)/gitea-$(GITEA_VERSION)/gitea

# $(call install,module,version): two makes at once each build their own and the last one wins, with the same content.
define install
	@echo "building $(@F) $2, once, into $(BIN) (minutes on a small machine)" >&2
	@mkdir -p $(@D); tmp=$$(mktemp -d $(@D)/.build.XXXXXX); trap 'rm -rf "$$tmp"' EXIT; \
	GOWORK=off GOBIN="$$tmp" go install $1@$2 >"$$tmp/log" 2>&1 || { cat "$$tmp/log" >&2; exit 1; }; \
	mv -f "$$tmp/$(@F)" $@
endef

$(BUF):
	$(call install,$(BUF_MODULE),$(BUF_VERSION))
$(PROTOC_GEN_GO):
	$(call install,$(PROTOC_GEN_GO_MODULE),$(PROTOC_GEN_GO_VERSION))
$(PROTOC_GEN_GO_GRPC):
	$(call install,$(PROTOC_GEN_GO_GRPC_MODULE),$(PROTOC_GEN_GO_GRPC_VERSION))
$(SQLC):
	$(call install,$(SQLC_MODULE),$(SQLC_VERSION))
$(GOLANGCI_LINT):
	$(call install,$(GOLANGCI_LINT_MODULE),$(GOLANGCI_LINT_VERSION))
$(KUSTOMIZE):
	$(call install,$(KUSTOMIZE_MODULE),$(KUSTOMIZE_VERSION))
$(HELM):
	$(call install,$(HELM_MODULE),$(HELM_VERSION))
$(KUBECONFORM):
	$(call install,$(KUBECONFORM_MODULE),$(KUBECONFORM_VERSION))
$(KUBE_SCORE):
	$(call install,$(KUBE_SCORE_MODULE),$(KUBE_SCORE_VERSION))
$(HUGO):
	$(call install,$(HUGO_MODULE),$(HUGO_VERSION))
$(VERSITYGW):
	$(call install,$(VERSITYGW_MODULE),$(VERSITYGW_VERSION))

# Gitea is a program for tests. It reads its templates from a folder beside it, instead of having them built in.
$(GITEA):
	@echo "building gitea $(GITEA_VERSION), once, into $(BIN) (minutes on a small machine)" >&2
	@mkdir -p $(@D); cd "$$(GOWORK=off go mod download -json $(GITEA_MODULE)@$(GITEA_VERSION) | sed -n 's/^\t"Dir": "\(.*\)",$$/\1/p')" && \
	mkdir -p $(@D)/root && cp -r --no-preserve=mode options templates public $(@D)/root/ && \
	GOWORK=off CGO_ENABLED=1 go build -trimpath -tags 'sqlite sqlite_unlock_notify' -ldflags '-s -w -X main.Version=$(GITEA_VERSION:v%=%)' -o $@ .

# cosign is a program for tests. It is built in its own module, with the versions that it pins.
$(COSIGN):
	@echo "building cosign $(COSIGN_VERSION), once, into $(BIN) (minutes on a small machine)" >&2
	@mkdir -p $(@D); cd "$$(GOWORK=off go mod download -json $(COSIGN_MODULE)@$(COSIGN_VERSION) | sed -n 's/^\t"Dir": "\(.*\)",$$/\1/p')" && \
	GOWORK=off CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o $@ ./cmd/cosign

# Prometheus measures in scenarios. It finds nothing by itself, so it has none of the clients of clouds.
$(PROMETHEUS):
	@echo "building prometheus $(PROMETHEUS_VERSION), once, into $(BIN) (minutes on a small machine)" >&2
	@mkdir -p $(@D); cd "$$(GOWORK=off go mod download -json $(PROMETHEUS_MODULE)@$(PROMETHEUS_VERSION) | sed -n 's/^\t"Dir": "\(.*\)",$$/\1/p')" && \
	GOWORK=off CGO_ENABLED=0 go build -trimpath -tags netgo,remove_all_sd -ldflags '-s -w' -o $@ ./cmd/prometheus

# --- targets

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "%-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the lockstep command into bin/
	@mkdir -p bin && go build -ldflags '$(LDFLAGS)' -o bin/lockstep.$$$$ ./tools/lockstep && mv -f bin/lockstep.$$$$ bin/lockstep

.PHONY: demo
demo: ## Run the whole product on this machine: two services, two environments, a bad version, a rollback
	@out=$$(mktemp -d); trap 'rm -rf "$$out"' EXIT; \
	echo "building lockstep (the first time takes minutes)" >&2; \
	go build -ldflags '$(LDFLAGS)' -o "$$out/lockstep" ./tools/lockstep; \
	"$$out/lockstep" demo $(DEMO_FLAGS)

.PHONY: test
test: ## Run every test that needs no real cluster (TEST_FLAGS="-race -run X" adds flags)
	@go test -timeout 30m $(TEST_FLAGS) work

.PHONY: cluster
cluster: ## Build the real cluster of the end-to-end tests, once (40 minutes the first time)
	@XDG_CACHE_HOME="$(CACHE)" tools/cluster/build.sh
	@XDG_CACHE_HOME="$(CACHE)" tools/cluster/workflows.sh
	@XDG_CACHE_HOME="$(CACHE)" tools/cluster/flux.sh

# Only where a scenario with metrics is played: building it takes minutes.
METRIC_SCENARIOS := analysis
E2E_PROMETHEUS   := $(if $(filter-out -v --cost,$(E2E_FLAGS)),$(if $(filter $(METRIC_SCENARIOS),$(E2E_FLAGS)),$(PROMETHEUS)),$(PROMETHEUS))

# Only where a scenario with Argo Workflows is played.
WORKFLOW_SCENARIOS := $(notdir $(wildcard tools/e2e/scenarios/workflows-*))
E2E_WORKFLOWS      := $(if $(filter-out -v --cost,$(E2E_FLAGS)),$(filter $(WORKFLOW_SCENARIOS) --measure-workflows,$(E2E_FLAGS)),all)

# Only where a scenario with Flux is played, which CI does not: building its controllers takes minutes.
FLUX_SCENARIOS := flux
E2E_FLUX       := $(if $(filter-out -v --cost,$(E2E_FLAGS)),$(filter $(FLUX_SCENARIOS),$(E2E_FLAGS)),all)

.PHONY: e2e
e2e: $(KUSTOMIZE) $(HELM) $(E2E_PROMETHEUS) ## Run the end-to-end scenarios on a real Kubernetes with Argo CD, Argo Rollouts, Argo Workflows and Flux (E2E_FLAGS="-v canary")
	@programs=$$(XDG_CACHE_HOME="$(CACHE)" tools/cluster/build.sh); \
	workflows=$(if $(E2E_WORKFLOWS),$$(XDG_CACHE_HOME="$(CACHE)" tools/cluster/workflows.sh)); \
	flux=$(if $(E2E_FLUX),$$(XDG_CACHE_HOME="$(CACHE)" tools/cluster/flux.sh)); \
	out=$$(mktemp -d); trap 'rm -rf "$$out"' EXIT; \
	echo "building lockstep (the first time takes minutes)" >&2; \
	go build -o "$$out/e2e" ./tools/e2e; \
	"$$out/e2e" --programs "$$programs" --kustomize "$(KUSTOMIZE)" --helm "$(HELM)" --workflows "$$workflows" --flux "$$flux" $(addprefix --prometheus ,$(E2E_PROMETHEUS)) --scenarios tools/e2e/scenarios $(E2E_FLAGS)

.PHONY: e2e-charts
e2e-charts: ## Install, upgrade, roll back and uninstall the charts on a real API server
	@programs=$$(XDG_CACHE_HOME="$(CACHE)" tools/cluster/build.sh); \
	cd tools/charts && GOWORK=off LOCKSTEP_CLUSTER="$$programs" go test -count=1 -timeout 30m -run TestOnARealAPIServer .

.PHONY: bench
bench: ## Measure the durable engine (PEERS=1 beside other engines, BENCH_FLAGS="-scale 0.3 B1 B2")
	@out=$$(mktemp -d); trap 'rm -rf "$$out"' EXIT; \
	go build -o "$$out/bench" ./tools/bench; \
	"$$out/bench" $(if $(PEERS),-peers tools/bench/peers) $(BENCH_FLAGS)

.PHONY: bench-domain
bench-domain: ## Measure the pages of the domain's API on a large organization (BENCH_FLAGS="-scale 0.1")
	@out=$$(mktemp -d); trap 'rm -rf "$$out"' EXIT; \
	go build -o "$$out/bench" ./tools/bench/domain; \
	"$$out/bench" $(BENCH_FLAGS)

.PHONY: bench-registry
bench-registry: ## Measure webhook to version set, and a minute of events over restarts (BENCH_FLAGS="-for 10s -rate 200")
	@out=$$(mktemp -d); trap 'rm -rf "$$out"' EXIT; \
	go build -o "$$out/bench" ./tools/bench/registry; \
	"$$out/bench" $(BENCH_FLAGS)

.PHONY: bench-outbox
bench-outbox: ## Measure an outbox's way into its stream, in batches and one by one (BENCH_FLAGS="-sync=false")
	@out=$$(mktemp -d); trap 'rm -rf "$$out"' EXIT; \
	go build -o "$$out/bench" ./tools/bench/outbox; \
	"$$out/bench" $(BENCH_FLAGS)

.PHONY: bench-fleet
bench-fleet: ## Measure what a fleet costs: engines, agents, followers, pushes, pages (SCALE=0.1 for a small machine, 1 for a large one)
	@$(MAKE) bench BENCH_FLAGS="-scale $(or $(SCALE),0.1) B1-start B4-parked B18-replicas B23-agents"
	@$(MAKE) bench-domain BENCH_FLAGS="-scale $(or $(SCALE),0.1) -followers 500"
	@$(MAKE) bench-registry BENCH_FLAGS="-for 60s -rate $(or $(RATE),1000)"

.PHONY: race
race: ## Run the tests once more, in random order, under the race detector
	@go test -race -shuffle=on -count=1 -timeout 30m $(TEST_FLAGS) work

.PHONY: lint
lint: $(GOLANGCI_LINT) $(BUF) ## Run the linters over Go and protocol buffers, and compare the contracts (protocol buffers, GraphQL) with the main branch
	@$(GOLANGCI_LINT) run $(addsuffix /...,$(MODULES))
	@cd tools/charts && GOWORK=off $(GOLANGCI_LINT) run ./...
	@$(BUF) lint
	@tools/breaking.sh $(BUF)

.PHONY: lint-changed
lint-changed: $(GOLANGCI_LINT) $(BUF) ## Run the linters over the packages that have changed, and what `make lint` does with contracts
	@dirs=$$(tools/changed.sh -own); if [ -n "$$dirs" ]; then $(GOLANGCI_LINT) run $$dirs; fi
	@$(BUF) lint
	@tools/breaking.sh $(BUF)

.PHONY: format
format: $(GOLANGCI_LINT) $(BUF) ## Format Go and protocol buffers
	@$(GOLANGCI_LINT) fmt
	@$(BUF) format -w

.PHONY: format-check
format-check: $(GOLANGCI_LINT) $(BUF) ## Fail when `make format` would change something
	@$(GOLANGCI_LINT) fmt --diff
	@$(BUF) format -d --exit-code

.PHONY: arch
arch: ## Check who imports whom (tools/arch/table.go), and the words that are left of the former dialect (tools/arch/words.go)
	@go run ./tools/arch

.PHONY: generate
generate: $(BUF) $(PROTOC_GEN_GO) $(PROTOC_GEN_GO_GRPC) $(SQLC) ## Write all generated code, golden files and go.mod lines
	@PATH="$(dir $(PROTOC_GEN_GO)):$(dir $(PROTOC_GEN_GO_GRPC)):$$PATH" $(BUF) generate --template proto/buf.gen.yaml
	@git ls-files -co --exclude-standard '*sqlc.yaml' | while read -r f; do (cd "$$(dirname "$$f")" && $(SQLC) generate); done
	@git ls-files -co --exclude-standard '*gqlgen.yml' | while read -r f; do (cd "$$(dirname "$$f")" && go tool gqlgen generate); done
	@# Schemas come first: the other tests are compiled with them.
	@go test -count=1 ./pkg/event -run TestSchemasAreThoseOfTheGoTypes -update >/dev/null
	@go test -count=1 ./pkg/event -update >/dev/null
	@go run ./tools/modsync
	@go run ./tools/docgen
	@$(MAKE) docs

# --- the documentation: pages in docs/, the site's templates in docs/site; the build is committed, so that the product builds with Go alone

DOCS := services/domain/internal/console/docs

.PHONY: docs
docs: $(HUGO) ## Build the documentation into services/domain/internal/console/docs, which is committed (DOCS=bin/docs: elsewhere)
	@out=$$($(HUGO) --source docs/site --destination "$(abspath $(DOCS))" --cleanDestinationDir --noBuildLock 2>&1) || { echo "$$out" >&2; exit 1; }

# --- the web console: needs Node.js 20 and npm; the product itself does not

UI := services/domain/internal/console/ui

$(UI)/node_modules/.package-lock.json: $(UI)/package.json $(UI)/package-lock.json
	@cd $(UI) && npm ci --silent && touch node_modules/.package-lock.json

.PHONY: console
console: $(UI)/node_modules/.package-lock.json ## Build the web console into services/domain/internal/console/dist, which is committed
	@cd $(UI) && node scripts/types.mjs && npm run --silent check && npm run --silent build

.PHONY: console-drift
console-drift: $(UI)/node_modules/.package-lock.json ## Fail when the committed build of the console is not what its source makes
	@before=$$(mktemp -d); trap 'rm -rf "$$before"' EXIT; cp -a $(UI)/../dist $(UI)/src/api/generated.ts "$$before"; $(MAKE) --no-print-directory console; \
	diff -rq "$$before/dist" $(UI)/../dist && diff -q "$$before/generated.ts" $(UI)/src/api/generated.ts || \
	{ echo "console-drift: the build was not what its source makes; it has been written anew: look at it and commit" >&2; exit 1; }

.PHONY: console-unit
console-unit: $(UI)/node_modules/.package-lock.json ## Check the web console without a browser: types against the schema, unit tests
	@cd $(UI) && node scripts/types.mjs --check && npm run --silent check && npm run --silent test

.PHONY: console-test
console-test: console-unit ## Test the web console in Chromium against a real stack (SHOTS=DIR keeps screenshots of every page)
	@$(UI)/browser/chromium.sh
	@out=$$(mktemp -d); trap 'rm -rf "$$out"' EXIT; \
	go build -o "$$out/lockstep" ./tools/lockstep; \
	cd $(UI) && LOCKSTEP="$$out/lockstep" SHOTS="$(abspath $(SHOTS))" npm run --silent browser

.PHONY: console-scale
console-scale: $(UI)/node_modules/.package-lock.json ## Time the matrix of 10,000 applications in Chromium: first page, longest task at 50 events a second (what can be counted is console-test's)
	@$(UI)/browser/chromium.sh
	@out=$$(mktemp -d); trap 'rm -rf "$$out"' EXIT; \
	go build -o "$$out/lockstep" ./tools/lockstep; \
	cd $(UI) && LOCKSTEP="$$out/lockstep" node --test --test-reporter=spec browser/scale.mjs

.PHONY: console-shots
console-shots: ## Write screenshots of every page of the console into bin/shots
	@mkdir -p bin/shots && $(MAKE) console-test SHOTS=bin/shots

# --- the charts: a module of its own (tools/charts/README.md)

# What kube-score asks and the charts leave out on purpose: limits of CPU, which throttle what has room; another pull of images that a tag or a digest
# pins; names of single pods, which nothing uses; the users of the bundled PostgreSQL's and NATS's images, and their one probe for all purposes.
KUBE_SCORE_IGNORED := --ignore-container-cpu-limit --ignore-test container-image-pull-policy --ignore-test statefulset-has-servicename \
	--ignore-test container-security-context-user-group-id --ignore-test pod-probes-identical

.PHONY: charts
charts: $(KUBECONFORM) $(KUBE_SCORE) ## Check the Helm charts: lint, schemas, every file of values rendered and judged, golden files
	@cd tools/charts && GOWORK=off go vet ./... && GOWORK=off go test $(TEST_FLAGS) ./...
	@out=$$(mktemp -d); trap 'rm -rf "$$out"' EXIT; cd tools/charts && GOWORK=off go run . -render "$$out"; \
	$(KUBECONFORM) -strict -summary -schema-location 'schemas/{{.ResourceKind}}{{.KindSuffix}}.json' "$$out"; \
	$(KUBE_SCORE) score --kubernetes-version v1.30 --output-format ci $(KUBE_SCORE_IGNORED) "$$out"/*.yaml >"$$out/score" || { grep -vE '^\[(OK|SKIPPED)\]' "$$out/score" >&2; exit 1; }

.PHONY: charts-schemas
charts-schemas: ## Write the schemas of kinds that kubeconform judges the charts by, from pinned modules
	@cd tools/charts && GOWORK=off go run . -schemas

.PHONY: charts-write
charts-write: ## Write what in the charts is derived from elsewhere, and their golden files
	@cd tools/charts && GOWORK=off go mod tidy && GOWORK=off go run . && GOWORK=off go test -count=1 . -update >/dev/null

.PHONY: chaos
chaos: ## Run rollouts, and a hostile driver beside them, while everything is killed and stalled at random (ROUNDS=2 or FOR=60m; TOGETHER=3; LOCKSTEP_CHAOS_SEED repeats a run), and the engine without PostgreSQL and NATS for 30 s each
	@LOCKSTEP_CHAOS=$(or $(ROUNDS),$(FOR),2) LOCKSTEP_CHAOS_TOGETHER=$(or $(TOGETHER),3) go test -count=1 -timeout 0 -v -run TestChaos ./tools/lockstep/crash
	@LOCKSTEP_OUTAGE=30s go test -count=1 -timeout 10m -v -run TestDatabaseAndBusGoAwayAndComeBack ./services/workflow

.PHONY: archive-test
archive-test: $(VERSITYGW) ## Test the archives of ended runs and of settled rows with a real S3 server
	@LOCKSTEP_TEST_S3="$(VERSITYGW)" go test -count=1 -timeout 10m $(TEST_FLAGS) ./pkg/archive
	@LOCKSTEP_TEST_S3="$(VERSITYGW)" go test -count=1 -timeout 10m $(TEST_FLAGS) -run "Archive" ./services/workflow
	@LOCKSTEP_TEST_S3="$(VERSITYGW)" go test -count=1 -timeout 10m $(TEST_FLAGS) -run "Archive|NoLongerDue" ./services/domain

.PHONY: forge-test
forge-test: $(GITEA) ## Test proposals and plans with a real Gitea: protected branch, a base that moves, merges and closing by hand, pull requests that it reports to all services
	@LOCKSTEP_TEST_GITEA="$(GITEA)" go test -count=1 -timeout 10m $(TEST_FLAGS) -run OnGitea ./services/workflow/internal/git ./tools/lockstep/crash

.PHONY: cosign-test
cosign-test: $(COSIGN) ## Test signatures with a real cosign: what it signs becomes facts, and it verifies what this repository signs
	@LOCKSTEP_TEST_COSIGN="$(COSIGN)" go test -count=1 -timeout 10m $(TEST_FLAGS) -run Cosign ./services/registry ./tools/image/attest

.PHONY: faults
faults: archive-test ## Kill, empty and split clusters of real servers under traffic (docs/how-to/survive-the-loss-of-a-server.md), and print what each fault cost
	@LOCKSTEP_NIGHTLY=1 go test -count=1 -timeout 30m -v -run 'Cluster' ./pkg/outbox | grep -E 'RESULT|^(---|FAIL|ok)'
	@command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ] || [ -n "$$LOCKSTEP_PGBOUNCER" ] || apt-get install -y -q pgbouncer
	@LOCKSTEP_NIGHTLY=1 go test -count=1 -timeout 10m -run 'PgBouncer|Pooler' ./pkg/pg ./services/workflow

.PHONY: soak
soak: ## Run steady rollouts through all services and judge by slope whether anything grows (FOR=30m; SOAK_FLAGS="-pace 2s -json file")
	@out=$$(mktemp -d); trap 'rm -rf "$$out"' EXIT; \
	go build -o "$$out/soak" ./tools/lockstep/soak; \
	"$$out/soak" -for $(or $(FOR),30m) $(SOAK_FLAGS)

.PHONY: upgrade
upgrade: ## Run the previous release's services (deploy/previous-release) on the tables of this code, and replace them one by one under a rollout
	@LOCKSTEP_UPGRADE=1 go test -count=1 -timeout 20m -v -run TestUpgradeFromThePreviousRelease ./tools/lockstep/crash

.PHONY: simulate
simulate: ## Simulate the workflow engine while everything around it fails (SEEDS=100000; FOR=3m bounds it)
	@go test -count=1 -timeout 0 -v -run TestWhatGoesWrongChangesNothing ./services/workflow/internal/simulation \
		-seeds $(or $(SEEDS),1000000000) $(if $(FOR),-for $(FOR),$(if $(SEEDS),,-for 3m)) | grep -v '^=== '

.PHONY: model
model: ## Search every state of the models of the engine's and the passages' protocols with Spin (services/workflow/internal/model; DEEP=1 has more go wrong)
	@spin=$$(XDG_CACHE_HOME="$(CACHE)" tools/spin.sh); \
	LOCKSTEP_SPIN="$$spin" LOCKSTEP_MODEL_DEEP="$(DEEP)" go test -count=1 -timeout 30m -v -run '^TestModels$$' ./services/workflow/internal/model | grep --line-buffered -Ev '^=== |^ *--- PASS'

.PHONY: images
images: ## Build every image as an OCI layout into bin/images, without a container engine (VERSION=v1.2.3; SIGN_KEY=file:/path signs; PUSH=ghcr.io/lockstep-cd publishes)
	@mkdir -p bin/images && go run ./tools/image -version $(VERSION) -commit "$$(git rev-parse HEAD)" -out bin/images \
		$(if $(SIGN_KEY),-key "$(SIGN_KEY)") $(if $(VAULT_ADDR),-vault-address "$(VAULT_ADDR)" -vault-token env:VAULT_TOKEN) $(if $(PUSH),-push "$(PUSH)") registry domain workflow relay lockstep

.PHONY: tidy
tidy: ## Give every module the versions that the workspace builds with
	@for round in 1 2; do \
		go work sync; \
		for dir in $(MODULES); do (cd "$$dir" && GOWORK=off go mod tidy); done; \
	done; go work sync

.PHONY: drift
drift: ## Fail when generated code or module files are not what generate and tidy make
	@tools/drift.sh

# --- checks by how fast they are

# The steps of CI that need no cluster, those that fail soonest first.
CI_STEPS := drift format-check lint arch charts test model
# The scenarios of CI: one for each mechanism, but those with Prometheus and Flux. `make nightly` plays all of them.
CI_SCENARIOS := canary blue-green-joint abort-in-sync abort-retry argocd-restarted automatic-rollback degraded drift helm jobs kustomize \
	manifest-only on-failure-abort plain relay-killed second-actor workflows-abort workflows-cancelled workflows-killed workflows-server workload-ref

CLIENT := docs/examples/client/typescript

$(CLIENT)/node_modules/.package-lock.json: $(CLIENT)/package.json $(CLIENT)/package-lock.json
	@cd $(CLIENT) && npm ci --silent && touch node_modules/.package-lock.json

WEBHOOK := docs/examples/webhook

$(WEBHOOK)/javascript/node_modules/.package-lock.json: $(WEBHOOK)/javascript/package.json $(WEBHOOK)/javascript/package-lock.json
	@cd $(WEBHOOK)/javascript && npm ci --silent && touch node_modules/.package-lock.json

.PHONY: webhooks
webhooks: $(WEBHOOK)/javascript/node_modules/.package-lock.json ## Verify signed webhooks with the libraries of Standard Webhooks for JavaScript and Python (what cannot be installed is left out)
	@PYTHONPATH=$(WEBHOOK)/python/libraries python3 -c 'import standardwebhooks' 2>/dev/null || \
		timeout 60 python3 -m pip install --quiet --retries 1 --timeout 15 --target $(WEBHOOK)/python/libraries -r $(WEBHOOK)/python/requirements.txt >/dev/null 2>&1 || \
		echo "webhooks: found no library of Standard Webhooks for Python, and could not install it; it is not tried" >&2
	@go test -timeout 5m $(TEST_FLAGS) -run 'TestSignedRequestsPass' ./services/workflow/internal/web

.PHONY: clients
clients: $(CLIENT)/node_modules/.package-lock.json webhooks ## Generate the gRPC clients in Go, Python and TypeScript, and try those in docs/examples on a real service; verify signed webhooks
	@command -v grpc_python_plugin >/dev/null && python3 -c 'import grpc' 2>/dev/null || /usr/bin/python3 -c 'import grpc' 2>/dev/null || \
		{ apt-get update -q && apt-get install -y -q python3-grpcio protobuf-compiler protobuf-compiler-grpc; } >/dev/null || \
		{ echo "clients: install Python's grpcio, protoc and grpc_python_plugin (Debian: python3-grpcio protobuf-compiler protobuf-compiler-grpc)" >&2; exit 1; }
	@LOCKSTEP_CLIENTS=1 go test -timeout 10m $(TEST_FLAGS) -run 'TestTheClientsInTheExamples|TestTheWorkerInPython' ./services/workflow

.PHONY: publishable
publishable: $(BUF) $(PROTOC_GEN_GO) $(PROTOC_GEN_GO_GRPC) ## Fail when the module of the protocol buffers could not be published, or would be of no use to others
	@BUF=$(abspath $(BUF)) PROTOC_GEN_GO=$(abspath $(PROTOC_GEN_GO)) PROTOC_GEN_GO_GRPC=$(abspath $(PROTOC_GEN_GO_GRPC)) tools/publishable.sh

.PHONY: check
check: ## What to run before every commit: format, import rules, lint of what has changed, tests of what has changed and of what imports it but the longest, the generated clients (about 3 minutes once built)
	@$(MAKE) format-check
	@$(MAKE) arch
	@$(MAKE) publishable
	@$(MAKE) lint-changed
	@packages=$$(tools/changed.sh); if [ -n "$$packages" ]; then go test -short -parallel 6 -timeout 10m $(TEST_FLAGS) $$packages; else echo "nothing has changed"; fi
	@if command -v npm >/dev/null; then $(MAKE) clients; else echo "npm: found none; the generated clients are not tried" >&2; fi

.PHONY: e2e-ci
e2e-ci: ## Run those of the end-to-end scenarios that CI plays: one for each mechanism
	@$(MAKE) e2e E2E_FLAGS="$(CI_SCENARIOS)"

.PHONY: ci
ci: ## What CI runs: drift, format-check, lint, arch, charts, test, model, simulate, chaos, upgrade, e2e-ci, e2e-charts, then the generated clients, the console's build and its tests where there is npm
	@# The cluster of e2e is built beside everything before it, which on a new machine takes about as long. e2e waits for it, and shows what went wrong.
	@# It has a process group of its own (set -m), so that a failure or an interrupt ends all that it has started.
	@set -m; XDG_CACHE_HOME="$(CACHE)" nice -n 10 bash -c 'tools/cluster/build.sh && tools/cluster/workflows.sh' </dev/null >/dev/null 2>&1 & build=$$!; set +m; \
	trap 'kill -- -$$build 2>/dev/null || true' EXIT; \
	for step in $(CI_STEPS); do $(MAKE) $$step; done; \
	$(MAKE) simulate SEEDS=100000 FOR=3m; \
	$(MAKE) chaos; \
	$(MAKE) upgrade; \
	$(MAKE) e2e-ci; \
	$(MAKE) e2e-charts; \
	if command -v npm >/dev/null; then $(MAKE) clients; $(MAKE) console-drift; $(MAKE) console-test; else echo "npm: found none; the clients' and the console's own tests are left out" >&2; fi

.PHONY: nightly
nightly: ## What takes hours: every scenario on a real cluster, an hour of chaos, half an hour of soak, the faults of clusters, proposals on a real Gitea, signatures with a real cosign, long simulation, deep models, random passages, a parent of 10,000 children that is killed, fleets of 500 clusters, events for 10,000 applications, the race detector, every fuzz target for minutes (FUZZ=2m)
	@$(MAKE) race
	@$(MAKE) e2e
	@$(MAKE) e2e E2E_FLAGS="--measure-workflows 100"
	@$(MAKE) e2e E2E_FLAGS="--measure-objects 50"
	@$(MAKE) chaos FOR=60m
	@$(MAKE) soak FOR=30m
	@$(MAKE) faults
	@$(MAKE) forge-test
	@$(MAKE) cosign-test
	@$(MAKE) simulate FOR=30m
	@$(MAKE) model DEEP=1
	@LOCKSTEP_POLICY_REQUESTS=1000000 go test -count=1 -timeout 20m -v -run '^Test(TheIndexDecidesAsPlainEvaluationDoes|WhatIsRememberedIsWhatWouldBeDecided)$$' ./pkg/policy
	@go test -count=1 -timeout 20m -v -run '^TestAParentOfManyChildren$$' ./services/workflow -children 10000
	@$(MAKE) fleet-scale
	@$(MAKE) trigger-scale
	@LOCKSTEP_WHERE_VERSIONS=10000 go test -count=1 -timeout 20m -v -run '^TestWhereIsAnsweredAtScale$$' ./services/domain
	@LOCKSTEP_PASSAGES=10m go test -count=1 -timeout 20m -v -run '^TestPassagesKeepToTheReference$$' ./services/domain
	@$(MAKE) fuzz FUZZ=$(or $(FUZZ),2m)

# Lists of sizes, of which the first and the last are compared.
TARGETS ?= 50,500
APPLICATIONS ?= 1000,10000

.PHONY: fleet-scale
fleet-scale: ## Roll out to 50 and to 500 simulated clusters, and compare what each of them costs (TARGETS=50,500)
	@LOCKSTEP_FLEET_TARGETS=$(TARGETS) go test -count=1 -timeout 20m -v -run '^TestARolloutGoesToAFleet$$' ./tools/lockstep/crash

.PHONY: trigger-scale
trigger-scale: ## Send events to 1,000 and to 10,000 applications with all kinds of triggers, and compare what each event costs (APPLICATIONS=1000,10000)
	@LOCKSTEP_TRIGGER_APPLICATIONS=$(APPLICATIONS) LOCKSTEP_TRIGGER_EVENTS=2000 \
		go test -count=1 -timeout 60m -v -run '^TestNoEventIsMissedOrDecidedTwice$$' ./services/domain

.PHONY: fuzz
fuzz: ## Run every fuzz target for a while (FUZZ=1m each)
	@tools/fuzz.sh $(or $(FUZZ),1m)
