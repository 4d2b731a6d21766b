package core

import (
	"context"
	"encoding/json"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core/fleet"
)

// Place is a part of a cluster, of a repository, or of a server. Members that are empty mean all of them. It is stored and sent, so the
// JSON names never change.
type Place struct {
	// AgentID is the number of the agent of a cluster; 0 for a repository and a server.
	AgentID int64 `json:"agent_id,omitempty"`
	// Application is an Argo CD Application, as namespace/name.
	Application string `json:"application,omitempty"`
	// Namespace is a namespace of the cluster, and Name an object in it.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// Repository is the URL of a Git repository, or AnyRepository; Path is a file or folder.
	Repository string `json:"repository,omitempty"`
	Branch     string `json:"branch,omitempty"`
	Path       string `json:"path,omitempty"`
	// URL is a URL of a server with everything below its path, or AnyURL.
	URL string `json:"url,omitempty"`
}

// AnyRepository is the repository of a Place that has all of them, and AnyURL the URL of one that has all servers.
const (
	AnyRepository = "*"
	AnyURL        = "*"
)

// Territory is what belongs to an environment by itself, or to one application in it.
type Territory struct {
	EnvironmentID int64
	Name          string
	// ApplicationID is 0 for what the environment has by itself.
	ApplicationID int64
	// Protected reports whether only its own rollouts may change the environment, and Archived whether it is no longer used. Both are of the
	// environment itself.
	Protected, Archived bool
	Places              []Place
	// Fleet is that of an environment of many clusters; nil without one. It is of the environment itself.
	Fleet *FleetClusters
}

// FleetClusters are the clusters of an environment of many: what belongs to it in the cluster of one of the agents belongs to it in each
// target, too.
type FleetClusters struct {
	// Agents are those that the environment's configuration names, and Targets those that its selector selects now, rising.
	Agents, Targets []int64
}

// PlacesTx is the part of a transaction that announces what belongs to environments.
type PlacesTx interface {
	EnvironmentsByID(ctx context.Context, organization int64, ids []int64) (map[int64]Environment, error)
	// DriverBindingsByEnvironment is newest first.
	DriverBindingsByEnvironment(ctx context.Context, organization int64, environments []int64) (map[int64][]DriverBinding, error)
	// EnvironmentApprovals has no key for an environment that asks nobody by itself.
	EnvironmentApprovals(ctx context.Context, organization int64, environments []int64) (map[int64]EnvironmentApproval, error)
	// EnvironmentChecks are those that environments require by themselves, as they were written; no key for one that requires none.
	EnvironmentChecks(ctx context.Context, organization int64, environments []int64) (map[int64]json.RawMessage, error)
	// DirectChanges are the environments that accept changes that belong to no rollout.
	DirectChanges(ctx context.Context, organization int64, environments []int64) (map[int64]bool, error)
	// LabelledAgents are those that were not revoked and have labels.
	LabelledAgents(ctx context.Context) ([]fleet.Target, error)
	// AnnouncePlaces publishes what belongs to environments, or to applications in them, with the commit. Of two announcements the one
	// that was made later counts, so the caller holds the locks of what it announces.
	AnnouncePlaces(ctx context.Context, at time.Time, all ...Territory) error
}

// FleetPlacesTx is the part of a transaction that announces which clusters fleets have.
type FleetPlacesTx interface {
	PlacesTx
	LockEnvironment(ctx context.Context, id int64) (BoundEnvironment, error)
	// ClaimingEnvironments is every environment, also one that is archived, with its latest binding; not locked.
	ClaimingEnvironments(ctx context.Context) ([]BoundEnvironment, error)
}

// Wide reports whether a place is all of a cluster, all repositories, or all servers, as a driver without a declaration
// has them: the places of other environments within it stay closed to its rollouts.
func (p Place) Wide() bool {
	return p.Repository == AnyRepository || p.URL == AnyURL || p.AgentID != 0 && p.Application == "" && p.Namespace == ""
}

// Unclear reports whether the URL of a place is escaped in a way that servers may read differently from what Overlaps compares.
func (p Place) Unclear() bool {
	u, err := url.Parse(strings.TrimSpace(p.URL + p.Repository)) // a place has one of them
	if err != nil {
		return true
	}
	escaped := strings.ToLower(u.EscapedPath())
	return slices.ContainsFunc([]string{"%25", "%2e", "%5c", "%0", ";"}, func(part string) bool { return strings.Contains(escaped, part) })
}

// Owns reports whether a place is the whole cluster that another place is in.
func (p Place) Owns(o Place) bool {
	return p.AgentID != 0 && p.AgentID == o.AgentID && p.Application == "" && p.Namespace == ""
}

// Within reports whether a place in a cluster is a part of another one, or the same.
func (p Place) Within(o Place) bool {
	inNamespace := p.AgentID != 0 && p.AgentID == o.AgentID && p.Application == "" && o.Application == "" && p.Namespace == o.Namespace
	return p == o || o.Owns(p) || inNamespace && o.Name == ""
}

// Overlaps reports whether two places that are not wide have anything in common.
func (p Place) Overlaps(o Place) bool {
	either := func(a, b string) bool { return a == "" || b == "" || a == b }
	switch {
	case p.Wide() || o.Wide():
		return false
	case p.Repository != "" || o.Repository != "":
		branch := func(p Place) string { return strings.TrimPrefix(p.Branch, "refs/heads/") }
		repository := func(p Place) string { return strings.TrimSuffix(sameServerPath(p.Repository), ".git") }
		return p.Repository != "" && o.Repository != "" && repository(p) == repository(o) && either(branch(p), branch(o)) &&
			nested(path.Clean("/"+p.Path), path.Clean("/"+o.Path))
	case p.URL != "" || o.URL != "":
		return p.URL != "" && o.URL != "" && nested(sameServerPath(p.URL), sameServerPath(o.URL))
	case p.AgentID != o.AgentID:
		return false
	case p.Application != "" || o.Application != "":
		return p.Application == o.Application
	default:
		return p.Namespace == o.Namespace && either(p.Name, o.Name)
	}
}

// SameRepository reports whether two URLs are of one repository of one server: the same scheme, host and port, whatever the spelling.
func SameRepository(a, b string) bool {
	exact := func(raw string) string {
		u, err := url.Parse(strings.TrimSpace(raw))
		if err != nil || u.Scheme == "" || u.Host == "" { // such as git@host:path
			return raw
		}
		host := strings.ToLower(u.Host)
		if u.Scheme == "https" {
			host = strings.TrimSuffix(host, ":443")
		}
		return strings.ToLower(u.Scheme) + "://" + host + strings.TrimSuffix(strings.TrimRight(path.Clean("/"+u.Path), "/"), ".git")
	}
	return exact(a) == exact(b)
}

// nested reports whether one of two paths is the other one, or below it.
func nested(a, b string) bool {
	a, b = strings.TrimSuffix(a, "/")+"/", strings.TrimSuffix(b, "/")+"/"
	return strings.HasPrefix(a, b) || strings.HasPrefix(b, a)
}

// sameServerPath is a URL without its scheme, port and query, the same for all of its spellings. Two servers on one host are the same then:
// to find too much in common is safe.
func sameServerPath(raw string) string {
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil {
		return strings.ToLower(raw)
	}
	return strings.TrimSuffix(strings.ToLower(u.Hostname()), ".") + strings.ToLower(path.Clean("/"+u.Path))
}
