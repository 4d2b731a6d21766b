package rpc_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockstep-cd/lockstep/pkg/certs/certstest"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

func hexDigest(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func TestScopes(t *testing.T) {
	t.Parallel()
	tokens := map[string]rpc.Caller{"none": {}}
	for _, name := range []string{"read", "start", "operate", "admin"} {
		scope, err := rpc.ParseScope(name)
		if err != nil || scope.String() != name {
			t.Fatalf("scope %q is %v, error %v", name, scope, err)
		}
		tokens[name] = rpc.Caller{Scope: scope}
	}
	if _, err := rpc.ParseScope("none"); !fault.Is(err, fault.Invalid) {
		t.Errorf("a token of scope none: %v", err)
	}
	for _, tt := range []struct {
		name   string
		scopes map[string]rpc.Scope
		let    string // the tokens that may call
	}{
		{"read", map[string]rpc.Scope{echoMethod: rpc.ScopeRead}, "read start operate admin"},
		{"operate", map[string]rpc.Scope{echoMethod: rpc.ScopeOperate}, "operate admin"},
		{"a method that nobody has thought of", map[string]rpc.Scope{}, "admin"},
		{"no table", nil, "none read start operate admin"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := serveWith(t, rpc.ServerConfig{Tokens: tokens, Scopes: tt.scopes})
			for token := range tokens {
				_, err := callEcho(t.Context(), dial(t, f.address, token), "x")
				if let := strings.Contains(" "+tt.let+" ", " "+token+" "); let != (err == nil) || !let && !fault.Is(err, fault.Denied) {
					t.Errorf("token %s: %v", token, err)
				}
			}
		})
	}
}

// TestTokensRotate has two tokens for one caller at once, one by digest and one in a file that changes.
func TestTokensRotate(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first\n")
	ring, err := rpc.NewKeyring([]rpc.Key{
		{Caller: rpc.Caller{Name: "ci"}, SHA256: hexDigest("by digest")},
		{Caller: rpc.Caller{Name: "ci"}, Ref: "file:" + file},
	})
	if err != nil {
		t.Fatal(err)
	}
	f := serveWith(t, rpc.ServerConfig{Keyring: ring})
	let := func(token string, want bool) {
		t.Helper()
		_, err := callEcho(t.Context(), dial(t, f.address, token), "x")
		if want != (err == nil) || !want && !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("token %q: %v, let in should be %t", token, err, want)
		}
	}
	let("by digest", true)
	let("first", true)
	let("second one", false)
	write("second one")
	let("first", false)
	let("second one", true)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	let("second one", false)
	let("", false)
	let("by digest", true)
}

func TestKeysAreChecked(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		key   rpc.Key
		field string
	}{
		{rpc.Key{}, "0.sha256"},
		{rpc.Key{SHA256: hexDigest("x"), Ref: "env:X"}, "0.sha256"},
		{rpc.Key{SHA256: "hunter2"}, "0.sha256"},
		{rpc.Key{Ref: "hunter2"}, "0.ref"},
		{rpc.Key{Ref: "env:LOCKSTEP_NO_SUCH_VARIABLE"}, "0.ref"},
		{rpc.Key{Ref: "file:/nonexistent"}, "0.ref"},
	} {
		_, err := rpc.NewKeyring([]rpc.Key{tt.key})
		if fields := fault.FieldsOf(err); len(fields) != 1 || fields[0].Name != tt.field || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%+v: %v, expected a problem with %s", tt.key, err, tt.field)
		}
	}
}

// TestCertificatesRotate replaces everything that both sides of mutual TLS use, while they run and a call is in progress.
func TestCertificatesRotate(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	first := certstest.New(t)
	server, client := first.Files(t, folder, "server"), first.Files(t, folder, "client")
	config, err := server.Server(telemetry.Logger(&syncBuffer{}, "debug"), "h2")
	if err != nil {
		t.Fatal(err)
	}
	entered, release := make(chan struct{}), make(chan struct{})
	f := serveEcho(t, rpc.ServerConfig{TLS: config, Tokens: map[string]rpc.Caller{token: {}}},
		func(_ context.Context, text string) (string, error) {
			if text == "wait" {
				close(entered)
				<-release
			}
			return text, nil
		})
	ours := rpc.ClientConfig{CAFile: client.CA, CertFile: client.Cert, KeyFile: client.Key}
	call := func(c rpc.ClientConfig, text string) error {
		c.Address, c.Token = f.address, token
		conn, err := rpc.Dial(c)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // the call in progress lasts as long as the test
		defer cancel()
		_, err = callEcho(ctx, conn, text)
		return err
	}
	if err := call(ours, "x"); err != nil {
		t.Errorf("with a certificate: %v", err)
	}
	if err := call(rpc.ClientConfig{CAFile: client.CA}, "x"); status.Code(err) != codes.Unavailable {
		t.Errorf("without a certificate: %v", err)
	}
	underWay := make(chan error, 1)
	go func() { underWay <- call(ours, "wait") }()
	<-entered

	second := certstest.New(t)
	second.Write(t, server)
	if err := call(ours, "x"); status.Code(err) != codes.Unavailable {
		t.Errorf("with a certificate of the former authority: %v", err)
	}
	second.Write(t, client)
	if err := call(ours, "x"); err != nil {
		t.Errorf("after both sides have changed: %v", err)
	}
	// Half a rotation: the key does not belong to the certificate. The previous files stay in use.
	if err := os.WriteFile(server.Key, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := call(ours, "x"); err != nil {
		t.Errorf("in the middle of a rotation: %v", err)
	}
	close(release)
	if err := <-underWay; err != nil {
		t.Errorf("the call that was under way: %v", err)
	}
}
