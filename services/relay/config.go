package relay

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/config"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/relay/internal/core"
)

// Config is the configuration of the relay. Only agent_id is required.
type Config struct {
	// AgentID is the number that environments refer to as cluster_agent_id. There is one relay per number.
	AgentID int64 `koanf:"agent_id"`

	bus.NATS
	// NATSUser is the relay's account; "" means relay-<agent_id>.
	NATSUser string `koanf:"nats_user"`
	// NATSNKeySeedFile is a file with an NKey seed, in place of a password.
	NATSNKeySeedFile string `koanf:"nats_nkey_seed_file"`

	// Kubeconfig is a file; "" means the service account of the pod that the relay runs in.
	Kubeconfig string `koanf:"kubeconfig"`
	// KubeContext is the context of that file; "" means its current one.
	KubeContext string `koanf:"kube_context"`
	// KubeTimeout is the timeout of a request to the Kubernetes API.
	KubeTimeout time.Duration `koanf:"kube_timeout" default:"10s"`

	// HeartbeatInterval is the time between heartbeats. After a few missing ones the control plane considers the agent offline.
	HeartbeatInterval time.Duration `koanf:"heartbeat_interval" default:"5s"`
	// PollInterval is how often a waiting call reads the cluster when no watch event arrives.
	PollInterval time.Duration `koanf:"poll_interval" default:"5s"`
	// Concurrency is the maximum number of calls in progress. A sync or a promotion takes minutes, most of them spent waiting.
	Concurrency int `koanf:"concurrency" default:"64"`

	// The limits of what the relay may touch, for every caller. Each list has patterns in which * matches any text; one with a leading !
	// excludes what it matches. A list with * alone is no limit.

	// AllowProjects are the Argo CD projects whose Applications may be synced and created.
	AllowProjects []string `koanf:"allow_projects" default:"*"`
	// AllowApplicationNamespaces are the namespaces in which Applications may be.
	AllowApplicationNamespaces []string `koanf:"allow_application_namespaces" default:"*"`
	// AllowDestinationNamespaces are the namespaces that may be deployed to, and in which Rollouts are promoted. Argo CD's own is
	// allowed only if the list names it. Projects must not allow others: manifests may name namespaces of their own.
	AllowDestinationNamespaces []string `koanf:"allow_destination_namespaces" default:"*,!kube-system,!kube-public,!kube-node-lease"`
	// AllowDestinationServers are the clusters that may be deployed to, by Argo CD's address or name for them.
	AllowDestinationServers []string `koanf:"allow_destination_servers" default:"https://kubernetes.default.svc,in-cluster"`
	// AllowRepositories are the repositories whose manifests may be deployed, by their addresses.
	AllowRepositories []string `koanf:"allow_repositories" default:"*"`
	// AllowClusterKinds are the cluster-scoped kinds, as group/Kind, that a project may let its Applications deploy. The default lets
	// Argo CD create the namespace of an Application.
	AllowClusterKinds []string `koanf:"allow_cluster_kinds" default:"/Namespace"`
	// AllowWorkflowNamespaces are the namespaces in which Argo Workflows may be submitted, stopped and read. Without any there are none: a
	// Workflow runs with whatever its namespace lets pods do.
	AllowWorkflowNamespaces []string `koanf:"allow_workflow_namespaces"`
	// AllowJobNamespaces are the namespaces in which Kubernetes Jobs may be run, stopped and read. Without any there are none.
	AllowJobNamespaces []string `koanf:"allow_job_namespaces"`
	// AllowAnalysisNamespaces are the namespaces in which AnalysisRuns of Argo Rollouts may be created, terminated and read. Without any there
	// are none: an analysis may run Jobs, and reads the Secrets of its namespace that its templates name.
	AllowAnalysisNamespaces []string `koanf:"allow_analysis_namespaces"`
	// ArgoCDNamespace is where Argo CD keeps its projects, if that is neither the Application's own namespace nor the one that Argo CD has
	// written into its status.
	ArgoCDNamespace string `koanf:"argocd_namespace" default:"argocd"`
	// AllowUnauthorizedApplications makes the relay accept Applications that Lockstep has not created even if their annotation
	// lockstep.dev/authorized does not name the calling organization. It is meant for upgrades.
	AllowUnauthorizedApplications bool `koanf:"allow_unauthorized_applications"`

	// What the Functions on objects may change: k8s.apply, k8s.patch and k8s.delete. Resources are patterns such as deployments.apps, services
	// or *.example.com, as kubectl names them; an empty list allows nothing. Only namespaces of allow_destination_namespaces can be changed,
	// Secrets never. The relay's roles have to grant the same.

	// AllowApply are the resources that k8s.apply may create, change and prune.
	AllowApply []string `koanf:"allow_apply"`
	// AllowPatch are the resources that k8s.patch may change.
	AllowPatch []string `koanf:"allow_patch"`
	// AllowDelete are the resources that k8s.delete may delete. It needs no entry for what k8s.apply prunes.
	AllowDelete []string `koanf:"allow_delete"`
	// AllowObjects are objects that Lockstep has not created and that may be changed all the same: patterns of resource/namespace/name, such
	// as deployments.apps/shop/*. Others are refused, unless their annotation lockstep.dev/authorized names the organization.
	AllowObjects []string `koanf:"allow_objects"`
	// AllowLogs lets k8s.logs read the logs of pods in the namespaces of allow_destination_namespaces.
	AllowLogs bool `koanf:"allow_logs"`

	// AllowRequests are the requests that http.request may send from inside the cluster: beginnings of URLs, such as
	// http://flags.shop.svc:8080/api, which end at a slash, and before them methods if not all are allowed: GET,HEAD http://api.shop.svc/.
	// Without any there are none: services often trust whatever comes from inside.
	AllowRequests []string `koanf:"allow_requests"`
	// RequestCredentials are secrets that such requests may have, by name, each for its own URLs only. They stay in the cluster.
	RequestCredentials []RequestCredential `koanf:"request_credentials"`
	// RequestCAFile holds certificate authorities for such requests, in addition to the system's; empty for the system's alone. A replaced
	// file takes effect at the next connection.
	RequestCAFile string `koanf:"request_ca_file"`

	telemetry.Settings
}

