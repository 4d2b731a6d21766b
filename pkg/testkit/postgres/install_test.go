package postgres

import (
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDownloadUnpacksWhatARepositoryOffers holds the library to what download relies on: that its Start unpacks the
// archive before it fails. The archive has scripts in place of programs.
func TestDownloadUnpacksWhatARepositoryOffers(t *testing.T) {
	t.Parallel()
	archive, err := os.ReadFile(filepath.Join("testdata", "binaries.jar"))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(archive)
	repository := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := archive
		if strings.HasSuffix(r.URL.Path, ".sha256") {
			body = []byte(hex.EncodeToString(sum[:]))
		}
		_, _ = w.Write(body)
	}))
	t.Cleanup(repository.Close)
	dir := t.TempDir()
	if err := downloadFrom(t.Context(), slog.New(slog.DiscardHandler), repository.URL, dir, 0); err != nil {
		t.Fatal(err)
	}
	version, _ := release(0)
	if got := versionOf(t.Context(), filepath.Join(dir, string(version), "bin"), nil); got != 18 {
		t.Errorf("found version %d, want 18", got)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

func TestAFailedDownloadNamesItsSource(t *testing.T) {
	t.Parallel()
	repository := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(repository.Close)
	err := downloadFrom(t.Context(), slog.New(slog.DiscardHandler), repository.URL, t.TempDir(), 15)
	if err == nil || !strings.Contains(err.Error(), "no version found") {
		t.Errorf("answered %v", err)
	}
	if err := downloadFrom(t.Context(), slog.New(slog.DiscardHandler), repository.URL, t.TempDir(), 9); err == nil {
		t.Error("a version that nobody offers was downloaded")
	}
}
