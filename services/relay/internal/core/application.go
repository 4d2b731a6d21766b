package core

import (
	"fmt"
	"strings"
)

// The label that marks an Application as created by us.
const (
	labelManagedBy = "app.kubernetes.io/managed-by"
	managedBy      = "lockstep"
)

// inCluster is Argo CD's address for the cluster that it runs in.
const inCluster = "https://kubernetes.default.svc"

// isManaged reports whether Lockstep has created the Application.
func isManaged(app Object) bool { return app.object("metadata", "labels")[labelManagedBy] == managedBy }

// createApplication returns the decision to create an Application. It has no sync policy, so that only Lockstep decides when it syncs (E56,
// D21).
func createApplication(want SyncRequest) (Decision, error) {
	if want.Mode == ModeExisting {
		return Decision{}, &Error{Code: CodeNotFound, Message: fmt.Sprintf(
			"%s does not exist, and mode %q does not create it", want.Ref, ModeExisting)}
	}
	if want.Source == nil {
		return Decision{}, &Error{Code: CodeInvalid, Message: fmt.Sprintf(
			"source: missing, expected where %s finds its manifests, because it does not exist yet", want.Ref)}
	}
	if want.Check {
		return Decision{Action: Done, Value: map[string]any{"found": false, "managed": true}}, nil
	}
	metadata := map[string]any{
		"name": want.Ref.Name, "namespace": want.Ref.Namespace,
		"labels": map[string]any{labelManagedBy: managedBy},
	}
	if want.Organization != "" {
		metadata["annotations"] = map[string]any{annotationAuthorized: want.Organization}
	}
	return Decision{Action: Create, Body: Object{
		"apiVersion": want.Ref.APIVersion,
		"kind":       want.Ref.Kind.Kind,
		"metadata":   metadata,
		"spec": map[string]any{
			"project": want.Source.Project,
			"source": want.Overrides.into(map[string]any{
				"repoURL": want.Source.RepoURL, "path": want.Source.Path, "targetRevision": want.Revision,
			}),
			"destination": map[string]any{
				"server": inCluster, "namespace": want.Source.DestinationNamespace,
			},
		},
	}}, nil
}

// mayTake refuses an Application whose revision Lockstep does not control, or that cannot have one (D21).
func mayTake(want SyncRequest, app Object) error {
	refuse := func(code, format string, args ...any) error {
		return &Error{Code: code, Message: want.Ref.String() + " " + fmt.Sprintf(format, args...)}
	}
	if app.text("metadata", "deletionTimestamp") != "" {
		return refuse(CodeConflict, "is being deleted")
	}
	if owner := owner(app); owner != "" {
		return refuse(CodeOwned, "belongs to %s, which would undo what is set here; let Lockstep decide its revision there", owner)
	}
	// Checked before every sync, not only at setup: it may have been switched on since (D21).
	if isAutomatic(app) {
		return refuse(CodeAutoSync, "has automated sync on (spec.syncPolicy.automated), which would fight the rollout; switch it off")
	}
	if len(app.list("spec", "sources")) > 0 || app.object("spec", "sourceHydrator") != nil {
		return refuse(CodeConflict, "has several sources or a source hydrator; expected one spec.source")
	}
	// An Application of this name that deploys something else must not be repointed.
	if want.Mode == ModeManaged && want.Source != nil {
		found := [2]string{app.text("spec", "source", "repoURL"), app.text("spec", "source", "path")}
		if sameRepository(found[0], want.Source.RepoURL) && samePath(found[1], want.Source.Path) {
			return nil
		}
		return refuse(CodeConflict, "exists with source %s, path %q; expected %s, path %q",
			found[0], found[1], want.Source.RepoURL, want.Source.Path)
	}
	return nil
}

// owner names what controls the Application: an owner reference (an ApplicationSet has one on each of its Applications), or the tracking
// mark of an app of apps; "" if nothing does. Changing such an Application is useless: its owner writes the old revision back.
func owner(app Object) string {
	for _, o := range app.list("metadata", "ownerReferences") {
		m, _ := o.(map[string]any)
		return fmt.Sprintf("%s %q", Object(m).text("kind"), Object(m).text("name"))
	}
	annotations := app.object("metadata", "annotations")
	if id, _ := annotations["argocd.argoproj.io/tracking-id"].(string); id != "" {
		parent, _, _ := strings.Cut(id, ":")
		return fmt.Sprintf("the app of apps %q", parent)
	}
	labels := app.object("metadata", "labels")
	// Argo CD's older tracking mark is a label that Helm charts set as well; Helm itself reverts nothing.
	if parent, _ := labels["app.kubernetes.io/instance"].(string); parent != "" && labels[labelManagedBy] != "Helm" {
		return fmt.Sprintf("the app of apps %q", parent)
	}
	return ""
}

// sameRepository compares two spellings of a repository's address: forges accept them with and without .git.
func sameRepository(a, b string) bool {
	norm := func(s string) string { return strings.TrimSuffix(strings.TrimRight(strings.ToLower(s), "/"), ".git") }
	return norm(a) == norm(b)
}

// samePath compares two spellings of a folder: ./shop, shop and shop/.
func samePath(a, b string) bool {
	norm := func(s string) string { return strings.Trim(strings.TrimPrefix(s, "./"), "/") }
	return norm(a) == norm(b)
}
