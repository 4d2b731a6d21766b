package registry

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	ociname "github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
)

// untag deletes a tag at its registry.
func untag(t *testing.T, reference string) {
	t.Helper()
	tag, err := ociname.NewTag(reference)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Delete(tag); err != nil {
		t.Fatal(err)
	}
}

// TestADeletionIsReportedOnceForEachTime: of a sender without identifiers and times a tag that was deleted, published again and deleted
// again is four events, each of them once. About what was reported before, the registry is queried.
func TestADeletionIsReportedOnceForEachTime(t *testing.T) {
	t.Parallel()
	host := ociServer(t)
	h := hook(t, HookConfig{Source: "artifactory", Host: host}, Config{AllowNetworks: []string{host}})
	h.resolving(t)
	reference := host + "/shop/api:1.4.0"
	index := push(t, reference)
	report := func(about string) string {
		t.Helper()
		header := plainJSON()
		header.Set("X-Jfrog-Event-Auth", hookSecret)
		body := fmt.Appendf(nil, `{"domain":"docker","event_type":%q,"data":{"repo_key":"local","image_name":"shop/api","tag":"1.4.0","sha256":%q}}`,
			about, strings.TrimPrefix(digestOf(t, index), "sha256:"))
		status, answer := h.post(t, hookPath(h.config, hookSecret), header, body)
		if status != http.StatusAccepted {
			t.Fatalf("answered %d %s", status, answer)
		}
		return answer
	}
	there := reference + "@" + digestOf(t, index)
	var want []string
	becomes := func(about, event string) {
		t.Helper()
		report(about)
		want = append(want, event)
		wait.For(t, about, func() bool { return slices.Equal(published(t, h.pool), want) && count(t, h.pool, "hint") == 0 })
		report(about) // a delivery that is sent again
		wait.For(t, "an answer of the registry", func() bool { return count(t, h.pool, "hint") == 0 })
		if got := published(t, h.pool); !slices.Equal(got, want) {
			t.Fatalf("published %q, want %q", got, want)
		}
	}
	for range 2 {
		becomes("pushed", there)
		untag(t, reference)
		becomes("deleted", there+" deleted")
		point(t, reference, index)
	}
	var ids int
	if err := h.pool.QueryRow(t.Context(), "SELECT count(DISTINCT event->>'id') FROM outbox").Scan(&ids); err != nil || ids != len(want) {
		t.Errorf("%d different events, %v; want %d", ids, err, len(want))
	}
}
