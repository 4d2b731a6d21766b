package credential

import (
	"context"
	"crypto/sha256"
	"maps"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

const (
	// tokenMargin is how long before its end a token is not sent any more.
	tokenMargin = 30 * time.Second
	// tokenAtMost is how long a token is kept, however long it is good for.
	tokenAtMost = time.Hour
	// issuedAtMost is how many tokens are kept for organizations, and issuedForOne for one of them. Beyond it the oldest one is dropped.
	issuedAtMost, issuedForOne = 1000, 50
	// issuedWithin is how long a server may take to issue one.
	issuedWithin = 30 * time.Second
)

// Holder is what something is kept for between two uses of a credential, which is read anew for each use.
type Holder struct {
	// Operators is the operator's credential, the same for as long as the process lives; nil for one of an organization.
	Operators    any
	Organization int64
	Name         string
	// For is what it is good for alone, such as a repository; empty for all that the credential is for.
	For string
}

// Token is one that a server has issued.
type Token struct {
	Value string
	// Good is how long; zero if the server does not say.
	Good time.Duration
}

// Issued are tokens that servers have issued for credentials. They are in memory only: another process has others. It is safe for
// concurrent use.
type Issued struct {
	clock clock.Clock

	mu   sync.Mutex
	kept map[Holder]kept
	// count is how many were kept.
	count uint64
}

type kept struct {
	value string
	// of is the digest of the secret that it was issued for, and of its terms: another secret takes effect with the next use.
	of  [sha256.Size]byte
	end time.Time
	// issued is when it was.
	issued time.Time
	// number is the how many-th it was.
	number uint64
}

// NewIssued makes an Issued without tokens.
func NewIssued(c clock.Clock) *Issued { return &Issued{clock: c, kept: map[Holder]kept{}} }

// Of is a token, and whether it was kept from an earlier use: a server may have taken back such a one meanwhile. It is issued if none is
// kept for the secret and the terms, within the timeout.
func (i *Issued) Of(
	ctx context.Context, of Holder, secret string, terms []byte, timeout time.Duration, issue func(context.Context) (Token, error),
) (value string, again bool, err error) {
	digest := sha256.Sum256(append([]byte(secret+"\x00"), terms...))
	i.mu.Lock()
	known, found := i.kept[of]
	i.mu.Unlock()
	if found && known.of == digest && i.clock.Now().Before(known.end) {
		return known.value, true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, min(timeout, issuedWithin))
	defer cancel()
	issued, err := issue(ctx)
	if err != nil {
		return "", false, err
	}
	if issued.Good > tokenMargin {
		now := i.clock.Now()
		i.keep(of, kept{value: issued.Value, of: digest, issued: now, end: now.Add(min(issued.Good-tokenMargin, tokenAtMost))})
	}
	return issued.Value, false, nil
}

// keep keeps a token, and drops what is too much with it.
func (i *Issued) keep(of Holder, one kept) {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := i.clock.Now()
	maps.DeleteFunc(i.kept, func(_ Holder, one kept) bool { return !now.Before(one.end) })
	if drop, ok := Surplus(i.kept, of, issuedForOne, issuedAtMost, func(one kept) uint64 { return one.number }); ok {
		delete(i.kept, drop)
	}
	i.count++
	one.number = i.count
	i.kept[of] = one
}

// Younger reports whether a token is kept that was issued less than a time ago.
func (i *Issued) Younger(of Holder, value string, than time.Duration) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	known := i.kept[of]
	return known.value == value && i.clock.Now().Sub(known.issued) < than
}

// Forget drops a token that a server does not accept.
func (i *Issued) Forget(of Holder, value string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.kept[of].value == value {
		delete(i.kept, of)
	}
}
