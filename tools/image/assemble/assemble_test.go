package assemble_test

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/lockstep-cd/lockstep/tools/image/assemble"
)

func recipe() assemble.Recipe {
	return assemble.Recipe{Root: "../../..", Version: "v1.2.3", Commit: "0123456789abcdef", Architecture: runtime.GOARCH}
}

// TestImage: an image is valid, has exactly the expected content, is reproducible, and its binary runs.
func TestImage(t *testing.T) {
	t.Parallel()
	image, err := assemble.Image(t.Context(), recipe(), "relay")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	digest, err := assemble.Write(filepath.Join(dir, "layout"), image)
	if err != nil {
		t.Fatal(err)
	}
	again, err := assemble.Image(t.Context(), recipe(), "relay")
	if err != nil {
		t.Fatal(err)
	}
	if second, err := assemble.Write(filepath.Join(dir, "layout"), again); err != nil || second != digest {
		t.Errorf("made again: %s, %v; want %s", second, err, digest)
	}
	index, err := layout.ImageIndexFromPath(filepath.Join(dir, "layout"))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	config(t, image)
	files := contents(t, image)
	for name := range files {
		switch name {
		case "relay", "sbom.cdx.json", "etc/passwd", "etc/group", "etc/ssl/certs/ca-certificates.crt":
		default:
			t.Errorf("has %s, which nobody needs", name)
		}
	}
	if !x509.NewCertPool().AppendCertsFromPEM(files["etc/ssl/certs/ca-certificates.crt"]) {
		t.Error("has no authorities")
	}
	runs(t, filepath.Join(dir, "relay"), files["relay"])
	bill(t, files["sbom.cdx.json"])
}

func config(t *testing.T, image v1.Image) {
	t.Helper()
	c, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if c.Config.User != "65532:65532" || strings.Join(c.Config.Entrypoint, " ") != "/relay" || c.OS != "linux" ||
		c.Architecture != runtime.GOARCH {
		t.Errorf("configuration: %+v", c)
	}
	if got := c.Config.Labels["org.opencontainers.image.version"]; got != "v1.2.3" {
		t.Errorf("label of the version: %q", got)
	}
}

func contents(t *testing.T, image v1.Image) map[string][]byte {
	t.Helper()
	flat := mutate.Extract(image)
	defer func() { _ = flat.Close() }()
	files := map[string][]byte{}
	for r := tar.NewReader(flat); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Uid != 0 || header.ModTime.Unix() != 0 || header.Mode&0o022 != 0 {
			t.Errorf("%s: owner %d, time %v, mode %o", header.Name, header.Uid, header.ModTime, header.Mode)
		}
		if files[header.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// runs checks that the binary needs no interpreter, and reports what it was built from.
func runs(t *testing.T, path string, binary []byte) {
	t.Helper()
	parsed, err := elf.NewFile(bytes.NewReader(binary))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parsed.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the binary is not static")
		}
	}
	if err := os.WriteFile(path, binary, 0o700); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), path, "--version").CombinedOutput()
	if want := "relay v1.2.3 (commit 0123456789abcdef, " + runtime.Version() + ")\n"; err != nil || string(out) != want {
		t.Errorf("--version: %s, %v; want %s", out, err, want)
	}
}

// bill checks that the list names our own modules and others, with hashes.
func bill(t *testing.T, text []byte) {
	t.Helper()
	var bom struct {
		BOMFormat  string
		Components []struct {
			Name, Version, PURL string
			Hashes              []struct{ Content string }
		}
	}
	if err := json.Unmarshal(text, &bom); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, c := range bom.Components {
		found[c.Name] = c.Version != "" && strings.HasPrefix(c.PURL, "pkg:golang/"+c.Name+"@") &&
			(len(c.Hashes) == 1 || !strings.Contains(c.Name, "nats"))
	}
	for _, want := range []string{"stdlib", "github.com/nats-io/nats.go", "k8s.io/client-go"} {
		if !found[want] {
			t.Errorf("the list of materials has no %s with a version, a URL and a hash", want)
		}
	}
	if bom.BOMFormat != "CycloneDX" {
		t.Errorf("format %q", bom.BOMFormat)
	}
}

func TestUnknownImage(t *testing.T) {
	t.Parallel()
	if _, err := assemble.Image(t.Context(), recipe(), "nginx"); err == nil || !strings.Contains(err.Error(), `found "nginx"`) {
		t.Errorf("got %v, want one that names the image", err)
	}
}
