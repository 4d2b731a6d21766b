package httpx_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/httpx"
)

func client(t *testing.T, c httpx.Config) *http.Client {
	t.Helper()
	transport, err := httpx.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(transport.Close)
	return transport.Client()
}

func get(t *testing.T, c *http.Client, target string, header http.Header) (string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	if err != nil {
		return "", err
	}
	for name, values := range header {
		r.Header[name] = values
	}
	response, err := c.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// No URL reaches a server on this machine. Some spellings are in the table because resolvers differ about them.
func TestNoSpellingReachesThisMachine(t *testing.T) {
	t.Parallel()
	var reached atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	t.Cleanup(s.Close)
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := client(t, httpx.Config{Timeout: 5 * time.Second})
	for _, host := range []string{
		"127.0.0.1", "127.1", "127.0.1", "0", "0.0.0.0", "2130706433", "0x7f000001", "0x7f.0.0.1", "0x7F.1", "017700000001",
		"0177.0.0.1", "0177.1",
		"127.0.0.1.", "localhost", "LOCALHOST", "localhost.", "localhost.localdomain", "[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]",
		"[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::127.0.0.1]", "[2002:7f00:1::]", "[::ffff:0:127.0.0.1]", "127。0。0。1", "①②⑦.⓪.⓪.①",
		"%31%32%37.0.0.1", "127.0.0.1%00.example.com", "user@127.0.0.1", "example.com@127.0.0.1", "[fe80::1%25lo]",
	} {
		for _, scheme := range []string{"http", "https", "gopher", "file", "ftp"} {
			if body, err := get(t, c, scheme+"://"+host+":"+port+"/", nil); err == nil {
				t.Errorf("%s://%s was answered %q", scheme, host, body)
			}
		}
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("the server was reached %d times", n)
	}
}

func FuzzURL(f *testing.F) {
	for _, seed := range []string{"127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "0", "127.1", "[::]"} {
		f.Add(seed)
	}
	var reached atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	f.Cleanup(s.Close)
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		f.Fatal(err)
	}
	transport, err := httpx.New(httpx.Config{Timeout: time.Second})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, host string) {
		if strings.Trim(host, "0123456789abcdefxABCDEFX.:[]%") != "" {
			t.Skip("a name: what it resolves to is the resolver's business, and checked when it is dialled")
		}
		_, _ = get(t, transport.Client(), "http://"+host+":"+port+"/", nil)
		if reached.Load() != 0 {
			t.Fatalf("%q reached this machine", host)
		}
	})
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	inner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"Authorization", "Cookie", "X-Api-Key"} {
			if r.Header.Get(name) != "" {
				t.Errorf("%s was sent to another host", name)
			}
		}
		fmt.Fprint(w, "there")
	}))
	t.Cleanup(inner.Close)
	var outer *httptest.Server
	outer = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var n int
		switch _, err := fmt.Sscanf(r.URL.Path, "/%d", &n); {
		case r.URL.Path == "/away":
			http.Redirect(w, r, inner.URL, http.StatusTemporaryRedirect)
		case err == nil && n > 0:
			http.Redirect(w, r, fmt.Sprintf("%s/%d", outer.URL, n-1), http.StatusFound)
		default:
			answer := "here"
			if r.Header.Get("Authorization") == "Bearer s" {
				answer = "here, with credentials"
			}
			fmt.Fprint(w, answer)
		}
	}))
	t.Cleanup(outer.Close)
	secret := http.Header{"Authorization": {"Bearer s"}, "Cookie": {"a=b"}, "X-Api-Key": {"k"}}
	address := func(s *httptest.Server) string { return s.Listener.Addr().String() }

	both := client(t, httpx.Config{Allow: []string{address(inner), address(outer)}})
	for path, want := range map[string]string{"/0": "here, with credentials", "/3": "here, with credentials", "/away": "there"} {
		if body, err := get(t, both, outer.URL+path, secret); err != nil || body != want {
			t.Errorf("%s: %q, %v, want %q", path, body, err, want)
		}
	}
	if _, err := get(t, both, outer.URL+"/4", nil); !fault.Is(err, fault.Denied) {
		t.Errorf("four redirects: %v, want them refused", err)
	}
	one := client(t, httpx.Config{Allow: []string{address(outer)}})
	if _, err := get(t, one, outer.URL+"/away", secret); !fault.Is(err, fault.Denied) {
		t.Errorf("a redirect inwards: %v, want it refused", err)
	}
}

