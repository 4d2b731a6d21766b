package attest_test

import (
	"crypto/elliptic"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"

	"github.com/lockstep-cd/lockstep/tools/image/attest"
)

// TestCosignVerifiesAnImage: what SECURITY.md documents accepts a published image and its provenance, in a registry with the
// referrers API and in one without, and refuses another key and another image (D52). `make cosign-test` names the program.
func TestCosignVerifiesAnImage(t *testing.T) {
	t.Parallel()
	program := os.Getenv("LOCKSTEP_TEST_COSIGN")
	if program == "" {
		t.Skip("found no LOCKSTEP_TEST_COSIGN, the path of cosign; make cosign-test sets it")
	}
	for _, referrers := range []bool{true, false} {
		t.Run(fmt.Sprintf("referrers %t", referrers), func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(registry.New(
				registry.WithReferrersSupport(referrers), registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)),
			))
			t.Cleanup(server.Close)
			repository := strings.TrimPrefix(server.URL, "http://") + "/lockstep/relay"
			image, key := pushed(t, repository, "v1.2.3")
			unsigned, err := random.Image(1000, 1)
			if err != nil {
				t.Fatal(err)
			}
			if err := attest.Push(t.Context(), repository, "unsigned", unsigned, nil); err != nil {
				t.Fatal(err)
			}
			_, foreign := pushed(t, repository, "other")
			cosign := func(command, public, tag string, args ...string) (string, error) {
				dir := t.TempDir()
				if err := os.WriteFile(filepath.Join(dir, "cosign.pub"), []byte(public), 0o600); err != nil {
					t.Fatal(err)
				}
				all := append([]string{command, "--key", "cosign.pub", "--insecure-ignore-tlog=true", "--allow-http-registry"}, args...)
				c := exec.CommandContext(t.Context(), program, append(all, repository+":"+tag)...)
				c.Dir, c.Env = dir, []string{"HOME=" + dir, "DOCKER_CONFIG=" + dir}
				out, err := c.Output()
				return string(out), err
			}
			if out, err := cosign("verify", key, "v1.2.3"); err != nil || !strings.Contains(out, image) {
				t.Errorf("cosign verify: %v: %s", err, out)
			}
			out, err := cosign("verify-attestation", key, "v1.2.3", "--type", "slsaprovenance1")
			if err != nil {
				t.Fatalf("cosign verify-attestation: %v", err)
			}
			if builder := builderOf(t, out); builder != "https://example.com/release" {
				t.Errorf("cosign verify-attestation answers the builder %q", builder)
			}
			if _, err := cosign("verify", foreign, "v1.2.3"); err == nil {
				t.Error("cosign accepts an image with another key")
			}
			if _, err := cosign("verify", key, "unsigned"); err == nil {
				t.Error("cosign accepts an image that is not signed")
			}
		})
	}
}

// pushed signs and publishes an image with a key of its own, and answers its digest and the public key.
func pushed(t *testing.T, repository, tag string) (digest, public string) {
	t.Helper()
	key, err := attest.ParseKey(pemOf(t, newKey(t, elliptic.P256())))
	if err != nil {
		t.Fatal(err)
	}
	image, err := random.Image(1000, 2)
	if err != nil {
		t.Fatal(err)
	}
	b := build()
	b.Repository = repository
	referrers, err := attest.Image(image, b, key)
	if err != nil {
		t.Fatal(err)
	}
	if err := attest.Push(t.Context(), repository, tag, image, referrers); err != nil {
		t.Fatal(err)
	}
	of, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return of.String(), string(key.PublicKey())
}

// builderOf is the builder in the statement of an envelope.
func builderOf(t *testing.T, text string) string {
	t.Helper()
	var envelope struct{ Payload string }
	if err := json.Unmarshal([]byte(text), &envelope); err != nil {
		t.Fatalf("found %q: %v", text, err)
	}
	payload, err := base64.StdEncoding.DecodeString(envelope.Payload)
	if err != nil {
		t.Fatal(err)
	}
	var statement struct {
		Predicate struct {
			RunDetails struct {
				Builder struct{ ID string }
			}
		}
	}
	if err := json.Unmarshal(payload, &statement); err != nil {
		t.Fatal(err)
	}
	return statement.Predicate.RunDetails.Builder.ID
}
