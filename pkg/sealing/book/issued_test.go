package book

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// R3-41: of what is kept, one organization has its part only. It makes room for its own, the oldest first, and for no other's.
func TestOneOrganizationHasItsPartOnly(t *testing.T) {
	t.Parallel()
	const forOne, atMost = 3, 6
	kept := map[Holder]uint64{{Operators: &struct{ int }{}}: 0, {Organization: 2, Name: "a"}: 1}
	age := func(v uint64) uint64 { return v }
	add := func(organization int64, name string, at uint64) {
		of := Holder{Organization: organization, Name: name}
		if drop, found := Surplus(kept, of, forOne, atMost, age); found {
			delete(kept, drop)
		}
		kept[of] = at
	}
	for n := range uint64(100) {
		add(1, fmt.Sprint(n), n+2)
	}
	add(3, "a", 102)
	if _, oldest := kept[Holder{Organization: 1, Name: "97"}]; len(kept) != 6 || !oldest {
		t.Fatalf("found %v; want the operator's, one of 2 and 3 each, and the three latest of 1", kept)
	}
	add(4, "a", 103) // which is the last for which there is room
	add(5, "a", 104)
	_, first := kept[Holder{Organization: 2, Name: "a"}]
	_, oldest := kept[Holder{Organization: 1, Name: "97"}]
	if len(kept) != atMost+1 || !first || oldest {
		t.Errorf("found %v; want that the organization with the most has made room", kept)
	}
}

// issuing is a server that issues tokens with a number each.
type issuing struct {
	*Issued
	t     *testing.T
	now   *clocktest.Clock
	count int
	good  time.Duration
}

func newIssuing(t *testing.T) *issuing {
	t.Helper()
	now := clocktest.New(time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC))
	return &issuing{Issued: NewIssued(now), t: t, now: now, good: time.Hour}
}

func (i *issuing) wants(of Holder, secret, terms, want string, wantAgain bool) {
	i.t.Helper()
	value, again, err := i.Of(i.t.Context(), of, secret, []byte(terms), time.Minute, func(context.Context) (Token, error) {
		i.count++
		return Token{Value: fmt.Sprint("token-", i.count), Good: i.good}, nil
	})
	if err != nil || value != want || again != wantAgain {
		i.t.Errorf("found %s, %v, %v; want %s, %v", value, again, err, want, wantAgain)
	}
}

// R3-41, D56: a token is kept until shortly before its end, for its credential, its secret, its terms and what it is good for, and until a
// server does not accept it.
func TestATokenIsKeptForWhatItWasIssuedFor(t *testing.T) {
	t.Parallel()
	i := newIssuing(t)
	one := Holder{Organization: 1, Name: "shop", For: "api"}
	i.wants(one, "a", "terms", "token-1", false)
	i.wants(one, "a", "terms", "token-1", true)
	i.wants(Holder{Organization: 1, Name: "shop", For: "web"}, "a", "terms", "token-2", false)
	i.wants(Holder{Organization: 2, Name: "shop", For: "api"}, "a", "terms", "token-3", false)
	i.wants(one, "b", "terms", "token-4", false)
	i.wants(one, "b", "other terms", "token-5", false)
	i.Forget(one, "token-4") // which is no longer kept
	i.wants(one, "b", "other terms", "token-5", true)
	i.Forget(one, "token-5")
	i.wants(one, "b", "other terms", "token-6", false)
	i.now.Advance(time.Hour - 31*time.Second)
	i.wants(one, "b", "other terms", "token-6", true)
	i.now.Advance(time.Second)
	i.wants(one, "b", "other terms", "token-7", false)
	for _, i.good = range []time.Duration{-time.Hour, 0, tokenMargin} { // too short to be kept
		i.Forget(one, fmt.Sprint("token-", i.count))
		i.wants(one, "b", "other terms", fmt.Sprint("token-", i.count+1), false)
	}
}

// R3-41: what is kept of the clients of organizations does not grow without end, and what was not issued is not kept.
func TestTokensThatHaveEndedAreDropped(t *testing.T) {
	t.Parallel()
	i := newIssuing(t)
	for n := range int64(10) {
		i.kept[Holder{Organization: n, Name: "x"}] = kept{value: "token-x", end: i.now.Now()}
	}
	i.wants(Holder{Organization: 1, Name: "shop"}, "a", "", "token-1", false)
	broken := errors.New("broken")
	_, _, err := i.Of(t.Context(), Holder{Organization: 2}, "a", nil, time.Minute, func(context.Context) (Token, error) { return Token{}, broken })
	if n := len(i.kept); n != 1 || !errors.Is(err, broken) {
		t.Errorf("found %d tokens, %v; want 1", n, err)
	}
}

// D56: those who need one token wait for one request, which continues if the first of them does not wait any more.
func TestOneRequestForOneToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := newIssuing(t)
		asked, count := make(chan struct{}), 0
		ask := func(ctx context.Context) (string, error) {
			value, _, err := i.Of(ctx, Holder{Organization: 1, Name: "app", For: "shop"}, "a", nil, time.Minute, func(ctx context.Context) (Token, error) {
				count++
				select {
				case <-asked:
					return Token{Value: fmt.Sprint("token-", count), Good: time.Hour}, nil
				case <-ctx.Done():
					return Token{}, ctx.Err()
				}
			})
			return value, err
		}
		first, leave := context.WithCancel(t.Context())
		go func() {
			if _, err := ask(first); !fault.Is(err, fault.Unavailable) {
				t.Errorf("found %v; want that it did not wait", err)
			}
		}()
		synctest.Wait()
		for range 50 {
			go func() {
				if value, err := ask(t.Context()); value != "token-1" || err != nil {
					t.Errorf("found %s, %v; want the one token", value, err)
				}
			}()
		}
		synctest.Wait()
		leave()
		synctest.Wait()
		close(asked)
		synctest.Wait()
		if count != 1 {
			t.Errorf("found %d requests; want 1", count)
		}
	})
}

// D56: an organization that uses one repository again and again among many does not lose its token.
func TestTheTokenThatWasUsedLeastRecentlyIsDropped(t *testing.T) {
	t.Parallel()
	i := newIssuing(t)
	often := Holder{Organization: 1, Name: "app", For: "often"}
	i.wants(often, "a", "", "token-1", false)
	for n := range 2 * issuedForOne {
		i.wants(Holder{Organization: 1, Name: "app", For: fmt.Sprint(n)}, "a", "", fmt.Sprint("token-", n+2), false)
		i.wants(often, "a", "", "token-1", true)
	}
	if len(i.kept) != issuedForOne {
		t.Errorf("found %d kept; want %d", len(i.kept), issuedForOne)
	}
}
