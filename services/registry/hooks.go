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
	// rereads is how long secrets are good for before they are read again: a new one mounted over the old is in use soon,
	// and a flood of deliveries does not become a flood of reads.
	rereads = 10 * time.Second
	// rereadWithin bounds one reading of all of them.
	rereadWithin = 2 * time.Second
	// shortest is how long a secret has to be, in bytes. A hook's path is derived from it, so whoever has seen the path
	// (a proxy's log is enough) could try short ones without ever asking us.
	shortest    = 16
	defaultRate = 200
)

// hookSet are the configured hooks, found by the digest of their path.
type hookSet struct {
	hooks   []*configured
	tokens  []TokenConfig
	secrets *secret.Reader
	desk    *core.Desk
	store   *store.Hooks
	clock   clock.Clock
	log     *slog.Logger
	decoy   api.Hook

	// mu guards read, byPath and the elements of hooks. What an element points to is never changed, only replaced: a
	// delivery keeps the secrets it was found with.
	mu     sync.Mutex
	read   time.Time
	byPath map[[sha256.Size]byte]*configured
}

var _ api.Hooks = (*hookSet)(nil)

// configured is a hook with its secrets as they were read last.
type configured struct {
	config  HookConfig
	format  source.Format
	check   source.Check
	limiter *rate.Limiter
	secrets []string
}

// newHookSet reads all secrets. Its error names the hook and the reference.
func newHookSet(c Config, d hookDeps) (*hookSet, error) {
	s := &hookSet{tokens: c.ScopedTokens, secrets: d.secrets, desk: d.desk, store: d.store, clock: d.clock, log: d.log}
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
	return s, s.makeDecoy()
}

// hookDeps is what hooks need beside their configuration.
type hookDeps struct {
	// secrets follows the hooks' references; nil all but those to Vault.
	secrets *secret.Reader
	desk    *core.Desk
	store   *store.Hooks
	client  *http.Client
	clock   clock.Clock
	log     *slog.Logger
}

// makeDecoy makes the hook of all paths that no hook has. It checks a signature as a hook would, with a key that nobody
// knows: were a wrong path answered sooner than a wrong signature, the time would tell which paths exist. The outcome
// is thrown away, so that not even the right key opens it.
func (s *hookSet) makeDecoy() error {
	key := rand.Text()
	check, err := formats()["github"].Proof(source.Terms{})
	if err != nil {
		return fmt.Errorf("make a decoy: %w", err)
	}
	s.decoy = api.Hook{Proven: func(ctx context.Context, header http.Header, body []byte, at time.Time) bool {
		check(ctx, source.Delivery{Header: header, Body: body, At: at}, []string{key})
		return false
	}}
	return nil
}

// reread reads every secret again and derives the paths. A hook of which one cannot be read stays as it was. The caller holds mu, or is the only one that
// knows s.
func (s *hookSet) reread() error {
	s.read = s.clock.Now()
	fresh := make([]*configured, len(s.hooks))
	err := readEach(context.Background(), len(s.hooks), func(ctx context.Context, i int) error {
		h := s.hooks[i]
		fresh[i] = h
		// The copy shares its limiter, or every reread would fill the allowance up.
		next := *h
		next.secrets = nil
		for n, reference := range h.config.Secrets {
			secret, err := s.secrets.Read(ctx, reference)
			if err != nil {
				return fault.New(fault.Invalid, "hooks[%d].secrets[%d] of %s: %w", i, n, h.config.Name, err)
			}
			if len(secret) < shortest {
				return fault.New(fault.Invalid, "hooks[%d].secrets[%d] of %s: found %d characters in %s; expected %d or more", i, n, h.config.Name, len(secret), reference, shortest)
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

// readEach reads the secrets of each of so many senders, of all at the same time: where those of one cannot be read, or their Vault hangs, the others have
// theirs replaced or revoked nevertheless, and deliveries wait for no longer than rereadWithin. The error is that of the first that failed.
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

// hookPath is where a hook is found: the last part is derived from the secret, so that who may not know the one cannot
// find the other.
func hookPath(h HookConfig, secret string) string {
	// Senders sign bodies with the same secret, and no body begins with this line: a signature that was seen is no path.
	// 160 bits of it are as hard to guess, and keep URLs short.
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = mac.Write([]byte("lockstep hook\n" + h.Source + "\n" + h.Name))
	return api.HookPath + h.Source + "/" + hex.EncodeToString(mac.Sum(nil)[:20])
}

// Find is the hook at a path.
func (s *hookSet) Find(format, key string) api.Hook {
	s.mu.Lock()
	if s.clock.Now().Sub(s.read) >= rereads {
		// The pause is kept after a failure too, or every delivery would try the files again and log this line.
		if err := s.reread(); err != nil {
			s.log.WarnContext(context.Background(), "secrets of a hook stay as they were", "error", err.Error())
		}
	}
	h := s.byPath[sha256.Sum256([]byte(api.HookPath+format+"/"+key))] // looking up a digest tells nothing about the path
	s.mu.Unlock()
	if h == nil {
		return s.decoy
	}
	return api.Hook{
		Name: h.config.Name, MediaTypes: h.format.MediaTypes, Parse: h.format.Parse, MaxBody: h.format.MaxBody,
		Proven: func(ctx context.Context, header http.Header, body []byte, at time.Time) bool {
			return h.check(ctx, source.Delivery{Header: header, Body: body, At: at}, h.secrets)
		},
		Allow: func(at time.Time) bool { return h.limiter.AllowN(at, 1) },
		Hear: func(ctx context.Context, delivery []core.Notification, left []core.Refusal) (core.Receipt, error) {
			return s.desk.Hear(ctx, core.Hook{
				Name: h.config.Name, Host: h.config.Host, Verify: h.config.Verify, AllKinds: h.format.AllKinds, Redact: h.redact,
				Scope: core.Scope{Organization: h.config.Organization, Repositories: h.config.Repositories},
			}, delivery, left)
		},
	}
}

// redact takes the hook's secrets out of a text, should a sender repeat them in a payload.
func (h *configured) redact(text string) string {
	for _, secret := range h.secrets {
		text = strings.ReplaceAll(text, secret, "***")
	}
	return text
}

// Status is how those hooks and tokens are doing that a token may see, in the order of the configuration.
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
	// Outside of the lock: deliveries do not wait for the database to answer whoever looks at the status.
	told, waiting, err := s.store.Status(ctx, names)
	if err != nil {
		return api.Statuses{}, fmt.Errorf("read the state of hooks: %w", err)
	}
	refused, err := s.store.Refusals(ctx, senders)
	if err != nil {
		return api.Statuses{}, fmt.Errorf("read what was left out: %w", err)
	}
	for i := range all.Hooks {
		h := &all.Hooks[i]
		if last, ok := told[h.Name]; ok {
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
	// The tokens without a name are a row only if there is something to be said of them.
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

// ListHooks writes the path of every hook, one a line and the newest secret's first: the subcommand hooks. Whoever knows
// a path can deliver to hooks whose sender has no other proof.
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
