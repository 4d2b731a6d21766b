package access

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// ExportFormat is what the first line of an export names. A reader of one format may find further members and tables.
const ExportFormat = "lockstep-organization-1"

const (
	// exportsAtOnce is how many exports a process writes at the same time: each holds a connection to the database, and keeps that from
	// cleaning up.
	exportsAtOnce = 2
	// exportWithin is how long an export may take.
	exportWithin = time.Hour
)

// exportHeader is the first line of an export.
type exportHeader struct {
	Format           string    `json:"format"`
	Organization     int64     `json:"organization"`
	OrganizationName string    `json:"organization_name"`
	At               time.Time `json:"at"`
}

// exportedRow is a line of an export.
type exportedRow struct {
	Table string          `json:"table"`
	Row   json.RawMessage `json:"row"`
}

// exportEnd is the last line of an export: how many rows there are, and the SHA-256 of all lines before it. Without it a file is not whole.
type exportEnd struct {
	Rows   int    `json:"rows"`
	SHA256 string `json:"sha256"`
}

// ExportOrganization writes everything that is stored of the actor's organization, as JSON lines, without what is secret. It is for owners,
// and recorded before anything is written.
func (u *UseCases) ExportOrganization(ctx context.Context, a core.Actor, to io.Writer) error {
	if err := a.May(core.ActionExportOrganization); err != nil {
		return err
	}
	select {
	case u.exports <- struct{}{}:
		defer func() { <-u.exports }()
	default:
		return fault.New(fault.Unavailable, "%d exports are under way, as many as may be at once; try again later", exportsAtOnce)
	}
	header := exportHeader{Format: ExportFormat, Organization: a.Organization, At: u.clock.Now().UTC()}
	err := u.store.In(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		known, err := tx.LockOrganization(ctx)
		if err != nil {
			return err
		}
		header.OrganizationName = known.Name
		subject := core.AccessSubject{Kind: core.AccessOrganization, ID: known.ID, Name: known.Name}
		return note(ctx, tx, a, core.ActionExportOrganization, subject, "", nil, nil)
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, exportWithin, fault.New(fault.Unavailable, "the export took more than %s", exportWithin))
	defer cancel()
	return u.writeExport(ctx, header, to)
}

func (u *UseCases) writeExport(ctx context.Context, header exportHeader, to io.Writer) error {
	sum := sha256.New()
	out := bufio.NewWriterSize(to, 64<<10)
	lines := json.NewEncoder(io.MultiWriter(out, sum))
	lines.SetEscapeHTML(false)
	if err := lines.Encode(header); err != nil {
		return fmt.Errorf("write the export: %w", err)
	}
	end := exportEnd{}
	err := u.store.EachRow(ctx, header.Organization, func(table string, content []byte) error {
		end.Rows++
		return lines.Encode(exportedRow{table, content})
	})
	if err != nil {
		return fmt.Errorf("write the export: %w", err)
	}
	end.SHA256 = hex.EncodeToString(sum.Sum(nil))
	if err := lines.Encode(map[string]exportEnd{"end": end}); err != nil {
		return fmt.Errorf("write the export: %w", err)
	}
	return out.Flush()
}
