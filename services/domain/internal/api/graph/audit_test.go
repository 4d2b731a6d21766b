package graph_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// audited asks the audit: action, subject and place of each entry.
func (f *fixture) audited(filter string) []string {
	f.t.Helper()
	var data struct {
		Audit struct {
			TotalCount int
			Nodes      []struct {
				Journal, Action, PrincipalName string
				Subject                        *string
				Application, Environment       *struct{ Name string }
			}
		}
	}
	f.ask(ours, fmt.Sprintf(`{ audit(filter: {%s}, first: 200) { totalCount nodes { journal action subject principalName application { name } environment { name } } } }`, filter), nil).
		into(f.t, &data)
	if len(data.Audit.Nodes) != data.Audit.TotalCount {
		f.t.Errorf("%s: %d entries, and a total of %d", filter, len(data.Audit.Nodes), data.Audit.TotalCount)
	}
	all := make([]string, len(data.Audit.Nodes))
	for i, n := range data.Audit.Nodes {
		place := "-"
		if n.Application != nil {
			place = n.Application.Name
		}
		if n.Environment != nil {
			place += "/" + n.Environment.Name
		}
		all[i] = n.Journal + " " + n.Action + " " + place
	}
	return all
}

// TestTheAuditIsAskedInAnyCombination (D50).
func TestTheAuditIsAskedInAnyCombination(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.controls()
	everything := f.audited("")
	if len(everything) < 30 {
		t.Fatalf("found %d entries: %v", len(everything), everything)
	}
	for filter, want := range map[string]string{
		`action: "archiveApplication"`:                                          "change archiveApplication idle",
		`environment: "lab", action: "setEnvironmentApproval"`:                  "change setEnvironmentApproval -/lab, change setEnvironmentApproval -/lab",
		`application: "shop", action: "create"`:                                 "rollout create shop, rollout create shop",
		`application: "shop", environment: "production", action: "break_glass"`: "rollout break_glass shop, rollout break_glass shop",
		`application: "idle", environment: "production"`:                        "",
		`action: "createMember", until: "2001-01-01T00:00:00Z"`:                 "",
		`action: "createMember", since: "2001-01-01T00:00:00Z"`:                 "change createMember -",
		`principal: "member_1"`:                                                 "",
	} {
		if got := strings.Join(f.audited(filter), ", "); got != want {
			t.Errorf("%s: found %q; want %q", filter, got, want)
		}
	}
	// Two conditions are never weaker than one.
	for _, filter := range []string{
		`since: "` + time.Now().Add(-time.Hour).UTC().Format(time.RFC3339) + `"`, `application: "idle"`,
		`environment: "lab"`,
	} {
		if one, two := len(f.audited(filter)), len(f.audited(filter+`, action: "archiveEnvironment"`)); one == 0 || two > one {
			t.Errorf("%s: %d entries, and %d with another condition", filter, one, two)
		}
	}
	var data struct{ Audit struct{ TotalCount int } }
	f.ask(theirs, `{ audit { totalCount } }`, nil).into(t, &data)
	if data.Audit.TotalCount != 0 {
		t.Errorf("another organization reads %d entries", data.Audit.TotalCount)
	}
	f.as = core.RoleMaintainer.Permissions()
	if a := f.ask(ours, `{ audit { nodes { action } } }`, nil); len(a.Errors) == 0 || a.Errors[0].Extensions.Code != "DENIED" {
		t.Errorf("a maintainer reads the audit: %s", a.Data)
	}
	if a := f.ask(ours, `{ journalChain { block } }`, nil); len(a.Errors) == 0 || a.Errors[0].Extensions.Code != "DENIED" {
		t.Errorf("a maintainer checks the chain: %s", a.Data)
	}
}
