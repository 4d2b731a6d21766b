package registry

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	ociname "github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	kinds "github.com/lockstep-cd/lockstep/pkg/source"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
	sourcesv1 "github.com/lockstep-cd/lockstep/proto/lockstep/sources/v1"
)

// point makes a tag point at an index.
func point(t *testing.T, reference string, index v1.ImageIndex) {
	t.Helper()
	tag, err := ociname.NewTag(reference)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(tag, index); err != nil {
		t.Fatal(err)
	}
}

// TestATagThatMovesBackIsReported: for a sender without identifiers, A, B and A again are three events. The registry confirms that the tag
// moved back; an old delivery that is replayed has no effect (D43).
func TestATagThatMovesBackIsReported(t *testing.T) {
	t.Parallel()
	host := ociServer(t)
	h := hook(t, HookConfig{Source: "generic"}, Config{AllowNetworks: []string{host}})
	h.resolving(t)
	edge := host + "/shop/api:edge"
	a := push(t, edge)
	b := push(t, edge)
	notify := func(index v1.ImageIndex) string {
		t.Helper()
		header := plainJSON()
		header.Set("Authorization", "Bearer "+hookSecret)
		body := fmt.Appendf(nil, `{"image":%q,"tag":"edge","digest":%q}`, host+"/shop/api", digestOf(t, index))
		status, answer := h.post(t, hookPath(h.config, hookSecret), header, body)
		if status != http.StatusAccepted {
			t.Fatalf("answered %d %s", status, answer)
		}
		return answer
	}
	asA, asB := edge+"@"+digestOf(t, a), edge+"@"+digestOf(t, b)
	notify(a)
	notify(b)
	notify(b)
	if got := published(t, h.pool); !slices.Equal(got, []string{asA, asB}) {
		t.Fatalf("published %q", got)
	}
	settled := func() bool { return count(t, h.pool, "hint") == 0 }
	// The tag is at B: a report of A is a replay.
	if answer := notify(a); !strings.Contains(answer, `"resolving":1`) {
		t.Errorf("answered %s", answer)
	}
	wait.For(t, "an answer of the registry", settled)
	if got := published(t, h.pool); len(got) != 2 {
		t.Fatalf("a replay was published: %q", got)
	}
	// There and back, twice.
	want := []string{asA, asB}
	for range 2 {
		point(t, edge, a)
		notify(a)
		want = append(want, asA)
		wait.For(t, "the event of the tag moving back", func() bool { return slices.Equal(published(t, h.pool), want) })
		wait.For(t, "an answer of the registry", settled)
		if answer := notify(a); strings.Contains(answer, "resolving") && len(published(t, h.pool)) != len(want) {
			t.Errorf("reported again: %s, %q", answer, published(t, h.pool))
		}
		wait.For(t, "an answer of the registry", settled)
		point(t, edge, b)
		notify(b)
		want = append(want, asB)
		wait.For(t, "the event of the tag moving again", func() bool { return slices.Equal(published(t, h.pool), want) })
		wait.For(t, "an answer of the registry", settled)
	}
	var ids int
	if err := h.pool.QueryRow(t.Context(), "SELECT count(DISTINCT event->>'id') FROM outbox").Scan(&ids); err != nil || ids != len(want) {
		t.Errorf("%d different events, %v; want %d", ids, err, len(want))
	}
}

// TestAPollFindsATagThatMovedBack: with polls only; of two sources of one image, each publishes the first that it finds, and one publishes
// what follows.
func TestAPollFindsATagThatMovedBack(t *testing.T) {
	t.Parallel()
	host := ociServer(t)
	edge := host + "/shop/api:edge"
	a := push(t, edge)
	o, _, pool := followed(t, Config{AllowNetworks: []string{host}})
	config := fmt.Sprintf(`{"image":%q,"selection":"mutable_tag","tag":"edge"}`, host+"/shop/api")
	o.has(sourceOf(4, 7, kinds.OCIImage, "%s", config), sourceOf(5, 7, kinds.OCIImage, "%s", config))
	wait.For(t, "the sources", func() bool { return len(o.states(t, 7, 4, 5)) == 2 })
	look := func() {
		t.Helper()
		for _, id := range []int64{4, 5, 4} {
			answer, err := ask(t, o, bus.SourcesLook, &sourcesv1.LookRequest{OrganizationId: 7, Id: id}, &sourcesv1.LookResponse{})
			if err != nil || answer.GetProblem() != "" {
				t.Fatal(answer, err)
			}
		}
	}
	look()
	b := push(t, edge)
	look()
	point(t, edge, a)
	look()
	asA, asB := edge+"@"+digestOf(t, a), edge+"@"+digestOf(t, b)
	if got, want := published(t, pool), []string{asA, asA, asB, asA}; !slices.Equal(got, want) {
		t.Errorf("published %q, want %q", got, want)
	}
}
