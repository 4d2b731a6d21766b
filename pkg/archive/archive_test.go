package archive_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/lockstep-cd/lockstep/pkg/archive"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/testkit/s3test"
)

func open(t *testing.T, c archive.Config) *archive.Bucket {
	t.Helper()
	b, err := archive.Open(c, nil, clock.System(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestWhatIsArchivedIsReadBack: content of every size, names that need escaping, a second time, and in order.
func TestWhatIsArchivedIsReadBack(t *testing.T) {
	t.Parallel()
	c := s3test.Start(t, nil)
	b := open(t, c)
	contents := map[string][]byte{
		"runs/1/a": []byte("first"), "runs/1/b": []byte("second"), "runs/2/c": bytes.Repeat([]byte("x"), 1<<20), "runs/1/ä b%2Fc+d": []byte("odd"),
	}
	for range 2 {
		for name, content := range contents {
			if err := b.Put(t.Context(), name, "application/json", content); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, content := range contents {
		found, err := b.Get(t.Context(), name)
		if err != nil || !bytes.Equal(found, content) {
			t.Errorf("%s: found %d bytes, %v; expected %d", name, len(found), err, len(content))
		}
	}
	var names []string
	for o, err := range b.List(t.Context(), "runs/1/", "runs/1/a") {
		if err != nil {
			t.Fatal(err)
		}
		if o.Size != int64(len(contents[o.Name])) || o.At.IsZero() {
			t.Errorf("found %+v", o)
		}
		names = append(names, o.Name)
	}
	if want := []string{"runs/1/b", "runs/1/ä b%2Fc+d"}; !slices.Equal(names, want) {
		t.Errorf("found %q, expected %q", names, want)
	}
	if _, err := b.Get(t.Context(), "runs/1/none"); !fault.Is(err, fault.NotFound) {
		t.Errorf("an object that does not exist: %v", err)
	}
}

// TestChangedContentIsFound: what was changed in the bucket is an error, and no content.
func TestChangedContentIsFound(t *testing.T) {
	t.Parallel()
	c := s3test.Start(t, nil)
	b := open(t, c)
	if err := b.Put(t.Context(), "runs/1/a", "text/plain", []byte("first")); err != nil {
		t.Fatal(err)
	}
	other, err := minio.New(c.Endpoint, &minio.Options{Creds: credentials.NewStaticV4(s3test.Access, s3test.Secret, ""), Region: c.Region})
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("first"))
	if _, err := other.PutObject(t.Context(), c.Bucket, c.Prefix+"/runs/1/a", strings.NewReader("other"), 5, minio.PutObjectOptions{
		UserMetadata: map[string]string{"Sha256": hex.EncodeToString(sum[:])},
	}); err != nil {
		t.Fatal(err)
	}
	found, err := b.Get(t.Context(), "runs/1/a")
	if found != nil || !fault.Is(err, fault.Terminal) || !strings.Contains(err.Error(), "was changed after it was archived") {
		t.Errorf("found %q, %v", found, err)
	}
}

// TestAStorageThatRefuses: its errors are Unavailable, name the object and what the storage answered, and no key.
func TestAStorageThatRefuses(t *testing.T) {
	t.Parallel()
	c := s3test.Start(t, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`<Error><Code>AccessDenied</Code><Message>no</Message></Error>`))
		})
	})
	b := open(t, c)
	_, getting := b.Get(t.Context(), "a")
	var listing error
	for _, err := range b.List(t.Context(), "", "") {
		listing = errors.Join(listing, err)
	}
	for doing, err := range map[string]error{"put": b.Put(t.Context(), "a", "text/plain", []byte("x")), "get": getting, "list": listing} {
		if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "AccessDenied") || strings.Contains(err.Error(), s3test.Secret) {
			t.Errorf("%s: found %v", doing, err)
		}
	}
	c.SecretKeyRef = "file:/nowhere/none"
	if err := open(t, c).Put(t.Context(), "a", "text/plain", nil); err == nil || !strings.Contains(err.Error(), "archive.secret_key_ref") {
		t.Errorf("without a key: found %v", err)
	}
}

// TestSettingsAreChecked.
func TestSettingsAreChecked(t *testing.T) {
	t.Parallel()
	good := archive.Config{Endpoint: "s3:9000", Bucket: "kept", Prefix: "a", AccessKeyRef: "env:A", SecretKeyRef: "env:B"}
	for name, tt := range map[string]struct {
		change func(*archive.Config)
		wrong  string
	}{
		"none":          {func(c *archive.Config) { *c = archive.Config{Prefix: "lockstep"} }, ""},
		"good":          {func(*archive.Config) {}, ""},
		"a scheme":      {func(c *archive.Config) { c.Endpoint = "https://s3" }, "archive.endpoint"},
		"no endpoint":   {func(c *archive.Config) { c.Endpoint = "" }, "archive.bucket"},
		"no bucket":     {func(c *archive.Config) { c.Bucket = "" }, "archive.bucket"},
		"a slash":       {func(c *archive.Config) { c.Prefix = "a/" }, "archive.prefix"},
		"a secret":      {func(c *archive.Config) { c.SecretKeyRef = "hunter2" }, "archive.secret_key_ref"},
		"no access key": {func(c *archive.Config) { c.AccessKeyRef = "" }, "archive.access_key_ref"},
	} {
		c := good
		tt.change(&c)
		problems := c.Check()
		switch {
		case tt.wrong == "" && len(problems) > 0:
			t.Errorf("%s: found %v", name, problems)
		case tt.wrong != "" && (len(problems) != 1 || problems[0].Name != tt.wrong):
			t.Errorf("%s: found %v, expected %s", name, problems, tt.wrong)
		}
	}
}
