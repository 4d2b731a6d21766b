// Package throttle slows down clients that fail to authenticate: by address, and by the credential that they present. It checks no
// credentials itself, and never counts one that proves valid.
//
// A credential that has proved valid is let through whatever its address does, so that nobody is locked out by a neighbour behind the same
// proxy. All state is in the memory of one process, within fixed bounds, and each replica has its own.
package throttle

import (
	"crypto/sha256"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// The allowance of failures. A person who mistypes does not notice it; an attacker gets 30 tries a minute per address. Concurrent requests
// may exceed it once, by their number.
const (
	addressAtOnce    = 20
	addressEvery     = 2 * time.Second
	credentialAtOnce = 5
	credentialEvery  = 10 * time.Second
	// most is how many addresses, credentials and valid credentials are remembered, each.
	most = 10_000
	// rememberedFor is how long a credential counts as valid after it proved so.
	rememberedFor = 24 * time.Hour
)

// Config holds the settings for operators, the same in every service.
type Config struct {
	// Off disables the limit.
	Off bool `koanf:"off"`
	// TrustedProxies lists the networks and addresses of reverse proxies whose X-Forwarded-For is believed; without it all clients of a
	// proxy share one allowance.
	TrustedProxies []string `koanf:"trusted_proxies"`
}

// Check returns the problems of the configuration; member is its name there.
func (c Config) Check(member string) []fault.Field {
	_, err := Proxies(member+".trusted_proxies", c.TrustedProxies)
	return fault.FieldsOf(err)
}

// Guard returns the configured guard; nil if it is off.
func (c Config) Guard() (*Guard, error) {
	proxies, err := Proxies("trusted_proxies", c.TrustedProxies)
	if c.Off || err != nil {
		return nil, err
	}
	return New(proxies), nil
}

// Guard is the allowance of one process. The nil Guard has no limit. It is safe for concurrent use.
type Guard struct {
	proxies []netip.Prefix

	mu          sync.Mutex
	addresses   allowance[string]
	credentials allowance[[sha256.Size]byte]
	good        map[[sha256.Size]byte]time.Time
}

// New returns a guard that believes X-Forwarded-For only from the given networks of reverse proxies.
func New(proxies []netip.Prefix) *Guard {
	return &Guard{
		proxies: proxies, good: map[[sha256.Size]byte]time.Time{},
		addresses:   allowance[string]{rate.Every(addressEvery), addressAtOnce, map[string]*rate.Limiter{}},
		credentials: allowance[[sha256.Size]byte]{rate.Every(credentialEvery), credentialAtOnce, map[[sha256.Size]byte]*rate.Limiter{}},
	}
}

// Proxies parses networks (10.1.0.0/16) and addresses. The error is Invalid and names the entry.
func Proxies(member string, written []string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, w := range written {
		prefix, err := netip.ParsePrefix(w)
		if address, errAddress := netip.ParseAddr(w); errAddress == nil {
			prefix, err = netip.PrefixFrom(address.Unmap(), address.Unmap().BitLen()), nil
		}
		if err != nil {
			return nil, fault.InvalidFields(fault.Field{
				Name:    member,
				Problem: "found " + w + "; expected the address or network of a reverse proxy, such as 10.1.0.0/16",
			})
		}
		all = append(all, prefix.Masked())
	}
	return all, nil
}

// Wait returns how long a client at an address has to wait until its credential is checked; 0 for not at all.
func (g *Guard) Wait(now time.Time, address, credential string) time.Duration {
	if g == nil {
		return 0
	}
	digest := sha256.Sum256([]byte(credential))
	g.mu.Lock()
	defer g.mu.Unlock()
	if since, ok := g.good[digest]; ok && now.Sub(since) < rememberedFor {
		return 0
	}
	return max(g.addresses.wait(network(address), now), g.credentials.wait(digest, now))
}

// Failed counts a failure against an address and against a credential that proved invalid.
func (g *Guard) Failed(now time.Time, address, credential string) {
	if g == nil {
		return
	}
	digest := sha256.Sum256([]byte(credential))
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.good, digest)
	g.addresses.take(network(address), now)
	g.credentials.take(digest, now)
}

// FailedAt counts a failure against an address alone: no credential was presented that could be tried from another one.
func (g *Guard) FailedAt(now time.Time, address string) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.addresses.take(network(address), now)
}

// Passed remembers that a credential has proved valid.
func (g *Guard) Passed(now time.Time, credential string) {
	if g == nil {
		return
	}
	digest := sha256.Sum256([]byte(credential))
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, known := g.good[digest]; !known && len(g.good) >= most {
		maps.DeleteFunc(g.good, func(_ [sha256.Size]byte, since time.Time) bool { return now.Sub(since) >= rememberedFor })
		forgetSome(g.good)
	}
	g.good[digest] = now
}

// AddressOf returns the sender of a request: the peer or, if that is a trusted proxy, the last forwarded address that is not a trusted
// proxy.
func (g *Guard) AddressOf(r *http.Request) string {
	address := hostOf(r.RemoteAddr)
	if g == nil || !g.trusts(address) {
		return address
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0; i-- {
		hop := hostOf(strings.TrimSpace(hops[i]))
		if _, err := netip.ParseAddr(hop); err != nil { // a proxy appends addresses; anything else was written by its client
			return address
		}
		if address = hop; !g.trusts(hop) {
			return address
		}
	}
	return address
}

func (g *Guard) trusts(address string) bool {
	parsed, err := netip.ParseAddr(address)
	if err != nil {
		return false
	}
	for _, p := range g.proxies {
		if p.Contains(parsed.Unmap()) {
			return true
		}
	}
	return false
}

// hostOf returns an address without its port.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return strings.Trim(address, "[]")
}

// network returns the range that one party has many addresses of: 64 bits of IPv6.
func network(address string) string {
	parsed, err := netip.ParseAddr(hostOf(address))
	if err != nil {
		return address
	}
	if parsed = parsed.Unmap(); parsed.Is4() {
		return parsed.String()
	}
	prefix, err := parsed.WithZone("").Prefix(64)
	if err != nil {
		return address
	}
	return prefix.String()
}

// allowance holds token buckets by key. A full bucket equals a new one, so it need not be kept.
type allowance[K comparable] struct {
	limit   rate.Limit
	burst   int
	buckets map[K]*rate.Limiter
}

// wait returns how long until a bucket has a token; it takes none.
func (a allowance[K]) wait(key K, now time.Time) time.Duration {
	bucket, ok := a.buckets[key]
	if !ok {
		return 0
	}
	missing := 1 - bucket.TokensAt(now)
	if missing <= 0 {
		return 0
	}
	return time.Duration(missing / float64(a.limit) * float64(time.Second))
}

func (a allowance[K]) take(key K, now time.Time) {
	bucket, ok := a.buckets[key]
	if !ok {
		if len(a.buckets) >= most {
			maps.DeleteFunc(a.buckets, func(_ K, b *rate.Limiter) bool { return b.TokensAt(now) >= float64(a.burst) })
			forgetSome(a.buckets)
		}
		bucket = rate.NewLimiter(a.limit, a.burst)
		a.buckets[key] = bucket
	}
	bucket.AllowN(now, 1)
}

// forgetSome evicts a tenth of a full map: sweeping it for each new key would let an attacker cause work. The map's order picks the
// entries, which nobody can predict.
func forgetSome[K comparable, V any](m map[K]V) {
	for key := range m {
		if len(m) <= most*9/10 {
			return
		}
		delete(m, key)
	}
}
