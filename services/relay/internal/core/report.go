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
		return map[string]any{
			"revision": o.text("status", "sync", "revision"), "expected_revision": w.Expected,
			"automatic": isAutomatic(o), "drift": drift(w, o),
		}
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

// drift describes how an Application differs from what was deployed last; "" if it does not. During a sync, and after one of ours, a
// changed revision is not drift.
func drift(w Watch, app Object) string {
	state := app.object("status", "operationState")
	revision := app.text("status", "sync", "revision")
	switch {
	case app == nil:
		if w.Expected == "" {
			return "" // nothing was deployed yet (E56)
		}
		return w.ref().String() + " does not exist"
	case isAutomatic(app):
		return "automated sync is on (spec.syncPolicy.automated)"
	case app.object("operation") != nil || state != nil && !isFinished(state.text("phase")):
		return ""
	case w.Expected == "" || revision == "":
		return ""
	case revision != w.Expected:
		if byUs(state, revision) {
			return "" // the control plane does not know the new revision yet
		}
		return fmt.Sprintf("it is at %s, expected %s; the last sync was started by %s", revision, w.Expected, initiator(nil, state))
	case app.text("status", "sync", "status") == "OutOfSync":
		return "it is out of sync with " + revision + differing(app)
	default:
		return ""
	}
}

// mostDiffering is how many objects a report of drift names.
const mostDiffering = 10

// differing names the objects that Argo CD finds missing, extra or different, behind a colon; empty where it names none.
func differing(app Object) string {
	var all []string
	for _, each := range app.list("status", "resources") {
		m, _ := each.(map[string]any)
		o := Object(m)
		if o.text("status") != "OutOfSync" {
			continue
		}
		how := "differs"
		switch {
		case o.flag("requiresPruning"):
			how = "is extra"
		case o.text("health", "status") == "Missing":
			how = "is missing"
		}
		all = append(all, fmt.Sprintf("%s/%s %s", o.text("kind"), o.text("name"), how))
	}
	if len(all) == 0 {
		return ""
	}
	slices.Sort(all)
	if more := len(all) - mostDiffering; more > 0 {
		all = append(all[:mostDiffering], fmt.Sprintf("and %d more", more))
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
