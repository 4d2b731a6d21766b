package registry

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	kinds "github.com/lockstep-cd/lockstep/pkg/source"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
	"github.com/lockstep-cd/lockstep/services/registry/internal/api"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// inwards are spellings of addresses that must not be reachable: of this machine, of the cloud's metadata service and of private networks.
// pkg/httpx has the rules; these tests check that the service applies them on every path.
func inwards() []string {
	return []string{
		"127.0.0.1", "127.1", "127.0.1", "0", "0.0.0.0", "2130706433", "0x7f000001", "0x7f.0.0.1", "0x7F.1", "017700000001",
		"0177.0.0.1", "0177.1",
		"127.0.0.1.", "localhost", "LOCALHOST", "localhost.", "localhost.localdomain", "ip6-localhost",
		"[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:7f00:1]", "[::127.0.0.1]",
		"[64:ff9b::127.0.0.1]",
		"[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[::ffff:0:127.0.0.1]", "[fe80::1%25lo]", "127。0。0。1", "①②⑦.⓪.⓪.①", "%31%32%37.0.0.1",
		"127.0.0.1%00.example.com", "user@127.0.0.1", "example.com@127.0.0.1", "127.0.0.1#@example.com", `127.0.0.1\@example.com`,
		"169.254.169.254", "[::ffff:169.254.169.254]", "2852039166", "0xa9fea9fe", "[fd00:ec2::254]", "10.0.0.1", "172.16.0.1",
		"192.168.0.1", "100.100.100.200",
	}
}

// trap is an internal server, which must not be reached, and an external one that leads there.
type trap struct {
	reached       atomic.Int32
	port, outside string
}

func setTrap(t *testing.T) *trap {
	t.Helper()
	s := &trap{}
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { s.reached.Add(1) }))
	t.Cleanup(inside.Close)
	_, s.port, _ = net.SplitHostPort(inside.Listener.Addr().String())
	outside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		way, n := "", 0
		parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/v2"), "/") // /redirect/7/…, /realm/7/…
		if len(parts) > 2 {
			way = parts[1]
			n, _ = strconv.Atoi(parts[2])
		}
		target := "http://" + inwards()[n] + ":" + s.port + "/token"
		switch way {
		case "redirect":
			w.Header().Set("Location", target) // unchanged: http.Redirect would correct some
			w.WriteHeader(http.StatusTemporaryRedirect)
		case "realm":
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s",service="x"`, target))
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(outside.Close)
	s.outside = strings.TrimPrefix(outside.URL, "http://")
	return s
}

// TestNoSourceReachesInternalAddresses polls sources whose address, redirect or token service is spelled in every way.
func TestNoSourceReachesInternalAddresses(t *testing.T) {
	t.Parallel()
	s := setTrap(t)
	_, _, in := serveConfig(t, Config{AllowNetworks: []string{s.outside}, PollRate: 10_000})
	image := func(image string) core.Source {
		return core.Source{Ref: kinds.OCIImage, Config: fmt.Appendf(nil, `{"image":%q,"selection":"mutable_tag","tag":"1"}`, image)}
	}
	tags := func(image string) core.Source {
		return core.Source{Ref: kinds.OCIImage, Config: fmt.Appendf(nil, `{"image":%q,"selection":"semver"}`, image)}
	}
	repository := func(url string) core.Source {
		return core.Source{Ref: kinds.Git, Config: fmt.Appendf(nil, `{"repository":%q,"branch":"main"}`, url)}
	}
	for i, host := range inwards() {
		at := host + ":" + s.port
		for way, source := range map[string]core.Source{
			"an image":           image(at + "/shop/api"),
			"tags":               tags(at + "/shop/api"),
			"a redirect":         image(fmt.Sprintf("%s/redirect/%d/api", s.outside, i)),
			"a redirect of tags": tags(fmt.Sprintf("%s/redirect/%d/api", s.outside, i)),
			"a token service":    image(fmt.Sprintf("%s/realm/%d/api", s.outside, i)),
			"a repository":       repository("http://" + at + "/shop/config.git"),
			"redirected Git":     repository(fmt.Sprintf("http://%s/redirect/%d/config.git", s.outside, i)),
		} {
			source.Organization = int64(i + 1) // each has its own limit of polls
			artifact, problem, err := answers{in.sources}.Try(t.Context(), source)
			if artifact != "" || err == nil && problem == "" || fault.Is(err, fault.Refused) {
				t.Errorf("%s at %s: found %q, %v", way, host, artifact, err)
			}
			if s.reached.Swap(0) != 0 {
				t.Errorf("%s at %s reached inside: %s", way, host, problem)
			}
		}
	}
}

