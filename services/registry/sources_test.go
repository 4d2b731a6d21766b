package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/proto"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/config"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	kinds "github.com/lockstep-cd/lockstep/pkg/source"
	"github.com/lockstep-cd/lockstep/pkg/testkit/bustest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
	sourcesv1 "github.com/lockstep-cd/lockstep/proto/lockstep/sources/v1"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// owner plays the domain: it has sources, and sends requests about them.
type owner struct {
	conn *bus.Conn

	mu      sync.Mutex
	sources []*sourcesv1.Source
	// credentials are those for registries; a nil map is that of an older release, which has none.
	credentials map[int64]*sourcesv1.Credential
	pulls       int
	broken      bool
}

// followed runs a registry service that follows a domain.
func followed(t *testing.T, c Config) (*owner, *sourceSet, *pgxpool.Pool) {
	t.Helper()
	server := bustest.Server(t)
	o := &owner{conn: server.Connect(t, bus.UserDomain)}
	if err := o.conn.Answer(t.Context(), bus.SourcesPull, o.pull); err != nil {
		t.Fatal(err)
	}
	_, pool, in := serveConfig(t, config.WithDefaults(c))
	conn := server.Connect(t, bus.UserRegistry)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var group sync.WaitGroup
	group.Go(func() {
		if err := in.sources.follow(ctx, conn); err != nil {
			t.Error(err)
		}
	})
	group.Go(func() { _ = in.poll(ctx, func() {}) })
	t.Cleanup(func() { cancel(); group.Wait() })
	return o, in.sources, pool
}

// pull returns two sources per page.
func (o *owner) pull(_ context.Context, raw []byte) ([]byte, error) {
	var request sourcesv1.PullRequest
	if err := proto.Unmarshal(raw, &request); err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !request.GetCredentials() {
		o.pulls++
	}
	if o.broken {
		return nil, fault.New(fault.Unavailable, "the domain's database is away")
	}
	answer := &sourcesv1.PullResponse{}
	if request.GetCredentials() && o.credentials != nil {
		answer.Credentials = &sourcesv1.Credentials{}
		for _, id := range slices.Sorted(maps.Keys(o.credentials)) { // one per page
			if id > request.GetAfter() && len(answer.GetCredentials().GetCredentials()) == 0 {
				answer.Credentials.Credentials = append(answer.GetCredentials().GetCredentials(), o.credentials[id])
			}
		}
		return proto.Marshal(answer)
	}
	for _, s := range o.sources {
		if s.GetId() > request.GetAfter() && len(answer.GetSources()) < 2 {
			answer.Sources = append(answer.Sources, s)
		}
	}
	return proto.Marshal(answer)
}

// has changes the domain's sources, and reports it.
func (o *owner) has(sources ...*sourcesv1.Source) {
	o.mu.Lock()
	o.sources = sources
	o.mu.Unlock()
	o.conn.Hint(bus.SourcesChanged, nil)
}

func sourceOf(id, organization int64, ref, format string, args ...any) *sourcesv1.Source {
	return &sourcesv1.Source{Id: id, OrganizationId: organization, SourceRef: ref, SourceConfig: fmt.Sprintf(format, args...)}
}

func ask[A proto.Message](t *testing.T, o *owner, subject string, request proto.Message, answer A) (A, error) {
	t.Helper()
	raw, err := proto.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	got, err := o.conn.Ask(t.Context(), subject, raw)
	if err != nil {
		return answer, err
	}
	return answer, proto.Unmarshal(got, answer)
}

