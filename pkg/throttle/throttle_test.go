package throttle_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/throttle"
)

func start() time.Time { return time.Unix(1_800_000_000, 0) }

// guess tries n credentials, one after the other, and returns how many of them were checked.
func guess(g *throttle.Guard, now time.Time, address string, n int) (tried int) {
	for i := range n {
		credential := fmt.Sprintf("%s/%d/%d", address, now.UnixNano(), i)
		if g.Wait(now, address, credential) == 0 {
			tried++
			g.Failed(now, address, credential)
		}
	}
	return tried
}

func TestGuessingIsSlowAndGoodCredentialsAreNot(t *testing.T) {
	t.Parallel()
	g, now := throttle.New(nil), start()
	g.Passed(now, "good")
	if n := guess(g, now, "192.0.2.1", 300); n != 20 {
		t.Errorf("at once: found %d tries; want 20", n)
	}
	if wait := g.Wait(now, "192.0.2.1", "another"); wait <= 0 || wait > 2*time.Second {
		t.Errorf("found a wait of %s; want up to 2s", wait)
	}
	if wait := g.Wait(now, "192.0.2.1", "good"); wait != 0 {
		t.Errorf("a credential that has been good waits %s behind the same address", wait)
	}
	if wait := g.Wait(now, "192.0.2.2", "another"); wait != 0 {
		t.Errorf("another address waits %s", wait)
	}
	tried := 0
	for range 60 {
		now = now.Add(time.Second)
		tried += guess(g, now, "192.0.2.1", 10)
	}
	if tried != 30 {
		t.Errorf("in the minute after: found %d tries; want 30", tried)
	}
	// A good credential that has never been seen is checked as soon as the address has an allowance.
	if wait := g.Wait(now.Add(2*time.Second), "192.0.2.1", "new"); wait != 0 {
		t.Errorf("it waits %s more", wait)
	}
	// One that is no longer good has no privilege.
	g.Failed(now, "192.0.2.1", "good")
	if g.Wait(now, "192.0.2.1", "good") == 0 {
		t.Error("a credential that was revoked is let through")
	}
}

func TestOneCredentialFromManyAddresses(t *testing.T) {
	t.Parallel()
	g, now := throttle.New(nil), start()
	tried := 0
	for i := range 100 {
		address := fmt.Sprintf("192.0.2.%d", i)
		if g.Wait(now, address, "expired") == 0 {
			tried++
			g.Failed(now, address, "expired")
		}
	}
	if tried != 5 {
		t.Errorf("found %d tries; want 5", tried)
	}
}

func TestAddressesOfOneParty(t *testing.T) {
	t.Parallel()
	g, now := throttle.New(nil), start()
	tried := 0
	for i := range 100 {
		tried += guess(g, now, fmt.Sprintf("[2001:db8:1:2::%x]:443", i), 1)
	}
	if tried != 20 {
		t.Errorf("of one network of IPv6: found %d tries; want 20", tried)
	}
	if n := guess(g, now, "2001:db8:1:3::1", 1); n != 1 {
		t.Error("another network waits")
	}
	guess(g, now, "::ffff:192.0.2.1", 20)
	if guess(g, now, "192.0.2.1", 1) != 0 {
		t.Error("an address written as IPv6 is another one")
	}
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	g, now := throttle.New(nil), start()
	for i := range 60_000 {
		key := fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)
		g.Failed(now, key, key)
		g.Passed(now, "good "+key)
	}
	if n := throttle.Remembered(g); n > 30_000 {
		t.Errorf("found %d entries; want at most 30,000", n)
	}
}

func TestOnlyTrustedProxiesNameTheirClient(t *testing.T) {
	t.Parallel()
	proxies, err := throttle.Proxies("trusted_proxies", []string{"10.0.0.0/8", "2001:db8::1"})
	if err != nil {
		t.Fatal(err)
	}
	g := throttle.New(proxies)
	for _, c := range []struct {
		peer      string
		forwarded []string
		want      string
	}{
		{"192.0.2.9:1234", []string{"198.51.100.1"}, "192.0.2.9"},
		{"10.1.1.1:1234", nil, "10.1.1.1"},
		{"10.1.1.1:1234", []string{"198.51.100.1"}, "198.51.100.1"},
		{"10.1.1.1:1234", []string{"203.0.113.7, 198.51.100.1, 10.2.2.2"}, "198.51.100.1"},
		{"10.1.1.1:1234", []string{"203.0.113.7", "198.51.100.1"}, "198.51.100.1"},
		{"[2001:db8::1]:1234", []string{"2001:db8:7::1"}, "2001:db8:7::1"},
		{"10.1.1.1:1234", []string{"made up"}, "10.1.1.1"},
		{"10.1.1.1:1234", []string{"10.3.3.3"}, "10.3.3.3"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.RemoteAddr = c.peer
		for _, f := range c.forwarded {
			r.Header.Add("X-Forwarded-For", f)
		}
		if got := g.AddressOf(r); got != c.want {
			t.Errorf("%s, forwarded for %q: found %s, want %s", c.peer, c.forwarded, got, c.want)
		}
	}
	if _, err := throttle.Proxies("trusted_proxies", []string{"everybody"}); !fault.Is(err, fault.Invalid) {
		t.Errorf("found %v", err)
	}
}

func TestNoGuard(t *testing.T) {
	t.Parallel()
	var g *throttle.Guard
	if n := guess(g, start(), "192.0.2.1", 300); n != 300 {
		t.Errorf("found %d tries; want all", n)
	}
	g.Passed(start(), "good")
}
