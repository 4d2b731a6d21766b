package scenario

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/demo"
	"github.com/lockstep-cd/lockstep/tools/lockstep/gitserver"
	"github.com/lockstep-cd/lockstep/tools/lockstep/stack"
)

const (
	// limit bounds one scenario.
	limit = 6 * time.Minute
	// lookInterval is the polling interval.
	lookInterval = 100 * time.Millisecond
)

// Cluster is the cluster of scenarios, real or simulated. Programs have the names of the real one's.
type Cluster interface {
	// URL and HTTP give access to objects independently of Lockstep.
	URL() string
	HTTP() (*http.Client, error)
	// Resource returns a client for the objects of a kind.
	Resource(apiVersion, kind, namespace string) (dynamic.ResourceInterface, error)
	// Apply applies objects; fields that they do not have are unchanged.
	Apply(ctx context.Context, text []byte) error
	// Restart kills a program and starts it again. Freeze suspends one, Thaw resumes it.
	Restart(ctx context.Context, program string) error
	Freeze(ctx context.Context, program string) error
	Thaw(ctx context.Context, program string) error
	// SetBroken sets the images whose pods never become ready.
	SetBroken(ctx context.Context, images []string) error
}

// Place is the environment shared by all scenarios of a run.
type Place struct {
	Stack   *stack.Stack
	Cluster Cluster
	Clock   clock.Clock
	Log     *slog.Logger
	// Cost returns what the relay has used so far; nil if that is not printed with each act.
	Cost   func(context.Context) (Cost, error)
	broken broken
}

// Cost is what a relay uses.
type Cost struct {
	// Calls counts the requests to the API server, by verb.
	Calls map[string]int
	// Memory is the resident memory now, and Peak is its maximum, in bytes.
	Memory, Peak int64
}

// since is what was used since an earlier look, as a line of a log has it.
func (c Cost) since(before Cost) []any {
	all := map[string]int{}
	for verb, n := range c.Calls {
		if n -= before.Calls[verb]; n > 0 {
			all[verb] = n
		}
	}
	return []any{"requests", all, "memory_mb", c.Memory >> 20, "peak_mb", c.Peak >> 20}
}

// cost is what the relay has used so far; nothing if that is not printed.
func (p *Place) cost(ctx context.Context) (Cost, error) {
	if p.Cost == nil {
		return Cost{}, nil
	}
	return p.Cost(ctx)
}

// broken holds the images whose pods never become ready, of all scenarios.
type broken struct {
	mu     sync.Mutex
	images []string
}

// add adds images, and passes all of them to the cluster.
func (b *broken) add(ctx context.Context, c Cluster, images []string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.images = append(b.images, images...)
	return c.SetBroken(ctx, b.images)
}

