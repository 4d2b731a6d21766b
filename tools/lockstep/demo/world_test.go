package demo

import (
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Creating something again after a lost answer succeeds; creating what existed beforehand is an error.
func TestCreateTakesALostAnswerForOne(t *testing.T) {
	t.Parallel()
	w := &World{Clock: clock.System()}
	exists, away := fault.New(fault.Conflict, "it exists already"), fault.New(fault.Unavailable, "killed")
	for _, tt := range []struct {
		name    string
		answers []error
		want    error
	}{
		{"at once", []error{nil}, nil},
		{"after a while", []error{away, away, nil}, nil},
		{"a lost answer", []error{away, exists}, nil},
		{"there before", []error{exists}, exists},
	} {
		n := 0
		err := w.create(t.Context(), "a thing", func() error {
			n++
			return tt.answers[n-1]
		})
		if fault.ClassOf(err) != fault.ClassOf(tt.want) || n != len(tt.answers) {
			t.Errorf("%s: got %v after %d tries, want %v after %d", tt.name, err, n, tt.want, len(tt.answers))
		}
	}
}
