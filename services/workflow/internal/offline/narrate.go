package offline

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// Narrative is what a run has recorded and what has left it.
type Narrative struct {
	Ref     string
	Entries []history.Entry
	// Effects are "function operation" for each call that had an effect, Sent the events that have left.
	Effects []string
	Sent    []history.Emit
}

// String is a text that is the same for each run that led to the same: in the order of branches, since branches race, and without what is
// made by chance.
func (n Narrative) String() string {
	names, channels := []string{n.Ref, "REF"}, 0
	for _, e := range n.Entries {
		var child history.Child
		switch {
		case e.Kind == history.KindChannel:
			names = append(names, strings.Trim(string(e.Value), `"`), fmt.Sprintf("CHANNEL-%d", channels))
			channels++
		case e.Kind == history.KindStart && json.Unmarshal(e.Value, &child) == nil:
			names = append(names, child.Workflow, fmt.Sprintf("CHILD-%s", e.Op))
		}
	}
	known := strings.NewReplacer(names...)
	entries := slices.Clone(n.Entries)
	slices.SortStableFunc(entries, func(a, b history.Entry) int {
		if a.Generation != b.Generation {
			return a.Generation - b.Generation
		}
		if a.Op.Branch < 0 || b.Op.Branch < 0 {
			return b.Op.Branch - a.Op.Branch
		}
		return (a.Op.Branch-b.Op.Branch)*1000 + a.Op.Index - b.Op.Index
	})
	var out strings.Builder
	for _, e := range entries {
		value := string(e.Value)
		switch {
		case e.Error != nil:
			value = "error " + e.Error.Error()
		case e.Kind == history.KindUUID:
			value = "(unique)"
		case e.Kind == history.KindWait && strings.Contains(e.Name, history.TypeCompleted):
			value = endOfChild(e.Value)
		}
		op := e.Op.String()
		if e.Generation > 1 {
			op = fmt.Sprintf("%d:%s", e.Generation, op)
		}
		fmt.Fprintf(&out, "%s %s %s %s\n", op, e.Kind, e.Name, known.Replace(value))
	}
	for _, effect := range slices.Sorted(slices.Values(n.Effects)) {
		fmt.Fprintf(&out, "effect %s\n", effect)
	}
	for _, line := range n.sent() {
		if !strings.Contains(line, `"child:`) { // which race
			fmt.Fprintln(&out, known.Replace(line))
		}
	}
	return out.String()
}

// endOfChild is what a parent makes of the end of a child, whether it was an event or was looked up.
func endOfChild(value json.RawMessage) string {
	var end struct {
		Type string
		Data struct {
			Error, Reason string
			Result        json.RawMessage
		}
	}
	_ = json.Unmarshal(value, &end) // null for one that did not end in time
	return fmt.Sprintf("(%s %s %s%s)", end.Type, end.Data.Result, end.Data.Error, end.Data.Reason)
}

// sent are the events that left, in the order of branches; the engine's own come last.
func (n Narrative) sent() []string {
	type line struct {
		op   history.OpRef
		text string
	}
	lines := make([]line, 0, len(n.Sent))
	for _, e := range n.Sent {
		l := line{op: history.OpRef{Branch: math.MaxInt32}, text: "sent " + e.Type + " " + string(e.Data)}
		_, activity, _ := strings.Cut(e.ID, "/")
		_, _ = fmt.Sscanf(activity, "%d.%d", &l.op.Branch, &l.op.Index) // the engine's own have words there
		lines = append(lines, l)
	}
	slices.SortStableFunc(lines, func(a, b line) int {
		if a.op.Branch != b.op.Branch {
			return a.op.Branch - b.op.Branch
		}
		return a.op.Index - b.op.Index
	})
	texts := make([]string, len(lines))
	for i, l := range lines {
		texts[i] = l.text
	}
	return texts
}

// effectOf names an effect by the Function and the key of its call.
func effectOf(function, key string) string {
	handle, op, _ := strings.Cut(key, "/")
	if _, generation, _ := strings.Cut(handle, "~"); generation != "" {
		op = generation + ":" + op
	}
	return function + " " + op
}