// Validate reports invalid settings that package config cannot find by type. 0 is valid where a key has a default.
func (c Config) Validate() error {
	var wrong []fault.Field
	if c.AgentID <= 0 {
		wrong = append(wrong, fault.Field{
			Name:    "agent_id",
			Problem: fmt.Sprintf("found %d, expected the number of this relay's agent, above zero", c.AgentID),
		})
	}
	if c.NATSPassword != "" && c.NATSNKeySeedFile != "" {
		wrong = append(wrong, fault.Field{Name: "nats_password", Problem: "given beside nats_nkey_seed_file, expected one of the two"})
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"kube_timeout", c.KubeTimeout}, {"heartbeat_interval", c.HeartbeatInterval}, {"poll_interval", c.PollInterval}} {
		if d.value < 0 {
			wrong = append(wrong, fault.Field{Name: d.name, Problem: fmt.Sprintf("found %s, expected a duration above zero", d.value)})
		}
	}
	if c.Concurrency < 0 {
		wrong = append(wrong, fault.Field{Name: "concurrency", Problem: fmt.Sprintf("found %d, expected a number above zero", c.Concurrency)})
	}
	for name, list := range c.allowed() {
		wrong = append(wrong, checkPatterns(name, *list)...)
	}
	wrong = append(wrong, checkPatterns("allow_workflow_namespaces", c.AllowWorkflowNamespaces)...)
	wrong = append(wrong, checkPatterns("allow_job_namespaces", c.AllowJobNamespaces)...)
	wrong = append(wrong, checkPatterns("allow_analysis_namespaces", c.AllowAnalysisNamespaces)...)
	for name, list := range map[string][]string{
		"allow_apply": c.AllowApply, "allow_patch": c.AllowPatch, "allow_delete": c.AllowDelete, "allow_objects": c.AllowObjects,
	} {
		wrong = append(wrong, checkPatterns(name, list)...)
	}
	for i, each := range c.AllowObjects {
		if strings.Count(each, "/") != 2 && each != "*" {
			wrong = append(wrong, fault.Field{
				Name:    fmt.Sprintf("allow_objects[%d]", i),
				Problem: fmt.Sprintf("found %q, expected resource/namespace/name, such as deployments.apps/shop/*", each),
			})
		}
	}
	wrong = append(wrong, c.requestProblems()...)
	wrong = append(wrong, c.NATS.Check()...)
	wrong = append(wrong, c.Settings.Check()...)
	if len(wrong) > 0 {
		return fault.InvalidFields(wrong...)
	}
	return nil
}

// allowed returns the lists of limits, by their keys.
func (c *Config) allowed() map[string]*[]string {
	return map[string]*[]string{
		"allow_projects": &c.AllowProjects, "allow_application_namespaces": &c.AllowApplicationNamespaces,
		"allow_destination_namespaces": &c.AllowDestinationNamespaces, "allow_destination_servers": &c.AllowDestinationServers,
		"allow_repositories": &c.AllowRepositories, "allow_cluster_kinds": &c.AllowClusterKinds,
	}
}

// checkPatterns finds malformed patterns, and lists that only exclude.
func checkPatterns(name string, list []string) []fault.Field {
	var wrong []fault.Field
	positive := len(list) == 0
	for i, pattern := range list {
		if text := strings.TrimPrefix(pattern, "!"); text == "" || strings.ContainsAny(pattern, " \t\n") {
			wrong = append(wrong, fault.Field{
				Name:    fmt.Sprintf("%s[%d]", name, i),
				Problem: fmt.Sprintf("found %q, expected a pattern such as shop-* or !kube-system", pattern),
			})
		}
		positive = positive || !strings.HasPrefix(pattern, "!")
	}
	if !positive {
		wrong = append(wrong, fault.Field{Name: name, Problem: fmt.Sprintf("found only %q, which allow nothing; expected * before them", list)})
	}
	return wrong
}

// limits returns the configured limits.
func (c Config) limits() core.Limits {
	for _, list := range c.allowed() {
		if len(*list) == 1 && (*list)[0] == "*" {
			*list = nil
		}
	}
	return core.Limits{
		Projects: c.AllowProjects, ApplicationNamespaces: c.AllowApplicationNamespaces, DestinationNamespaces: c.AllowDestinationNamespaces,
		DestinationServers: c.AllowDestinationServers, Repositories: c.AllowRepositories, ClusterKinds: c.AllowClusterKinds,
		WorkflowNamespaces: c.AllowWorkflowNamespaces, JobNamespaces: c.AllowJobNamespaces,
		AnalysisNamespaces: c.AllowAnalysisNamespaces,
		Requests:           c.AllowRequests,
		Home:               c.ArgoCDNamespace, Unauthorized: c.AllowUnauthorizedApplications,
		Objects: core.ObjectLimits{
			Apply: c.AllowApply, Patch: c.AllowPatch, Delete: c.AllowDelete, Others: c.AllowObjects, Logs: c.AllowLogs,
		},
	}
}

// withDefaults also serves callers that build a Config without package config. It adds the one default that depends on another key.
func (c Config) withDefaults() Config {
	c = config.WithDefaults(c)
	c.NATSUser = cmp.Or(c.NATSUser, bus.RelayUser(c.AgentID))
	return c
}
