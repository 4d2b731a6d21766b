package graph_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestAJournalNamesWhereAndWhat compares what each row says it is about with the rollout's own environments and deployments.
func TestAJournalNamesWhereAndWhat(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.story()
	type named struct{ Name string }
	var data struct {
		Rollout struct {
			Environments []struct {
				ID          string
				Environment named
				Deployments []struct {
					ID      string
					Service named
				}
			}
			Journal struct {
				Nodes []struct {
					Subject              string
					Environment, Service *named
				}
			}
		}
	}
	f.ask(ours, `{ rollout(id: "rollout_2") { environments { id environment { name } deployments { id service { name } } }
		journal(first: 500) { nodes { subject environment { name } service { name } } } } }`, nil).into(t, &data)
	want := map[string][2]string{"rollout_2": {}}
	for _, e := range data.Rollout.Environments {
		want[e.ID] = [2]string{e.Environment.Name}
		for _, d := range e.Deployments {
			want[d.ID] = [2]string{e.Environment.Name, d.Service.Name}
		}
	}
	got := map[string][2]string{}
	for _, row := range data.Rollout.Journal.Nodes {
		var names [2]string
		if row.Environment != nil {
			names[0] = row.Environment.Name
		}
		if row.Service != nil {
			names[1] = row.Service.Name
		}
		got[row.Subject] = names
	}
	if diff := cmp.Diff(want, got); diff != "" || len(got) < 3 {
		t.Errorf("environment and service of each subject (-want +got):\n%s", diff)
	}
}
