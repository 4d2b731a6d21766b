package core

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"time"
)

// LogLine is one line of an execution's log (D29): something that it printed, a Function that it had carried out, an event
// that it sent, the end of a generation, or its own.
type LogLine struct {
	Seq int64
	// Generation is the one that recorded it. Branch is the branch, -1 for the end of the execution.
	Generation, Branch int
	Kind               Kind
	// Name is the Function, or the type of the event, or what the next generation begins with.
	Name string
	// Text is what was printed, or of a call that failed, why; Code is the failure's.
	Text, Code string
	// Truncated and Redacted say that Text is not all there was.
	Truncated, Redacted bool
	At                  time.Time
}

// maxLogText is where the text of a line is cut, in bytes.
const maxLogText = 8 << 10

// Cut marks where text was cut, here and by what records it.
const Cut = "… cut"

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

func logLine(e Entry) LogLine {
	line := LogLine{Seq: e.Seq, Generation: e.Generation, Branch: e.Op.Branch, Kind: e.Kind, Name: e.Name, At: e.At}
	switch {
	case e.Error != nil:
		line.Text, line.Code = e.Error.Message, e.Error.Code
	case e.Kind == KindPrint:
		_ = json.Unmarshal(e.Value, &line.Text) // what is printed is recorded as a string
	case e.Op.Branch < 0:
		var end struct{ Error, Reason string }
		_ = json.Unmarshal(e.Value, &end) // the engine's own; a member that is missing says nothing
		line.Text = end.Error + end.Reason
	}
	line.Text, line.Redacted = Redact(line.Text)
	if len(line.Text) > maxLogText {
		line.Text, line.Truncated = strings.ToValidUTF8(line.Text[:maxLogText], "")+Cut, true
	}
	line.Truncated = line.Truncated || strings.HasSuffix(line.Text, Cut)
	return line
}

// Redacted stands for what was taken out of a text.
const Redacted = "[redacted]"

// secrets are the forms that secrets have when a program prints one by mistake. Those of references never come this far
// (D27); this is for what a program was given in its inputs, or has read out of a repository. Groups stay.
var secrets = regexp.MustCompile(strings.Join([]string{
	`-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]*PRIVATE KEY-----|$)`,
	`(\b[a-zA-Z][a-zA-Z0-9+.-]*://)[^/\s:@]*:[^/\s@]+(@)`,
	`(\b(?i:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}`,
	`\b(?:gh[opsur]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)`,
	`((?i:password|passwd|secret|token|api[_-]?key|private[_-]?key)["']?\s*[:=]\s*["']?)[^\s"',;&]+`,
}, "|"))

// Redact takes out of a text what looks like a secret. It finds the forms that secrets commonly have, not every secret.
func Redact(text string) (string, bool) {
	redacted := secrets.ReplaceAllString(text, "${1}${3}${4}"+Redacted+"${2}")
	return redacted, redacted != text
}
