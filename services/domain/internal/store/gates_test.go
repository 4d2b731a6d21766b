package store

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// The requirements of a rule are read as they were pinned, also from rows of a release that kept the first one in columns of its own (D46).
func TestRequirementsOfARule(t *testing.T) {
	t.Parallel()
	want := core.GateRule{Group: "platform", Quorum: 2, Also: []core.Requirement{{Group: "security", Quorum: 1}}}
	for name, tt := range map[string]struct {
		rule core.GateRule
		also string
		want core.GateRule
	}{
		"one":                {core.GateRule{Group: "platform", Quorum: 2}, ``, core.GateRule{Group: "platform", Quorum: 2}},
		"of another release": {core.GateRule{Group: "platform", Quorum: 2}, `[{"group": "security", "quorum": 1}]`, want},
		"several": {
			core.GateRule{Group: severalGroups, Quorum: 2}, `[{"group": "platform", "quorum": 2}, {"group": "security", "quorum": 1}]`, want,
		},
	} {
		if err := require(&tt.rule, json.RawMessage(tt.also)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(tt.want, tt.rule); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if len(core.CheckName("/name", severalGroups)) == 0 {
		t.Errorf("a group may be named %q, so that its members could approve at a replica of an earlier release", severalGroups)
	}
}
