package registry

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/secret"
	"github.com/lockstep-cd/lockstep/pkg/secret/reference"
	"github.com/lockstep-cd/lockstep/services/registry/internal/api"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
	"github.com/lockstep-cd/lockstep/services/registry/internal/events"
	"github.com/lockstep-cd/lockstep/services/registry/internal/source"
)

// ForgeHooksConfig is how organizations may make hooks for statuses of commits. Without secrets they cannot.
type ForgeHooksConfig struct {
	// Secrets are references, env:NAME, file:/path, k8s:namespace/name#key or vault:path#key, to secrets of which the secret of each hook is
	// derived; new hooks have one of the first. Configure two while one replaces the other.
	Secrets []string `koanf:"secrets"`
	// Rate is how many deliveries are accepted per second to one hook; 0 for 50. A burst may have twice as many.
	Rate int `koanf:"rate"`
	// OrganizationRate is how many deliveries are accepted per second to all hooks of an organization; 0 for 20. A burst may have ten times
	// as many.
	OrganizationRate int `koanf:"organization_rate"`
}

const (
	defaultForgeRate             = 50
	defaultForgeOrganizationRate = 20
)

func (c ForgeHooksConfig) problems() []fault.Field {
	var problems []fault.Field
	for i, value := range c.Secrets {
		if !reference.Is(value) { // which is not shown: it may be the secret itself
			problems = append(problems, fault.Field{
				Name: fmt.Sprintf("forge_hooks.secrets[%d]", i), Problem: "found a value that is not a reference; " + reference.Expected,
			})
		}
	}
	if c.Rate < 0 {
		problems = append(problems, fault.Field{Name: "forge_hooks.rate", Problem: fmt.Sprintf("found %d; expected 1 or more, or 0 for %d", c.Rate, defaultForgeRate)})
	}
	if c.OrganizationRate < 0 {
		problems = append(problems, fault.Field{
			Name:    "forge_hooks.organization_rate",
			Problem: fmt.Sprintf("found %d; expected 1 or more, or 0 for %d", c.OrganizationRate, defaultForgeOrganizationRate),
		})
	}
	return problems
}

// forgeHooks are the endpoints of all organizations for statuses of commits. None is stored here: who can sign with the secret of a hook
// was given it by the domain service, which knows the hooks that there are and decides what a report counts for. A hook that was removed is
// refused here as well, as far as is known: while the domain service does not answer, its reports are accepted and count for nothing.
type forgeHooks struct {
	config  ForgeHooksConfig
	formats map[string]source.StatusFormat
	checks  map[string]source.Check
	secrets *secret.Reader
	intake  *core.StatusIntake
	clock   clock.Clock
	log     *slog.Logger
	decoy   api.Hook

	// hooked and organized are the allowances of hooks and of organizations that have delivered with a proof.
	hooked, organized *allowances

	// pulling is held while the hooks that there are are pulled: last at pulled, when that may have failed.
	pulling sync.Mutex
	asker   events.Asker
	pulled  time.Time
	failed  bool

	// mu guards the rest. The slice is never modified, only replaced.
	mu    sync.Mutex
	read  time.Time
	roots []string
	// there are the senders of the hooks that were not removed; nil while that is not known.
	there map[string]bool
	// gone are the senders that a pull did not find although it began after their delivery: no more pulls because of them. A key is never
	// given again.
	gone map[string]bool
}

var _ api.Finder = (*forgeHooks)(nil)

type forgeHookDeps struct {
	secrets *secret.Reader
	intake  *core.StatusIntake
	clock   clock.Clock
	log     *slog.Logger
}

