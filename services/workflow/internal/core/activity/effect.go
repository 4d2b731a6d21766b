package activity

import (
	"net/netip"
	"net/url"
	"path"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/sealing"
)

// Effect states what a Function does to anything outside of this service. It decides whether a call needs a passage (D46).
type Effect int

const (
	// Unstated is no effect: a Function that does not state its own cannot be registered.
	Unstated Effect = iota
	// Reads is for Functions that change nothing outside of this service.
	Reads
	// Changes is for Functions that change a cluster, a repository or any other system. They implement Toucher.
	Changes
	// TakesBack is for Functions that only undo what a rollout has begun, so they are executed after an abort, too. They implement Toucher.
	TakesBack
	// Proposes is for Functions that change nothing but the branch of a proposal, which no environment is deployed from, so they need no
	// passage. They implement Toucher.
	Proposes
	// Publishes is for Functions that publish what the domain service has recorded. Only its own runs call them. They implement Toucher.
	Publishes
)

// String is the effect as the reference has it.
func (e Effect) String() string {
	switch e {
	case Reads:
		return "reads"
	case Changes:
		return "changes"
	case TakesBack:
		return "takes back"
	case Proposes:
		return "proposes"
	case Publishes:
		return "publishes"
	case Unstated:
	}
	return "unstated"
}

// Mutates reports whether calls are checked before they are executed. An effect that is not one of the above does.
func (e Effect) Mutates() bool { return e != Reads }

// Toucher is a Function that states which places a call changes.
type Toucher interface {
	// Touches returns the places that a call with these arguments changes. Arguments that name none return none; such a call is refused.
	Touches(args map[string]any) []Place
}

// Owned is a Function of a cluster that changes only objects with the label of an owner: the guard determines the owner.
type Owned interface {
	Owned() bool
}

// IsOwned reports whether a Function changes only objects of an owner.
func IsOwned(f Function) bool {
	o, can := f.(Owned)
	return can && o.Owned()
}

// EnvironmentOf is the environment that a call of an owned Function names by its argument environment_id.
func EnvironmentOf(args map[string]any) (environment int64, given bool) {
	switch n := args["environment_id"].(type) {
	case int64:
		return n, true
	case float64:
		return int64(n), true
	}
	return 0, false
}

// Varying is a Function of which some calls only read: its Effect is that of the others.
type Varying interface {
	// EffectOf is the effect of a call with these arguments.
	EffectOf(args map[string]any) Effect
}

// Ender is a Function that ends what an earlier call has started.
type Ender interface {
	// Ends returns the operation of that call; empty for a Function that ends nothing, or arguments that name none. What carries out the call
	// refuses an object that another operation has created.
	Ends(args map[string]any) string
}

// IsEnder reports whether a Function ends what operations have started.
func IsEnder(f Function) bool {
	if some, states := f.(interface{ EndsNothing() bool }); states && some.EndsNothing() {
		return false
	}
	_, can := f.(Ender)
	return can
}

// Confined is a Function whose calls take something back only at places that are declared for that.
type Confined interface {
	// TakesBackAt reports whether a place that a passage opens is one where calls that touch the other take something back.
	TakesBackAt(opened, touched Place) bool
}

// Entering is a Function of which some calls are executed in the runs of rollouts alone, behind a passage that opens what they touch. Other
// runs may not make them, whether or not an environment is known there.
type Entering interface {
	// Entered reports whether a call with these arguments is such a one.
	Entered(args map[string]any) bool
}

// EffectOf is the effect of one call.
func EffectOf(f Function, args map[string]any) Effect {
	if v, varies := f.(Varying); varies {
		return v.EffectOf(args)
	}
	return f.Effect()
}

// Place is where something can be changed: a part of a cluster, of a repository, or of a server. Members that are empty mean all of them.
// It is stored and sent, so the JSON names never change.
type Place struct {
	// Agent is the number of the agent of a cluster; 0 for a repository and a server.
	Agent int64 `json:"agent_id,omitempty"`
	// Application is an Argo CD Application, as namespace/name.
	Application string `json:"application,omitempty"`
	// Namespace is a namespace of the cluster, and Name an object in it.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// Repository is the URL of a Git repository, or AnyRepository; Path is a file or folder, "." for all of it.
	Repository string `json:"repository,omitempty"`
	Branch     string `json:"branch,omitempty"`
	Path       string `json:"path,omitempty"`
	// URL is a URL of a server with everything below its path, or AnyURL.
	URL string `json:"url,omitempty"`
}

