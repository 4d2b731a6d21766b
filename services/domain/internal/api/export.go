package api

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// ExportPath is the path of exports of the journals: GET with the parameters since and until, which are instants in RFC 3339 and may be
// absent.
const ExportPath = "/journal/export"

// Export writes the journals of the actor's organization to a file.
type Export interface {
	Export(ctx context.Context, a core.Actor, since, until *time.Time, to io.Writer) error
}

// OrganizationExportPath is the path of everything that is stored of the actor's organization: GET.
const OrganizationExportPath = "/organization/export"

// Everything writes all of the actor's organization to a file.
type Everything interface {
	ExportOrganization(ctx context.Context, a core.Actor, to io.Writer) error
}

// everythingHandler answers with a file. An error after its first byte cuts the connection off: a file without its last line is not whole.
func everythingHandler(e Everything) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		actor, ok := readerOf(w, r)
		if !ok {
			return
		}
		begun := &begun{ResponseWriter: patient{w}, file: "organization.jsonl"}
		err := e.ExportOrganization(r.Context(), actor, begun)
		if err != nil && begun.any {
			panic(http.ErrAbortHandler)
		}
		if known(w, "export", err) {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // the connection may be used again
		}
	})
}

// exportHandler answers with a file. An error after its first byte cuts the connection off: a file without a signature is not whole.
func exportHandler(e Export) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		actor, ok := readerOf(w, r)
		if !ok {
			return
		}
		var bounds [2]*time.Time
		for i, name := range []string{"since", "until"} {
			var err error
			if bounds[i], err = instant(r.URL.Query().Get(name)); !known(w, name, err) {
				return
			}
		}
		begun := &begun{ResponseWriter: w, file: "journal.jsonl"}
		err := e.Export(r.Context(), actor, bounds[0], bounds[1], begun)
		if err != nil && begun.any {
			panic(http.ErrAbortHandler)
		}
		known(w, "export", err)
	})
}

// readerOf is who reads a file. Any other method than GET, and nobody, are refused here.
func readerOf(w http.ResponseWriter, r *http.Request) (core.Actor, bool) {
	actor, ok := core.ActorFrom(r.Context())
	if !ok {
		unauthenticated(w, "found nobody; expected a token")
		return actor, false
	}
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "found method "+r.Method+"; expected GET", http.StatusMethodNotAllowed)
		return actor, false
	}
	return actor, true
}

// instant is a parameter that is a time; nil where it is absent.
func instant(text string) (*time.Time, error) {
	if text == "" {
		return nil, nil
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return nil, fault.Because(err, fault.Invalid, "found %q; expected a time such as 2026-11-23T10:00:00Z", text)
	}
	return &at, nil
}

// begun notes whether anything of an answer was sent.
type begun struct {
	http.ResponseWriter
	any  bool
	file string
}

// Write implements io.Writer.
func (b *begun) Write(text []byte) (int, error) {
	if !b.any {
		b.any = true
		b.Header().Set("Content-Type", "application/jsonl")
		b.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", b.file))
	}
	return b.ResponseWriter.Write(text) //nolint:wrapcheck // io.Writer hands on what the connection says
}