// TestNoWebhookReachesInternalAddresses: the same rules apply to names in authenticated deliveries; Docker Hub's callback_url is never
// called.
func TestNoWebhookReachesInternalAddresses(t *testing.T) {
	t.Parallel()
	s := setTrap(t)
	quay := hook(t, HookConfig{Source: "quay"}, Config{AllowNetworks: []string{s.outside}})
	quay.resolving(t)
	taken := 0
	for i, host := range inwards() {
		for _, image := range []string{
			host + ":" + s.port + "/shop/api", fmt.Sprintf("%s/redirect/%d/api", s.outside, i),
			fmt.Sprintf("%s/realm/%d/api", s.outside, i),
		} {
			status, answer := quay.post(t, hookPath(quay.config, hookSecret), plainJSON(),
				fmt.Appendf(nil, `{"docker_url":%q,"updated_tags":["1"]}`, image))
			switch status {
			case http.StatusAccepted:
				taken++
			case http.StatusOK: // not the name of an image
				if !strings.Contains(answer, `"refused":[`) {
					t.Errorf("%s: answered %s", image, answer)
				}
			default:
				t.Errorf("%s: answered %d %s", image, status, answer)
			}
		}
	}
	wait.For(t, "refusals", func() bool {
		w := quay.status(t).Waiting
		// Two spellings of one host, with and without the trailing dot, are one hint.
		return len(w) == count(t, quay.pool, "hint") && !slices.ContainsFunc(w, func(w api.WaitingStatus) bool { return w.LastError == "" })
	})
	if n := count(t, quay.pool, "outbox"); n != 0 || taken < 2*len(inwards()) {
		t.Errorf("%d events of %d deliveries", n, taken)
	}

	host := ociServer(t)
	hub := hook(t, HookConfig{Source: "dockerhub", Host: host}, Config{AllowNetworks: []string{host}})
	hub.resolving(t)
	push(t, host+"/shop/api:1")
	for i, spelling := range inwards() {
		body := fmt.Appendf(nil, `{"push_data":{"tag":"1","pushed_at":%d},"repository":{"repo_name":"shop/api"},"callback_url":%q}`,
			1774432800+i, "http://"+spelling+":"+s.port+"/")
		if status, answer := hub.post(t, hookPath(hub.config, hookSecret), plainJSON(), body); status != http.StatusAccepted {
			t.Errorf("answered %d %s", status, answer)
		}
	}
	wait.For(t, "the events", func() bool { return count(t, hub.pool, "hint") == 0 })
	if n := s.reached.Load(); n != 0 {
		t.Errorf("inside was reached %d times", n)
	}
}

// TestDNSRebindingIsRefused: the name first resolves to an allowed address, and after the first request to an internal one. The test sets
// the process's resolver, and so runs alone.
func TestDNSRebindingIsRefused(t *testing.T) { //nolint:paralleltest // it sets the resolver
	var inside, outside atomic.Int32
	bad := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { inside.Add(1) }))
	t.Cleanup(bad.Close)
	_, port, _ := net.SplitHostPort(bad.Listener.Addr().String())
	// The same port at another address, which plays a public one.
	var lc net.ListenConfig
	listener, err := lc.Listen(t.Context(), "tcp", "127.0.0.2:"+port)
	if err != nil {
		t.Skipf("this machine has no second address: %v", err)
	}
	good := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		outside.Add(1)
		w.Header().Set("Connection", "close")
	}))
	_ = good.Listener.Close() // its original listener
	good.Listener = listener
	good.Start()
	t.Cleanup(good.Close)
	rebind(t, func() [4]byte {
		if outside.Load() == 0 {
			return [4]byte{127, 0, 0, 2}
		}
		return [4]byte{127, 0, 0, 1}
	})
	_, _, in := serveConfig(t, Config{
		AllowNetworks: []string{"127.0.0.2:" + port}, PollRate: 10, Registries: []AccountConfig{{Host: "rebind.test:" + port, Insecure: true}},
	})
	look := core.Source{
		Organization: 1, Ref: kinds.OCIImage,
		Config: fmt.Appendf(nil, `{"image":"rebind.test:%s/shop/api","selection":"mutable_tag","tag":"1"}`, port),
	}
	_, problem, err := answers{in.sources}.Try(t.Context(), look)
	if err != nil || problem == "" || inside.Load() != 0 || outside.Load() == 0 {
		t.Errorf("problem %q, %v; reached %d times inside and %d times outside", problem, err, inside.Load(), outside.Load())
	}
}

// rebind resolves every name to the current result of address.
func rebind(t *testing.T, address func() [4]byte) {
	t.Helper()
	var lc net.ListenConfig
	server, err := lc.ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		buffer := make([]byte, 1500)
		for {
			n, from, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			var query dnsmessage.Message
			if query.Unpack(buffer[:n]) != nil || len(query.Questions) != 1 {
				continue
			}
			answer := dnsmessage.Message{Header: dnsmessage.Header{ID: query.ID, Response: true, Authoritative: true}, Questions: query.Questions}
			if q := query.Questions[0]; q.Type == dnsmessage.TypeA {
				answer.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class}, Body: &dnsmessage.AResource{A: address()},
				}}
			}
			if packed, err := answer.Pack(); err == nil {
				_, _ = server.WriteTo(packed, from)
			}
		}
	}()
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", server.LocalAddr().String())
	}}
	t.Cleanup(func() { net.DefaultResolver = before })
}
