package core

import (
	"net/url"
	"path"
	"slices"
	"strings"
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
