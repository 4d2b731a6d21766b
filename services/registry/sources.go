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
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/secret"
	kinds "github.com/lockstep-cd/lockstep/pkg/source"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core/prove"
	"github.com/lockstep-cd/lockstep/services/registry/internal/events"
	"github.com/lockstep-cd/lockstep/services/registry/internal/git"
	"github.com/lockstep-cd/lockstep/services/registry/internal/oci"
	"github.com/lockstep-cd/lockstep/services/registry/internal/store"
)

// pullEvery is how soon a change of the domain's sources is found if the notification was lost.
const pullEvery = time.Minute

// listenAgain is the pause before another attempt to subscribe.
const listenAgain = 5 * time.Second

// sourceSet holds the domain's artifact sources, and polls them.
type sourceSet struct {
	store  *store.Sources
	poller *core.Poller
	clock  clock.Clock
	log    *slog.Logger
	config Config
	pool   *pgxpool.Pool
	// hooks, forgeHooks, credentials and prover are set before the domain's first request.
	hooks      *hookSet
	forgeHooks *forgeHooks
	prover     *prove.Prover
	// credentials are those of organizations for registries.
	credentials *store.Credentials
}

// newSourceSet assembles the kinds of sources and their finders.
func newSourceSet(
	c Config, pool *pgxpool.Pool, hooks *store.Hooks, registries *oci.Registries, repositories *git.Repositories, log *slog.Logger,
) *sourceSet {
	s := &sourceSet{clock: clock.System(), log: log, config: c, pool: pool}
	s.store = store.NewSources(pool, hooks, func() { s.poller.Wake() })
	asked := newAsked(c.PollRate)
	s.poller = core.NewPoller(core.PollerDeps{
		Queue: s.store, Clock: clock.System(), Log: log, Pace: newPace(c.PollRate), AskedOf: asked.of, AskedAt: asked.at,
		Finders: map[string]core.Finder{
			kinds.OCIImage: registries,
			kinds.Git:      repositories,
		},
	})
	return s
}

// login returns an organization's account for a Git repository: the one with the longest host and path that the repository is at or below.
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

// follow follows the domain's sources over a connection, and answers its requests, until ctx ends.
func (s *sourceSet) follow(ctx context.Context, conn *bus.Conn) error {
	changed := make(chan struct{}, 1)
	// NATS may disconnect while subscribing, or not allow it yet. Deliveries do not need these requests, so the service continues without.
	for err := s.listen(ctx, conn, changed); err != nil && ctx.Err() == nil; err = s.listen(ctx, conn, changed) {
		s.log.WarnContext(ctx, "subscribing to the domain's requests failed; will retry", "error", err.Error())
		_ = clock.Sleep(ctx, s.clock, listenAgain) // if it ends early, the loop condition sees why
	}
	s.forgeHooks.domain(conn)
	for {
		// Credentials come first, so that a new source finds its own.
		if err := s.pullCredentials(ctx, conn); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "pulling credentials from the domain failed; will retry", "error", err.Error())
		}
		// The domain may be unreachable: the stored sources are polled all the same.
		if err := s.pull(ctx, conn); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "pulling sources from the domain failed; will retry", "error", err.Error())
		}
		if _, err := s.forgeHooks.refresh(ctx, 0); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "pulling hooks of forges from the domain failed; will retry", "error", err.Error())
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

// listen receives the domain's requests, and notes in changed when it reports a change of sources, until ctx ends. If it fails, it leaves
// no subscription behind.
func (s *sourceSet) listen(ctx context.Context, conn *bus.Conn, changed chan<- struct{}) error {
	ctx, cancel := context.WithCancel(ctx)
	if err := events.Serve(ctx, conn, answers{s}); err != nil {
		cancel()
		return fmt.Errorf("answer the domain: %w", err)
	}
	err := events.ServeProvenance(ctx, conn, s.prover)
	if fault.Is(err, fault.Denied) {
		// The accounts of the bus are those of an older release: everything else is answered all the same.
		s.log.WarnContext(ctx, "the bus does not allow requests about provenance; update its accounts", "error", err.Error())
	} else if err != nil {
		cancel()
		return fmt.Errorf("answer the domain about provenance: %w", err)
	}
	err = conn.OnHint(ctx, bus.SourcesChanged, func([]byte) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	if err != nil {
		cancel()
		return fmt.Errorf("subscribe to changed sources: %w", err)
	}
	context.AfterFunc(ctx, cancel) // ends with its parent
	return nil
}

// pull makes the stored sources equal to the domain's. A pull that fails halfway removes nothing.
func (s *sourceSet) pull(ctx context.Context, domain events.Asker) error {
	at := s.clock.Now().Truncate(time.Microsecond) // the precision of PostgreSQL
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

// pullCredentials makes the stored credentials equal to the domain's. A pull that fails halfway removes nothing, and a domain service of an
// earlier release has none.
func (s *sourceSet) pullCredentials(ctx context.Context, domain events.Asker) error {
	pull := s.credentials.Begin(ctx)
	all, known, err := events.PullCredentials(ctx, domain)
	if err != nil || !known {
		return err
	}
	return s.credentials.Replace(ctx, pull, all)
}

// understand returns a source in the form in which it is polled. One of a kind that this release does not know is stored and shown, and a
// poll on demand reports an error.
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

// naming returns the domain's canonical names of registries and images.
func naming() core.Naming { return core.Naming{Host: kinds.NormalizeHost, Image: kinds.NormalizeImage} }

var _ core.Repositories = (*sourceSet)(nil)

// Name implements core.Repositories.
func (s *sourceSet) Name(address string) string { return kinds.RepositoryName(address) }

// Nudge implements core.Repositories.
func (s *sourceSet) Nudge(ctx context.Context, names []string) error {
	_, err := s.store.Nudge(ctx, kinds.Git, names, s.clock.Now())
	return err
}

// answers answers the domain's requests.
type answers struct{ *sourceSet }

var _ events.Answers = answers{}

// States implements events.Answers.
func (a answers) States(ctx context.Context, organization int64, ids []int64) ([]core.SourceState, error) {
	return a.store.States(ctx, organization, ids)
}

// Look implements events.Answers.
func (a answers) Look(ctx context.Context, organization, id int64) (artifact, problem string, err error) {
	o, err := a.poller.PollNow(ctx, organization, id)
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
