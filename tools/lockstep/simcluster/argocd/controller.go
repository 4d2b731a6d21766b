// Package argocd behaves like the Argo CD application controller (v3.2) on the Application objects of a simulated cluster:
// it compares them with their repositories, and carries out the syncs that their operation field asks for.
//
// It is a simulation: folders of plain YAML, a kustomization with resources and images, or a chart with plain templates; hooks and
// waves, without delete policies; no projects' rules, one cluster.
package argocd

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/tools/lockstep/simcluster/apiserver"
)

// Deps are what a Controller needs.
type Deps struct {
	Store       *apiserver.Store
	Clock       clock.Clock
	Log         *slog.Logger
	Credentials Credentials
	// Refresh is how often a revision that may move is looked up again; 0 is a minute.
	Refresh time.Duration
}

// Controller reconciles Applications.
type Controller struct {
	Deps
	repositories repositories
	// compared is when an Application was last compared, and with what.
	compared map[string]comparison
	// begun are the operations, by Application and start, that this process has taken up: others it finds under way.
	begun map[string]bool
}

type comparison struct {
	at     time.Time
	source string
	commit *object.Commit
}

const (
	idle           = 5 * time.Second
	defaultRefresh = time.Minute
	gitTimeout     = 20 * time.Second
)

// New makes a controller.
func New(d Deps) *Controller {
	if d.Refresh <= 0 {
		d.Refresh = defaultRefresh
	}
	return &Controller{
		Deps: d, repositories: repositories{credentials: d.Credentials, clock: d.Clock, known: map[string]*git.Repository{}},
		compared: map[string]comparison{}, begun: map[string]bool{},
	}
}

// Run reconciles until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		changed := c.Store.Changed()
		c.Sync(ctx)
		timer := c.Clock.NewTimer(min(idle, c.Refresh))
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C():
		}
		timer.Stop()
	}
	return nil
}

// Sync looks at every Application once.
func (c *Controller) Sync(ctx context.Context) {
	if c.Store.ScaledToZero(apiserver.Key{Resource: apiserver.StatefulSets, Namespace: "argocd", Name: "argocd-application-controller"}) {
		return
	}
	all, _ := c.Store.List(apiserver.Applications, "")
	for _, app := range all {
		err := c.reconcile(ctx, app)
		if err != nil && ctx.Err() == nil && !apiserver.Is(err, "Conflict") && !apiserver.Is(err, "NotFound") {
			c.Log.ErrorContext(ctx, "application cannot be reconciled", "application", app.Namespace()+"/"+app.Name(),
				telemetry.KeyError, err.Error())
		}
	}
}

// reconcile carries out the operation that is asked for, and compares.
func (c *Controller) reconcile(ctx context.Context, app apiserver.Object) error {
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	if app.Map("operation") != nil {
		return c.operate(ctx, app)
	}
	if c.repositoriesRest() {
		return nil
	}
	return c.refresh(ctx, app)
}

// repositoriesRest reports whether the repository server was stopped.
func (c *Controller) repositoriesRest() bool {
	return c.Store.ScaledToZero(apiserver.Key{Resource: apiserver.Deployments, Namespace: "argocd", Name: "argocd-repo-server"})
}

func key(app apiserver.Object) apiserver.Key {
	return apiserver.Key{Resource: apiserver.Applications, Namespace: app.Namespace(), Name: app.Name()}
}

func (c *Controller) stamp() string { return c.Clock.Now().UTC().Format(time.RFC3339) }

// refresh compares the cluster with the revision that the spec names, and says so in the status. Every change of the
// cluster is a reason to; the repository is asked again only when the source has changed or its turn has come.
func (c *Controller) refresh(ctx context.Context, app apiserver.Object) error {
	commit, err := c.target(ctx, app)
	return c.update(app, func(o apiserver.Object) {
		o.Unset("metadata", "annotations", "argocd.argoproj.io/refresh")
		if err != nil {
			c.unknown(o, err)
			return
		}
		c.judge(o, commit)
	})
}

// target is the commit that an Application should be at.
func (c *Controller) target(ctx context.Context, app apiserver.Object) (*object.Commit, error) {
	if app.Map("spec", "source") == nil {
		return nil, fmt.Errorf("application %s has no spec.source; the simulated cluster knows no other", app.Name())
	}
	url, revision := app.Text("spec", "source", "repoURL"), app.Text("spec", "source", "targetRevision")
	source := url + " " + revision + " " + app.Text("metadata", "uid")
	last := c.compared[key(app).Namespace+"/"+app.Name()]
	wanted := app.Text("metadata", "annotations", "argocd.argoproj.io/refresh") != ""
	if last.source == source && !wanted && c.Clock.Now().Sub(last.at) < c.Refresh {
		return last.commit, nil
	}
	commit, err := c.repositories.resolve(ctx, url, revision)
	if err != nil {
		return nil, err
	}
	c.compared[key(app).Namespace+"/"+app.Name()] = comparison{at: c.Clock.Now(), source: source, commit: commit}
	return commit, nil
}

// unknown is the status of an Application whose manifests cannot be fetched.
func (c *Controller) unknown(o apiserver.Object, err error) {
	o.Set("Unknown", "status", "sync", "status")
	setCondition(o, "ComparisonError", "Failed to load target state: failed to generate manifest for source 1 of 1: "+err.Error(), c.stamp())
}

// setCondition has the status show one condition, or none.
func setCondition(o apiserver.Object, kind, message, now string) {
	for _, each := range o.List("status", "conditions") {
		if m, ok := each.(map[string]any); ok && m["type"] == kind && m["message"] == message {
			return
		}
	}
	o.Set([]any{map[string]any{"type": kind, "message": message, "lastTransitionTime": now}}, "status", "conditions")
}