// Prepare gives Argo CD the credentials of the stack's Git server.
func (p *Place) Prepare(ctx context.Context) error {
	user, password, host := p.gitLogin()
	return p.Cluster.Apply(ctx, []byte(fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata:
  name: stack-git
  namespace: argocd
  labels: {argocd.argoproj.io/secret-type: repo-creds}
stringData: {type: git, url: "http://%s/", username: %q, password: %q, forceHttpBasicAuth: "true"}
`, host, user, password)))
}

// gitLogin is how the stack's Git server is signed in to.
func (p *Place) gitLogin() (user, password, host string) {
	_, rest, _ := strings.Cut(p.Stack.Endpoints().Git, "://") // http://user:password@host:port
	login, host, _ := strings.Cut(rest, "@")
	user, password, _ = strings.Cut(login, ":")
	return user, password, host
}

// run is the state of a running scenario.
type run struct {
	*Place

	scenario Scenario
	world    *demo.World
	watcher  *demo.Watcher
	sets     map[string]client.VersionSet // by tag
	started  client.Rollout
	version  string // the started one
	frozen   []string
	away     []string
	pods     []string // as stored by Remember
}

// Run runs one scenario. The error names the failed act, and the reason.
func (p *Place) Run(ctx context.Context, s Scenario) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r := &run{
		Place: p, scenario: s, world: demo.NewWorld(p.Stack, s.world(p.Stack.RepositoryURL(s.Name)), p.Clock),
		sets: map[string]client.VersionSet{},
	}
	r.world.Patience = limit // a busy machine is slow
	with, err := p.Cluster.HTTP()
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	r.world.ClusterAt(p.Cluster.URL(), with)
	for i := range r.world.Scenario.Stages {
		stage := &r.world.Scenario.Stages[i]
		stage.DriverConfig, stage.DriverOwn = r.expandMap(ctx, stage.DriverConfig), r.expandMap(ctx, stage.DriverOwn)
	}
	r.watcher = demo.NewWatcher(r.world, nil)
	defer r.thawAll(context.WithoutCancel(ctx))
	defer r.connectAll(context.WithoutCancel(ctx))
	for i, act := range s.Acts {
		if err := r.logged(ctx, i+1, act); err != nil {
			return fmt.Errorf("act %d (%s): %w", i+1, act.fields()[0], err)
		}
	}
	return nil
}

// logged does an act, and prints how long it took and what it cost.
func (r *run) logged(ctx context.Context, number int, act Act) error {
	before, err := r.cost(ctx)
	if err != nil {
		return err
	}
	began := r.Clock.Now()
	if err := r.act(ctx, act); err != nil {
		return err
	}
	with := []any{"scenario", r.scenario.Name, "act", number, "what", act.fields()[0], "ms", r.Clock.Now().Sub(began).Milliseconds()}
	if r.Cost != nil {
		after, err := r.cost(ctx)
		if err != nil {
			return err
		}
		with = append(with, after.since(before)...)
	}
	r.Log.InfoContext(ctx, "act", with...)
	return nil
}

// thawAll thaws all programs for the scenarios that follow.
func (r *run) thawAll(ctx context.Context) {
	for _, name := range r.frozen {
		_ = r.Cluster.Thaw(ctx, name)
	}
}

// connectAll reconnects all parts.
func (r *run) connectAll(ctx context.Context) {
	for _, part := range r.away {
		_ = r.Stack.Connect(ctx, part)
	}
}

// expand fills in placeholders.
func (r *run) expand(ctx context.Context, text string) string {
	user, password, _ := r.gitLogin()
	pairs := []string{
		"${repository}", r.Stack.RepositoryURL(r.scenario.Name), "${git:username}", user, "${git:password}", password,
		"${oci}", r.Stack.Endpoints().OCI + "/" + r.scenario.Name,
	}
	if measuring, ok := r.Cluster.(Measuring); ok {
		pairs = append(pairs, "${prometheus}", measuring.Metrics())
	}
	if serving, ok := r.Cluster.(Serving); ok {
		pairs = append(pairs, "${argo}", serving.ArgoServer())
	}
	if commits, err := gitserver.Log(ctx, r.Stack.GitDir(), r.scenario.Name); err == nil && len(commits) > 1 {
		pairs = append(pairs, "${head}", commits[0].SHA, "${before}", commits[1].SHA)
	}
	for _, service := range r.scenario.Services {
		pairs = append(pairs, "${unreleased:"+service+"}", r.world.Scenario.Image(r.Stack.Endpoints().OCI, service)+":unreleased")
	}
	for _, entry := range r.sets[r.version].Entries {
		pairs = append(pairs, "${image:"+entry.Service.Name+"}", r.image(entry))
	}
	for _, stage := range r.world.Scenario.Stages {
		short := strings.TrimPrefix(stage.Environment, r.scenario.Name+"-")
		pairs = append(pairs, "${"+short+"}", r.world.Scenario.Namespace(stage), "${path:"+short+"}", stage.Environment)
	}
	return uid.ReplaceAllStringFunc(strings.NewReplacer(pairs...).Replace(text), func(found string) string {
		named := uid.FindStringSubmatch(found)
		objects, err := r.Cluster.Resource(argo, named[1], "argocd")
		if err != nil {
			return found
		}
		object, err := objects.Get(ctx, r.namespace(named[2]), metav1.GetOptions{})
		if err != nil {
			return found
		}
		return string(object.GetUID())
	})
}

// uid matches a placeholder for the uid of one of Argo CD's objects. For a missing object it is left in place, and refused by the cluster.
var uid = regexp.MustCompile(`\$\{uid:(\w+):([^}]+)\}`)

// register creates an agent as which nothing connects.
func (r *run) register(ctx context.Context, environment string) error {
	agent, err := r.world.API.RegisterAgent(ctx, r.scenario.full(environment))
	if err != nil {
		return err
	}
	for i, stage := range r.world.Scenario.Stages {
		if stage.Environment == r.scenario.full(environment) {
			r.world.Scenario.Stages[i].Agent = int(agent.Number)
		}
	}
	return nil
}

// setup creates everything.
func (r *run) setup(ctx context.Context, want Setup) error {
	err := r.create(ctx, want)
	switch {
	case want.NotReady == "" || (err != nil && ctx.Err() != nil):
		return err
	case err == nil:
		return fmt.Errorf("everything is ready, expected it not to be: %q", want.NotReady)
	default:
		return match(want.NotReady, err.Error())
	}
}

func (r *run) create(ctx context.Context, want Setup) error {
	if want.Again {
		return r.again(ctx, want.Anew)
	}
	files := r.files(ctx)
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
	return err
}

// files returns the content of the first commit.
func (r *run) files(ctx context.Context) map[string]string {
	if len(r.scenario.Files) == 0 {
		return r.world.Scenario.Manifests(r.Stack.Endpoints().OCI)
	}
	files := map[string]string{}
	for path, text := range r.scenario.Files {
		files[path] = r.expand(ctx, text)
	}
	for path, repeat := range r.scenario.Repeated {
		text := r.expand(ctx, repeat.Text)
		var all strings.Builder
		for i := range repeat.Times {
			all.WriteString(strings.ReplaceAll(text, "${number}", strconv.Itoa(i+1)))
		}
		files[path] = all.String()
	}
	return files
}

// again repeats what is not ready, and continues the setup.
func (r *run) again(ctx context.Context, anew bool) error {
	const notReady = "NOT_READY"
	for _, stage := range r.world.Scenario.Stages {
		e, err := r.world.API.Environment(ctx, stage.Environment)
		if err == nil && e.Readiness == notReady {
			_, err = r.world.API.RetryOnboarding(ctx, e.ID)
		}
		if err != nil {
			return err
		}
	}
	if err := r.world.AwaitEnvironments(ctx); err != nil {
		return err
	}
	application, err := r.world.API.Application(ctx, r.scenario.Name)
	if err != nil {
		return err
	}
	if anew {
		r.world.Scenario.RepositoryURL = ""
	}
	if anew || len(application.Environments) == 0 {
		return r.world.CreatePipeline(ctx)
	}
	for _, e := range application.Environments {
		if e.Readiness != notReady {
			continue
		}
		if _, err := r.world.API.RetrySetup(ctx, e.ID); err != nil {
			return err
		}
	}
	return r.world.AwaitPipeline(ctx)
}

func (r *run) push(ctx context.Context, p Push) error {
	labels := map[string]map[string]string{} // understood by the simulated cluster
	for _, service := range p.Broken {
		labels[service] = map[string]string{demo.SimulateLabel: "degraded-at=1"}
	}
	set, err := r.world.Push(ctx, p.Tag, labels)
	if err != nil {
		return err
	}
	r.sets[p.Tag], r.version = set, p.Tag
	var images []string
	for _, entry := range set.Entries {
		if slices.Contains(p.Broken, entry.Service.Name) {
			images = append(images, r.image(entry))
		}
	}
	if len(images) == 0 {
		return nil
	}
	return r.broken.add(ctx, r.Cluster, images)
}

// image returns the full reference of a version.
func (r *run) image(entry client.VersionSetEntry) string {
	return r.world.Scenario.Image(r.Stack.Endpoints().OCI, entry.Service.Name) + "@" + entry.Version.Digest
}

// match matches a text against a pattern.
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