func newForgeHooks(c ForgeHooksConfig, d forgeHookDeps) (*forgeHooks, error) {
	if c.Rate == 0 {
		c.Rate = defaultForgeRate
	}
	if c.OrganizationRate == 0 {
		c.OrganizationRate = defaultForgeOrganizationRate
	}
	s := &forgeHooks{
		config: c, secrets: d.secrets, intake: d.intake, clock: d.clock, log: d.log,
		formats: map[string]source.StatusFormat{}, checks: map[string]source.Check{},
		hooked:    newAllowances(rate.Limit(c.Rate), 2*c.Rate),
		organized: newAllowances(rate.Limit(c.OrganizationRate), 10*c.OrganizationRate),
	}
	for _, f := range source.StatusFormats() {
		check, err := f.Proof(source.Terms{})
		if err != nil {
			return nil, fmt.Errorf("make the proof of %s: %w", f.Name, err)
		}
		s.formats[f.Name], s.checks[f.Name] = f, check
	}
	var err error
	if s.decoy, err = decoy(); err != nil {
		return nil, err
	}
	return s, s.reread()
}

// reread reads the secrets again. If one cannot be read, the previous ones stay. The caller holds mu, or is the only one with s.
func (s *forgeHooks) reread() error {
	s.read = s.clock.Now()
	roots := make([]string, len(s.config.Secrets))
	err := readEach(context.Background(), len(roots), func(ctx context.Context, i int) (err error) {
		if roots[i], err = s.secrets.Read(ctx, s.config.Secrets[i]); err != nil {
			return fault.New(fault.Invalid, "secrets[%d]: %w", i, err)
		}
		if len(roots[i]) < shortest {
			return fault.New(fault.Invalid, "secrets[%d]: found %d characters in %s; expected %d or more", i, len(roots[i]), s.config.Secrets[i], shortest)
		}
		return nil
	})
	if err == nil {
		s.roots = roots
	}
	return err
}

// current are the secrets as last read.
func (s *forgeHooks) current() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clock.Now().Sub(s.read) >= rereads {
		if err := s.reread(); err != nil {
			s.log.WarnContext(context.Background(), "reading secrets of forge hooks failed; the previous ones stay in use", "error", err.Error())
		}
	}
	return s.roots
}

// forgeHookForm is <organization>-<key of the hook>.
var forgeHookForm = regexp.MustCompile(`^([1-9][0-9]{0,17})-([0-9a-f]{16,64})$`)

// derived is the secret of a hook: it cannot be computed without the one that it is derived from, and reveals nothing about it.
func derived(root, format string, organization int64, key string) string {
	mac := hmac.New(sha256.New, []byte(root))
	// Nothing else that is derived from a secret begins with this line.
	_, _ = fmt.Fprintf(mac, "lockstep forge hook\n%s\n%d\n%s", format, organization, key)
	return hex.EncodeToString(mac.Sum(nil))
}

// Find implements api.Finder. All paths of the form of a hook are alike until a delivery proves that it is from who was given the secret.
func (s *forgeHooks) Find(format, key string) api.Hook {
	roots := s.current()
	f, known := s.formats[format]
	parts := forgeHookForm.FindStringSubmatch(key)
	if !known || parts == nil || len(roots) == 0 {
		return s.decoy
	}
	organization, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return s.decoy
	}
	secrets := make([]string, len(roots))
	for i, root := range roots {
		secrets[i] = derived(root, format, organization, parts[2])
	}
	hook := core.StatusHook{Organization: organization, Key: parts[2], Redact: func(text string) string {
		for _, secret := range secrets {
			text = strings.ReplaceAll(text, secret, "***")
		}
		return text
	}}
	return api.Hook{
		Name: hook.Sender(), MediaTypes: []string{"application/json"},
		Proven: func(ctx context.Context, header http.Header, body []byte, at time.Time) bool {
			return s.checks[format](ctx, source.Delivery{Header: header, Body: body, At: at}, secrets) && s.open(ctx, hook, at)
		},
		Allow: func(at time.Time) bool { return s.allow(hook, at) },
		Take: func(ctx context.Context, header http.Header, _ string, body []byte) (core.Receipt, error) {
			delivery, err := f.Parse(header, body)
			return s.intake.Accept(ctx, hook, delivery, core.Unreadable(err))
		},
		Leave: func(ctx context.Context, left core.Refusal) (core.Receipt, error) {
			return s.intake.Accept(ctx, hook, core.ForgeDelivery{}, []core.Refusal{left})
		},
	}
}

