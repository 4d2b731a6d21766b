package registry

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/secret"
	"github.com/lockstep-cd/lockstep/services/registry/internal/api"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
	"github.com/lockstep-cd/lockstep/services/registry/internal/source"
	"github.com/lockstep-cd/lockstep/services/registry/internal/store"
)

const (
	// rereads is how long secrets are used before they are read again: a replaced secret takes effect soon, and a flood of deliveries does
	// not become a flood of reads.
	rereads = 10 * time.Second
	// rereadWithin bounds one read of all of them.
	rereadWithin = 2 * time.Second
	// shortest is the minimum length of a secret, in bytes. A hook's path is derived from it, so an attacker with the path (from a proxy's
	// log, for instance) could otherwise guess a short one offline.
	shortest    = 16
	defaultRate = 200
)

// hookSet holds the configured hooks, by the digest of their path.
type hookSet struct {
	hooks      []*configured
	tokens     []TokenConfig
	secrets    *secret.Reader
	hookIntake *core.HookIntake
	store      *store.Hooks
	clock      clock.Clock
	log        *slog.Logger
	decoy      api.Hook

	// mu guards read, byPath and the elements of hooks. The value that an element points to is never modified, only replaced: a delivery
	// keeps the secrets that it was found with.
	mu     sync.Mutex
	read   time.Time
	byPath map[[sha256.Size]byte]*configured
}

var _ api.Hooks = (*hookSet)(nil)

// configured is a hook with its secrets as last read.
type configured struct {
	config  HookConfig
	format  source.Format
	check   source.Check
	limiter *rate.Limiter
	secrets []string
}

// newHookSet reads all secrets. The error names the hook and the reference.
func newHookSet(c Config, d hookDeps) (*hookSet, error) {
	s := &hookSet{tokens: c.ScopedTokens, secrets: d.secrets, hookIntake: d.hookIntake, store: d.store, clock: d.clock, log: d.log}
	known := formats()
	for i, h := range c.Hooks {
		f := known[h.Source]
		check, err := f.Proof(source.Terms{Issuer: h.Issuer, Audience: h.Audience, Email: h.Email, Client: d.client})
		if err != nil {
			return nil, fault.New(fault.Invalid, "hooks[%d]: %w", i, err)
		}
		perSecond := h.Rate
		if perSecond == 0 {
			perSecond = defaultRate
		}
		s.hooks = append(s.hooks, &configured{config: h, format: f, check: check, limiter: rate.NewLimiter(rate.Limit(perSecond), 2*perSecond)})
	}
	if err := s.reread(); err != nil {
		return nil, err
	}
	var err error
	s.decoy, err = decoy()
	return s, err
}

// hookDeps are the dependencies of hooks.
type hookDeps struct {
	// secrets resolves the hooks' references; nil resolves all but those to Vault.
	secrets    *secret.Reader
	hookIntake *core.HookIntake
	store      *store.Hooks
	client     *http.Client
	clock      clock.Clock
	log        *slog.Logger
}

// decoy creates the hook for all unknown paths. It checks a signature as a hook would, with a random key: if an unknown path were
// answered faster than a wrong signature, the time would reveal which paths exist. The outcome is ignored, so that not even the right key
// is accepted.
func decoy() (api.Hook, error) {
	key := rand.Text()
	check, err := formats()["github"].Proof(source.Terms{})
	if err != nil {
		return api.Hook{}, fmt.Errorf("make a decoy: %w", err)
	}
	return api.Hook{Proven: func(ctx context.Context, header http.Header, body []byte, at time.Time) bool {
		check(ctx, source.Delivery{Header: header, Body: body, At: at}, []string{key})
		return false
	}}, nil
}

