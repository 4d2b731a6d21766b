package bundle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/driver"
	"github.com/lockstep-cd/lockstep/pkg/driver/artifact"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/setup"
)

// The origins that are no artifacts.
const (
	originBuiltIn = "built-in"
	originFolder  = "folder"
)

// Kept is where artifacts that were pulled are kept, for all replicas and for ever.
type Kept interface {
	// Now is the time by the clock that all replicas share.
	Now(ctx context.Context) (time.Time, error)
	// HasDriverArtifact reports whether the artifact of a digest is kept, whatever named it.
	HasDriverArtifact(ctx context.Context, digest string) (bool, error)
	// KeepDriverArtifact stores an artifact, and the time at which its reference resolved to it. Storing it again is a no-op.
	KeepDriverArtifact(ctx context.Context, a core.DriverArtifact) error
	// DriverArtifacts are those that a reference has named, without their content, the one of the latest question first.
	DriverArtifacts(ctx context.Context, reference string) ([]core.DriverArtifact, error)
	// DriverArtifactContent is the content of one.
	DriverArtifactContent(ctx context.Context, digest string) ([]byte, error)
}

// Registry is where artifacts are pulled from.
type Registry interface {
	Resolve(ctx context.Context, r artifact.Reference) (digest string, err error)
	Pull(ctx context.Context, r artifact.Reference, digest string) (artifact.Artifact, error)
}

// Deps is what Drivers needs.
type Deps struct {
	// BuiltIn and Folder are available from the start; Folder may be nil.
	BuiltIn, Folder *driver.Set
	// Artifacts are the references that are configured; without any, nothing below is needed.
	Artifacts []artifact.Reference
	Kept      Kept
	Registry  Registry
	Clock     clock.Clock
	Log       *slog.Logger
	// Refresh is how often a registry is asked what a tag names.
	Refresh time.Duration
}

// Drivers is setup.Drivers: the built-in ones, those of a folder, and those of OCI artifacts as they are pulled.
//
// What is in force is what is kept, never what a registry says at the moment: a start without the registry has the same drivers as
// before, all replicas have the same, and what was pulled but not kept before a crash never was. A tag that moves brings its new
// drivers to what begins afterwards; a major that it has no more stays as it was (R21), and what runs has pinned its own (D7).
type Drivers struct {
	deps Deps
	// loading is held while the drivers are read anew, which is done from several sides.
	loading sync.Mutex
	// known are the bundles of artifacts that were read before, by digest; guarded by loading.
	known map[string][]*driver.Bundle

	mu      sync.RWMutex
	now     *set
	origins []core.DriverOrigin
	// asked is what came of the last question to a registry, by reference; empty when all was well.
	asked map[string]trouble
}

var _ setup.Drivers = (*Drivers)(nil)

// New is the drivers that nobody has to be asked for; Load and Run add those of artifacts. The error is Conflict for a folder with
// another driver under a built-in one's name.
func New(d Deps) (*Drivers, error) {
	in := &Drivers{deps: d, known: map[string][]*driver.Bundle{}, asked: map[string]trouble{}}
	var err error
	if in.now, in.origins, err = in.fixed(); err != nil {
		return nil, err
	}
	for _, r := range d.Artifacts {
		in.origins = append(in.origins, core.DriverOrigin{Origin: r.String(), Problem: notPulled, Trouble: core.TroubleNotPulled})
	}
	return in, nil
}

// notPulled is the problem of an artifact that no replica has pulled yet.
const notPulled = "not pulled yet"

// fixed is what nobody has to be asked for.
func (in *Drivers) fixed() (*set, []core.DriverOrigin, error) {
	s := &set{bundles: in.deps.BuiltIn, from: map[string]provenance{}}
	for _, ref := range s.bundles.Refs() {
		s.from[ref] = provenance{origin: originBuiltIn}
	}
	origins := []core.DriverOrigin{{Origin: originBuiltIn, Drivers: s.bundles.Refs()}}
	if in.deps.Folder == nil {
		return s, origins, nil
	}
	if err := s.add(in.deps.Folder.All(), provenance{origin: originFolder}); err != nil {
		return nil, nil, err
	}
	return s, append(origins, core.DriverOrigin{Origin: originFolder, Drivers: in.deps.Folder.Refs()}), nil
}

// add adds all of some bundles, or none. The error is Conflict when another one has the reference of one of them.
func (d *set) add(bundles []*driver.Bundle, from provenance) error {
	more, err := driver.NewSet(bundles...)
	if err == nil {
		more, err = d.bundles.With(more)
	}
	if err != nil {
		return fmt.Errorf("add the drivers of %s: %w", from.origin, err)
	}
	d.bundles = more
	for _, b := range bundles {
		if _, there := d.from[b.Ref()]; !there {
			d.from[b.Ref()] = from
		}
	}
	return nil
}

