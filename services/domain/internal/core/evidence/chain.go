package evidence

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

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
