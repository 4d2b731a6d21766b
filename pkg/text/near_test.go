package text_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/text"
)

func TestNearest(t *testing.T) {
	t.Parallel()
	names := []string{"zone", "cluster_agent_id", "namespaces", "namespace"}
	if diff := cmp.Diff([]string{"namespace", "namespaces", "zone", "cluster_agent_id"}, text.Nearest("namespcae", names)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if names[0] != "zone" {
		t.Errorf("the names given are in another order: %v", names)
	}
}

func TestDistance(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"kitten", "sitting", 3}, {"same", "same", 0}, {"ab", "ba", 2}} {
		if got := text.Distance(tt.a, tt.b); got != tt.want {
			t.Errorf("%q to %q: %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}