// states returns the registry service's states of an organization's sources, by id.
func (o *owner) states(t *testing.T, organization int64, ids ...int64) map[int64]*sourcesv1.State {
	t.Helper()
	answer, err := ask(t, o, bus.SourcesStates, &sourcesv1.StatesRequest{OrganizationId: organization, Ids: ids}, &sourcesv1.StatesResponse{})
	if fault.Is(err, fault.Unavailable) { // it does not answer yet
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	all := map[int64]*sourcesv1.State{}
	for _, s := range answer.GetStates() {
		all[s.GetId()] = s
	}
	return all
}

// TestASourceIsPolledAndPublished: a source that is configured in the domain is polled, its newest artifact is published once, to its own
// organization, and its state is shown (E62).
func TestASourceIsPolledAndPublished(t *testing.T) {
	t.Parallel()
	host := ociServer(t)
	image := host + "/shop/api"
	digest := digestOf(t, push(t, image+":1.0.0"))
	push(t, image+":0.9.0")
	o, _, pool := followed(t, Config{AllowNetworks: []string{host}})
	polled := fmt.Sprintf(`{"image":%q,"selection":"semver","poll":true,"poll_interval_seconds":30}`, image)
	o.has(
		sourceOf(1, 7, kinds.OCIImage, "%s", polled),
		sourceOf(2, 7, kinds.OCIImage, `{"image":%q}`, image),
		sourceOf(3, 8, kinds.OCIImage, `{"image":%q,"selection":"mutable_tag","tag":"none","poll":true}`, image),
		sourceOf(5, 8, "helm-chart@9", `{"a":1}`),
	)
	wait.For(t, "a look at every source that is polled", func() bool {
		return o.states(t, 7, 1)[1].GetLookedAt() != nil && o.states(t, 8, 3)[3].GetLookedAt() != nil
	})
	if got, want := published(t, pool), []string{image + ":1.0.0@" + digest}; !slices.Equal(got, want) {
		t.Errorf("published %q, want %q", got, want)
	}
	var organization int64
	if err := pool.QueryRow(t.Context(), "SELECT (event->>'organizationid')::bigint FROM outbox").Scan(&organization); err != nil ||
		organization != 7 {
		t.Errorf("published to organization %d, %v; want the source's own", organization, err)
	}
	good, quiet, bad, odd := o.states(t, 7, 1, 2)[1], o.states(t, 7, 1, 2)[2], o.states(t, 8, 3, 5)[3], o.states(t, 8, 3, 5)[5]
	if good.GetLastArtifact() != image+":1.0.0@"+digest || good.GetNextAt() == nil || good.GetLastError() != "" ||
		good.GetLastArtifactAt() == nil {
		t.Errorf("the source that is polled: %v", good)
	}
	if quiet.GetPolled() || quiet.GetNextAt() != nil || odd.GetPolled() {
		t.Errorf("sources that are not polled: %v, %v", quiet, odd)
	}
	if bad.GetFailures() == 0 || bad.GetLastError() == "" || bad.GetNextAt() == nil {
		t.Errorf("the source without a tag: %v", bad)
	}
	if got := o.states(t, 8, 1, 2); len(got) != 0 {
		t.Errorf("another organization's sources show: %v", got)
	}

	// A second source of the same image in the same organization finds the same artifact. The domain gave the event to the first alone, so it
	// is published once more, and later polls of both publish nothing.
	o.has(sourceOf(1, 7, kinds.OCIImage, "%s", polled), sourceOf(6, 7, kinds.OCIImage, "%s", polled))
	wait.For(t, "a look at the second", func() bool { return o.states(t, 7, 6)[6].GetLastArtifact() != "" })
	twice := []string{image + ":1.0.0@" + digest, image + ":1.0.0@" + digest}
	look := func(id int64) {
		t.Helper()
		if _, err := ask(t, o, bus.SourcesLook, &sourcesv1.LookRequest{OrganizationId: 7, Id: id}, &sourcesv1.LookResponse{}); err != nil {
			t.Fatal(err)
		}
	}
	look(1)
	look(6)
	if got := published(t, pool); !slices.Equal(got, twice) {
		t.Errorf("published %q, want %q", got, twice)
	}
	// So is what a source finds first after it was disabled, D57: what was published meanwhile may have reached it when it took nothing.
	o.has(sourceOf(1, 7, kinds.OCIImage, "%s", polled))
	wait.For(t, "the end of the disabled source", func() bool { return len(o.states(t, 7, 6)) == 0 })
	o.has(sourceOf(1, 7, kinds.OCIImage, "%s", polled), sourceOf(6, 7, kinds.OCIImage, "%s", polled))
	wait.For(t, "a look at the enabled source", func() bool { return o.states(t, 7, 6)[6].GetLastArtifact() != "" })
	if got := published(t, pool); !slices.Equal(got, append(twice, twice[0])) {
		t.Errorf("published %q, want it once more", got)
	}
	wait.For(t, "the end of those that are gone", func() bool { return len(o.states(t, 8, 3, 5)) == 0 })
}

func TestPollsOnDemand(t *testing.T) {
	t.Parallel()
	host := ociServer(t)
	image := host + "/shop/api"
	first := digestOf(t, push(t, image+":edge"))
	o, set, pool := followed(t, Config{AllowNetworks: []string{host}})
	config := fmt.Sprintf(`{"image":%q,"selection":"mutable_tag","tag":"edge"}`, image)
	o.has(sourceOf(4, 7, kinds.OCIImage, "%s", config))
	wait.For(t, "the source", func() bool { return len(o.states(t, 7, 4)) == 1 })
	look := func(request *sourcesv1.LookRequest) (*sourcesv1.LookResponse, error) {
		return ask(t, o, bus.SourcesLook, request, &sourcesv1.LookResponse{})
	}
	for range 2 {
		if got, err := look(&sourcesv1.LookRequest{OrganizationId: 7, Id: 4}); err != nil || got.GetArtifact() != image+":edge@"+first ||
			got.GetProblem() != "" {
			t.Errorf("a look: %v, %v", got, err)
		}
	}
	second := digestOf(t, push(t, image+":edge"))
	if got, err := look(&sourcesv1.LookRequest{OrganizationId: 7, Id: 4}); err != nil || got.GetArtifact() != image+":edge@"+second {
		t.Errorf("a look after a push: %v, %v", got, err)
	}
	if got, want := published(t, pool), []string{image + ":edge@" + first, image + ":edge@" + second}; !slices.Equal(got, want) {
		t.Errorf("published %q, want %q", got, want)
	}
	for _, request := range []*sourcesv1.LookRequest{{OrganizationId: 8, Id: 4}, {OrganizationId: 7, Id: 5}} {
		if _, err := look(request); !fault.Is(err, fault.NotFound) {
			t.Errorf("%v: %v", request, err)
		}
	}
	// A try stores nothing, and reaches no address that is not allowed (D41).
	tried := func(format string, args ...any) *sourcesv1.LookRequest {
		return &sourcesv1.LookRequest{OrganizationId: 7, Source: sourceOf(0, 0, kinds.OCIImage, format, args...)}
	}
	if got, err := look(tried(`{"image":%q,"selection":"lexical"}`, image)); err != nil || got.GetArtifact() != image+":edge@"+second {
		t.Errorf("a try: %v, %v", got, err)
	}
	for _, private := range []string{"169.254.169.254/a/b", "localhost:1/a/b", "[::1]:5000/a/b", "10.0.0.1/a/b"} {
		if got, err := look(tried(`{"image":%q,"selection":"lexical"}`, private)); err != nil || got.GetProblem() == "" {
			t.Errorf("a try of %s: %v, %v", private, got, err)
		}
	}
	if got, err := look(&sourcesv1.LookRequest{
		OrganizationId: 7,
		Source:         sourceOf(0, 0, kinds.Git, `{"repository":"http://127.0.0.1:1/x","branch":"main"}`),
	}); err != nil || got.GetProblem() == "" {
		t.Errorf("a try of a private repository: %v, %v", got, err)
	}
	if n := len(published(t, pool)); n != 2 {
		t.Errorf("published %d events, want 2", n)
	}
	// An outcome for an older configuration is not published: claim, change, then save.
	ctx := t.Context()
	taken, err := set.store.TakeSource(ctx, 7, 4, set.clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	o.has(sourceOf(4, 7, kinds.OCIImage, `{"image":%q,"selection":"mutable_tag","tag":"other"}`, image))
	wait.For(t, "the change", func() bool {
		now, err := set.store.TakeSource(ctx, 7, 4, set.clock.Now())
		return err == nil && now.Revision != taken.Revision
	})
	push(t, image+":edge")
	outcome, err := set.poller.Try(ctx, taken)
	if err != nil || outcome.Artifact == nil {
		t.Fatal(outcome, err)
	}
	if err := set.store.SaveOutcome(ctx, taken, outcome); err != nil || len(published(t, pool)) != 2 {
		t.Errorf("%v; published %q", err, published(t, pool))
	}
}

// TestSourcesSurviveAnOutageOfTheDomain: the pulled sources stay; bad requests change nothing.
func TestSourcesSurviveAnOutageOfTheDomain(t *testing.T) {
	t.Parallel()
	o, set, _ := followed(t, Config{})
	o.has(sourceOf(1, 7, kinds.OCIImage, `{"image":"r.example.com/a"}`), sourceOf(2, 7, kinds.OCIImage, `{"image":"r.example.com/b"}`),
		sourceOf(3, 7, kinds.OCIImage, `{"image":"r.example.com/c"}`))
	wait.For(t, "three sources", func() bool { return len(o.states(t, 7, 1, 2, 3)) == 3 })
	o.mu.Lock()
	o.broken, o.sources = true, nil
	o.mu.Unlock()
	if err := set.pull(t.Context(), bustest.Server(t).Connect(t, bus.UserRegistry)); !fault.Is(err, fault.Unavailable) {
		t.Errorf("nobody answers: %v", err)
	}
	if got := o.states(t, 7, 1, 2, 3); len(got) != 3 {
		t.Errorf("%d sources are left", len(got))
	}
	for name, raw := range map[string][]byte{"no message": []byte("{"), "no ids": {}} {
		if _, err := o.conn.Ask(t.Context(), bus.SourcesStates, raw); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNudge: a forge's report about a repository makes its sources due at once.
func TestNudge(t *testing.T) {
	t.Parallel()
	o, set, _ := followed(t, Config{})
	o.has(sourceOf(1, 7, kinds.Git, `{"repository":"http://127.0.0.1:1/shop/config.git","branch":"main","poll_interval_seconds":86400}`))
	looked := func() string { raw, _ := json.Marshal(o.states(t, 7, 1)[1].GetLookedAt()); return string(raw) }
	wait.For(t, "the first look", func() bool { return looked() != "null" })
	before := looked()
	n, err := set.store.Nudge(t.Context(), kinds.Git, []string{kinds.RepositoryName("http://127.0.0.1:1/shop/config")}, set.clock.Now())
	if err != nil || n != 1 {
		t.Fatalf("nudged %d, %v", n, err)
	}
	wait.For(t, "the second look", func() bool { return looked() != before })
	// Through a forge's webhook, which only causes a poll.
	hook := core.Hook{Name: "forge"}
	before = looked()
	hookIntake := core.NewHookIntake(core.NewIntake(nil, nil, naming(), set.clock), kept{}, set)
	push := core.Notification{Repository: "http://127.0.0.1:1/shop/config", Names: core.Names{Repository: "repository.clone_url"}}
	if receipt, err := hookIntake.Accept(t.Context(), hook, []core.Notification{push}, nil); err != nil || receipt.Resolving != 1 {
		t.Fatalf("a push: %+v, %v", receipt, err)
	}
	wait.For(t, "the third look", func() bool { return looked() != before })
	push.Repository = "git@example.com:shop"
	if receipt, err := hookIntake.Accept(t.Context(), hook, []core.Notification{push}, nil); err != nil || len(receipt.Refused) != 1 ||
		receipt.Refused[0].Fields[0].Name != "repository.clone_url" {
		t.Errorf("no repository: %+v, %v", receipt, err)
	}
	if n, err := set.store.Nudge(t.Context(), kinds.Git, []string{"127.0.0.1:1/shop/other"}, set.clock.Now()); n != 0 || err != nil {
		t.Errorf("nudged %d, %v", n, err)
	}
}

// kept accepts what hooks report.
type kept struct{}

func (kept) Take(context.Context, string, []core.Artifact, []core.Hint, []core.Refusal) error {
	return nil
}

func (kept) Superseded(context.Context, []core.Artifact) ([]string, error) { return nil, nil }
