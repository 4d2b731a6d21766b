package id_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/id"
)

func TestNewIsAVersion7UUIDThatSortsByTime(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	at := time.UnixMilli(1_700_000_000_000)
	earlier, later := id.New(at), id.New(at.Add(time.Millisecond))
	for _, u := range []string{earlier, later} {
		if !form.MatchString(u) {
			t.Errorf("%q is not a version 7 UUID", u)
		}
	}
	if earlier >= later {
		t.Errorf("%q, made a millisecond earlier, sorts after %q", earlier, later)
	}
	if one, other := id.New(at), id.New(at); one == other {
		t.Error("two identifiers of one instant are equal")
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, in string
		want     int64
		wantErr  bool
	}{
		{name: "typed", in: "rollout_12", want: 12},
		{name: "bare number", in: "12", want: 12},
		{name: "another kind", in: "service_12", wantErr: true},
		{name: "zero", in: "rollout_0", wantErr: true},
		{name: "negative", in: "-3", wantErr: true},
		{name: "signed", in: "rollout_+3", wantErr: true},
		{name: "empty", in: "", wantErr: true},
		{name: "no number", in: "rollout_", wantErr: true},
		{name: "too large", in: "9223372036854775808", wantErr: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := id.Parse("rollout", tt.in)
			if got != tt.want || (err != nil) != tt.wantErr {
				t.Errorf("Parse(%q) = %d, %v; want %d, error %t", tt.in, got, err, tt.want, tt.wantErr)
			}
		})
	}
}

func TestSplitUndoesFormat(t *testing.T) {
	t.Parallel()
	kind, n, err := id.Split(id.Format("rollout_environment", 7))
	if kind != "rollout_environment" || n != 7 || err != nil {
		t.Errorf("Split = %q, %d, %v", kind, n, err)
	}
	if _, _, err := id.Split("12"); err == nil {
		t.Error("Split took an identifier without a kind")
	}
}
