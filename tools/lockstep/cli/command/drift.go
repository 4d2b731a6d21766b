package command

import (
	"fmt"
	"io"
	"strings"

	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// DriftTable prints what differs from what was deployed, object by object, and why that may not be so any more (R4-11).
func DriftTable(w io.Writer, all []client.Drifted) {
	Row(w, "APPLICATION", "ENVIRONMENT", "SINCE", "OBJECT", "NAMESPACE", "DRIFT", "FIELDS OF OTHERS")
	for _, one := range all {
		r := one.Reconciliation
		if len(r.Objects) == 0 { // a service of the previous release, which only has the sentence
			Row(w, one.Application.Name, one.Environment.Name, Moment(r.Since), "", "", r.Drift, "")
		}
		for _, o := range r.Objects {
			object := strings.TrimPrefix(o.Kind+"/"+o.Name, "/")
			Row(w, one.Application.Name, one.Environment.Name, Moment(r.Since), object, o.Namespace, howItDiffers(o), heldBy(o))
		}
	}
	for _, one := range all {
		if stale := one.Reconciliation.StaleReason; stale != "" {
			fmt.Fprintln(w)
			Row(w, one.Application.Name+" in "+one.Environment.Name+", as of "+Moment(one.Reconciliation.ObservedAt)+": "+stale)
		}
	}
}

// howItDiffers says how an object differs.
func howItDiffers(o client.DriftedObject) string {
	how, known := map[string]string{"MISSING": "missing", "EXTRA": "extra", "DIFFERENT": "differs"}[o.How]
	if !known {
		how = strings.ToLower(o.How)
	}
	if len(o.Differs) > 0 {
		how += ": " + strings.Join(o.Differs, ", ")
	}
	return how
}

// heldBy lists the fields that others have taken over, so that no deploy sets them.
func heldBy(o client.DriftedObject) string {
	fields := make([]string, len(o.Held))
	for i, h := range o.Held {
		fields[i] = h.Path
		if h.Manager != "" {
			fields[i] += " (" + h.Manager + ")"
		}
	}
	return strings.Join(fields, ", ")
}
