// Package journal shows the journal of a rollout to people: who did what to which part, when and why.
package journal

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/lockstep-cd/lockstep/pkg/text"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// Table writes the whole journal of a rollout.
func Table(w io.Writer, r client.Rollout) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TIME\tSUBJECT\tEVENT\tSTATE\tGATE\tBY\tREASON")
	names := subjects(r)
	for _, row := range r.Journal {
		cells := []string{
			row.CreatedAt.Local().Format("15:04:05.000"), names[row.Subject], Human(row.Event), states(row), dash(row.GateID),
			row.Who(), dash(row.Reason),
		}
		for i, cell := range cells {
			cells[i] = text.Line(cell) // a reason with a line feed in it is not two rows
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	return t.Flush()
}

// Line is one row in one line, without the time.
func Line(r client.Rollout, row client.Transition) string {
	parts := []string{subjects(r)[row.Subject] + ":", Human(row.Event)}
	if row.GateID != "" {
		parts = append(parts, row.GateID)
	}
	if row.FromState != row.ToState {
		parts = append(parts, "→ "+Human(row.ToState))
	}
	if row.Reason != "" {
		parts = append(parts, "("+row.Reason+")")
	}
	return strings.Join(parts, " ")
}

// Human is a name of the API in lower case and with spaces: IN_PROGRESS is "in progress".
func Human(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", " ") }

// subjects are the names of what a journal is about, by identifier.
func subjects(r client.Rollout) map[string]string {
	names := map[string]string{r.ID: "rollout"}
	for _, e := range r.Environments {
		names[e.ID] = e.Environment.Name
		for _, d := range e.Deployments {
			names[d.ID] = e.Environment.Name + "/" + d.Service.Name
		}
	}
	return names
}

func states(t client.Transition) string {
	if t.FromState == "" || t.FromState == t.ToState {
		return Human(t.ToState)
	}
	return Human(t.FromState) + " → " + Human(t.ToState)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
