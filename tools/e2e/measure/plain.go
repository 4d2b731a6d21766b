package measure

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/tools/e2e/scenario"
	"github.com/lockstep-cd/lockstep/tools/lockstep/demo"
	"github.com/lockstep-cd/lockstep/tools/lockstep/gitserver"
)

const (
	// mostEach is how many requests to the API server a relay may need for one object of a deployment, all of a rollout counted.
	mostEach = 5
	// mostTrips is how many calls of Functions at the relay a rollout may need: they do not depend on the number of objects.
	mostTrips = 12
	// mostRatio is how many times as long as a client that applies the same objects a relay may take to apply them.
	mostRatio = 3
	// goalObjects and goalTook are the goal for a rollout. It is printed, and not enforced: how busy the machine is decides about it, too.
	goalObjects, goalTook = 50, 3 * time.Second
	// plainRounds are the versions that are deployed after the first: the fastest of them, and of the client's, are compared.
	plainRounds = 5
)

// Plain is what kubernetes@1 needed for the objects of one deployment.
type Plain struct {
	Objects int
	// Calls and Trips are those of one rollout: requests of the relay to the API server, and calls of Functions at the relay.
	Calls, Trips int
	// Applied is from the relay's first request of a rollout that writes to its last one, and Direct is how long a client takes that applies
	// the same objects one after the other; each is the shortest of several.
	Applied, Direct time.Duration
	// Took is the shortest rollout, from the request to its end.
	Took time.Duration
}

// Table formats the figures.
func (p Plain) Table() string {
	return fmt.Sprintf("%d objects by kubernetes@1: rollout %.2f s (goal for %d: %.0f s), %d requests of the relay (%.1f for each object), %d calls at the relay\n"+
		"  applied in %d ms, by a client in %d ms: %.2f times\n",
		p.Objects, p.Took.Seconds(), goalObjects, goalTook.Seconds(), p.Calls, float64(p.Calls)/float64(p.Objects),
		p.Trips, p.Applied.Milliseconds(), p.Direct.Milliseconds(), p.ratio())
}

func (p Plain) ratio() float64 { return float64(p.Applied) / float64(max(p.Direct, 1)) }

// Check is an error if the deployment costs more than it may.
func (p Plain) Check() error {
	if p.Objects == 0 || p.Calls == 0 || p.Trips == 0 || p.Applied == 0 || p.Direct == 0 {
		return fmt.Errorf("objects: found %+v, expected every figure to be measured", p)
	}
	var errs []error
	if p.Calls > mostEach*p.Objects {
		errs = append(errs, fmt.Errorf("%d objects: found %d requests to the API server, expected at most %d",
			p.Objects, p.Calls, mostEach*p.Objects))
	}
	if p.Trips > mostTrips {
		errs = append(errs, fmt.Errorf("%d objects: found %d calls at the relay, expected at most %d", p.Objects, p.Trips, mostTrips))
	}
	if p.ratio() > mostRatio {
		errs = append(errs, fmt.Errorf("%d objects: they were applied in %s, and by a client in %s, "+
			"which is %.2f times as long; expected at most %d times",
			p.Objects, p.Applied, p.Direct, p.ratio(), mostRatio))
	}
	return errors.Join(errs...)
}

// plainNamespace is where the objects are, and directNamespace where the client applies them.
const plainNamespace, directNamespace = "plain-load", "plain-direct"

