package local

import "testing"

func TestProblemsAreCounted(t *testing.T) {
	t.Parallel()
	for count, want := range map[int]string{1: "1 problem found", 2: "2 problems found"} {
		if got := (unwellError{count}).Error(); got != want {
			t.Errorf("%d: got %q, want %q", count, got, want)
		}
	}
}
