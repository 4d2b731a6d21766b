package core

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/pattern"
)

// Limits bound what a relay may touch, for every caller. Each is a list of patterns (package pattern). A nil list allows everything.
type Limits struct {
	// Projects are the Argo CD projects whose Applications may be synced and created.
	Projects []string
	// ApplicationNamespaces are the namespaces in which Applications may be.
	ApplicationNamespaces []string
	// DestinationNamespaces are the namespaces that may be deployed to, and in which Rollouts may be promoted, aborted and retried.
	DestinationNamespaces []string
	// DestinationServers are the clusters that may be deployed to, by address or by Argo CD's name.
	DestinationServers []string
	// Repositories are the repositories whose manifests may be deployed.
	Repositories []string
	// ClusterKinds are the cluster-scoped kinds, as group/Kind, that a project may let an Application deploy.
	ClusterKinds []string
	// WorkflowNamespaces, JobNamespaces and AnalysisNamespaces are the namespaces in which Argo Workflows, Jobs and AnalysisRuns may be
	// created, stopped and read. Here nil allows none.
	WorkflowNamespaces, JobNamespaces, AnalysisNamespaces []string
	// Whose names the owner of the limits in messages; empty means the relay.
	Whose string
	// Home is the namespace where Argo CD's projects are looked up if an Application does not show where its Argo CD runs.
	Home string
	// Unauthorized allows Applications that Lockstep has not created and that do not authorize it.
	Unauthorized bool
	// Requests are what http.request may be sent to: the beginnings of URLs, each with methods in front of it or for all. Here nil allows
	// none.
	Requests []string
	// Objects bound the Functions on objects that Lockstep applies itself. Its zero value allows nothing.
	Objects ObjectLimits
}

// annotationAuthorized names, on an Application that Lockstep has not created, the organizations that may sync it: their numbers, separated
// by commas, or * for all.
const annotationAuthorized = "lockstep.dev/authorized"

// allowed reports whether a limit allows a text, or everything that a pattern matches.
func allowed(list []string, text string) bool { return list == nil || pattern.Allows(list, text) }

// refusal returns the error for something that the limits forbid. setting is the key of the relay's configuration.
func (l Limits) refusal(what, found, setting string, list []string) *Error {
	whose := "this relay's " + setting
	if l.Whose != "" {
		whose = "the " + l.Whose + "'s " + strings.TrimPrefix(setting, "allow_")
	}
	return &Error{Code: CodeForbidden, Message: fmt.Sprintf("%s: found %q, expected one that %s allows: %s", what, found, whose,
		strings.Join(list, ", "))}
}

// readLimits reads the limits of the environment, which a program passes on. They can only narrow the relay's own.
func (a args) readLimits() Limits {
	given, ok := a.object("allowed")
	if !ok {
		return Limits{}
	}
	l := Limits{
		Whose: "environment", Projects: given.texts("projects"), DestinationNamespaces: given.texts("destination_namespaces"),
		Repositories: given.texts("repositories"),
	}
	given.rest()
	return l
}

// texts reads an optional list of strings; nil if it is absent or empty.
func (a args) texts(name string) []string {
	a.known[name] = true
	v, ok := a.values[name]
	items, isList := v.([]any)
	if ok && v != nil && !isList {
		a.problem(name, "found %s, expected a list of strings", describe(v))
	}
	var all []string
	for i, item := range items {
		s, isText := item.(string)
		if !isText {
			a.problem(fmt.Sprintf("%s[%d]", name, i), "found %s, expected a string", describe(item))
		}
		all = append(all, s)
	}
	return all
}

// checkRollout refuses a Rollout in a namespace that may not be deployed to.
func (l Limits) checkRollout(ref Ref) error {
	if allowed(l.DestinationNamespaces, ref.Namespace) {
		return nil
	}
	return l.refusal(ref.String()+": namespace", ref.Namespace, "allow_destination_namespaces", l.DestinationNamespaces)
}

// target is what an Application deploys, and where.
type target struct {
	project, repository, namespace, server string
}

// targetOf returns an Application's target; for a missing one, the target that it is to be created with.
func targetOf(want SyncRequest, app Object) target {
	if app == nil {
		if want.Source == nil {
			return target{}
		}
		return target{want.Source.Project, want.Source.RepoURL, want.Source.DestinationNamespace, inCluster}
	}
	server := app.text("spec", "destination", "server")
	if server == "" {
		server = app.text("spec", "destination", "name")
	}
	project := app.text("spec", "project")
	if project == "" {
		project = "default"
	}
	return target{project, app.text("spec", "source", "repoURL"), app.text("spec", "destination", "namespace"), server}
}

// checkNamespace checks an Application's namespace.
func (l Limits) checkNamespace(ref Ref) error {
	if allowed(l.ApplicationNamespaces, ref.Namespace) {
		return nil
	}
	return l.refusal(ref.String()+": namespace", ref.Namespace, "allow_application_namespaces", l.ApplicationNamespaces)
}

