package control

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// LogLine is one line of an execution's log (D29): something that it printed, a Function that it had carried out, an event
// that it sent, the end of a generation, or its own.
type LogLine struct {
	Seq int64
	// Generation is the one that recorded it. Branch is the branch, -1 for the end of the execution.
	Generation, Branch int
	Kind               history.Kind
	// Name is the Function, or the type of the event, or what the next generation begins with.
	Name string
	// Text is what was printed, or of a call that failed, why; Code is the failure's.
	Text, Code string
	// Truncated and Redacted are set if Text is not all there was.
	Truncated, Redacted bool
	At                  time.Time
}

// maxLogText is where the text of a line is cut, in bytes.
const maxLogText = 8 << 10

// Logs answers a page of an execution's log.
func (o *Operator) Logs(ctx context.Context, organization int64, workflow string, q LogQuery) ([]LogLine, error) {
	e, err := o.find(ctx, organization, workflow)
	if err != nil {
		return nil, err
	}
	q.Execution = e.ID
	entries, err := o.control.Logs(ctx, q)
	if err != nil {
		return nil, err
	}
	lines := make([]LogLine, len(entries))
	for i, entry := range entries {
		lines[i] = logLine(entry)
	}
	return lines, nil
}

func logLine(e history.Entry) LogLine {
	line := LogLine{Seq: e.Seq, Generation: e.Generation, Branch: e.Op.Branch, Kind: e.Kind, Name: e.Name, At: e.At}
	switch {
	case e.Error != nil:
		line.Text, line.Code = e.Error.Message, e.Error.Code
	case e.Kind == history.KindPrint:
		_ = json.Unmarshal(e.Value, &line.Text) // what is printed is recorded as a string
	case e.Kind == history.KindEnding:
		var how struct{ Error string }
		_ = json.Unmarshal(e.Value, &how) // the engine's own; a member that is missing says nothing
		line.Text = how.Error
	case e.Kind == history.KindDeferred:
		var outcome struct {
			Error struct{ Code, Message string }
		}
		_ = json.Unmarshal(e.Value, &outcome)
		line.Text, line.Code = outcome.Error.Message, outcome.Error.Code
	case e.Op.Branch < 0:
		var end struct{ Error, Reason string }
		_ = json.Unmarshal(e.Value, &end) // the engine's own; a member that is missing says nothing
		line.Text = end.Error + end.Reason
	}
	line.Text, line.Redacted = history.Redact(line.Text)
	if len(line.Text) > maxLogText {
		line.Text, line.Truncated = strings.ToValidUTF8(line.Text[:maxLogText], "")+history.Cut, true
	}
	line.Truncated = line.Truncated || strings.HasSuffix(line.Text, history.Cut)
	return line
}