// PlainObjects deploys versions of an application of so many objects with kubernetes@1, and applies the same objects with a client. audit
// is the audit log of the API server.
func PlainObjects(ctx context.Context, place *scenario.Place, objects int, audit string) (p Plain, err error) {
	p.Objects = objects
	for _, name := range []string{plainNamespace, directNamespace} {
		if err := place.Cluster.Apply(ctx, []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: "+name+"}\n")); err != nil {
			return p, err
		}
	}
	w, err := world(place, demo.Scenario{
		Application: "plain-load", Services: []string{"api"},
		Stages: []demo.Stage{{
			Environment: "plain-load", Tier: "STAGING", Driver: "kubernetes@1",
			DriverOwn: map[string]any{
				"repository_url": place.Stack.RepositoryURL("plain-load"), "files": []any{"all.yaml"}, "namespace": plainNamespace,
				"services": []any{map[string]any{"service": "api", "container": "api"}}, "poll_interval": 1,
			},
		}},
	})
	if err != nil {
		return p, err
	}
	image := w.Scenario.Image(place.Stack.Endpoints().OCI, "api") + ":unreleased"
	text := plainManifests(objects, image)
	if err := gitserver.Create(ctx, place.Stack.GitDir(), "plain-load", map[string]string{"all.yaml": text}); err != nil {
		return p, err
	}
	for _, create := range []func(context.Context) error{w.CreateApplication, w.CreateEnvironments, w.CreatePipeline} {
		if err := create(ctx); err != nil {
			return p, err
		}
	}
	for round := range plainRounds + 1 {
		if err := p.round(ctx, place, w, round, audit); err != nil {
			return p, err
		}
		began := place.Clock.Now()
		manifests := inNamespace(plainManifests(objects, image+"-"+strconv.Itoa(round)), directNamespace)
		if err := place.Cluster.Apply(ctx, []byte(manifests)); err != nil {
			return p, err
		}
		if round > 0 {
			p.Direct = shortest(p.Direct, place.Clock.Now().Sub(began))
		}
	}
	return p, nil
}

// round deploys one version. The first creates the objects, and is not counted.
func (p *Plain) round(ctx context.Context, place *scenario.Place, w *demo.World, round int, audit string) error {
	set, err := w.Push(ctx, strconv.Itoa(round), nil)
	if err != nil {
		return err
	}
	seen, err := entries(audit)
	if err != nil {
		return err
	}
	began := place.Clock.Now()
	r, err := promote(ctx, w, set)
	took := place.Clock.Now().Sub(began)
	if err != nil || round == 0 {
		return err
	}
	all, err := entries(audit)
	if err != nil {
		return err
	}
	calls, applied := spanOf(all[len(seen):])
	p.Calls, p.Applied, p.Took = max(p.Calls, calls), shortest(p.Applied, applied), shortest(p.Took, took)
	trips, err := w.API.Calls(ctx, r.ID, "k8s.")
	p.Trips = max(p.Trips, trips)
	return err
}

// shortest is the shorter of two durations, of which the first may be none yet.
func shortest(so, now time.Duration) time.Duration {
	if so == 0 {
		return now
	}
	return min(so, now)
}

// plainManifests are a Deployment, a Service, and ConfigMaps. From one version to the next the image changes.
func plainManifests(objects int, image string) string {
	var text strings.Builder
	fmt.Fprintf(&text, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: api}, `+
		`spec: {replicas: 1, selector: {matchLabels: {app: api}}, `+
		`template: {metadata: {labels: {app: api}}, spec: {containers: [{name: api, image: %q}]}}}}`, image)
	text.WriteString("\n---\n{apiVersion: v1, kind: Service, metadata: {name: api}, spec: {selector: {app: api}, ports: [{port: 80}]}}\n")
	for i := range objects - 2 {
		fmt.Fprintf(&text, "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: part-%03d}, data: {number: \"%d\"}}\n", i, i)
	}
	return text.String()
}

// inNamespace is what a client applies: its objects name their namespace.
func inNamespace(text, namespace string) string {
	return strings.ReplaceAll(text, "metadata: {name: ", "metadata: {namespace: "+namespace+", name: ")
}

// request is an entry of an audit log.
type request struct {
	Verb, Stage string
	Received    time.Time `json:"requestReceivedTimestamp"`
	At          time.Time `json:"stageTimestamp"`
}

// entries are those of an audit log, as they were received and answered.
func entries(audit string) ([]request, error) {
	file, err := os.Open(audit)
	if err != nil {
		return nil, fmt.Errorf("record of requests: %w", err)
	}
	defer func() { _ = file.Close() }()
	var all []request
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var one request
		if json.Unmarshal(lines.Bytes(), &one) == nil {
			all = append(all, one)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("record of requests: %w", err)
	}
	return all, nil
}

// spanOf counts the requests, and is how long it took from the first that writes to the answer to the last one.
func spanOf(all []request) (calls int, applied time.Duration) {
	var first, last time.Time
	for _, one := range all {
		if one.Stage == "RequestReceived" {
			calls++
		}
		if !slices.Contains([]string{"patch", "create"}, one.Verb) {
			continue
		}
		if first.IsZero() || one.Received.Before(first) {
			first = one.Received
		}
		if one.At.After(last) {
			last = one.At
		}
	}
	return calls, last.Sub(first)
}
