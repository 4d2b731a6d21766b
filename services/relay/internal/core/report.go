package core

import (
	"fmt"
	"slices"
	"strings"
)

// The reports that a watch can request in place of fields: the meaning of an object, in terms that do not depend on its kind.
const (
	// ReportHealth is the health of an Argo Rollout: health and reason (R46).
	ReportHealth = "argo.health"
	// ReportReconciliation is the live state of an Argo CD Application, compared with the expected one (E58).
	ReportReconciliation = "argo.reconciliation"
)

// report returns the report that a watch requests, nil for none. A missing object is nil.
func report(w Watch, o Object) map[string]any {
	switch w.Report {
	case ReportHealth:
		health, reason := health(w, o)
		return map[string]any{"health": health, "reason": reason}
	case ReportReconciliation:
		sentence, objects := drift(w, o)
		r := map[string]any{
			"revision": o.text("status", "sync", "revision"), "expected_revision": w.Expected,
			"automatic": isAutomatic(o), "drift": sentence,
		}
		if len(objects) > 0 {
			r["objects"] = objects
		}
		return r
	default:
		return nil
	}
}

// health returns the Rollout's phase, once its status is as new as its spec (D11).
func health(w Watch, o Object) (health, reason string) {
	message := o.text("status", "message")
	switch phase := o.text("status", "phase"); {
	case o == nil:
		return "unknown", w.ref().String() + " does not exist"
	case isStale(o):
		return "progressing", "the controller has not seen the newest spec yet"
	case phase == "Healthy":
		return "healthy", ""
	case phase == "Degraded":
		return "degraded", message
	case phase == "":
		return "unknown", "the controller has not reported a phase yet"
	default: // without the message, which counts replicas: each change would be an event
		return "progressing", phase
	}
}

// isAutomatic reports whether Argo CD syncs the Application automatically. In Argo CD 3 a policy can be switched off without being removed.
func isAutomatic(app Object) bool {
	if app.at("spec", "syncPolicy", "automated") == nil {
		return false
	}
	enabled, given := app.at("spec", "syncPolicy", "automated", "enabled").(bool)
	return !given || enabled
}

// drift describes how an Application differs from what was deployed last, with the objects that differ; "" if it does not. During a sync,
// and after one of ours, a changed revision is not drift.
func drift(w Watch, app Object) (string, []any) {
	if app != nil && isOutOfSync(w, app) {
		if objects := differing(app); len(objects) > 0 {
			return outOfSync(app) + listed(objects), objects
		}
	}
	how := "different"
	code, sentence := driftOfApplication(w, app)
	if sentence == "" {
		return "", nil
	}
	if app == nil {
		how = "missing"
	}
	return sentence, []any{map[string]any{
		"kind": w.Kind.Kind, "namespace": w.Namespace, "name": w.Name, "how": how, "code": code, "detail": sentence,
	}}
}

// The kinds of drift of an Application as a whole.
const (
	driftAbsent    = "absent"
	driftAutomatic = "automatic"
	driftRevision  = "revision"
	driftOutOfSync = "out_of_sync"
)

func outOfSync(app Object) string {
	return "it is out of sync with " + app.text("status", "sync", "revision")
}

// isOutOfSync reports whether all that differs is what Argo CD finds out of sync.
func isOutOfSync(w Watch, app Object) bool {
	code, _ := driftOfApplication(w, app)
	return code == driftOutOfSync
}

// driftOfApplication describes the drift of an Application as a whole, and of what kind it is.
func driftOfApplication(w Watch, app Object) (code, sentence string) {
	state := app.object("status", "operationState")
	revision := app.text("status", "sync", "revision")
	switch {
	case app == nil:
		if w.Expected == "" {
			return "", "" // nothing was deployed yet (E56)
		}
		return driftAbsent, w.ref().String() + " does not exist"
	case isAutomatic(app):
		return driftAutomatic, "automated sync is on (spec.syncPolicy.automated)"
	case app.object("operation") != nil || state != nil && !isFinished(state.text("phase")):
		return "", ""
	case w.Expected == "" || revision == "":
		return "", ""
	case revision != w.Expected:
		if byUs(state, revision) {
			return "", "" // the control plane does not know the new revision yet
		}
		return driftRevision, fmt.Sprintf("it is at %s, expected %s; the last sync was started by %s", revision, w.Expected, initiator(nil, state))
	case app.text("status", "sync", "status") == "OutOfSync":
		return driftOutOfSync, outOfSync(app)
	default:
		return "", ""
	}
}

// mostDiffering is how many objects a report of drift lists, and mostNamed how many its sentence names.
const (
	mostDiffering = 100
	mostNamed     = 10
)

// differing are the objects that Argo CD finds missing, extra or different, in the order of their names.
func differing(app Object) []any {
	var all []any
	for _, each := range app.list("status", "resources") {
		m, _ := each.(map[string]any)
		o := Object(m)
		if o.text("status") != "OutOfSync" || o.text("kind") == "" || o.text("name") == "" {
			continue
		}
		how := "different"
		switch {
		case o.flag("requiresPruning"):
			how = "extra"
		case o.text("health", "status") == "Missing":
			how = "missing"
		}
		object := map[string]any{"kind": o.text("kind"), "name": o.text("name"), "how": how}
		if namespace := o.text("namespace"); namespace != "" {
			object["namespace"] = namespace
		}
		all = append(all, object)
	}
	slices.SortStableFunc(all, func(a, b any) int { return strings.Compare(inWords(a), inWords(b)) })
	return all[:min(len(all), mostDiffering)]
}

// inWords is an object as part of a sentence.
func inWords(object any) string {
	o, _ := object.(map[string]any)
	how, _ := o["how"].(string)
	return fmt.Sprintf("%s/%s %s", o["kind"], o["name"], map[string]string{
		"extra": "is extra", "missing": "is missing", "different": "differs",
	}[how])
}

// listed names objects, behind a colon.
func listed(objects []any) string {
	var all []string
	for _, o := range objects {
		all = append(all, inWords(o))
	}
	if more := len(all) - mostNamed; more > 0 {
		all = append(all[:mostNamed], fmt.Sprintf("and %d more", more))
	}
	return ": " + strings.Join(all, ", ")
}

// byUs reports whether the last operation was one of our syncs, has brought the Application to the revision, and nothing has changed since.
func byUs(state Object, revision string) bool {
	return strings.HasPrefix(state.text("operation", "initiatedBy", "username"), username("")) &&
		state.text("phase") == "Succeeded" && state.text("syncResult", "revision") == revision
}

// ref returns the reference of a watch by name.
func (w Watch) ref() Ref { return Ref{Kind: w.Kind, Namespace: w.Namespace, Name: w.Name} }
