package scenario

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/tools/e2e/cluster"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/demo"
	"github.com/lockstep-cd/lockstep/tools/lockstep/gitserver"
	"github.com/lockstep-cd/lockstep/tools/lockstep/stack"
)

const (
	// limit bounds one scenario.
	limit = 6 * time.Minute
	// lookInterval is how often something that has to come is looked for.
	lookInterval = 100 * time.Millisecond
)

// Place is what all scenarios of a run share.
type Place struct {
	Stack   *stack.Stack
	Cluster *cluster.Cluster
	Clock   clock.Clock
	Log     *slog.Logger
	broken  []string
}

// Prepare has Argo CD sign in to the stack's Git server.
func (p *Place) Prepare(ctx context.Context) error {
	git := p.Stack.Endpoints().Git // http://user:password@host:port
	_, rest, _ := strings.Cut(git, "://")
	login, host, _ := strings.Cut(rest, "@")
	user, password, _ := strings.Cut(login, ":")
	return p.Cluster.Apply(ctx, []byte(fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata:
  name: stack-git
  namespace: argocd
  labels: {argocd.argoproj.io/secret-type: repo-creds}
stringData: {type: git, url: "http://%s/", username: %q, password: %q, forceHttpBasicAuth: "true"}
`, host, user, password)))
}

// run is one scenario under way.
type run struct {
	*Place

	scenario Scenario
	world    *demo.World
	watcher  *demo.Watcher
	sets     map[string]client.VersionSet // by tag
	started  client.Rollout
	version  string // of what was started
	frozen   []string
}

// Run plays one scenario. The error says which act has failed, and how.
func (p *Place) Run(ctx context.Context, s Scenario) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r := &run{Place: p, scenario: s, world: demo.NewWorld(p.Stack, s.world(), p.Clock), sets: map[string]client.VersionSet{}}
	with, err := p.Cluster.HTTP()
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	r.world.ClusterAt(p.Cluster.URL(), with)
	r.watcher = demo.NewWatcher(r.world, nil)
	defer r.thawAll()
	for i, act := range s.Acts {
		began := p.Clock.Now()
		if err := r.act(ctx, act); err != nil {
			return fmt.Errorf("act %d (%s): %w", i+1, act.fields()[0], err)
		}
		p.Log.InfoContext(ctx, "act", "scenario", s.Name, "act", i+1, "what", act.fields()[0], "ms", p.Clock.Now().Sub(began).Milliseconds())
	}
	return nil
}

// fields are the names of the things that an act does.
func (a Act) fields() []string {
	var names []string
	add := func(set bool, name string) {
		if set {
			names = append(names, name)
		}
	}
	add(a.Setup != nil, "setup")
	add(a.Push != nil, "push")
	add(a.Rollout != nil, "rollout")
	add(a.Start != nil, "start")
	add(a.Finish != nil, "finish")
	add(a.Apply != "", "apply")
	add(a.Kill != "", "kill")
	add(a.Restart != "", "restart")
	add(a.Freeze != "", "freeze")
	add(a.Thaw != "", "thaw")
	add(a.Synced != "", "synced")
	add(a.Stays != nil, "stays")
	return names
}

func (r *run) act(ctx context.Context, a Act) error {
	switch {
	case a.Setup != nil:
		return r.setup(ctx, *a.Setup)
	case a.Push != nil:
		return r.push(ctx, *a.Push)
	case a.Rollout != nil:
		return r.rollout(ctx, *a.Rollout)
	case a.Start != nil:
		return r.start(ctx, *a.Start)
	case a.Finish != nil:
		return r.finish(ctx, *a.Finish)
	case a.Apply != "":
		return r.Cluster.Apply(ctx, []byte(r.expand(a.Apply)))
	case a.Kill != "":
		starts, err := r.Stack.Kill(a.Kill)
		if err != nil {
			return err
		}
		return r.Stack.AwaitRestart(ctx, a.Kill, starts)
	case a.Restart != "":
		return r.Cluster.Restart(ctx, a.Restart)
	case a.Freeze != "":
		r.frozen = append(r.frozen, a.Freeze)
		return r.Cluster.Freeze(a.Freeze)
	case a.Thaw != "":
		return r.Cluster.Thaw(a.Thaw)
	case a.Synced != "":
		return r.synced(ctx, a.Synced)
	default:
		return r.stays(ctx, *a.Stays)
	}
}

// thawAll leaves nothing frozen to the scenarios that follow.
func (r *run) thawAll() {
	for _, name := range r.frozen {
		_ = r.Cluster.Thaw(name)
	}
}

// expand fills in names that the scenario cannot know.
func (r *run) expand(text string) string {
	pairs := []string{"${repository}", r.Stack.RepositoryURL(r.scenario.Name)}
	for _, stage := range r.world.Scenario.Stages {
		short := strings.TrimPrefix(stage.Environment, r.scenario.Name+"-")
		pairs = append(pairs, "${"+short+"}", r.world.Scenario.Namespace(stage), "${path:"+short+"}", stage.Environment)
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// setup creates everything.
func (r *run) setup(ctx context.Context, want Setup) error {
	files := r.world.Scenario.Manifests(r.Stack.Endpoints().OCI)
	for _, e := range r.scenario.Manifests {
		changed := false
		for path, text := range files {
			if e.File == "*" || path == r.scenario.full(e.File)+".yaml" {
				files[path] = strings.ReplaceAll(text, e.Replace, e.With)
				changed = changed || files[path] != text
			}
		}
		if !changed {
			return fmt.Errorf("manifests: found %q nowhere in %s", e.Replace, e.File)
		}
	}
	err := gitserver.Create(ctx, r.Stack.GitDir(), r.scenario.Name, files)
	for _, create := range []func(context.Context) error{r.world.CreateApplication, r.world.CreateEnvironments, r.world.CreatePipeline} {
		if err == nil {
			err = create(ctx)
		}
	}
	switch {
	case want.NotReady == "" || (err != nil && ctx.Err() != nil):
		return err
	case err == nil:
		return fmt.Errorf("everything is ready, expected it not to be: %q", want.NotReady)
	default:
		return match(want.NotReady, err.Error())
	}
}

func (r *run) push(ctx context.Context, p Push) error {
	set, err := r.world.Push(ctx, p.Tag, nil)
	if err != nil {
		return err
	}
	r.sets[p.Tag] = set
	for _, entry := range set.Entries {
		for _, service := range p.Broken {
			if entry.Service.Name == service {
				r.broken = append(r.broken, r.world.Scenario.Image(r.Stack.Endpoints().OCI, service)+"@"+entry.Version.Digest)
			}
		}
	}
	if len(p.Broken) == 0 {
		return nil
	}
	return r.Cluster.SetBroken(ctx, r.broken)
}

// match compares text with a pattern.
func match(pattern, text string) error {
	found, err := regexp.MatchString(pattern, text)
	if err != nil {
		return fmt.Errorf("pattern: %w", err)
	}
	if !found {
		return fmt.Errorf("found %q, expected %q", text, pattern)
	}
	return nil
}
