package control

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/engine"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/execution"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// Export is what the current generation of a run can be replayed with elsewhere. It has no secrets and no tokens of channels.
type Export struct {
	View

	// Loaded has the program, the inputs and the history. Its Ref is the handle of the attempt and generation.
	Loaded engine.Loaded
	// Concealed is set if tokens were replaced.
	Concealed bool
}

// The bounds of exports, each of which has a whole history in memory: how many at a time in this process, how many of one organization, and
// how long a caller may take to read one.
const (
	exportsMost   = 8
	exportsOfOne  = 2
	exportTimeout = 5 * time.Minute
)

// exports counts those under way, by organization.
//
// It is safe for concurrent use.
type exports struct {
	mu    sync.Mutex
	all   int
	under map[int64]int
}

func (e *exports) begin(organization int64) (end func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.under[organization] >= exportsOfOne:
		return nil, fault.New(fault.Limited, "%d workflows of organization %d are being exported; ask again when they are done",
			e.under[organization], organization)
	case e.all >= exportsMost:
		return nil, fault.New(fault.Limited, "%d workflows are being exported; ask again when they are done", e.all)
	}
	if e.under == nil {
		e.under = map[int64]int{}
	}
	e.all++
	e.under[organization]++
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.all--
		if e.under[organization]--; e.under[organization] == 0 {
			delete(e.under, organization)
		}
	}, nil
}

// Export reads a run for a replay elsewhere, and passes it to use, which must not keep it.
func (o *Operator) Export(ctx context.Context, organization int64, workflow string, use func(context.Context, Export) error) error {
	return o.Exporting(ctx, organization, workflow, func(ctx context.Context, organization int64, workflow string) (Export, error) {
		e, err := o.find(ctx, organization, workflow)
		if err != nil {
			return Export{}, err
		}
		return o.export(ctx, e)
	}, use)
}

// Exporting is Export with a source of its own: it holds to the same bounds.
func (o *Operator) Exporting(
	ctx context.Context, organization int64, workflow string, read func(context.Context, int64, string) (Export, error),
	use func(context.Context, Export) error,
) error {
	if err := execution.CheckNamed(workflow); err != nil {
		return err
	}
	end, err := o.exports.begin(organization)
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel := context.WithTimeout(ctx, exportTimeout)
	defer cancel()
	x, err := read(ctx, organization, workflow)
	if err != nil {
		return err
	}
	return use(ctx, x)
}

// ForArchive reads an ended run as Export does, for the archive. It is NotFound if no run with this number exists any longer.
func (o *Operator) ForArchive(ctx context.Context, organization, run int64, workflow string) (Export, error) {
	e, err := o.find(ctx, organization, workflow)
	if err != nil {
		return Export{}, err
	}
	if e.ID != run {
		return Export{}, fault.New(fault.NotFound, "workflow %q is another run by now", workflow)
	}
	return o.export(ctx, e)
}

func (o *Operator) export(ctx context.Context, e execution.Execution) (Export, error) {
	loaded, err := o.control.LoadAny(ctx, e.ID)
	if err != nil {
		return Export{}, fmt.Errorf("export %q: %w", e.Workflow, err)
	}
	v, err := o.view(ctx, e)
	if err != nil {
		return Export{}, err
	}
	if v, err = o.reported(ctx, v); err != nil {
		return Export{}, err
	}
	loaded.Secrets = nil
	x := Export{View: v, Loaded: loaded}
	x.conceal()
	return x, nil
}

// Archived is a run in the archive.
type Archived struct {
	// Workflow is its id; of one longer than fits into a name its beginning.
	Workflow string
	// Ended is when it ended.
	Ended time.Time
	// Name is that of its object in the archive, below the configured prefix, and Size that object's in bytes.
	Name string
	Size int64
}

// Archive has the runs that were deleted.
type Archive interface {
	// Find reads the run with an id that ended last; NotFound if there is none.
	Find(ctx context.Context, organization int64, workflow string) (Export, error)
	// List returns runs by the name of their object, those of one id by their end, after a name.
	List(ctx context.Context, organization int64, after string, most int) ([]Archived, error)
}

// conceal replaces the tokens of channels, each by the same one wherever it occurs: what a program does with them stays what it was.
func (x *Export) conceal() {
	c := concealer{}
	x.Error = string(c.replace([]byte(x.Error)))
	status := make(map[string]string, len(x.Status))
	for key, value := range x.Status {
		status[key] = string(c.replace([]byte(value)))
	}
	x.Status = status
	x.Loaded.Inputs = c.replace(x.Loaded.Inputs)
	x.Loaded.Continuation = c.replace(x.Loaded.Continuation)
	for i := range x.Loaded.History {
		e := &x.Loaded.History[i]
		e.Value = c.replace(e.Value)
		if e.Error != nil {
			replaced := *e.Error
			replaced.Message = string(c.replace([]byte(replaced.Message)))
			e.Error = &replaced
		}
	}
	x.Concealed = len(c) > 0
}

// concealer has what tokens were replaced by.
type concealer map[string]string

func (c concealer) replace(data []byte) json.RawMessage {
	if len(data) == 0 {
		return data
	}
	return history.ReplaceTokens(data, func(token string) string {
		known, is := c[token]
		if !is {
			known = history.Pseudonym(len(c))
			c[token] = known
		}
		return known
	})
}