// reread reads every secret again and derives the paths. A hook with a secret that cannot be read keeps its previous ones. The caller holds
// mu, or is the only one with a reference to s.
func (s *hookSet) reread() error {
	s.read = s.clock.Now()
	fresh := make([]*configured, len(s.hooks))
	err := readEach(context.Background(), len(s.hooks), func(ctx context.Context, i int) error {
		h := s.hooks[i]
		fresh[i] = h
		// The copy shares its limiter, or every reread would refill the allowance.
		next := *h
		next.secrets = nil
		for n, reference := range h.config.Secrets {
			secret, err := s.secrets.Read(ctx, reference)
			if err != nil {
				return fault.New(fault.Invalid, "hooks[%d].secrets[%d] of %s: %w", i, n, h.config.Name, err)
			}
			if len(secret) < shortest {
				return fault.New(fault.Invalid, "hooks[%d].secrets[%d] of %s: found %d characters in %s; expected %d or more", i, n, h.config.Name,
					len(secret), reference, shortest)
			}
			next.secrets = append(next.secrets, secret)
		}
		fresh[i] = &next
		return nil
	})
	s.byPath = map[[sha256.Size]byte]*configured{}
	for i, h := range fresh {
		s.hooks[i] = h
		for _, secret := range h.secrets {
			s.byPath[sha256.Sum256([]byte(hookPath(h.config, secret)))] = h
		}
	}
	return err
}

// readEach reads the secrets of several senders concurrently: if those of one cannot be read, or its Vault hangs, those of the others are
// replaced or revoked nevertheless, and deliveries wait for no longer than rereadWithin. It returns the first error.
func readEach(ctx context.Context, senders int, read func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithTimeout(ctx, rereadWithin)
	defer cancel()
	problems := make([]error, senders)
	var all sync.WaitGroup
	for i := range senders {
		all.Go(func() { problems[i] = read(ctx, i) })
	}
	all.Wait()
	return cmp.Or(problems...)
}

// hookPath returns the path of a hook. Its last part is derived from the secret, so it cannot be found without knowing the secret.
func hookPath(h HookConfig, secret string) string {
	// Senders sign bodies with the same secret, but no body begins with this line, so an observed signature is no path. 160 bits cannot be
	// guessed either, and keep URLs short.
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = mac.Write([]byte("lockstep hook\n" + h.Source + "\n" + h.Name))
	return api.HookPath + h.Source + "/" + hex.EncodeToString(mac.Sum(nil)[:20])
}

// Find implements api.Hooks.
func (s *hookSet) Find(format, key string) api.Hook {
	s.mu.Lock()
	if s.clock.Now().Sub(s.read) >= rereads {
		// The interval applies after a failure too, or every delivery would try the files again and log this line.
		if err := s.reread(); err != nil {
			s.log.WarnContext(context.Background(), "reading secrets of hooks failed; the previous ones stay in use", "error", err.Error())
		}
	}
	h := s.byPath[sha256.Sum256([]byte(api.HookPath+format+"/"+key))] // the time of looking up a digest reveals nothing about the path
	s.mu.Unlock()
	if h == nil {
		return s.decoy
	}
	accept := func(ctx context.Context, delivery []core.Notification, left []core.Refusal) (core.Receipt, error) {
		return s.hookIntake.Accept(ctx, core.Hook{
			Name: h.config.Name, Host: h.config.Host, Verify: h.config.Verify, AllKinds: h.format.AllKinds, Redact: h.redact,
			Scope: core.Scope{Organization: h.config.Organization, Repositories: h.config.Repositories},
		}, delivery, left)
	}
	return api.Hook{
		Name: h.config.Name, MediaTypes: h.format.MediaTypes, MaxBody: h.format.MaxBody,
		Proven: func(ctx context.Context, header http.Header, body []byte, at time.Time) bool {
			return h.check(ctx, source.Delivery{Header: header, Body: body, At: at}, h.secrets)
		},
		Allow: func(at time.Time) bool { return h.limiter.AllowN(at, 1) },
		Take: func(ctx context.Context, header http.Header, mediaType string, body []byte) (core.Receipt, error) {
			notifications, err := h.format.Parse(header, mediaType, body)
			return accept(ctx, notifications, core.Unreadable(err))
		},
		Leave: func(ctx context.Context, left core.Refusal) (core.Receipt, error) {
			return accept(ctx, nil, []core.Refusal{left})
		},
	}
}

