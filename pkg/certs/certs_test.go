package certs_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/certs"
	"github.com/lockstep-cd/lockstep/pkg/certs/certstest"
	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// TestARequestOutlivesARotation replaces a server's certificate and its authority while a request is running: the request completes
// undisturbed, and the next one uses the new files, on both sides.
func TestARequestOutlivesARotation(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	first := certstest.New(t)
	server, client := first.Files(t, folder, "server"), first.Files(t, folder, "client")
	entered, release := make(chan struct{}), make(chan struct{})
	url := serve(t, server, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			close(entered)
			<-release
		}
		_, _ = io.WriteString(w, "answered")
	})
	underWay := make(chan error, 1)
	go func() { underWay <- get(t, url+"/wait", client) }()
	<-entered
	second := certstest.New(t)
	second.Write(t, server)
	if err := get(t, url, client); err == nil {
		t.Error("a certificate of the former authority was accepted")
	}
	second.Write(t, client)
	if err := get(t, url, client); err != nil {
		t.Errorf("after the rotation: %v", err)
	}
	// Neither half a rotation nor a deleted file replaces the previous certificate.
	if err := os.Remove(server.Key); err != nil {
		t.Fatal(err)
	}
	if err := get(t, url, client); err != nil {
		t.Errorf("in the middle of a rotation: %v", err)
	}
	close(release)
	if err := <-underWay; err != nil {
		t.Errorf("the request that was running: %v", err)
	}
}

func serve(t *testing.T, files certs.Files, handler http.HandlerFunc) string {
	t.Helper()
	config, err := files.Server(slog.New(slog.DiscardHandler), "h2", "http/1.1")
	if err != nil {
		t.Fatal(err)
	}
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(handler)
	_ = s.Listener.Close()
	s.Listener = tls.NewListener(lis, config)
	s.Start()
	t.Cleanup(s.Close)
	return "https://" + lis.Addr().String()
}

// get sends a request over a connection of its own.
func get(t *testing.T, url string, files certs.Files) error {
	t.Helper()
	client, err := files.Client(slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	transport := &http.Transport{TLSClientConfig: client.Config(""), ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	_, err = io.ReadAll(answer.Body)
	return err
}

func TestFilesAreChecked(t *testing.T) {
	t.Parallel()
	for _, f := range []certs.Files{{}, {Cert: "/nonexistent", Key: "/nonexistent"}, {Cert: "certs_test.go", Key: "certs_test.go"}} {
		if _, err := f.Server(slog.New(slog.DiscardHandler)); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v", f, err)
		}
	}
	for _, f := range []certs.Files{{CA: "/nonexistent"}, {CA: "certs_test.go"}, {Cert: "certs_test.go"}} {
		if _, err := f.Client(slog.New(slog.DiscardHandler)); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v", f, err)
		}
	}
	if found := (certs.Files{Key: "k"}).Check("nats_"); len(found) != 1 || found[0].Name != "nats_cert_file" {
		t.Errorf("a key without a certificate: %v", found)
	}
	if found := (certs.Files{Cert: "c", Key: "k", CA: "a"}).Check("nats_"); len(found) != 0 {
		t.Errorf("a whole set: %v", found)
	}
}

// A private authority is trusted as well as the system's if configured so, and instead of them otherwise.
func TestAnAuthorityBesideTheSystems(t *testing.T) {
	t.Parallel()
	authority := certstest.New(t).Files(t, t.TempDir(), "server").CA
	pem, err := os.ReadFile(authority)
	if err != nil {
		t.Fatal(err)
	}
	both, err := x509.SystemCertPool()
	if err != nil {
		t.Fatal(err)
	}
	if !both.AppendCertsFromPEM(pem) {
		t.Fatalf("%s holds no certificate", authority)
	}
	own := x509.NewCertPool()
	own.AppendCertsFromPEM(pem)
	for name, tt := range map[string]struct {
		files certs.Files
		want  *x509.CertPool
	}{
		"beside":       {certs.Files{CA: authority, System: true}, both},
		"in its place": {certs.Files{CA: authority}, own},
	} {
		client, err := tt.files.Client(slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if got := client.Config("").RootCAs; !got.Equal(tt.want) {
			t.Errorf("%s: other authorities are trusted than expected", name)
		}
	}
}
