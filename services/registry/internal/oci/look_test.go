package oci_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/source"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
	"github.com/lockstep-cd/lockstep/services/registry/internal/oci"
)

// build pushes an image with a creation time and a platform, and returns its digest.
func (h held) build(t *testing.T, tag string, at time.Time, platform v1.Platform) string {
	t.Helper()
	img, err := random.Image(20, 1)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.Created, config.OS, config.Architecture = v1.Time{Time: at}, platform.OS, platform.Architecture
	if img, err = mutate.ConfigFile(img, config); err != nil {
		t.Fatal(err)
	}
	h.write(t, tag, img)
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest.String()
}

func (h held) write(t *testing.T, tag string, img v1.Image) {
	t.Helper()
	reference, err := name.NewTag(h.host + "/shop/api:" + tag)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(reference, img); err != nil {
		t.Fatal(err)
	}
}

// selecting returns a source of the held repository.
func (h held) selecting(format string, args ...any) core.Source {
	return core.Source{
		ID: 1, Organization: 1, Ref: source.OCIImage,
		Config: json.RawMessage(fmt.Sprintf(`{"image":%q,`, h.host+"/shop/api") + fmt.Sprintf(format, args...) + `}`),
	}
}

var linux = v1.Platform{OS: "linux", Architecture: "amd64"}

func TestASourceSelectsItsTag(t *testing.T) {
	t.Parallel()
	h := hold(t, asIs)
	at := time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC)
	digests := map[string]string{}
	for i, tag := range []string{"1.10.0", "1.9.0", "2.0.0-rc.1", "20260301", "edge", "zzz-old"} {
		digests[tag] = h.build(t, tag, at.Add(time.Duration(-i)*time.Hour), linux)
	}
	digests["edge"] = h.build(t, "edge", at.Add(time.Hour), linux)
	r := client(t, oci.Deps{})
	for _, tt := range []struct{ config, tag string }{
		{`"selection":"semver","range":"^1"`, "1.10.0"},
		{`"selection":"semver","range":"<1.10"`, "1.9.0"},
		{`"selection":"semver","range":">=2"`, ""},
		{`"selection":"lexical","allow_tags":"^2026"`, "20260301"},
		{`"selection":"mutable_tag","tag":"edge"`, "edge"},
		{`"selection":"newest_build"`, "edge"},
		{`"selection":"newest_build","ignore_tags":"^edge$","allow_tags":"^[0-9e]"`, "1.10.0"},
		{`"selection":"any"`, ""},
		{`"selection":"mutable_tag","tag":"edge","poll":true,"platform":"linux/amd64"`, "edge"},
		{`"selection":"mutable_tag","tag":"edge","poll":true,"platform":"linux/arm64"`, ""},
	} {
		t.Run(tt.config, func(t *testing.T) {
			t.Parallel()
			finding, err := r.Find(t.Context(), h.selecting("%s", tt.config))
			if err != nil {
				t.Fatal(err)
			}
			if tt.tag == "" {
				if finding.Found != nil {
					t.Errorf("found %+v", finding.Found)
				}
				return
			}
			if finding.Found == nil || finding.Found.Tag != tt.tag || finding.Found.Digest != digests[tt.tag] ||
				finding.Found.Image != h.host+"/shop/api" {
				t.Errorf("found %+v, want %s", finding.Found, tt.tag)
			}
			if strings.Contains(tt.config, "newest_build") != (finding.Found.PublishedAt != "") {
				t.Errorf("published at %q", finding.Found.PublishedAt)
			}
		})
	}
}

