package rpc_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/rpc"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	certificate, ca := selfSigned(t)
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := rpc.NewServer(rpc.ServerConfig{
		Log: slog.New(slog.DiscardHandler), Tokens: map[string]rpc.Caller{token: {}},
		TLS: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13},
	})
	s.RegisterService(echo(func(_ context.Context, text string) (string, error) { return text, nil }), nil)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- rpc.Serve(ctx, s, lis) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})

	conn, err := rpc.Dial(rpc.ClientConfig{Address: lis.Addr().String(), Token: token, CAFile: ca})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if got, err := callEcho(t.Context(), conn, "hello"); got != "hello" || err != nil {
		t.Errorf("answer %q, error %v", got, err)
	}
	other, err := rpc.Dial(rpc.ClientConfig{Address: lis.Addr().String(), ServerName: "other.example.com", Token: token, CAFile: ca})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	if _, err := callEcho(t.Context(), other, "hello"); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a certificate for another name than ServerName: %v, want unavailable", err)
	}
	stranger, err := rpc.Dial(rpc.ClientConfig{Address: lis.Addr().String(), Token: token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stranger.Close() })
	if _, err := callEcho(t.Context(), stranger, "hello"); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a certificate that nobody vouches for: %v, want unavailable", err)
	}
}

// selfSigned returns a certificate for the loopback address and the file with its authority.
func selfSigned(t *testing.T) (certificate tls.Certificate, caFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	caFile = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, caFile
}
