package payloads

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

// Holder is a row that refers to payloads. Its fields are those that identify a row of its kind.
type Holder struct {
	Kind string
	// Execution and Seq are those of an entry, or of a generation.
	Execution, Seq int64
	// Ref is that of a start, Source and Ref name an event.
	Source, Ref string
}

// Entry is an entry of a history.
func Entry(execution, seq int64) Holder { return Holder{Kind: "entry", Execution: execution, Seq: seq} }

// Generation is a generation of an execution, by its number.
func Generation(execution int64, number int) Holder {
	return Holder{Kind: "generation", Execution: execution, Seq: int64(number)}
}

// Start is an execution, by its ref.
func Start(ref string) Holder { return Holder{Kind: "start", Ref: ref} }

// Event is an event, by its name.
func Event(source, id string) Holder { return Holder{Kind: "event", Source: source, Ref: id} }

// Rows are what a transaction stores of payloads.
type Rows struct {
	payloads []Payload
	uses     query.UsePayloadsParams
}

// Add adds the payloads of a row.
func (r *Rows) Add(s Stored, h Holder) {
	for _, p := range s.Payloads {
		r.payloads = append(r.payloads, p)
		r.uses.Organizations, r.uses.Digests = append(r.uses.Organizations, p.Organization), append(r.uses.Digests, p.Digest[:])
		r.uses.Holders, r.uses.Executions = append(r.uses.Holders, h.Kind), append(r.uses.Executions, h.Execution)
		r.uses.Seqs = append(r.uses.Seqs, h.Seq)
		r.uses.Sources, r.uses.Refs = append(r.uses.Sources, h.Source), append(r.uses.Refs, h.Ref)
	}
}

// Empty reports whether there is nothing to store, as in most transactions.
func (r *Rows) Empty() bool { return len(r.payloads) == 0 }

// Save stores the payloads, before the rows that refer to them. All transactions do it in one order, so that none waits for another one in
// turn.
func (r *Rows) Save(ctx context.Context, q *query.Queries, at time.Time) error {
	if r.Empty() {
		return nil
	}
	slices.SortFunc(r.payloads, func(a, b Payload) int {
		return cmp.Or(cmp.Compare(a.Organization, b.Organization), bytes.Compare(a.Digest[:], b.Digest[:]))
	})
	p := query.SavePayloadsParams{At: at}
	for _, one := range slices.CompactFunc(r.payloads, func(a, b Payload) bool { return a.Key == b.Key }) {
		p.Organizations, p.Digests = append(p.Organizations, one.Organization), append(p.Digests, one.Digest[:])
		p.Data = append(p.Data, one.Data)
	}
	return pg.Classify(q.SavePayloads(ctx, p), "save %d payloads", len(p.Digests))
}

// Use stores what refers to the payloads, after those rows.
func (r *Rows) Use(ctx context.Context, q *query.Queries) error {
	if r.Empty() {
		return nil
	}
	return pg.Classify(q.UsePayloads(ctx, r.uses), "save what refers to %d payloads", len(r.payloads))
}

// Columns are columns that refer to payloads and are being read.
type Columns struct {
	columns []column
}

type column struct {
	text   []byte
	set    func([]byte)
	refuse func(error)
}

// Add has set called with the whole value if the text of a column refers to payloads, or refuse if one of them is missing.
func (c *Columns) Add(text []byte, set func([]byte), refuse func(error)) {
	if Refers(text) {
		c.columns = append(c.columns, column{text, set, refuse})
	}
}

// Read reads all payloads at once.
func (c *Columns) Read(ctx context.Context, q *query.Queries) error {
	if len(c.columns) == 0 {
		return nil
	}
	var p query.LoadPayloadsParams
	found := map[Key][]byte{}
	for _, one := range c.columns {
		for _, key := range Keys(one.text) {
			if _, wanted := found[key]; wanted {
				continue
			}
			found[key] = nil
			p.Organizations, p.Digests = append(p.Organizations, key.Organization), append(p.Digests, key.Digest[:])
		}
	}
	rows, err := q.LoadPayloads(ctx, p)
	if err != nil {
		return pg.Classify(err, "load %d payloads", len(p.Digests))
	}
	clear(found)
	for _, row := range rows {
		found[Key{row.Organization, [32]byte(row.Digest)}] = row.Data
	}
	for _, one := range c.columns {
		whole, err := Whole(one.text, found)
		if err != nil {
			one.refuse(err)
			continue
		}
		one.set(whole)
	}
	return nil
}

// looseMost is how many payloads are deleted in a transaction.
const looseMost = 100

// Swept reports whether a transaction failed because a payload that it found was deleted before the transaction could refer to it. The
// transaction may be repeated: it stores the payload then.
func Swept(err error) bool { return pg.Constraint(err) == "payload_use_organization_digest_fkey" }

// Sweep deletes payloads that are no longer referred to, some in each transaction. tx runs a function in one.
func Sweep(ctx context.Context, tx func(func(*query.Queries) error) error) error {
	for {
		var p query.DropUnusedPayloadsParams
		err := tx(func(q *query.Queries) error {
			p = query.DropUnusedPayloadsParams{}
			rows, err := q.LockLoosePayloads(ctx, looseMost)
			if err != nil || len(rows) == 0 {
				return pg.Classify(err, "find payloads that nothing refers to")
			}
			for _, row := range rows {
				p.Organizations, p.Digests = append(p.Organizations, row.Organization), append(p.Digests, row.Digest)
			}
			return pg.Classify(q.DropUnusedPayloads(ctx, p), "delete payloads")
		})
		if err != nil || len(p.Digests) < looseMost {
			return err
		}
	}
}
