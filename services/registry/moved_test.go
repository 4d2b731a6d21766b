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
	sourcesv1 "github.com/lockstep-cd/lockstep/proto/lockstep/sources/v1"
)

// point makes a tag stand for an index.
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

// TestATagThatGoesBackIsToldAgain: of a sender without identifiers A, B and A again are three events; that the tag went back
// is the registry's word and not the sender's, so that an old delivery that is replayed has no effect (D43).
func TestATagThatGoesBackIsToldAgain(t *testing.T) {
	t.Parallel()
	host := ociServer(t)
	h := hook(t, HookConfig{Source: "generic"}, Config{AllowNetworks: []string{host}})
	h.resolving(t)
	edge := host + "/shop/api:edge"
	a := push(t, edge)
	b := push(t, edge)
	tell := func(index v1.ImageIndex) string {
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
	tell(a)
	tell(b)
	tell(b)
	if got := told(t, h.pool); !slices.Equal(got, []string{asA, asB}) {
		t.Fatalf("told %q", got)
	}
	settled := func() bool { return count(t, h.pool, "hint") == 0 }
	// The tag is at B: whoever tells of A replays.
	if answer := tell(a); !strings.Contains(answer, `"resolving":1`) {
		t.Errorf("answered %s", answer)
	}
	eventually(t, "an answer of the registry", settled)
	if got := told(t, h.pool); len(got) != 2 {
		t.Fatalf("a replay was told: %q", got)
	}
	// There and back, twice.
	want := []string{asA, asB}
	for range 2 {
		point(t, edge, a)
		tell(a)
		want = append(want, asA)
		eventually(t, "the event of the tag's way back", func() bool { return slices.Equal(told(t, h.pool), want) })
		eventually(t, "an answer of the registry", settled)
		if answer := tell(a); strings.Contains(answer, "resolving") && len(told(t, h.pool)) != len(want) {
			t.Errorf("told again: %s, %q", answer, told(t, h.pool))
		}
		eventually(t, "an answer of the registry", settled)
		point(t, edge, b)
		tell(b)
		want = append(want, asB)
		eventually(t, "the event of the tag's way there", func() bool { return slices.Equal(told(t, h.pool), want) })
		eventually(t, "an answer of the registry", settled)
	}
	var ids int
	if err := h.pool.QueryRow(t.Context(), "SELECT count(DISTINCT event->>'id') FROM outbox").Scan(&ids); err != nil || ids != len(want) {
		t.Errorf("%d different events, %v; want %d", ids, err, len(want))
	}
}

// TestALookFindsATagThatWentBack: by looks alone, and of two sources of one image only one tells of it.
func TestALookFindsATagThatWentBack(t *testing.T) {
	t.Parallel()
	host := ociServer(t)
	edge := host + "/shop/api:edge"
	a := push(t, edge)
	o, _, pool := followed(t, Config{AllowNetworks: []string{host}})
	config := fmt.Sprintf(`{"image":%q,"selection":"mutable_tag","tag":"edge"}`, host+"/shop/api")
	o.has(sourceOf(4, 7, kinds.OCIImage, "%s", config), sourceOf(5, 7, kinds.OCIImage, "%s", config))
	eventually(t, "the sources", func() bool { return len(o.states(t, 7, 4, 5)) == 2 })
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
	if got, want := told(t, pool), []string{asA, asB, asA}; !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
}
