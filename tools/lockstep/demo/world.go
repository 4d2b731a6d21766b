package demo

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
	"github.com/lockstep-cd/lockstep/tools/lockstep/gitserver"
	"github.com/lockstep-cd/lockstep/tools/lockstep/stack"
)

// notReady is the Readiness that does not change by itself.
const notReady = "NOT_READY"

// waitLimit bounds each wait of the demo for something that takes a second or two.
const waitLimit = 60 * time.Second

// World is a stack with a scenario on it, as an outsider sees both: the API, Git, the OCI registry and the cluster.
type World struct {
	Scenario Scenario
	Stack    *stack.Stack
	API      *client.Client
	Clock    clock.Clock
	// Patience is how long a rollout that is followed may take, and anything else that is waited for; 0 is three minutes, and one.
	Patience time.Duration
	// Interval is the pause between two looks at a rollout that is followed; 0 is a tenth of a second.
	Interval time.Duration
	cluster  cluster
}

// NewWorld looks at a stack.
func NewWorld(s *stack.Stack, scenario Scenario, c clock.Clock) *World {
	e := s.Endpoints()
	return &World{
		Scenario: scenario, Stack: s, Clock: c, cluster: cluster{url: e.Cluster, client: http.DefaultClient},
		API: client.New(client.Config{Endpoint: e.GraphQL, Token: e.Token}),
	}
}

// ClusterAt has the world look at another Kubernetes API than the simulated one, with a client that may read there.
func (w *World) ClusterAt(url string, with *http.Client) { w.cluster = cluster{url: url, client: with} }

// Create creates everything that the scenario has, and returns when it is ready to be deployed to.
func (w *World) Create(ctx context.Context) error {
	if err := w.CreateRepository(ctx); err != nil {
		return err
	}
	if err := w.CreateApplication(ctx); err != nil {
		return err
	}
	if err := w.CreateEnvironments(ctx); err != nil {
		return err
	}
	return w.CreatePipeline(ctx)
}

// CreateRepository makes the repository with the manifests.
func (w *World) CreateRepository(ctx context.Context) error {
	return gitserver.Create(ctx, w.Stack.GitDir(), w.Scenario.Application, w.Scenario.Manifests(w.Stack.Endpoints().OCI))
}

// CreateApplication makes the application and its services.
func (w *World) CreateApplication(ctx context.Context) error {
	services := make([]client.ServiceInput, len(w.Scenario.Services))
	for i, name := range w.Scenario.Services {
		services[i] = client.ServiceInput{Name: name, Image: w.Scenario.Image(w.Stack.Endpoints().OCI, name)}
	}
	return w.create(ctx, "an application", func() error {
		_, err := w.API.CreateApplication(ctx, w.Scenario.Application, "", services)
		return err
	})
}

// CreateEnvironments makes the environments and waits until they are onboarded.
func (w *World) CreateEnvironments(ctx context.Context) error {
	for _, stage := range w.Scenario.Stages {
		agent := stage.Agent
		if agent == 0 {
			agent = stack.AgentID
		}
		config := map[string]any{"cluster_agent_id": agent}
		maps.Copy(config, stage.DriverConfig)
		maps.DeleteFunc(config, func(_ string, value any) bool { return value == nil }) // a driver without an agent
		err := w.create(ctx, "an environment", func() error {
			_, err := w.API.CreateEnvironment(ctx, client.EnvironmentInput{
				Name: stage.Environment, Tier: stage.Tier, DriverRef: stage.driver(), DriverConfig: config,
			})
			return err
		})
		if err != nil {
			return err
		}
	}
	return w.AwaitEnvironments(ctx)
}

