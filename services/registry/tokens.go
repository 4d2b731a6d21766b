package registry

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/secret"
	"github.com/lockstep-cd/lockstep/pkg/secret/reference"
	"github.com/lockstep-cd/lockstep/services/registry/internal/api"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// TokenConfig is a bearer token of one sender, for /v1/events and /v1/notifications/distribution.
type TokenConfig struct {
	// Name identifies the token in logs, refusals and events, permanently: its reports are recorded under it.
	Name string `koanf:"name"`
	// Secrets are references, env:NAME, file:/path, k8s:namespace/name#key or vault:path#key, to the token, of 16 characters or more.
	// Configure two while one replaces the other. They are read again every ten seconds.
	Secrets []string `koanf:"secrets"`
	// Organization is the organization whose sources receive the reports.
	Organization int64 `koanf:"organization"`
	// Repositories are patterns of what may be reported, with the registry: * matches a part of the path, ** any path.
	Repositories []string `koanf:"repositories"`
	// Expires is when the token expires: a time as in RFC 3339, or the last day, such as 2027-06-30, in UTC.
	Expires string `koanf:"expires"`
}

// end returns when a token expires; false for a malformed date.
func (t TokenConfig) end() (time.Time, bool) {
	if at, err := time.Parse(time.RFC3339, t.Expires); err == nil {
		return at, true
	}
	day, err := time.Parse(time.DateOnly, t.Expires)
	return day.AddDate(0, 0, 1), err == nil
}

// tokenProblems returns the problems of the tokens.
func (c Config) tokenProblems() []fault.Field {
	var problems []fault.Field
	seen := map[string]bool{}
	for i, t := range c.ScopedTokens {
		wrong := func(field, problem string) {
			problems = append(problems, fault.Field{Name: fmt.Sprintf("scoped_tokens[%d].%s", i, field), Problem: problem})
		}
		if !hookName.MatchString(t.Name) || seen[t.Name] {
			wrong("name", fmt.Sprintf("found %q; expected a name of its own of up to 63 letters in lower case, digits and dashes", t.Name))
		}
		seen[t.Name] = true
		if len(t.Secrets) < 1 || len(t.Secrets) > 2 || !all(t.Secrets, reference.Is) {
			// The value is not shown: it may be the token itself, entered in place of a reference.
			wrong("secrets", fmt.Sprintf("found %d entries that are not all references; expected one, or two during a change, each env:NAME, file:/path, k8s:namespace/name#key or vault:mount/data/path#key", len(t.Secrets)))
		}
		if t.Organization < 1 {
			wrong("organization", fmt.Sprintf("found %d; expected the organization's number", t.Organization))
		}
		if len(t.Repositories) == 0 {
			wrong("repositories", "found none; expected the repositories that the token may report, such as registry.example.com/shop/**")
		}
		for n, pattern := range t.Repositories {
			if err := core.CheckPattern(naming(), pattern); err != nil {
				wrong(fmt.Sprintf("repositories[%d]", n), err.Error())
			}
		}
		if _, ok := t.end(); !ok {
			wrong("expires", fmt.Sprintf("found %q; expected an instant such as 2027-06-30T12:00:00Z, or the last day, such as 2027-06-30",
				t.Expires))
		}
	}
	return problems
}

// tokenSet holds the configured tokens.
type tokenSet struct {
	plain  [][sha256.Size]byte
	scoped []TokenConfig
	// secrets resolves the references.
	secrets *secret.Reader
	clock   clock.Clock
	log     *slog.Logger

	mu   sync.Mutex
	read time.Time
	// digests are those of the scoped tokens, as last read.
	digests [][][sha256.Size]byte
}

var _ api.Tokens = (*tokenSet)(nil)

// newTokenSet reads all tokens. The error names the token and the reference.
func newTokenSet(c Config, secrets *secret.Reader, clk clock.Clock, log *slog.Logger) (*tokenSet, error) {
	s := &tokenSet{scoped: c.ScopedTokens, secrets: secrets, clock: clk, log: log}
	for _, token := range c.Tokens {
		// An empty one would equal what "Bearer" with an empty token presents, and let everyone in.
		if token != "" {
			s.plain = append(s.plain, sha256.Sum256([]byte(token)))
		}
	}
	return s, s.reread(context.Background())
}

// reread reads every scoped token again. A token with a secret that cannot be read keeps its previous ones. The caller holds mu, or is the
// only one with a reference to s.
func (s *tokenSet) reread(ctx context.Context) error {
	s.read = s.clock.Now()
	fresh := make([][][sha256.Size]byte, len(s.scoped)) // a new slice: callers use s.digests without the lock
	copy(fresh, s.digests)
	err := readEach(ctx, len(s.scoped), func(ctx context.Context, i int) error {
		t := s.scoped[i]
		digests := make([][sha256.Size]byte, len(t.Secrets))
		for n, ref := range t.Secrets {
			token, err := s.secrets.Read(ctx, ref)
			if err != nil {
				return fault.New(fault.Invalid, "scoped_tokens[%d].secrets[%d] of %s: %w", i, n, t.Name, err)
			}
			if len(token) < shortest || strings.ContainsAny(token, " \t\r\n") {
				return fault.New(fault.Invalid, "scoped_tokens[%d].secrets[%d] of %s: found %d characters in %s; expected %d or more, none of them a space", i, n, t.Name, len(token), ref, shortest)
			}
			digests[n] = sha256.Sum256([]byte(token))
		}
		fresh[i] = digests
		return nil
	})
	s.digests = fresh
	return err
}

// Find implements api.Tokens. It compares digests, all of them and in constant time, so that the time reveals neither the length of a token
// nor a partial match.
func (s *tokenSet) Find(ctx context.Context, presented string) (core.Token, error) {
	digest := sha256.Sum256([]byte(presented))
	now := s.clock.Now()
	s.mu.Lock()
	if len(s.scoped) > 0 && now.Sub(s.read) >= rereads {
		// They are read for all callers: the read must not end with this request.
		if err := s.reread(context.WithoutCancel(ctx)); err != nil {
			s.log.WarnContext(ctx, "reading a token failed; the previous one stays in use", "error", err.Error())
		}
	}
	digests := s.digests
	s.mu.Unlock()
	found, plain := -1, 0
	for i, all := range digests {
		for _, one := range all {
			if subtle.ConstantTimeCompare(one[:], digest[:]) == 1 {
				found = i
			}
		}
	}
	for _, one := range s.plain {
		plain |= subtle.ConstantTimeCompare(one[:], digest[:])
	}
	switch {
	case found >= 0:
		t := s.scoped[found]
		if end, _ := t.end(); !now.Before(end) {
			return core.Token{}, fault.New(fault.Unauthenticated, "authorization: the token %s expired at %s; expected one that has not", t.Name,
				end.Format(time.RFC3339))
		}
		return core.Token{Name: t.Name, Scope: core.Scope{Organization: t.Organization, Repositories: t.Repositories}}, nil
	case plain == 1:
		return core.Token{}, nil
	default:
		return core.Token{}, fault.New(fault.Unauthenticated,
			"authorization: expected \"Bearer\" and one of the tokens in this service's configuration")
	}
}
