# Every tool that is not in a go.mod, pinned once. `make` builds each on first use, into a cache outside the checkout.
# gqlgen is a tool directive of services/domain, because its runtime has to match.
BUF_VERSION                := v1.70.0
PROTOC_GEN_GO_VERSION      := v1.36.12
PROTOC_GEN_GO_GRPC_VERSION := v1.6.1
SQLC_VERSION               := v1.31.1
GOLANGCI_LINT_VERSION      := v2.15.0
KUSTOMIZE_VERSION          := v5.7.0
HELM_VERSION               := v4.3.1
KUBECONFORM_VERSION        := v0.7.0
KUBE_SCORE_VERSION         := v1.20.0
HUGO_VERSION               := v0.165.0

BUF_MODULE                := github.com/bufbuild/buf/cmd/buf
PROTOC_GEN_GO_MODULE      := google.golang.org/protobuf/cmd/protoc-gen-go
PROTOC_GEN_GO_GRPC_MODULE := google.golang.org/grpc/cmd/protoc-gen-go-grpc
SQLC_MODULE               := github.com/sqlc-dev/sqlc/cmd/sqlc
GOLANGCI_LINT_MODULE      := github.com/golangci/golangci-lint/v2/cmd/golangci-lint
# The one that Argo CD's own image carries, for the end-to-end scenarios that use it.
KUSTOMIZE_MODULE     := sigs.k8s.io/kustomize/kustomize/v5
# The one whose library checks the charts (tools/charts).
HELM_MODULE          := helm.sh/helm/v4/cmd/helm
# They judge the rendered charts: the schemas of kinds, and what a cluster's owner would object to.
KUBECONFORM_MODULE   := github.com/yannh/kubeconform/cmd/kubeconform
KUBE_SCORE_MODULE    := github.com/zegl/kube-score/cmd/kube-score
# It builds the documentation.
HUGO_MODULE          := github.com/gohugoio/hugo

# The server of the archive's tests.
VERSITYGW_MODULE  := github.com/versity/versitygw/cmd/versitygw
VERSITYGW_VERSION := v1.0.14

# It measures in the scenarios of analyses.
PROMETHEUS_MODULE  := github.com/prometheus/prometheus
PROMETHEUS_VERSION := v0.316.0

# It signs and verifies in tests of signatures.
COSIGN_MODULE  := github.com/sigstore/cosign/v3
COSIGN_VERSION := v3.1.3

# A forge, for tests of proposals.
GITEA_MODULE  := code.gitea.io/gitea
GITEA_VERSION := v1.26.0
