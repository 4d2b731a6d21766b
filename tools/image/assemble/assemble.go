// Package assemble builds a container image of a command: one static binary on an almost empty base, with the certificates of public
// authorities, a non-root account, and a list of everything in it. The result does not depend on when, where or by whom it is built.
//
// It pushes nothing and signs nothing; package attest does.
package assemble

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is the account of all processes; distroless images and our charts use the same number.
const user = "65532:65532"

// Recipe is what to build from.
type Recipe struct {
	// Root is the checkout.
	Root string
	// Version and Commit are what the binary reports.
	Version, Commit string
	// Architecture is a GOARCH.
	Architecture string
}

// Names returns the names of all images.
func Names() []string { return []string{"registry", "domain", "workflow", "relay", "lockstep"} }

// command returns the package of an image's binary.
func command(name string) (string, error) {
	switch {
	case name == "lockstep":
		return "./tools/lockstep", nil
	case slices.Contains(Names(), name):
		return "./services/" + name + "/cmd/" + name, nil
	default:
		return "", fmt.Errorf("image: found %q, expected one of %q", name, Names())
	}
}

// Image compiles the command of a name and assembles the image.
func Image(ctx context.Context, r Recipe, name string) (v1.Image, error) {
	binary, err := compile(ctx, r, name)
	if err != nil {
		return nil, err
	}
	sbom, err := materials(binary, name, r.Version)
	if err != nil {
		return nil, err
	}
	base, err := layer([]file{
		{"etc/group", 0o644, []byte("root:x:0:\nnonroot:x:65532:\n")},
		{"etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n")},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, authorities()},
	})
	if err != nil {
		return nil, err
	}
	own, err := layer([]file{{name, 0o755, binary}, {"sbom.cdx.json", 0o644, sbom}})
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if image, err = mutate.AppendLayers(image, base, own); err != nil {
		return nil, fmt.Errorf("append layers: %w", err)
	}
	image, err = mutate.ConfigFile(image, r.config(name, image))
	if err != nil {
		return nil, fmt.Errorf("set configuration: %w", err)
	}
	return image, nil
}

// config is what a container engine does with an image. Created is left out: it would be the only thing that differs.
func (r Recipe) config(name string, image v1.Image) *v1.ConfigFile {
	c := &v1.ConfigFile{OS: "linux", Architecture: r.Architecture}
	if layers, err := image.ConfigFile(); err == nil {
		c.RootFS = layers.RootFS
	}
	c.Config = v1.Config{
		Entrypoint: []string{"/" + name}, User: user, WorkingDir: "/",
		Env: []string{"PATH=/", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"},
		Labels: map[string]string{
			"org.opencontainers.image.title": "Lockstep " + name, "org.opencontainers.image.version": r.Version,
			"org.opencontainers.image.revision": r.Commit, "org.opencontainers.image.licenses": "Apache-2.0",
			"org.opencontainers.image.source": "https://github.com/lockstep-cd/lockstep",
		},
	}
	return c
}

// compile builds the static binary of a command. Paths, times and ids of the machine stay out of it.
func compile(ctx context.Context, r Recipe, name string) ([]byte, error) {
	source, err := command(name)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "lockstep-image-")
	if err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out := filepath.Join(dir, name)
	const variable = " -X github.com/lockstep-cd/lockstep/pkg/build."
	flags := "-s -w -buildid=" + variable + "version=" + r.Version
	if r.Commit != "" {
		flags += variable + "commit=" + r.Commit
	}
	//nolint:gosec // its arguments are the caller's own
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", out, source)
	build.Dir = r.Root
	// What a machine may have set for itself would make another binary.
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+r.Architecture, "GOFLAGS=", "GOEXPERIMENT=", "GOAMD64=v1",
		"GOARM64=v8.0", "GOFIPS140=off")
	if text, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build %s: %w: %s", source, err, text)
	}
	binary, err := os.ReadFile(out)
	if err != nil {
		return nil, fmt.Errorf("read binary: %w", err)
	}
	return binary, nil
}

// authorities returns the certificates that Mozilla trusts, from Go's own copy.
func authorities() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer takes everything
	}
	return out.Bytes()
}

type file struct {
	path    string
	mode    int64
	content []byte
}

// layer returns a compressed archive of files and their folders, owned by root and dated 1970.
func layer(files []file) (v1.Layer, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, f := range files {
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: f.path, Mode: f.mode, Size: int64(len(f.content)), ModTime: time.Unix(0, 0).UTC(),
			Format: tar.FormatUSTAR,
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("archive %s: %w", f.path, err)
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, fmt.Errorf("archive %s: %w", f.path, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("make layer: %w", err)
	}
	return l, nil
}

// Write writes an OCI layout with one image, replacing an existing one, and returns the image's digest. Manifests that refer to the image,
// such as its signature, follow it.
func Write(dir string, image v1.Image, referrers ...v1.Image) (string, error) {
	if err := os.RemoveAll(dir); err != nil {
		return "", fmt.Errorf("clear folder: %w", err)
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return "", fmt.Errorf("write layout: %w", err)
	}
	if err := path.AppendImage(image); err != nil {
		return "", fmt.Errorf("write image: %w", err)
	}
	for _, r := range referrers {
		if err := path.AppendImage(r); err != nil {
			return "", fmt.Errorf("write what refers to the image: %w", err)
		}
	}
	digest, err := image.Digest()
	if err != nil {
		return "", fmt.Errorf("digest: %w", err)
	}
	return digest.String(), nil
}