// checkApplication checks what an Application deploys. home is Argo CD's own namespace.
func (l Limits) checkApplication(want SyncRequest, app Object, home string) error {
	if err := l.checkNamespace(want.Ref); err != nil {
		return err
	}
	t, of := targetOf(want, app), want.Ref.String()
	for _, c := range []struct {
		what, found, setting string
		list                 []string
	}{
		{"project", t.project, "allow_projects", l.Projects},
		{"destination namespace", t.namespace, "allow_destination_namespaces", l.destinations(home)},
		{"destination server", t.server, "allow_destination_servers", l.DestinationServers},
		{"repository", t.repository, "allow_repositories", l.Repositories},
	} {
		if !allowed(c.list, c.found) {
			return l.refusal(of+": "+c.what, c.found, c.setting, c.list)
		}
	}
	return nil
}

// checkAuthorization refuses an Application that was not handed over to the organization. One created by Lockstep belongs to the
// organization for which it was created; that was not recorded before limits existed.
func (l Limits) checkAuthorization(want SyncRequest, app Object) error {
	found := annotation(app, annotationAuthorized)
	if app == nil || l.Unauthorized || (isManaged(app) && found == "") || authorizes(app, want.Organization) {
		return nil
	}
	if want.Organization == "" {
		if isManaged(app) { // a control plane of an earlier release, beside a new one during an upgrade; it never did report the organization
			return nil
		}
		return &Error{Code: CodeForbidden, Message: fmt.Sprintf("%s was not created by Lockstep, and the control plane does not report the calling organization; upgrade it", want.Ref)}
	}
	return &Error{Code: CodeForbidden, Message: fmt.Sprintf(
		"%s does not say that organization %s may have it synced (annotation %s, found %q), and was not created for that; "+
			"to hand it over: kubectl -n %s annotate --overwrite application %s %s=%s",
		want.Ref, want.Organization, annotationAuthorized, found, want.Ref.Namespace, want.Ref.Name, annotationAuthorized, want.Organization)}
}

// destinations returns the namespaces that may be deployed to. Argo CD's own is one only if the list names it: deploying there could change
// projects, and with them everything else.
func (l Limits) destinations(home string) []string {
	if l.DestinationNamespaces == nil || home == "" || slices.Contains(l.DestinationNamespaces, home) {
		return l.DestinationNamespaces
	}
	return append(slices.Clone(l.DestinationNamespaces), "!"+home)
}

// authorizes reports whether the Application's annotation names the organization.
func authorizes(app Object, organization string) bool {
	for _, each := range strings.Split(annotation(app, annotationAuthorized), ",") {
		if each = strings.TrimSpace(each); each == "*" || (each != "" && each == organization) {
			return true
		}
	}
	return false
}

func annotation(o Object, name string) string {
	s, _ := o.object("metadata", "annotations")[name].(string)
	return s
}

// wantsConfinement reports whether the project of an Application must be checked: manifests name namespaces and kinds of their own, and
// only Argo CD's check against the project confines them to the Application's destination.
func (l Limits) wantsConfinement() bool {
	return l.ClusterKinds != nil || l.DestinationNamespaces != nil || l.DestinationServers != nil
}

// checkProject refuses a project that allows its Applications what the relay may not touch.
func (l Limits) checkProject(project Object, home string) error {
	name := project.text("metadata", "name")
	problem := func(setting, format string, args ...any) error {
		return &Error{Code: CodeForbidden, Message: fmt.Sprintf("Argo CD project %s/%s %s, and this relay's %s does not; "+
			"narrow the project, use another one, or widen that setting", home, name, fmt.Sprintf(format, args...), setting)}
	}
	for _, each := range project.list("spec", "clusterResourceWhitelist") {
		m, _ := each.(map[string]any)
		kind := Object(m).text("group") + "/" + Object(m).text("kind")
		if !allowed(l.ClusterKinds, kind) {
			return problem("allow_cluster_kinds", "allows the cluster-scoped kind %s (spec.clusterResourceWhitelist)", kind)
		}
	}
	destinations, denied := destinationsOf(project)
	for _, d := range destinations {
		server := d.text("server")
		if server == "" {
			server = d.text("name")
		}
		if !allowed(l.DestinationServers, server) {
			return problem("allow_destination_servers", "allows the destination server %s (spec.destinations)", server)
		}
		list, namespace := l.destinations(home), d.text("namespace")
		if list == nil {
			continue
		}
		if !pattern.Includes(list, namespace) {
			return problem("allow_destination_namespaces", "allows the destination namespace %s (spec.destinations)", namespace)
		}
		for _, taken := range pattern.Excluded(list, namespace) {
			if !slices.ContainsFunc(denied, func(n string) bool { return pattern.Match(n, taken) }) {
				return problem("allow_destination_namespaces", "allows the destination namespace %s without denying %q "+
					"(spec.destinations; {server: \"*\", namespace: \"!%s\"} denies it)", namespace, taken, taken)
			}
		}
	}
	return nil
}

// destinationsOf returns the destinations that a project allows, and the namespaces that it denies on every server.
func destinationsOf(project Object) (allowed []Object, denied []string) {
	for _, each := range project.list("spec", "destinations") {
		m, _ := each.(map[string]any)
		d := Object(m)
		namespace, negative := strings.CutPrefix(d.text("namespace"), "!")
		switch {
		case negative && d.text("server") == "*":
			denied = append(denied, namespace)
		case negative, strings.HasPrefix(d.text("server"), "!"), strings.HasPrefix(d.text("name"), "!"):
		default:
			allowed = append(allowed, d)
		}
	}
	return allowed, denied
}