// Now implements setup.Drivers.
func (in *Drivers) Now() setup.DriverSet {
	in.mu.RLock()
	defer in.mu.RUnlock()
	return in.now
}

// Origins implements setup.Drivers.
func (in *Drivers) Origins() []core.DriverOrigin {
	in.mu.RLock()
	defer in.mu.RUnlock()
	return slices.Clone(in.origins)
}

// Load reads what is kept, and asks no registry. The error is the database's: a broken artifact is a problem of its origin, and the rest
// is loaded.
func (in *Drivers) Load(ctx context.Context) error {
	in.loading.Lock()
	defer in.loading.Unlock()
	now, origins, err := in.fixed()
	if err != nil {
		return err
	}
	for _, r := range in.deps.Artifacts {
		kept, err := in.deps.Kept.DriverArtifacts(ctx, r.String())
		if err != nil {
			return fmt.Errorf("read what is kept of %s: %w", r, err)
		}
		origin := core.DriverOrigin{Origin: r.String()}
		if err := in.take(ctx, now, &origin, kept); err != nil {
			return err
		}
		origins = append(origins, origin)
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	for i, o := range origins {
		// A problem with what the registry has now is news; one with what is kept was reported when it was new.
		if t := in.asked[o.Origin]; t.problem != "" {
			origins[i].Problem, origins[i].Trouble = t.problem, t.kind
		}
	}
	in.now, in.origins = now, origins
	return nil
}

// take adds what a reference has named: all of the newest artifact that can be added, and of older ones the majors that no newer one
// has.
func (in *Drivers) take(ctx context.Context, now *set, origin *core.DriverOrigin, kept []core.DriverArtifact) error {
	if len(kept) == 0 {
		origin.Problem, origin.Trouble = notPulled, core.TroubleNotPulled
		return nil
	}
	origin.CheckedAt = &kept[0].AskedAt
	for i, a := range kept {
		missing := slices.DeleteFunc(slices.Clone(a.Drivers), func(ref string) bool { return now.from[ref].origin == origin.Origin })
		if len(missing) == 0 {
			continue // most older artifacts, whose content need not be read then
		}
		bundles, err := in.bundles(ctx, a.Digest)
		if fault.Is(err, fault.Unavailable) {
			return err
		}
		if err == nil {
			bundles = slices.DeleteFunc(slices.Clone(bundles), func(b *driver.Bundle) bool { return !slices.Contains(missing, b.Ref()) })
			err = now.add(bundles, provenance{origin.Origin, a.Digest})
		}
		if err != nil {
			if i == 0 { // an older one was reported when it was the newest
				t := troubleOf(err)
				origin.Problem, origin.Trouble = fmt.Sprintf("%s: %s", a.Digest, t.problem), t.kind
			}
			continue
		}
		if origin.Digest == "" {
			origin.Digest = a.Digest
		}
		origin.Drivers = append(origin.Drivers, missing...)
	}
	slices.Sort(origin.Drivers)
	return nil
}

// bundles are those of an artifact that is kept.
func (in *Drivers) bundles(ctx context.Context, digest string) ([]*driver.Bundle, error) {
	if known, ok := in.known[digest]; ok {
		return known, nil
	}
	content, err := in.deps.Kept.DriverArtifactContent(ctx, digest)
	if err != nil {
		return nil, err
	}
	bundles, err := artifact.Load(content)
	if err != nil { // it could be read when it was kept, by an older release
		return nil, err
	}
	in.known[digest] = bundles
	return bundles, nil
}

// changed stores the outcome of the last question about a reference, and reports whether it differs from the one before.
func (in *Drivers) changed(reference string, now trouble) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	news := in.asked[reference] != now
	in.asked[reference] = now
	return news
}

// trouble is what is wrong, in words and by its kind.
type trouble struct {
	problem string
	kind    core.DriverTrouble
}

// troubleOf classifies an error; it is the zero value for nil.
func troubleOf(err error) trouble {
	if err == nil {
		return trouble{}
	}
	t := trouble{fault.Public(err), core.TroubleUnreachable}
	switch {
	case errors.Is(err, artifact.ErrAltered):
		t.kind = core.TroubleAltered
	case fault.Is(err, fault.Invalid), fault.Is(err, fault.Conflict):
		t.kind = core.TroubleBroken
	case fault.Is(err, fault.Denied):
		t.kind = core.TroubleDenied
	case fault.Is(err, fault.NotFound):
		t.kind = core.TroubleNotFound
	}
	return t
}
