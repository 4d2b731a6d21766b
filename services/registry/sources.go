package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/secret"
	kinds "github.com/lockstep-cd/lockstep/pkg/source"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
	"github.com/lockstep-cd/lockstep/services/registry/internal/events"
	"github.com/lockstep-cd/lockstep/services/registry/internal/git"
	"github.com/lockstep-cd/lockstep/services/registry/internal/oci"
	"github.com/lockstep-cd/lockstep/services/registry/internal/store"
)

// pullEvery is how soon the domain's sources are found to have changed when the hint was lost.
const pullEvery = time.Minute

// listenAgain is how soon it is tried again to hear the domain.
const listenAgain = 5 * time.Second

// sourceSet is the domain's artifact sources, and what looks at them.
type sourceSet struct {
	store  *store.Sources
	poller *core.Poller
	clock  clock.Clock
	log    *slog.Logger
	config Config
	pool   *pgxpool.Pool
	// hooks is set once they are made, before the domain can ask.
	hooks *hookSet
}

// newSourceSet puts the kinds of sources together with what looks at them.
func newSourceSet(c Config, pool *pgxpool.Pool, told *store.Hooks, registries *oci.Registries, repositories *git.Repositories, log *slog.Logger) *sourceSet {
	s := &sourceSet{clock: clock.System(), log: log, config: c, pool: pool}
	s.store = store.NewSources(pool, told, func() { s.poller.Wake() })
	asked := newAsked(c.PollRate)
	s.poller = core.NewPoller(core.PollerDeps{
		Queue: s.store, Clock: clock.System(), Log: log, Pace: newPace(c.PollRate), AskedOf: asked.of, AskedAt: asked.at,
		Lookers: map[string]core.Looker{
			kinds.OCIImage: registries,
			kinds.Git:      repositories,
		},
	})
	return s
}

// login is an organization's account for a Git repository: the one whose host, with its path, is the longest that the repository is at or
// below.
func (c Config) login(secrets *secret.Reader, organization int64, repository string) (username, password string, err error) {
	var best *AccountConfig
	for i, r := range c.Registries {
		if len(r.Organizations) > 0 && !slices.Contains(r.Organizations, organization) {
			continue
		}
		host := strings.TrimSuffix(strings.ToLower(r.Host), "/")
		if (repository == host || strings.HasPrefix(repository, host+"/")) && (best == nil || len(r.Host) > len(best.Host)) {
			best = &c.Registries[i]
		}
	}
	if best == nil || best.Password == "" {
		return "", "", nil
	}
	password, err = secrets.Read(context.Background(), best.Password)
	if err != nil {
		return "", "", fmt.Errorf("read the password of %s: %w", best.Host, err)
	}
	return best.Username, password, nil
}

// follow keeps up with the domain over a connection, and answers it, until ctx ends.
func (s *sourceSet) follow(ctx context.Context, conn *bus.Conn) error {
	changed := make(chan struct{}, 1)
	// NATS may go away in the moment of subscribing, or not allow it yet. Deliveries do not need the domain's questions, so
	// that the service goes on without.
	for err := s.listen(ctx, conn, changed); err != nil && ctx.Err() == nil; err = s.listen(ctx, conn, changed) {
		s.log.WarnContext(ctx, "the domain cannot ask about sources", "error", err.Error())
		_ = clock.Sleep(ctx, s.clock, listenAgain) // ended early, the loop sees why
	}
	for {
		// The domain may be away: what is stored here is looked at all the same.
		if err := s.pull(ctx, conn); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "sources could not be pulled from the domain", "error", err.Error())
		}
		timer := s.clock.NewTimer(pullEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-changed:
			timer.Stop()
		case <-timer.C():
		}
	}
}

// listen lets the domain ask, and notes in changed when it hints that its sources have, until ctx ends. Nothing is left of
// it when it fails.
func (s *sourceSet) listen(ctx context.Context, conn *bus.Conn, changed chan<- struct{}) error {
	ctx, cancel := context.WithCancel(ctx)
	if err := events.Serve(ctx, conn, answers{s}); err != nil {
		cancel()
		return fmt.Errorf("answer the domain: %w", err)
	}
	err := conn.OnHint(ctx, bus.SourcesChanged, func([]byte) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	if err != nil {
		cancel()
		return fmt.Errorf("hear of changed sources: %w", err)
	}
	context.AfterFunc(ctx, cancel) // it ends with its parent
	return nil
}

// pull makes the stored sources those of the domain. A pull that fails on the way removes nothing.
func (s *sourceSet) pull(ctx context.Context, domain events.Asker) error {
	at := s.clock.Now().Truncate(time.Microsecond) // as PostgreSQL keeps it
	err := events.Pull(ctx, domain, func(page []core.Source) error {
		for i, src := range page {
			page[i] = understand(src)
		}
		return s.store.Put(ctx, at, page, func(src core.Source) *time.Time {
			if src.Interval == 0 {
				return nil
			}
			return &at
		})
	})
	if err != nil {
		return err
	}
	return s.store.Drop(ctx, at)
}

// understand is a source as it is looked at. One of a kind that this release does not know is kept and shown, and looked
// at in vain when somebody asks.
func understand(s core.Source) core.Source {
	sum := sha256.Sum256([]byte(s.Ref + "\n" + string(s.Config)))
	s.Revision = hex.EncodeToString(sum[:16])
	parsed, problems := kinds.Parse(s.Ref, s.Config)
	if len(problems) > 0 {
		return s
	}
	s.Place, s.Interval = parsed.Place(), parsed.Interval()
	switch of := parsed.(type) {
	case *kinds.Image:
		s.Name = of.Repository
	case *kinds.Repository:
		s.Name = of.Name()
	}
	return s
}

// naming is how the domain names registries and images.
func naming() core.Naming { return core.Naming{Host: kinds.NormalizeHost, Image: kinds.NormalizeImage} }

var _ core.Repositories = (*sourceSet)(nil)

// Name implements core.Repositories.
func (s *sourceSet) Name(address string) string { return kinds.RepositoryName(address) }

// Nudge implements core.Repositories.
func (s *sourceSet) Nudge(ctx context.Context, names []string) error {
	_, err := s.store.Nudge(ctx, kinds.Git, names, s.clock.Now())
	return err
}

// answers is what the domain may ask.
type answers struct{ *sourceSet }

var _ events.Answers = answers{}

// States implements events.Answers.
func (a answers) States(ctx context.Context, organization int64, ids []int64) ([]core.SourceState, error) {
	return a.store.States(ctx, organization, ids)
}

// Look implements events.Answers.
func (a answers) Look(ctx context.Context, organization, id int64) (artifact, problem string, err error) {
	o, err := a.poller.LookNow(ctx, organization, id)
	return describe(o), o.Problem, err
}

// Try implements events.Answers.
func (a answers) Try(ctx context.Context, src core.Source) (artifact, problem string, err error) {
	o, err := a.poller.Try(ctx, understand(src))
	return describe(o), o.Problem, err
}

func describe(o core.Outcome) string {
	if o.Artifact == nil {
		return ""
	}
	return store.Reference(*o.Artifact)
}
