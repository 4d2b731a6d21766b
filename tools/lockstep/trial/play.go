package trial

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/demo"
	"github.com/lockstep-cd/lockstep/tools/lockstep/gitserver"
	"github.com/lockstep-cd/lockstep/tools/lockstep/journal"
	"github.com/lockstep-cd/lockstep/tools/lockstep/simcluster/apiserver"
	"github.com/lockstep-cd/lockstep/tools/lockstep/stack"
)

// Outcome is what a case has led to.
type Outcome struct {
	Case Case
	// Failures are what was not as expected; none if the case has passed.
	Failures []string
	// Rollouts is how many were played, Entries counts the rows of their journals, and History has them, for people.
	Rollouts, Entries int
	History           string
}

// settle is how long the objects of the cluster may take to be as expected once a rollout has ended.
const settle = 10 * time.Second

// trial is one case while it is played.
type trial struct {
	Case
	*demo.World
	cluster cluster
	// name is that of the application, the environment, the namespace and the repository.
	name  string
	texts map[string]string
	// set is that of the last rollout.
	set client.VersionSet
	out *Outcome
}

// play plays a case as the application of a name. An error is only that of an interruption: anything else is a failure of the case.
func play(ctx context.Context, s *stack.Stack, clk clock.Clock, c Case, name string) (Outcome, error) {
	out := Outcome{Case: c}
	within, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()
	e := s.Endpoints()
	t := &trial{Case: c, cluster: cluster{url: e.Cluster}, name: name, texts: c.given(name, s.RepositoryURL(name), e.OCI), out: &out}
	err := t.prepare(within, s, clk)
	if err != nil {
		err = fmt.Errorf("before the first rollout: %w", err)
	}
	for i := 0; err == nil && len(out.Failures) == 0 && i < len(c.Rollouts); i++ {
		if err = t.roll(within, i); err != nil {
			err = fmt.Errorf("rollout %d: %w", i+1, err)
		}
	}
	if ctx.Err() != nil {
		return out, ctx.Err()
	}
	if err != nil && errors.Is(within.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("the case did not end within %s: %w", c.timeout(), err)
	}
	if err != nil {
		out.Failures = append(out.Failures, err.Error())
	}
	return out, nil
}

// prepare makes everything that the case has before its first rollout.
func (t *trial) prepare(ctx context.Context, s *stack.Stack, clk clock.Clock) error {
	environment, err := fill(t.Environment, t.texts)
	if err != nil {
		return err
	}
	if environment == nil {
		environment = map[string]any{}
	}
	if _, given := environment["cluster_agent_id"]; !given {
		environment["cluster_agent_id"] = nil // a driver without an agent
	}
	t.World = demo.NewWorld(s, demo.Scenario{Application: t.name, Services: t.Services, Stages: []demo.Stage{
		{Environment: t.name, Tier: "DEVELOPMENT", Driver: t.Driver, DriverConfig: environment},
	}}, clk)
	t.Patience = t.timeout()
	namespace := map[string]any{"apiVersion": "v1", "kind": apiserver.Namespaces.Kind, "metadata": map[string]any{"name": t.name}}
	objects, err := fill(t.Objects, t.texts)
	if err != nil {
		return err
	}
	for _, o := range append([]map[string]any{namespace}, objects...) {
		if err := t.cluster.put(ctx, t.name, o); err != nil {
			return err
		}
	}
	files, err := fillFiles(t.Files, t.texts)
	if err != nil {
		return err
	}
	if len(files) == 0 {
		files = map[string]string{"README.md": "# " + t.name + "\n"}
	}
	if err := gitserver.Create(ctx, s.GitDir(), t.name, files); err != nil {
		return err
	}
	if err := t.CreateApplication(ctx); err != nil {
		return err
	}
	if err := t.leaveRollbacks(ctx); err != nil {
		return err
	}
	if err := t.CreateEnvironments(ctx); err != nil {
		return err
	}
	pipeline, err := t.pipeline()
	if err != nil {
		return err
	}
	if _, err := t.API.CreateFlowDefinition(ctx, t.name, pipeline); err != nil {
		return fmt.Errorf("pipeline: %w", err)
	}
	return t.AwaitPipeline(ctx)
}

// leaveRollbacks turns automatic rollbacks off: after a rollout that fails, its objects are compared, and the next one begins.
func (t *trial) leaveRollbacks(ctx context.Context) error {
	a, err := t.API.Application(ctx, t.name)
	if err != nil {
		return err
	}
	a.RollbackPolicy.OnFailed, a.RollbackPolicy.OnDegraded = false, false
	_, err = t.API.SetRollbackPolicy(ctx, a.ID, a.RollbackPolicy)
	return err
}

