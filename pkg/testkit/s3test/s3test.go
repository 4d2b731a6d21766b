// Package s3test serves a bucket for tests: in this process, or by the Versity S3 Gateway, a real server, where LOCKSTEP_TEST_S3 has the
// path of its program (`make archive-test`).
package s3test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/lockstep-cd/lockstep/pkg/archive"
	"github.com/lockstep-cd/lockstep/pkg/testkit/porttest"
	"github.com/lockstep-cd/lockstep/pkg/testkit/wait"
)

const (
	bucket = "kept"
	// Access is the name of the key.
	Access = "access"
	// Secret is the key.
	Secret = "hunter22hunter22"
)

// Start serves an empty bucket until the test ends, and returns the settings that reach it. wrap, which may be nil, is given the server in
// this process; a test that has one does not run with another server.
func Start(t *testing.T, wrap func(http.Handler) http.Handler) archive.Config {
	t.Helper()
	c := archive.Config{
		Bucket: bucket, Prefix: "one/two", Region: "us-east-1", Plain: true,
		AccessKeyRef: "file:" + write(t, Access), SecretKeyRef: "file:" + write(t, Secret),
	}
	if program := os.Getenv("LOCKSTEP_TEST_S3"); program != "" {
		if wrap != nil {
			t.Skip("needs the server in this process")
		}
		c.Endpoint = gateway(t, program)
		return c
	}
	backend := s3mem.New()
	if err := backend.CreateBucket(bucket); err != nil {
		t.Fatal(err)
	}
	handler := gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
	if wrap != nil {
		handler = wrap(handler)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	c.Endpoint = strings.TrimPrefix(server.URL, "http://")
	return c
}

// gateway runs the Versity S3 Gateway over a folder, in which a folder is a bucket, and returns its address.
func gateway(t *testing.T, program string) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, bucket), 0o700); err != nil {
		t.Fatal(err)
	}
	address := porttest.FreeAddress(t)
	command := exec.CommandContext(
		context.WithoutCancel(t.Context()), program, "--access", Access, "--secret", Secret, "--port", address, "posix", folder)
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
	wait.For(t, "the gateway", func() bool {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			_ = response.Body.Close() // it refuses what is not signed, so it serves
		}
		return err == nil
	})
	return address
}

func write(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