// AwaitEnvironments waits until every environment is onboarded; one that is not ready is an error with its reason.
func (w *World) AwaitEnvironments(ctx context.Context) error {
	for _, stage := range w.Scenario.Stages {
		err := w.Await(ctx, "environment "+stage.Environment+" to be ready", func() (string, bool, error) {
			e, err := w.API.Environment(ctx, stage.Environment)
			if e.Readiness == notReady {
				return "", false, fmt.Errorf("it is not: %s", e.ReadinessReason)
			}
			return e.Readiness, e.Readiness == "READY", err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// CreatePipeline gives the application its pipeline and waits until it is set up in every environment.
func (w *World) CreatePipeline(ctx context.Context) error {
	flow := w.Scenario.Flow(w.Stack.RepositoryURL(w.Scenario.Application))
	err := w.create(ctx, "a pipeline", func() error {
		_, err := w.API.CreateFlowDefinition(ctx, w.Scenario.Application, flow)
		return err
	})
	if err != nil {
		return err
	}
	return w.AwaitPipeline(ctx)
}

// AwaitPipeline waits until the application is set up in every environment; one where it is not ready is an error with its
// reason.
func (w *World) AwaitPipeline(ctx context.Context) error {
	return w.Await(ctx, "application to be set up in every environment", func() (string, bool, error) {
		a, err := w.API.Application(ctx, w.Scenario.Application)
		seen, ready := "", len(a.Environments) == len(w.Scenario.Stages)
		for _, e := range a.Environments {
			if e.Readiness == notReady {
				return "", false, fmt.Errorf("%s: %s", e.Environment.Name, e.ReadinessReason)
			}
			seen += e.Environment.Name + " " + e.Readiness + "; "
			ready = ready && e.Readiness == "READY"
		}
		return seen, ready, err
	})
}

// Roll creates a rollout of a version set.
func (w *World) Roll(ctx context.Context, set, reason string) (client.Rollout, error) {
	var r client.Rollout
	unsure := false
	err := w.insist(ctx, "a rollout to be created", func() (err error) {
		r, err = w.API.CreateRollout(ctx, client.NewRollout{VersionSet: set, Reason: reason})
		if err != nil && strings.Contains(err.Error(), "live already") { // a server of the release before does not ask
			r, err = w.API.CreateRollout(ctx, client.NewRollout{VersionSet: set, Reason: reason, Again: true})
		}
		if !unsure || !fault.Is(err, fault.Conflict) && !fault.Is(err, fault.Refused) {
			unsure = unsure || fault.Is(err, fault.Unavailable)
			return err
		}
		active, listErr := w.API.Rollouts(ctx, client.Filter{Application: w.Scenario.Application, Limit: 1})
		if listErr != nil {
			return listErr
		}
		if len(active) != 1 || active[0].VersionSet.ID != set || active[0].Over() {
			return err
		}
		r = active[0] // the answer to an earlier try got lost
		return nil
	})
	return r, err
}

// create does what makes an object, again when there was no answer. If there is one then, that answer got lost.
func (w *World) create(ctx context.Context, what string, do func() error) error {
	unsure := false
	return w.insist(ctx, what+" to be created", func() error {
		err := do()
		if unsure && fault.Is(err, fault.Conflict) {
			return nil
		}
		unsure = unsure || fault.Is(err, fault.Unavailable)
		return err
	})
}

// insist does something until it is no longer Unavailable: processes are killed on purpose, and come back.
func (w *World) insist(ctx context.Context, what string, do func() error) error {
	return w.Await(ctx, what, func() (string, bool, error) {
		err := do()
		return "", err == nil, err
	})
}

// Image is an image to push.
type Image struct {
	Tag    string
	Labels map[string]string
}

// Push pushes one image for each service, and answers the version set that has all of them.
func (w *World) Push(ctx context.Context, tag string, labels map[string]map[string]string) (client.VersionSet, error) {
	return w.PushImages(ctx, w.images(tag, labels), client.VersionSet{}, func() error { return nil })
}

// PushWhile is Push, with something that is done between the push and the first look for the version set.
func (w *World) PushWhile(ctx context.Context, tag string, between func() error) (client.VersionSet, error) {
	return w.PushImages(ctx, w.images(tag, nil), client.VersionSet{}, between)
}

// images are those of all services with one tag.
func (w *World) images(tag string, labels map[string]map[string]string) map[string]Image {
	all := map[string]Image{}
	for _, service := range w.Scenario.Services {
		all[service] = Image{Tag: tag, Labels: labels[service]}
	}
	return all
}

// PushImages pushes images of services, and answers the version set that has them, and of every other service the version that it has in
// the set before. Between the push and the first look for the version set, between is called.
func (w *World) PushImages(
	ctx context.Context, images map[string]Image, before client.VersionSet, between func() error,
) (client.VersionSet, error) {
	digests, tags := map[string]string{}, []string{}
	for _, e := range before.Entries {
		digests[e.Service.Name] = e.Version.Digest
	}
	for _, service := range slices.Sorted(maps.Keys(images)) {
		image := images[service]
		err := w.insist(ctx, "the OCI registry to take an image", func() (err error) {
			digests[service], err = PushImage(ctx, w.Stack.Endpoints().OCI, w.Scenario.Application+"/"+service, image.Tag, image.Labels)
			return err
		})
		if err != nil {
			return client.VersionSet{}, err
		}
		if !slices.Contains(tags, image.Tag) {
			tags = append(tags, image.Tag)
		}
	}
	if err := between(); err != nil {
		return client.VersionSet{}, err
	}
	newest := 10
	if before.ID != "" {
		newest = 0 // all of them: images may be those of any set
	}
	var found client.VersionSet
	err := w.Await(ctx, "a version set of the images pushed as "+strings.Join(tags, ", "), func() (string, bool, error) {
		sets, err := w.API.VersionSets(ctx, w.Scenario.Application, newest)
		if err != nil {
			return "", false, err
		}
		if i := slices.IndexFunc(sets, func(set client.VersionSet) bool { return w.consists(set, digests) }); i >= 0 {
			found = sets[i]
			return "", true, nil
		}
		if versions := versionsOf(sets, digests); before.ID != "" && len(versions) == len(digests) {
			var chosen []client.ChosenVersion
			for _, service := range slices.Sorted(maps.Keys(versions)) {
				chosen = append(chosen, client.ChosenVersion{Service: service, Version: versions[service]})
			}
			found, err = w.API.CreateVersionSet(ctx, client.NewVersionSet{
				Application: w.Scenario.Application, From: before.ID, Versions: chosen, Reason: "images pushed as " + strings.Join(tags, ", "),
			})
			return "", err == nil, err
		}
		return fmt.Sprintf("%d version sets, none with all of them", len(sets)), false, nil
	})
	return found, err
}

// consists reports whether a set has an image of each service, and none but these.
func (w *World) consists(set client.VersionSet, digests map[string]string) bool {
	return len(set.Entries) == len(w.Scenario.Services) && !slices.ContainsFunc(set.Entries, func(e client.VersionSetEntry) bool {
		digest, known := digests[e.Service.Name]
		return known && digest != e.Version.Digest
	})
}

// versionsOf are the versions in sets that have digests, by service.
func versionsOf(sets []client.VersionSet, digests map[string]string) map[string]string {
	versions := map[string]string{}
	for _, set := range sets {
		for _, e := range set.Entries {
			if digests[e.Service.Name] == e.Version.Digest {
				versions[e.Service.Name] = e.Version.ID
			}
		}
	}
	return versions
}

// Await looks until look says that it is so. What look saw last is part of the error when it never is.
func (w *World) Await(ctx context.Context, what string, look func() (seen string, done bool, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, max(waitLimit, w.Patience))
	defer cancel()
	for {
		seen, done, err := look()
		if done && err == nil {
			return nil
		}
		if err != nil && !fault.Is(err, fault.Unavailable) && ctx.Err() == nil {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
		if sleep := clock.Sleep(ctx, w.Clock, 100*time.Millisecond); sleep != nil {
			if err != nil {
				seen = err.Error()
			}
			return fmt.Errorf("wait for %s: %w; last seen: %s", what, sleep, seen)
		}
	}
}
