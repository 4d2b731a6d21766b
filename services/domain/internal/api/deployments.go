package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/throttle"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// ReportDeploymentPath is the path to which systems report that what a deployment is outside of Lockstep has changed, in place of being
// polled (R2-30): POST with a JSON object, such as from a sensor of Argo Events.
const ReportDeploymentPath = "/v1/deployments/report"

// How many reports are taken from one member: a fleet of Workflows that end together is fine, and a sensor that reports each step is not.
const (
	reportsAtOnce = 300
	reportsEvery  = 200 * time.Millisecond
)

// Deployments has deployments looked at.
type Deployments interface {
	NudgeDeployment(ctx context.Context, a core.Actor, r rollout.OutsideReport) (woken bool, err error)
}

// reportDeploymentHandler has the program of one deployment look at it. It is idempotent: a phase that was reported before wakes nobody.
func reportDeploymentHandler(d Deployments, c clock.Clock) http.Handler {
	pace := throttle.NewPace[[2]int64](reportsAtOnce, reportsEvery)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		actor, ok := core.ActorFrom(r.Context())
		if !ok {
			unauthenticated(w, "found no token; expected a token")
			return
		}
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "found method "+r.Method+"; expected POST", http.StatusMethodNotAllowed)
			return
		}
		if !pace.Take(c.Now(), [2]int64{actor.Organization, actor.ID}) {
			w.Header().Set("Retry-After", "10")
			http.Error(w, fmt.Sprintf("found more than %d reports at once; expected one every %s", reportsAtOnce, reportsEvery), http.StatusTooManyRequests)
			return
		}
		report, err := readDeploymentReport(w, r)
		if !known(w, "report", err) {
			return
		}
		woken, err := d.NudgeDeployment(r.Context(), actor, report)
		if !known(w, "report", err) {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusAccepted)
		_ = json.NewEncoder(w).Encode(struct { // a client that is gone needs no answer
			Woken bool `json:"woken"`
		}{woken})
	})
}

// readDeploymentReport reads the body of a request. The deployment is a text, as labels are, with its number. Its errors are Invalid.
func readDeploymentReport(w http.ResponseWriter, r *http.Request) (rollout.OutsideReport, error) {
	in := struct {
		Deployment string `json:"deployment"`
		Name       string `json:"name"`
		Namespace  string `json:"namespace"`
		Phase      string `json:"phase"`
	}{}
	if err := readObject(w, r, &in, "deployment, name, namespace and phase"); err != nil {
		return rollout.OutsideReport{}, err
	}
	number, err := strconv.ParseInt(strings.TrimPrefix(in.Deployment, "deployment_"), 10, 64)
	if err != nil || number <= 0 {
		return rollout.OutsideReport{}, fault.InvalidFields(fault.Field{
			Name: "/deployment", Problem: fmt.Sprintf("found %.100q; expected the number of a deployment as a text, as in the label lockstep.dev/deployment",
				in.Deployment),
		})
	}
	return rollout.OutsideReport{DeploymentID: number, Name: in.Name, Namespace: in.Namespace, Phase: in.Phase}, nil
}
