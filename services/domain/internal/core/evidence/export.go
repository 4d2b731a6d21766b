package evidence

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/proof"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Export writes the blocks of the actor's organization with rows of a stretch of time to a file, signed; nil bounds for all. Blocks are
// whole, so rows beyond the bounds are in it as well. Refused where no key is configured.
func (u *UseCases) Export(ctx context.Context, a core.Actor, since, until *time.Time, to io.Writer) error {
	if err := a.May(core.ActionCheckJournal); err != nil {
		return err
	}
	if u.key == nil {
		return fault.New(fault.Refused, "no key to sign exports is configured; set journal.export_key of the domain service")
	}
	key, err := u.key(ctx)
	if err != nil {
		return err
	}
	organization, err := u.store.Organization(ctx, a.Organization)
	if err != nil {
		return err
	}
	header := proof.Header{
		Organization: a.Organization, OrganizationName: organization.Name, Since: since, Until: until, FirstBlock: 1,
		Key: base64.StdEncoding.EncodeToString(key[ed25519.PrivateKeySize-ed25519.PublicKeySize:]),
	}
	var file *proof.Writer
	err = u.blocksBetween(ctx, a.Organization, since, until, func(b Block, rows []Row) error {
		if file == nil {
			header.FirstBlock, header.Previous = b.Number, b.Previous
			if file, err = proof.NewWriter(to, header); err != nil {
				return err
			}
		}
		lines := make([][]byte, len(rows))
		for i, r := range rows {
			if lines[i], err = r.Line(); err != nil {
				return err
			}
		}
		return file.Block(b.proven(), lines)
	})
	if err == nil && file == nil {
		file, err = proof.NewWriter(to, header)
	}
	if err != nil {
		return err
	}
	return file.Sign(key)
}

// blocksBetween are the blocks that have a row of a stretch of time, and those between them.
func (u *UseCases) blocksBetween(
	ctx context.Context, organization int64, since, until *time.Time, do func(b Block, rows []Row) error,
) error {
	begun := false
	for after := int64(0); ; {
		blocks, err := u.store.Blocks(ctx, organization, after, checkedAtOnce)
		if err != nil || len(blocks) == 0 {
			return err
		}
		for _, b := range blocks {
			after = b.Number
			// A row is sealed after it was written.
			if !begun && since != nil && b.SealedAt.Before(*since) {
				continue
			}
			rows, err := u.store.SealedRows(ctx, organization, b.Above, b.UpTo, b.Rows+1)
			if err != nil {
				return err
			}
			some, err := within(rows, since, until)
			if err != nil {
				return err
			}
			if !some && !begun {
				continue
			}
			if !some && until != nil && !b.SealedAt.Before(*until) {
				return nil
			}
			begun = true
			if err := do(b, rows); err != nil {
				return err
			}
		}
	}
}

// within reports whether one of the rows is of a stretch of time.
func within(rows []Row, since, until *time.Time) (bool, error) {
	for _, r := range rows {
		var row struct {
			At time.Time `json:"created_at"`
		}
		if err := json.Unmarshal(r.Content, &row); err != nil {
			return false, err
		}
		if (since == nil || !row.At.Before(*since)) && (until == nil || row.At.Before(*until)) {
			return true, nil
		}
	}
	return false, nil
}

// proven is the block as a file has it.
func (b Block) proven() proof.Block {
	return proof.Block{
		Number: b.Number, Above: b.Above, UpTo: b.UpTo, Rows: b.Rows, Previous: b.Previous, Digest: b.Digest, SealedAt: b.SealedAt.UTC(),
	}
}

// digestOf is what the digest of a block with these rows must be.
func (b Block) digestOf(rows []Row) (string, error) {
	sums := make([][sha256.Size]byte, len(rows))
	for i, r := range rows {
		line, err := r.Line()
		if err != nil {
			return "", err
		}
		sums[i] = sha256.Sum256(line)
	}
	return proof.Digest(b.OrganizationID, b.proven(), sums), nil
}
