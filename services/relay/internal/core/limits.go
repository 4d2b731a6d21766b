package core

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/pattern"
)

// Limits are what a relay may touch, whoever asks. Each is a list of patterns (package pattern). A list that is nil allows everything.
type Limits struct {
	// Projects are the Argo CD projects whose Applications may be synced and created.
	Projects []string
	// ApplicationNamespaces are those in which Applications may be.
	ApplicationNamespaces []string
	// DestinationNamespaces are those that may be deployed to, and in which Rollouts may be promoted, aborted and retried.
	DestinationNamespaces []string
	// DestinationServers are the clusters that may be deployed to, by their address or by Argo CD's name for them.
	DestinationServers []string
	// Repositories are those whose manifests may be deployed.
	Repositories []string
	// ClusterKinds are the cluster-scoped kinds, as group/Kind, that a project may let an Application deploy.
	ClusterKinds []string
	// Whose they are, for messages: empty for the relay's own, else whose words the program brings.
	Whose string
	// Home is the namespace that Argo CD's projects are looked for in when an Application does not say where its Argo CD is.
	Home string
	// Unauthorized lets Lockstep take Applications that it has not created and that do not say that it may.
	Unauthorized bool
}

// annotationAuthorized says on an Application that Lockstep has not created, which organizations may have it synced: their numbers,
// separated by commas, or * for all.
const annotationAuthorized = "lockstep.dev/authorized"

// allowed reports whether a limit lets a text, or everything that a pattern stands for, pass.
func allowed(list []string, text string) bool { return list == nil || pattern.Allows(list, text) }

// refusal is the error for what the limits do not allow. setting is the key of the relay's configuration.
func (l Limits) refusal(what, found, setting string, list []string) *Error {
	whose := "this relay's " + setting
	if l.Whose != "" {
		whose = "the " + l.Whose + "'s " + strings.TrimPrefix(setting, "allow_")
	}
	return &Error{Code: CodeForbidden, Message: fmt.Sprintf("%s: found %q, expected one that %s allows: %s", what, found, whose, strings.Join(list, ", "))}
}

// readLimits reads what the owner of an environment allows, which a program passes on. It can only narrow the relay's own limits.
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

// texts is an optional list of strings; nil where there is none, or where it is empty.
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

// targetOf reads an Application's; of one that is not there, what it is to be created with.
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

// checkNamespace refuses an Application by where it is.
func (l Limits) checkNamespace(ref Ref) error {
	if allowed(l.ApplicationNamespaces, ref.Namespace) {
		return nil
	}
	return l.refusal(ref.String()+": namespace", ref.Namespace, "allow_application_namespaces", l.ApplicationNamespaces)
}

// checkApplication refuses an Application by what it deploys. home is Argo CD's own namespace.
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

// checkAuthorization refuses an Application that nobody has handed over to the organization. One that Lockstep has created is that
// organization's for which it did; before there were limits, that was not written down.
func (l Limits) checkAuthorization(want SyncRequest, app Object) error {
	found := annotation(app, annotationAuthorized)
	if app == nil || l.Unauthorized || (isManaged(app) && found == "") || authorizes(app, want.Organization) {
		return nil
	}
	if want.Organization == "" {
		return &Error{Code: CodeForbidden, Message: fmt.Sprintf("%s was not created by Lockstep, and the control plane does not say which organization asks for it; upgrade that", want.Ref)}
	}
	return &Error{Code: CodeForbidden, Message: fmt.Sprintf(
		"%s does not say that organization %s may have it synced (annotation %s, found %q), and was not created for that; "+
			"to hand it over: kubectl -n %s annotate --overwrite application %s %s=%s",
		want.Ref, want.Organization, annotationAuthorized, found, want.Ref.Namespace, want.Ref.Name, annotationAuthorized, want.Organization)}
}

// destinations are the namespaces that may be deployed to. Argo CD's own is one only where the list names it: who deploys there
// changes projects, and with them everything else.
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

// wantsConfinement reports whether what an Application may deploy depends on its project: manifests name namespaces and kinds of
// their own, and only the project that Argo CD checks them against keeps them where the Application is to deploy.
func (l Limits) wantsConfinement() bool {
	return l.ClusterKinds != nil || l.DestinationNamespaces != nil || l.DestinationServers != nil
}

// checkProject refuses a project that lets its Applications deploy what the relay may not touch.
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

// destinationsOf are those that a project allows, and the namespaces that it denies on every server.
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