// redact removes the hook's secrets from a text, in case a sender repeats them in a payload.
func (h *configured) redact(text string) string {
	for _, secret := range h.secrets {
		text = strings.ReplaceAll(text, secret, "***")
	}
	return text
}

// Status implements api.Hooks, in the order of the configuration.
func (s *hookSet) Status(ctx context.Context, t core.Token) (api.Statuses, error) {
	var names []string
	all := api.Statuses{Hooks: []api.HookStatus{}}
	s.mu.Lock()
	for _, h := range s.hooks {
		if organization := t.Scope.Organization; organization != 0 && h.config.Organization != organization {
			continue
		}
		names = append(names, h.config.Name)
		all.Hooks = append(all.Hooks, api.HookStatus{
			Name: h.config.Name, Format: h.config.Source, Organization: h.config.Organization, Repositories: h.config.Repositories,
		})
	}
	s.mu.Unlock()
	senders := slices.Clone(names)
	for _, token := range append([]TokenConfig{{}}, s.tokens...) {
		if t.Name != "" && token.Name != t.Name {
			continue
		}
		status := api.TokenStatus{Name: token.Name, Organization: token.Organization, Repositories: token.Repositories}
		if end, ok := token.end(); ok {
			status.Expires = &end
		}
		all.Tokens = append(all.Tokens, status)
		senders = append(senders, core.Token{Name: token.Name}.Sender())
	}
	// Without the lock: deliveries do not wait for this query.
	reports, waiting, err := s.store.Status(ctx, names)
	if err != nil {
		return api.Statuses{}, fmt.Errorf("read the state of hooks: %w", err)
	}
	refused, err := s.store.Refusals(ctx, senders)
	if err != nil {
		return api.Statuses{}, fmt.Errorf("read what was left out: %w", err)
	}
	for i := range all.Hooks {
		h := &all.Hooks[i]
		if last, ok := reports[h.Name]; ok {
			h.LastArtifact, h.LastPublished = last.Reference, &last.At
		}
		for _, w := range waiting[h.Name] {
			h.Waiting = append(h.Waiting, api.WaitingStatus{
				Reference: w.Reference, Heard: w.Heard, Attempts: w.Attempts, LastError: w.LastError, NextTry: w.Next,
			})
		}
		h.Refused = shownRefusals(refused[h.Name])
	}
	for i := range all.Tokens {
		all.Tokens[i].Refused = shownRefusals(refused[core.Token{Name: all.Tokens[i].Name}.Sender()])
	}
	// The unnamed tokens have a row only if something of theirs was refused.
	all.Tokens = slices.DeleteFunc(all.Tokens, func(t api.TokenStatus) bool { return t.Name == "" && len(t.Refused) == 0 })
	return all, nil
}

func shownRefusals(kept []store.Refused) []api.RefusedStatus {
	var all []api.RefusedStatus
	for _, r := range kept {
		all = append(all, api.RefusedStatus{What: r.What, Reason: r.Reason, Times: r.Times, First: r.First, Last: r.Last})
	}
	return all
}

// ListHooks writes the path of every hook, one per line, that of the newest secret first: the subcommand hooks. Anyone with a path can
// deliver to a hook whose sender has no other proof.
func ListHooks(ctx context.Context, w io.Writer, c Config) error {
	secrets, err := secret.New(c.Vault, clock.System(), slog.New(slog.DiscardHandler))
	if err != nil {
		return fmt.Errorf("vault: %w", err)
	}
	for _, h := range c.Hooks {
		for _, reference := range h.Secrets {
			secret, err := secrets.Read(ctx, reference)
			if err != nil {
				return fault.New(fault.Invalid, "hook %s: %w", h.Name, err)
			}
			if _, err := fmt.Fprintf(w, "%s\t%s\t%s\n", h.Name, reference, hookPath(h, secret)); err != nil {
				return fmt.Errorf("list hooks: %w", err)
			}
		}
	}
	return nil
}