// TestASecondPollSendsFewerRequests: one HEAD for a tag that has not moved; builds are queried once.
func TestASecondPollSendsFewerRequests(t *testing.T) {
	t.Parallel()
	var heads, gets atomic.Int64
	h := hold(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method == http.MethodHead:
				heads.Add(1)
			case strings.Contains(r.URL.Path, "/manifests/"), strings.Contains(r.URL.Path, "/blobs/"):
				gets.Add(1)
			}
			next.ServeHTTP(w, r)
		})
	})
	r := client(t, oci.Deps{})
	for _, config := range []string{
		`"selection":"mutable_tag","tag":"many","poll":true,"platform":"linux/amd64"`,
		`"selection":"newest_build"`,
	} {
		s := h.selecting("%s", config)
		first, err := r.Find(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		s.Memory = first.Memory
		heads.Store(0)
		gets.Store(0)
		if _, err := r.Find(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if heads.Load() != 1 || gets.Load() != 0 {
			t.Errorf("%s: the second look took %d HEAD and %d GET requests of manifests and blobs; want 1 and 0", config, heads.Load(), gets.Load())
		}
	}
}

func TestAnIndexIsJudgedByItsPlatforms(t *testing.T) {
	t.Parallel()
	h := hold(t, asIs)
	img, err := random.Image(20, 1)
	if err != nil {
		t.Fatal(err)
	}
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"}}},
		mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64", Variant: "v8"}}})
	reference, err := name.NewTag(h.host + "/shop/api:index")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(reference, index); err != nil {
		t.Fatal(err)
	}
	want, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	r := client(t, oci.Deps{})
	for platform, fits := range map[string]bool{"linux/arm64": true, "linux/arm64/v8": true, "linux/amd64": false, "windows/arm64": false} {
		finding, err := r.Find(t.Context(), h.selecting(`"selection":"mutable_tag","tag":"index","poll":true,"platform":%q`, platform))
		if err != nil {
			t.Fatal(err)
		}
		if fits != (finding.Found != nil) || fits && finding.Found.Digest != want.String() {
			t.Errorf("%s: found %+v", platform, finding.Found)
		}
	}
}

func TestARegistryLimitsTheRate(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]time.Duration{
		"120": 2 * time.Minute,
		time.Now().Add(10 * time.Minute).UTC().Format(http.TimeFormat): 10 * time.Minute,
		"31536000": time.Hour, // the maximum that is honoured
		"":         0,
		"soon":     0,
	} {
		h := hold(t, func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", header)
				w.WriteHeader(http.StatusTooManyRequests)
			})
		})
		_, err := client(t, oci.Deps{}).Find(t.Context(), h.selecting(`"selection":"mutable_tag","tag":"one"`))
		if !fault.Is(err, fault.Unavailable) {
			t.Errorf("Retry-After %q: %v", header, err)
		}
		later, ok := err.(core.Later) //nolint:errorlint // the outermost, as the poller sees it
		if ok != (want != 0) {
			t.Errorf("Retry-After %q: %T", header, err)
		}
		if wait := time.Until(later.At); ok && (wait > want || wait < want-time.Minute) {
			t.Errorf("Retry-After %q: later in %s, want %s", header, wait, want)
		}
	}
}

func TestPollsThatFailPermanently(t *testing.T) {
	t.Parallel()
	h := hold(t, asIs)
	r := client(t, oci.Deps{})
	missing := core.Source{
		Ref:    source.OCIImage,
		Config: json.RawMessage(fmt.Sprintf(`{"image":%q,"selection":"semver"}`, h.host+"/shop/none")),
	}
	if _, err := r.Find(t.Context(), missing); !fault.Is(err, fault.NotFound) {
		t.Errorf("no such repository: %v", err)
	}
	if _, err := r.Find(t.Context(), h.selecting(`"selection":"mutable_tag","tag":"none"`)); !fault.Is(err, fault.NotFound) {
		t.Errorf("no such tag: %v", err)
	}
	if _, err := r.Find(t.Context(), core.Source{Ref: source.OCIImage, Config: json.RawMessage(`{}`)}); !fault.Is(err, fault.Invalid) {
		t.Errorf("no image: %v", err)
	}
}

// other pushes an image and changes its manifest's configuration type.
func (h held) other(t *testing.T, tag string, configType types.MediaType) {
	t.Helper()
	img, err := random.Image(20, 1)
	if err != nil {
		t.Fatal(err)
	}
	h.write(t, tag, mutate.ConfigMediaType(mutate.MediaType(img, types.OCIManifestSchema1), configType))
}

// broken pushes an image whose configuration is not JSON.
func (h held) broken(t *testing.T, tag string) {
	t.Helper()
	img, err := random.Image(20, 1)
	if err != nil {
		t.Fatal(err)
	}
	h.write(t, tag, unreadable{img})
}

// unreadable is an image whose configuration is not JSON.
type unreadable struct{ v1.Image }

// RawConfigFile returns what is pushed as the configuration.
func (unreadable) RawConfigFile() ([]byte, error) { return []byte("hello"), nil }

// ConfigName returns its digest.
func (unreadable) ConfigName() (v1.Hash, error) {
	d, _, err := v1.SHA256(strings.NewReader("hello"))
	return d, err
}

// RawManifest names it.
func (u unreadable) RawManifest() ([]byte, error) {
	m, err := u.Manifest()
	if err != nil {
		return nil, err
	}
	return json.Marshal(m)
}

// Manifest is the image's, with the other configuration.
func (u unreadable) Manifest() (*v1.Manifest, error) {
	m, err := u.Image.Manifest()
	if err != nil {
		return nil, err
	}
	m = m.DeepCopy()
	m.Config.Digest, err = u.ConfigName()
	m.Config.Size = int64(len("hello"))
	return m, err
}