func TestRedirectFromHTTPSToHTTPIsRefused(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	transport, err := httpx.New(httpx.Config{Allow: []string{"127.0.0.0/8"}})
	if err != nil {
		t.Fatal(err)
	}
	first, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://registry.example/", nil)
	second, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
	second.Response = &http.Response{Request: first}
	if response, err := transport.RoundTrip(second); !fault.Is(err, fault.Denied) {
		if err == nil {
			_ = response.Body.Close()
		}
		t.Errorf("error = %v, want it refused", err)
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/large":
			fmt.Fprint(w, strings.Repeat("x", 1001))
		case "/announced":
			w.Header().Set("Content-Length", "100000")
		case "/fits":
			fmt.Fprint(w, strings.Repeat("x", 1000))
		case "/bomb":
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = z.Write(make([]byte, 1<<20))
			_ = z.Close()
		case "/slow":
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-release
		case "/headers":
			w.Header().Set("X", strings.Repeat("x", 1<<20))
		}
	}))
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(release) })
	c := client(t, httpx.Config{Allow: []string{"127.0.0.1"}, MaxBody: 1000, Timeout: time.Minute})
	if body, err := get(t, c, s.URL+"/fits", nil); err != nil || len(body) != 1000 {
		t.Errorf("%d bytes, %v", len(body), err)
	}
	brief := client(t, httpx.Config{Allow: []string{"127.0.0.1"}, MaxBody: 1000, Timeout: time.Second})
	for path, c := range map[string]*http.Client{"/large": c, "/announced": c, "/bomb": c, "/slow": brief, "/headers": c} {
		if body, err := get(t, c, s.URL+path, nil); err == nil || len(body) > 1000 {
			t.Errorf("%s: %d bytes, %v; want an error", path, len(body), err)
		}
	}
}

// TestErrorsNameNoAddress: neither where an internal name points, nor whether a server is listening there, nor which resolver knows it. The
// log has it.
func TestErrorsNameNoAddress(t *testing.T) {
	t.Parallel()
	open := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/cut" { // in the middle of the answer
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "x")
			_ = http.NewResponseController(w).Flush()
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // so that the client sees a reset
		}
		_ = conn.Close()
	}))
	t.Cleanup(open.Close)
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	port := func(s *httptest.Server) string {
		_, port, err := net.SplitHostPort(s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return port
	}
	for _, tt := range []struct {
		name, target, want string
		allow              []string
		denied             bool
	}{
		{
			"a name that points inwards", "http://localhost:" + port(open) + "/",
			"localhost is not at a public address; an operator may allow it", nil, true,
		},
		{"nobody there", "http://localhost:" + port(closed) + "/", "connection refused", []string{"localhost"}, false},
		{"a connection that breaks", "http://localhost:" + port(open) + "/", "", []string{"localhost"}, false},
		{"an answer that breaks", "http://localhost:" + port(open) + "/cut", "", []string{"localhost"}, false},
		{"no such name", "http://no-such-name.invalid/", "", nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			_, err := get(t, client(t, httpx.Config{Allow: tt.allow, Timeout: 5 * time.Second, Log: slog.New(slog.NewTextHandler(&log, nil))}),
				tt.target, nil)
			if err == nil || fault.Is(err, fault.Denied) != tt.denied || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("found %v, expected …%s…", err, tt.want)
			}
			if err != nil && addresses.MatchString(err.Error()) {
				t.Errorf("found an address in %q", err)
			}
			if tt.denied && !strings.Contains(log.String(), "address=127.0.0.1") && !strings.Contains(log.String(), "address=::1") {
				t.Errorf("the log does not say which address was refused: %s", &log)
			}
		})
	}
}

var addresses = regexp.MustCompile(`\d+\.\d+\.\d+\.\d+|\[[0-9a-f:]+\]`)

func TestProxiesOfTheEnvironmentAreNotUsed(t *testing.T) {
	var asked atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(proxy.Close)
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("HTTPS_PROXY", proxy.URL)
	_, err := get(t, client(t, httpx.Config{Timeout: time.Second}), "http://192.0.2.1/", nil)
	if target := new(url.Error); !errors.As(err, &target) || asked.Load() != 0 {
		t.Errorf("error = %v, proxy asked %d times", err, asked.Load())
	}
}
