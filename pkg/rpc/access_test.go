package rpc_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

// serveWith is serve with the rest of a configuration.
func serveWith(t *testing.T, c rpc.ServerConfig) *fixture {
	t.Helper()
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{address: lis.Addr().String(), log: &syncBuffer{}}
	c.Log = telemetry.Logger(f.log, "debug")
	s := rpc.NewServer(c)
	s.RegisterService(echo(func(_ context.Context, text string) (string, error) { return text, nil }), nil)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- rpc.Serve(ctx, s, lis) }()
	f.stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() {
		if err := f.stop(); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return f
}

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

// authority makes certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	n    int64
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	a.cert, a.key = a.sign(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

func (a *authority) sign(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	a.n++
	template.SerialNumber = big.NewInt(a.n)
	template.NotBefore, template.NotAfter = time.Unix(0, 0), time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

// write puts a new certificate, its key and the authority into the files.
func (a *authority) write(f rpc.TLSFiles) {
	a.t.Helper()
	cert, key := a.sign(&x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		f.Cert: {Type: "CERTIFICATE", Bytes: cert.Raw}, f.Key: {Type: "PRIVATE KEY", Bytes: private}, f.CA: {Type: "CERTIFICATE", Bytes: a.cert.Raw},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
}

// TestCertificatesRotate replaces everything that both sides of mutual TLS have, while they run.
func TestCertificatesRotate(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	files := func(side string) rpc.TLSFiles {
		return rpc.TLSFiles{Cert: filepath.Join(folder, side+".pem"), Key: filepath.Join(folder, side+".key"), CA: filepath.Join(folder, side+"-ca.pem")}
	}
	server, client := files("server"), files("client")
	first := newAuthority(t)
	first.write(server)
	first.write(client)
	config, err := server.Server(telemetry.Logger(&syncBuffer{}, "debug"))
	if err != nil {
		t.Fatal(err)
	}
	f := serveWith(t, rpc.ServerConfig{TLS: config, Tokens: map[string]rpc.Caller{token: {}}})
	call := func(c rpc.ClientConfig) error {
		t.Helper()
		c.Address, c.Token = f.address, token
		conn, err := rpc.Dial(c)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_, err = callEcho(t.Context(), conn, "x")
		return err
	}
	ours := rpc.ClientConfig{CAFile: client.CA, CertFile: client.Cert, KeyFile: client.Key}
	if err := call(ours); err != nil {
		t.Errorf("with a certificate: %v", err)
	}
	if err := call(rpc.ClientConfig{CAFile: client.CA}); status.Code(err) != codes.Unavailable {
		t.Errorf("without a certificate: %v", err)
	}

	second := newAuthority(t)
	second.write(server)
	if err := call(ours); status.Code(err) != codes.Unavailable {
		t.Errorf("with a certificate of the former authority: %v", err)
	}
	second.write(client)
	if err := call(ours); err != nil {
		t.Errorf("after both sides have changed: %v", err)
	}
	// Half a rotation: the key does not belong to the certificate. What fitted together last stays in force.
	if err := os.WriteFile(server.Key, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := call(ours); err != nil {
		t.Errorf("in the middle of a rotation: %v", err)
	}
}

func TestTLSFilesAreChecked(t *testing.T) {
	t.Parallel()
	for _, f := range []rpc.TLSFiles{{}, {Cert: "/nonexistent", Key: "/nonexistent"}, {Cert: "rpc_test.go", Key: "rpc_test.go"}} {
		if _, err := f.Server(telemetry.Logger(&syncBuffer{}, "debug")); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v", f, err)
		}
	}
}
