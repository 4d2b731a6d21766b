package stack

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"

	"github.com/lockstep-cd/lockstep/pkg/testkit/port"
)

// Endpoints are where a stack's parts listen, as DIR/endpoints.json holds them for scripts.
type Endpoints struct {
	// Console is the address that a browser opens.
	Console string `json:"console"`
	// GraphQL is the public API.
	GraphQL string `json:"graphql"`
	// GRPC is host:port of the workflow service.
	GRPC string `json:"grpc"`
	// Registry is the registry service, which takes CloudEvents and notifications.
	Registry string `json:"registry"`
	// NATS is the server's address, without credentials.
	NATS string `json:"nats"`
	// Database is PostgreSQL's.
	Database string `json:"database"`
	// Git is the Git server, with user name and password: a repository is <git>/<name>.git.
	Git string `json:"git"`
	// OCI is host:port of the OCI registry: an image is <oci>/<repository>.
	OCI string `json:"oci"`
	// Cluster is the simulated cluster's Kubernetes API; empty when the cluster is a real one.
	Cluster string `json:"cluster"`
	// Token is the bearer token of GraphQL, gRPC and the registry service.
	Token string `json:"token"`
}

// ReadEndpoints reads a file that a stack has written.
func ReadEndpoints(path string) (Endpoints, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Endpoints{}, fmt.Errorf("endpoints: %w; a running `lockstep dev --data DIR` writes DIR/endpoints.json", err)
	}
	var e Endpoints
	if err := json.Unmarshal(text, &e); err != nil {
		return Endpoints{}, fmt.Errorf("endpoints: %s: found %w, expected what `lockstep dev` writes", path, err)
	}
	return e, nil
}

func (s *Stack) endpoints() Endpoints {
	at := func(name string) string { return "http://" + s.address(name) }
	git := url.URL{Scheme: "http", User: url.UserPassword(gitUser, s.settings.Token), Host: s.address("git")}
	cluster := at("cluster")
	if s.config.Kubeconfig != "" {
		cluster = ""
	}
	return Endpoints{
		Console:  at("domain") + "/",
		GraphQL:  at("domain") + "/graphql",
		GRPC:     s.address("workflow"),
		Registry: at("registry"),
		NATS:     "nats://" + s.address("nats"),
		Database: s.database,
		Git:      git.String(),
		OCI:      s.address("oci"),
		Cluster:  cluster,
		Token:    s.settings.Token,
	}
}

func (s *Stack) address(name string) string { return port.Address(s.settings.Ports[name]) }
