package evidence

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"
)

// form is the first line of what a block's digest is made of: another form of blocks or rows has another one.
const form = "lockstep-journal-block-1"

// Row is a row of a journal as it is sealed and exported.
type Row struct {
	// Journal is change, rollout, rolloutenvironment or deployment.
	Journal string
	// ID is the position, which all journals share.
	ID int64
	// Content is every column that has a value, as a JSON object.
	Content json.RawMessage
}

// Line is the canonical form: one line of JSON, with the members in the order of their names, without spaces, and without members that are
// null.
func (r Row) Line() ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(r.Content))
	decoder.UseNumber() // so that digits beyond a float's stay
	var columns map[string]any
	if err := decoder.Decode(&columns); err != nil {
		return nil, fmt.Errorf("read row %d of journal %s: %w", r.ID, r.Journal, err)
	}
	for name, value := range columns {
		if value == nil {
			delete(columns, name)
		}
	}
	return json.Marshal(map[string]any{"journal": r.Journal, "row": columns})
}

// Block is a stretch of an organization's journals, with a digest of it and of the block before.
type Block struct {
	OrganizationID int64
	// Number counts an organization's blocks from 1.
	Number int64
	// Above and UpTo are the positions that it lies between; the second is its last row's.
	Above, UpTo int64
	// Rows is how many it has.
	Rows int
	// Previous is the digest of the block before; empty for the first. Digest is SHA-256, both as hexadecimal.
	Previous, Digest string
	// SealedAt has microseconds. The order of blocks does not depend on it.
	SealedAt time.Time
}

// digestOf is what the digest of a block with these rows must be: SHA-256 of lines of text, which say what the block is and have the SHA-256 of
// each row's canonical form.
func (b Block) digestOf(rows []Row) (string, error) {
	h := sha256.New()
	fmt.Fprintf(
		h, "%s\n%d\n%d\n%d\n%d\n%d\n%s\n%s\n", form, b.OrganizationID, b.Number, b.Above, b.UpTo, b.Rows, b.SealedAt.UTC().Format(time.RFC3339Nano),
		b.Previous,
	)
	for _, r := range rows {
		line, err := r.Line()
		if err != nil {
			return "", err
		}
		sum := sha256.Sum256(line)
		fmt.Fprintf(h, "%s\n", hex.EncodeToString(sum[:]))
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
