package api

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/retention"
)

// ArchivedPath is the path of what was deleted for its age and is kept in the archive: GET with the parameter kind. The answer is JSON
// lines, a row each, and behind them one with the end: {"end": {"rows": 7, "problem_count": 0, "problems": []}}. Without it the answer is not
// whole.
const ArchivedPath = "/retention/archived"

// Archived reads the archive of the actor's organization.
type Archived interface {
	ReadArchived(ctx context.Context, a core.Actor, kind retention.Kind, out io.Writer, found func(error)) error
}

// mostProblems is how many problems of an archive are named.
const mostProblems = 100

// ending is the last line.
type ending struct {
	Rows int `json:"rows"`
	// Count is how many problems there are, of which the first are named.
	Count    int      `json:"problem_count"`
	Problems []string `json:"problems"`
}

// A reader has readWithin for each write, and as long again for every readBytes of it. A slower one is cut off, since others wait.
const (
	readWithin = 30 * time.Second
	readBytes  = 8 << 20
)

// archivedHandler answers with archived rows. An error of which the last line cannot speak cuts the connection off.
func archivedHandler(archive Archived) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		actor, ok := readerOf(w, r)
		if !ok {
			return
		}
		end := ending{Problems: []string{}}
		begun := &begun{ResponseWriter: patient{w}, file: "archived.jsonl"}
		err := archive.ReadArchived(r.Context(), actor, retention.Kind(r.URL.Query().Get("kind")), lines{begun, &end.Rows}, func(err error) {
			end.Count++
			if len(end.Problems) < mostProblems {
				end.Problems = append(end.Problems, fault.Public(err))
			}
		})
		if err != nil && (len(end.Problems) == 0 || !fault.Is(err, fault.Terminal)) { // not all objects were tried
			if begun.any {
				panic(http.ErrAbortHandler)
			}
			known(w, "archive", err)
			return
		}
		_ = json.NewEncoder(begun).Encode(map[string]ending{"end": end}) // a reader who is gone misses it
		connection := http.NewResponseController(w)
		if connection.Flush() == nil {
			_ = connection.SetWriteDeadline(time.Time{}) // it may be used again
		}
	})
}

// patient gives a reader a time for each write.
type patient struct{ http.ResponseWriter }

// Write implements io.Writer.
func (p patient) Write(text []byte) (int, error) {
	within := readWithin * time.Duration(1+len(text)/readBytes)
	// An error is that of a writer without a connection, as in tests.
	_ = http.NewResponseController(p.ResponseWriter).SetWriteDeadline(clock.System().Now().Add(within))
	return p.ResponseWriter.Write(text) //nolint:wrapcheck // io.Writer hands on what the connection says
}

// lines counts the lines that are written.
type lines struct {
	io.Writer
	rows *int
}

// Write implements io.Writer.
func (l lines) Write(text []byte) (int, error) {
	*l.rows += bytes.Count(text, []byte("\n"))
	return l.Writer.Write(text) //nolint:wrapcheck // io.Writer hands on what the connection says
}
