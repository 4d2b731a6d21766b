package stack

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"time"
)

// AgentID is the agent whose relay runs next to the simulated cluster.
const AgentID = 42

const (
	gitUser = "lockstep"
	// probeTimeout bounds one question whether a child is ready.
	probeTimeout = time.Second
	// leaseDuration is short: a workflow service that was killed is back within a second, and its successor on this machine
	// has the same instance name anyway.
	leaseDuration = "2s"
)

// child is one process of the stack as data.
type child struct {
	name string
	// stage orders the start: what is in a stage starts together, when the stage before is ready.
	stage int
	// config is written to config/<name>.yaml, with the keys of the service's Config.
	config map[string]any
	ready  func(context.Context) error
}

// Parts are the names of the stack's child processes.
func Parts() []string {
	return []string{"nats", "oci", "git", "simcluster", "workflow", "registry", "domain", "relay"}
}

// children is the whole stack, but for PostgreSQL.
func (s *Stack) children() []child {
	all := s.ownChildren()
	if s.config.Kubeconfig != "" {
		all = slices.DeleteFunc(all, func(c child) bool { return c.name == "simcluster" })
	}
	return all
}

// ownChildren is the stack with a cluster of its own.
func (s *Stack) ownChildren() []child {
	token := s.settings.Token
	users := []map[string]any{}
	for _, user := range natsUsers() {
		users = append(users, map[string]any{"name": user, "password": s.settings.Passwords[user]})
	}
	healthy := func(service string) func(context.Context) error {
		return httpReady("http://" + s.address(service+"-health") + "/readyz")
	}
	return []child{
		{name: "nats", stage: 0, ready: tcpReady(s.address("nats")), config: map[string]any{
			"address": s.address("nats"), "store_dir": s.path("nats"), "users": users, "sync_always": !s.config.Fast,
			"issuer": s.identity.Issuer, "authority": s.identity.User,
		}},
		{name: "oci", stage: 0, ready: httpReady("http://" + s.address("oci") + "/v2/"), config: map[string]any{
			"address": s.address("oci"), "dir": s.path("oci"), "notify_token": token,
			"notify_url": "http://" + s.address("registry") + registryNotifications,
		}},
		{name: "git", stage: 0, ready: tcpReady(s.address("git")), config: map[string]any{
			"address": s.address("git"), "dir": s.GitDir(), "username": gitUser, "password": token,
		}},
		{name: "simcluster", stage: 0, ready: tcpReady(s.address("cluster")), config: map[string]any{
			"address": s.address("cluster"), "dir": s.path("cluster"), "git_username": gitUser, "git_password": token,
			"registry": s.address("oci"),
		}},
		{name: "workflow", stage: 1, ready: healthy("workflow"), config: s.service("workflow", map[string]any{
			"grpc_address": s.address("workflow"), "token": token, "agents": []int{AgentID},
			"instance": "workflow-" + s.settings.ID, "lease_duration": leaseDuration,
			"git_credentials": []map[string]any{{
				"url_prefix": "http://" + s.address("git") + "/", "username": gitUser, "password_ref": "file:" + s.path("config", "git-password"),
				"organizations": []int{1}, // the only one that a demonstration has pipelines for
			}},
		})},
		{name: "registry", stage: 1, ready: healthy("registry"), config: s.service("registry", map[string]any{
			"http_address": s.address("registry"), "tokens": []string{token}, "shared_tokens": true,
			// The stack's own registry and Git server are not at public addresses.
			"allow_networks": []string{s.address("oci"), s.address("git")},
			"registries": []map[string]any{
				{"host": s.address("oci"), "insecure": true},
				{"host": s.address("git"), "username": gitUser, "password": "file:" + s.path("config", "git-password"), "organizations": []int{1}},
			},
		})},
		{name: "domain", stage: 1, ready: healthy("domain"), config: s.service("domain", map[string]any{
			"http_address": s.address("domain"), "workflow_address": s.address("workflow"), "workflow_token": token, "bootstrap_token": token,
			"nats_authority_seed": s.settings.Authority,
			"bootstrap_agents":    []map[string]any{{"number": AgentID, "name": "agent-42", "public_key": s.settings.RelayPublic}},
		})},
		{name: "relay", stage: 2, ready: healthy("relay"), config: map[string]any{
			"nats_url": "nats://" + s.address("nats"), "nats_nkey_seed_file": s.path("config", "relay-key"),
			"health_address": s.address("relay-health"), "agent_id": AgentID, "kubeconfig": s.kubeconfig(),
			"allow_job_namespaces":      []string{"*", "!kube-*", "!argocd"},
			"allow_analysis_namespaces": []string{"*", "!kube-*", "!argocd"},
			"allow_workflow_namespaces": []string{"*", "!kube-*", "!argocd"},
		}},
	}
}

// registryNotifications is where the registry service takes Docker Distribution notifications.
const registryNotifications = "/v1/notifications/distribution"

// service adds what the three services with a database have in common.
func (s *Stack) service(name string, more map[string]any) map[string]any {
	more["database_url"] = s.database
	more["schema"] = s.Schema(name)
	more["nats_url"] = "nats://" + s.address("nats")
	more["nats_user"] = name
	more["nats_password"] = s.settings.Passwords[name]
	more["health_address"] = s.address(name + "-health")
	return more
}

// kubeconfig is the file with which the relay finds the cluster.
func (s *Stack) kubeconfig() string {
	if s.config.Kubeconfig != "" {
		return s.config.Kubeconfig
	}
	return s.path("config", "kubeconfig.yaml")
}

// simulated is how the relay finds the simulated cluster.
func (s *Stack) simulated() map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "simulated",
		"clusters": []any{map[string]any{"name": "simulated", "cluster": map[string]any{"server": "http://" + s.address("cluster")}}},
		"users":    []any{map[string]any{"name": "relay", "user": map[string]any{}}},
		"contexts": []any{map[string]any{"name": "simulated", "context": map[string]any{"cluster": "simulated", "user": "relay"}}},
	}
}

func (s *Stack) path(elements ...string) string {
	return filepath.Join(append([]string{s.config.Dir}, elements...)...)
}

// httpReady asks for a page and expects 200.
func httpReady(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return fmt.Errorf("probe: %w", err)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			return fmt.Errorf("probe: %w", err)
		}
		defer func() { _ = response.Body.Close() }()
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answered %s: %s", url, response.Status, text)
		}
		return nil
	}
}

// tcpReady connects.
func tcpReady(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("probe: %w", err)
		}
		return connection.Close()
	}
}