// pullAgain is how soon hooks are pulled again because of a delivery, pullWithin how long it waits for them, and mostGone how many removed
// hooks are remembered.
const (
	pullAgain  = time.Second
	pullWithin = 2 * time.Second
	mostGone   = 10_000
)

// domain sets who is asked for the hooks that there are.
func (s *forgeHooks) domain(asker events.Asker) {
	s.pulling.Lock()
	defer s.pulling.Unlock()
	s.asker = asker
}

// open reports whether a hook was not removed when it delivered. One that is not known may be new: only a pull that began later than the
// delivery can say that there is none. Until then it is accepted, and the domain decides what it counts for.
func (s *forgeHooks) open(ctx context.Context, hook core.StatusHook, at time.Time) bool {
	there, gone := s.has(hook)
	if there || gone {
		return there
	}
	ctx, cancel := context.WithTimeout(ctx, pullWithin)
	defer cancel()
	began, err := s.refresh(ctx, pullAgain)
	if err != nil || began.Before(at) {
		return true
	}
	if there, _ = s.has(hook); there {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.gone) >= mostGone {
		s.gone = nil
	}
	if s.gone == nil {
		s.gone = map[string]bool{}
	}
	s.gone[hook.Sender()] = true
	return false
}

// has reports what is known of a hook: that it exists, which all do while nothing is known, or that it was removed.
func (s *forgeHooks) has(hook core.StatusHook) (there, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	there = s.there == nil || s.there[hook.Sender()]
	return there, !there && s.gone[hook.Sender()]
}

// refresh pulls the hooks that there are, unless that was done less than a time ago, and answers when the last pull began. If it fails,
// those that were known stay.
func (s *forgeHooks) refresh(ctx context.Context, unless time.Duration) (began time.Time, err error) {
	s.pulling.Lock()
	defer s.pulling.Unlock()
	at := s.clock.Now()
	if at.Sub(s.pulled) < unless {
		if s.failed {
			return s.pulled, fault.New(fault.Unavailable, "the hooks could not be pulled from the domain service")
		}
		return s.pulled, nil
	}
	s.pulled, s.failed = at, true
	all, known, err := events.PullForgeHooks(ctx, s.asker)
	if err != nil {
		return at, err
	}
	var there map[string]bool
	if known {
		there = make(map[string]bool, len(all))
		for _, hook := range all {
			there[hook.Sender()] = true
		}
	}
	s.failed = false
	s.mu.Lock()
	defer s.mu.Unlock()
	s.there = there
	return at, nil
}

// allow takes a delivery from the allowance of a hook and then from that of its organization: one hook that has used up its own, also one
// that was removed, takes nothing from the others.
func (s *forgeHooks) allow(hook core.StatusHook, at time.Time) bool {
	return s.hooked.take(hook.Sender(), at) == 0 && s.organized.take(strconv.FormatInt(hook.Organization, 10), at) == 0
}

// ForgeHook implements events.Answers.
func (a answers) ForgeHook(_ context.Context, organization int64, key, format string) (path, secret string, err error) {
	name := strconv.FormatInt(organization, 10) + "-" + key
	if _, known := a.forgeHooks.formats[format]; !known || !forgeHookForm.MatchString(name) {
		return "", "", fault.New(fault.Invalid, "found a hook %.100q of forge %.100q; expected one of github, gitlab or gitea", name, format)
	}
	roots := a.forgeHooks.current() //nolint:contextcheck // secrets are read in the background as well
	if len(roots) == 0 {
		return "", "", fault.New(fault.Refused, "forge_hooks.secrets of the registry service is not set; its operator has to set it")
	}
	return api.ForgeHookPath + format + "/" + name, derived(roots[0], format, organization, key), nil
}
