package book

import (
	"context"
	"crypto/sha256"
	"maps"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

const (
	// tokenMargin is how long before its end a token is not sent any more.
	tokenMargin = 30 * time.Second
	// tokenAtMost is how long a token is kept, however long it is good for.
	tokenAtMost = time.Hour
	// issuedAtMost is how many tokens are kept for organizations, and issuedForOne for one of them. Beyond it the one is dropped that was not
	// used for the longest time.
	issuedAtMost, issuedForOne = 2000, 500
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
	// count is how many were kept or used again.
	count uint64
	// asking are the requests under way.
	asking map[wanted]*request
}

// wanted is what a request is made for, and request one under way.
type wanted struct {
	of      Holder
	digest  [sha256.Size]byte
	timeout time.Duration
}

type request struct {
	done  chan struct{}
	value string
	err   error
}

type kept struct {
	value string
	// of is the digest of the secret that it was issued for, and of its terms: another secret takes effect with the next use.
	of  [sha256.Size]byte
	end time.Time
	// issued is when it was.
	issued time.Time
	// number is the how many-th it was when it was last used.
	number uint64
}

// NewIssued makes an Issued without tokens.
func NewIssued(c clock.Clock) *Issued {
	return &Issued{clock: c, kept: map[Holder]kept{}, asking: map[wanted]*request{}}
}

// Of is a token, and whether it was kept from an earlier use: a server may have taken back such a one meanwhile. It is issued if none is
// kept for the secret and the terms, within the timeout.
func (i *Issued) Of(
	ctx context.Context, of Holder, secret string, terms []byte, timeout time.Duration, issue func(context.Context) (Token, error),
) (value string, again bool, err error) {
	digest := sha256.Sum256(append([]byte(secret+"\x00"), terms...))
	if value, found := i.use(of, digest); found {
		return value, true, nil
	}
	// Those who need the same token wait for one request, which does not end with the caller that began it.
	key := wanted{of, digest, timeout}
	i.mu.Lock()
	one, found := i.asking[key]
	if !found {
		one = &request{done: make(chan struct{})}
		i.asking[key] = one
		go i.ask(context.WithoutCancel(ctx), one, key, issue)
	}
	i.mu.Unlock()
	select {
	case <-one.done:
		return one.value, false, one.err
	case <-ctx.Done():
		return "", false, fault.Because(ctx.Err(), fault.Unavailable, "waited for a token of the credential %q", of.Name)
	}
}

// ask makes a request for a token.
func (i *Issued) ask(ctx context.Context, one *request, key wanted, issue func(context.Context) (Token, error)) {
	ctx, cancel := context.WithTimeout(ctx, min(key.timeout, issuedWithin))
	defer cancel()
	if value, kept := i.use(key.of, key.digest); kept { // of a request that has just ended
		one.value = value
	} else {
		one.value, one.err = i.issue(ctx, key.of, key.digest, issue)
	}
	i.mu.Lock()
	delete(i.asking, key)
	i.mu.Unlock()
	close(one.done)
}

// use is a token that is kept.
func (i *Issued) use(of Holder, digest [sha256.Size]byte) (value string, found bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	known, found := i.kept[of]
	if !found || known.of != digest || !i.clock.Now().Before(known.end) {
		return "", false
	}
	i.count++
	known.number = i.count
	i.kept[of] = known
	return known.value, true
}

// issue has a token issued, and keeps it.
func (i *Issued) issue(
	ctx context.Context, of Holder, digest [sha256.Size]byte, issue func(context.Context) (Token, error),
) (string, error) {
	issued, err := issue(ctx)
	if err != nil {
		return "", err
	}
	if issued.Good > tokenMargin {
		now := i.clock.Now()
		i.keep(of, kept{value: issued.Value, of: digest, issued: now, end: now.Add(min(issued.Good-tokenMargin, tokenAtMost))})
	}
	return issued.Value, nil
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