// Digest is that of the manifest.
func (u unreadable) Digest() (v1.Hash, error) {
	raw, err := u.RawManifest()
	if err != nil {
		return v1.Hash{}, err
	}
	d, _, err := v1.SHA256(strings.NewReader(string(raw)))
	return d, err
}

// TestOneTagHidesNoOther: charts, artifacts, images of another platform, and unreadable ones are skipped, for every selection.
func TestOneTagHidesNoOther(t *testing.T) {
	t.Parallel()
	h := hold(t, asIs)
	at := time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC)
	want := h.build(t, "1.0.0", at, linux)
	h.build(t, "1.1.0", time.Time{}, v1.Platform{OS: "linux", Architecture: "arm64"})
	h.other(t, "9.0.0", "application/vnd.cncf.helm.config.v1+json")
	h.other(t, "9.1.0", "application/vnd.oci.empty.v1+json")
	h.broken(t, "1.2.0")
	r := client(t, oci.Deps{})
	for _, config := range []string{
		`"selection":"semver","poll":true,"platform":"linux/amd64"`,
		`"selection":"lexical","allow_tags":"^[0-9]","poll":true,"platform":"linux/amd64"`,
		`"selection":"newest_build","allow_tags":"^[0-9]","poll":true,"platform":"linux/amd64"`,
	} {
		t.Run(config, func(t *testing.T) {
			t.Parallel()
			s := h.selecting("%s", config)
			for range 2 { // skipped tags are remembered
				finding, err := r.Find(t.Context(), s)
				if err != nil {
					t.Fatal(err)
				}
				if finding.Found == nil || finding.Found.Tag != "1.0.0" || finding.Found.Digest != want {
					t.Errorf("found %+v", finding.Found)
				}
				s.Memory = finding.Memory
			}
		})
	}
	// Without a required platform any image fits; a chart never does.
	finding, err := r.Find(t.Context(), h.selecting(`"selection":"semver"`))
	if err != nil || finding.Found == nil || finding.Found.Tag != "1.2.0" {
		t.Errorf("found %+v, %v", finding.Found, err)
	}
	if _, err := r.Find(t.Context(), h.selecting(`"selection":"mutable_tag","tag":"9.0.0"`)); !fault.Is(err, fault.Invalid) ||
		!strings.Contains(err.Error(), "a Helm chart") {
		t.Errorf("a tag of a chart: %v", err)
	}
}

// TestAPollReportsThatWhatItFoundLastIsGone: only where the whole list and the tag itself say so, and once.
func TestAPollReportsThatWhatItFoundLastIsGone(t *testing.T) {
	t.Parallel()
	const usual, listFails, tagFails, listLies = 0, 1, 2, 3
	var mode atomic.Int64
	h := hold(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			list := strings.HasSuffix(r.URL.Path, "/tags/list")
			switch m := mode.Load(); {
			case m == listFails && list, m == tagFails && strings.HasSuffix(r.URL.Path, "/manifests/1.1.0"):
				http.Error(w, "away", http.StatusInternalServerError)
			case m == listLies && list:
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprint(w, `{"name":"shop/api","tags":["1.0.0"]}`)
			default:
				next.ServeHTTP(w, r)
			}
		})
	})
	at := time.Date(2026, 3, 25, 10, 0, 0, 0, time.UTC)
	h.build(t, "1.0.0", at, linux)
	digest := h.build(t, "1.1.0", at, linux)
	r := client(t, oci.Deps{})
	s := h.selecting(`"selection":"semver"`)
	poll := func(m int64, gone bool) {
		t.Helper()
		mode.Store(m)
		finding, err := r.Find(t.Context(), s)
		if (err != nil) != (m == listFails) {
			t.Fatalf("mode %d: %v", m, err)
		}
		if err == nil && m == usual {
			s.Memory = finding.Memory
		}
		if (finding.Gone != nil) != gone {
			t.Fatalf("mode %d: %+v is gone, want something: %v", m, finding.Gone, gone)
		}
		if gone && (finding.Gone.Tag != "1.1.0" || finding.Gone.Digest != digest || !finding.Gone.Deleted || finding.Found == nil ||
			finding.Found.Tag != "1.0.0") {
			t.Errorf("%+v is gone, and %+v exists; want 1.1.0 and 1.0.0", finding.Gone, finding.Found)
		}
	}
	poll(usual, false)
	poll(listLies, false)
	reference, err := name.NewTag(h.host + "/shop/api:1.1.0")
	if err != nil {
		t.Fatal(err)
	}
	mode.Store(usual)
	if err := remote.Delete(reference); err != nil {
		t.Fatal(err)
	}
	poll(listFails, false)
	poll(tagFails, false)
	poll(usual, true)
	poll(usual, false)
}