// pipeline is that of the case, in which the deploy steps have environment and config.
func (t *trial) pipeline() (map[string]any, error) {
	pipeline := t.Pipeline
	if pipeline == nil {
		pipeline = map[string]any{"steps": []any{map[string]any{"type": "deploy"}}}
	}
	pipeline, err := fill(pipeline, t.texts)
	if err != nil {
		return nil, err
	}
	steps, _ := pipeline["steps"].([]any)
	for _, one := range steps {
		step, _ := one.(map[string]any)
		if step["type"] != "deploy" {
			continue
		}
		if step["environment"] == nil {
			step["environment"] = t.name
		}
		if step["config"] == nil {
			config, err := fill(t.Application, t.texts)
			if err != nil {
				return nil, err
			}
			if config == nil {
				config = map[string]any{}
			}
			step["config"] = config
		}
	}
	return pipeline, nil
}

// roll plays a rollout, whose approvals are given at once, and compares.
func (t *trial) roll(ctx context.Context, i int) error {
	images := map[string]demo.Image{}
	for service, image := range t.Rollouts[i].Images {
		images[service] = demo.Image{Tag: image.Tag}
		if image.Simulate != "" {
			images[service] = demo.Image{Tag: image.Tag, Labels: map[string]string{demo.SimulateLabel: image.Simulate}}
		}
	}
	set, err := t.PushImages(ctx, images, t.set, func() error { return nil })
	if err != nil {
		return err
	}
	t.set = set
	for _, e := range set.Entries {
		if _, pushed := images[e.Service.Name]; pushed {
			t.texts["digest:"+e.Service.Name] = e.Version.Digest
		}
	}
	want, err := fill(t.Rollouts[i].Expect, t.texts)
	if err != nil {
		return err
	}
	created, err := t.Roll(ctx, set.ID, fmt.Sprintf("rollout %d of the case %s", i+1, t.Name))
	if err != nil {
		return err
	}
	r, err := t.Follow(ctx, created.ID, demo.Hooks{})
	rows := journalOf(r)
	t.out.Rollouts++
	t.out.Entries += len(r.Journal)
	t.out.History += fmt.Sprintf("rollout %d:\n%s", i+1, rows)
	if err != nil {
		return fmt.Errorf("%w\nits journal:\n%s", err, rows)
	}
	wrong := want.compare(r)
	if len(wrong) == 0 {
		wrong = t.awaitObjects(ctx, want.Objects)
	}
	for _, each := range wrong {
		t.out.Failures = append(t.out.Failures, fmt.Sprintf("rollout %d: %s", i+1, each))
	}
	if len(wrong) > 0 {
		t.out.Failures = append(t.out.Failures, fmt.Sprintf("the journal of rollout %d:\n%s", i+1, rows))
	}
	return nil
}

// journalOf is the journal of a rollout, for people.
func journalOf(r client.Rollout) string {
	var text bytes.Buffer
	_ = journal.Table(&text, r) // a buffer does not fail
	return strings.TrimRight(text.String(), "\n") + "\n"
}

// compare is what of a rollout that has ended is not as expected.
func (e Expectation) compare(r client.Rollout) []string {
	var wrong []string
	differ := func(what, found, want string) {
		if want != "" && !strings.EqualFold(found, want) {
			wrong = append(wrong, fmt.Sprintf("%s: found %s, expected %s", what, cmp.Or(strings.ToLower(found), "none"), want))
		}
	}
	differ("state", r.State, e.State)
	if reason := reasonOf(r); !strings.Contains(reason, e.Reason) {
		wrong = append(wrong, fmt.Sprintf("reason: found %q, expected %q in it", reason, e.Reason))
	}
	environment, deployments := "", map[string]string{}
	for _, each := range r.Environments {
		environment = each.State
		for _, d := range each.Deployments {
			deployments[d.Service.Name] = d.State
		}
	}
	differ("environment", environment, e.Environment)
	for _, service := range slices.Sorted(maps.Keys(e.Deployments)) {
		differ("deployments."+service, deployments[service], e.Deployments[service])
	}
	return wrong
}

// reasonOf is why a rollout ended.
func reasonOf(r client.Rollout) string {
	reason := ""
	for _, row := range r.Journal {
		if row.Subject == r.ID && row.FromState != row.ToState && strings.EqualFold(row.ToState, r.State) {
			reason = row.Reason
		}
	}
	return reason
}

// awaitObjects is what of the objects is not as expected, after a while.
func (t *trial) awaitObjects(ctx context.Context, objects []Object) []string {
	ctx, cancel := context.WithTimeout(ctx, settle)
	defer cancel()
	var wrong []string
	err := t.Await(ctx, "objects", func() (string, bool, error) {
		var differ []string
		for _, want := range objects {
			problem, err := t.cluster.differs(ctx, t.name, want)
			if err != nil {
				return "", false, err
			}
			if problem != "" {
				differ = append(differ, problem)
			}
		}
		wrong = differ
		return "", len(differ) == 0, nil
	})
	if err != nil && len(wrong) == 0 {
		return []string{err.Error()}
	}
	return wrong
}
