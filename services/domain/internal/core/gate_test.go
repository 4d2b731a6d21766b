package core_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// D46: merging rules can only make them stricter, whichever of them comes first.
func TestTheStricterRuleSatisfiesBoth(t *testing.T) {
	t.Parallel()
	rejects, approves := core.ExpiryRejects, core.ExpiryApproves
	tests := []struct {
		name       string
		a, b, want core.GateRule
	}{
		{
			"quorum and requester",
			core.GateRule{Quorum: 1, RequesterMayApprove: true, OnExpiry: rejects},
			core.GateRule{Quorum: 3, OnExpiry: rejects},
			core.GateRule{Quorum: 3, OnExpiry: rejects},
		},
		{
			"a group",
			core.GateRule{Quorum: 1, OnExpiry: rejects},
			core.GateRule{Group: "qa", OnExpiry: rejects},
			core.GateRule{Quorum: 1, Group: "qa", OnExpiry: rejects, Also: []core.Requirement{{Quorum: 1}}},
		},
		{
			"two groups both have to agree, and one person of each counts",
			core.GateRule{Quorum: 2, Group: "qa", OnExpiry: rejects},
			core.GateRule{Quorum: 1, Group: "platform", OnExpiry: rejects},
			core.GateRule{Quorum: 1, Group: "platform", OnExpiry: rejects, Also: []core.Requirement{{Group: "qa", Quorum: 2}}},
		},
		{
			"the same group takes the larger number",
			core.GateRule{Quorum: 2, Group: "qa", OnExpiry: rejects},
			core.GateRule{Quorum: 1, Group: "qa", OnExpiry: rejects},
			core.GateRule{Quorum: 2, Group: "qa", OnExpiry: rejects},
		},
		{
			"more people than the group's quorum",
			core.GateRule{Quorum: 3, OnExpiry: rejects},
			core.GateRule{Quorum: 1, Group: "qa", OnExpiry: rejects},
			core.GateRule{Quorum: 3, Group: "qa", OnExpiry: rejects, Also: []core.Requirement{{Quorum: 3}}},
		},
		{
			"never approved where one rejects",
			core.GateRule{ExpiresAfter: time.Minute, OnExpiry: approves},
			core.GateRule{ExpiresAfter: time.Hour, OnExpiry: rejects},
			core.GateRule{ExpiresAfter: time.Minute, OnExpiry: rejects},
		},
		{
			"approved by time no sooner than both",
			core.GateRule{ExpiresAfter: time.Minute, OnExpiry: approves},
			core.GateRule{ExpiresAfter: time.Hour, OnExpiry: approves},
			core.GateRule{ExpiresAfter: time.Hour, OnExpiry: approves},
		},
		{
			"approved by time, never",
			core.GateRule{ExpiresAfter: time.Minute, OnExpiry: approves},
			core.GateRule{OnExpiry: approves},
			core.GateRule{OnExpiry: approves},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, got := range []core.GateRule{tt.a.Stricter(tt.b), tt.b.Stricter(tt.a)} {
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}