// WholeCluster reports whether a place is that of cluster-scoped objects: all of a cluster.
func (p Place) WholeCluster() bool {
	return p.Agent != 0 && p.Application == "" && p.Namespace == "" && p.Name == ""
}

// AnyRepository is the repository of a Place that has all of them, and AnyURL the URL of one that has all servers.
const (
	AnyRepository = "*"
	AnyURL        = "*"
)

// Covers returns how precisely the place has another one in it: 0 if it has not, and more the narrower it is.
func (p Place) Covers(touched Place) int {
	if touched.Repository != "" {
		return p.coversFile(touched)
	}
	if touched.URL != "" {
		return p.coversURL(touched.URL)
	}
	if p.Repository != "" || p.URL != "" || p.Agent == 0 || p.Agent != touched.Agent {
		return 0
	}
	const whole, part, object = 1, 2, 3
	switch {
	case p.Application == "" && p.Namespace == "":
		return whole
	case p.Application != "":
		if p.Application == touched.Application {
			return object
		}
	case p.Namespace == touched.Namespace && p.Name == "":
		return part
	case p.Namespace == touched.Namespace && p.Name == touched.Name:
		return object
	}
	return 0
}

func (p Place) coversFile(touched Place) int {
	if p.Repository == AnyRepository {
		return 1
	}
	if p.Repository == "" || !sameRepository(p.Repository, touched.Repository) {
		return 0
	}
	if p.Branch != "" && strings.TrimPrefix(p.Branch, "refs/heads/") != strings.TrimPrefix(touched.Branch, "refs/heads/") {
		return 0
	}
	const repository = 2
	if p.Path == "" || p.Path == "." {
		return repository
	}
	if touched.Path == p.Path || strings.HasPrefix(touched.Path, p.Path+"/") {
		return repository + 1 + strings.Count(p.Path, "/")
	}
	return 0
}

// HasProposals reports whether the place is on a branch of proposals in the repository of another place. A place on any branch is not:
// it is about the branches that a program commits to. Forges may compare names without case.
func (p Place) HasProposals(touched Place) bool {
	branch := strings.ToLower(strings.TrimPrefix(p.Branch, "refs/heads/"))
	same := p.Repository == AnyRepository || sameRepository(p.Repository, touched.Repository)
	return same && strings.HasPrefix(branch, ProposalPrefix)
}

// coversURL returns how precisely a URL is below that of the place.
func (p Place) coversURL(touched string) int {
	if p.URL == AnyURL {
		return 1
	}
	if p.URL == "" {
		return 0
	}
	const server = 2
	own, of := SameURL(p.URL), SameURL(touched)
	if own != of && !strings.HasPrefix(of, strings.TrimSuffix(own, "/")+"/") {
		return 0
	}
	return server + strings.Count(strings.TrimSuffix(own, "/"), "/")
}

// SameURL returns a form of a URL, without scheme and query, that is the same for all spellings that servers may read as one.
func SameURL(raw string) string {
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil {
		return raw
	}
	return hostOf(u) + strings.ToLower(path.Clean("/"+strings.ReplaceAll(u.Path, `\`, "/")))
}

// hostOf is the host of a URL, with its port unless that is the default one. Ports may be written with zeros before them, and addresses in
// several ways.
func hostOf(u *url.URL) string {
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".") // a fully qualified name may end in a dot
	if address, err := netip.ParseAddr(host); err == nil {
		host = address.Unmap().WithZone("").String()
	}
	if u.Scheme == sealing.SchemeSSH {
		return host // the port of SSH says nothing of where the repositories are
	}
	if port := strings.TrimLeft(u.Port(), "0"); port != "" && port != "443" && port != "80" {
		host += ":" + port
	}
	return host
}

// String is the place as messages have it.
func (p Place) String() string {
	switch {
	case p.Repository != "":
		return p.Path + " on branch " + p.Branch + " of " + p.Repository
	case p.URL != "":
		return SameURL(p.URL) // the query may have a secret
	case p.Application != "":
		return "Application " + p.Application
	case p.Name != "":
		return p.Namespace + "/" + p.Name
	case p.WholeCluster():
		return "cluster-scoped objects"
	default:
		return "namespace " + p.Namespace
	}
}
