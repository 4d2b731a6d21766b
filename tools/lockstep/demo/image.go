package demo

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// SimulateLabel is the image label that determines how the image behaves in the simulated cluster: "degraded-at=50".
const SimulateLabel = "lockstep.dev/simulate"

// PushImage builds an image of one small file, pushes it as a CI job would, and answers its digest. The error is Unavailable when the
// registry cannot be reached or breaks off: to be tried again.
func PushImage(ctx context.Context, registry, repository, tag string, labels map[string]string) (string, error) {
	reference, err := name.NewTag(registry+"/"+repository+":"+tag, name.Insecure)
	if err != nil {
		return "", fmt.Errorf("image name: %w", err)
	}
	image, err := buildImage(repository+" "+tag+"\n", labels)
	if err != nil {
		return "", fmt.Errorf("build image %s: %w", reference, err)
	}
	if err := remote.Write(reference, image, remote.WithContext(ctx)); err != nil {
		if answer, ok := errors.AsType[*transport.Error](err); ok && answer.StatusCode < http.StatusInternalServerError {
			return "", fmt.Errorf("push image %s: %w", reference, err)
		}
		return "", fault.New(fault.Unavailable, "push image %s: %w", reference, err)
	}
	digest, err := image.Digest()
	if err != nil {
		return "", fmt.Errorf("digest of image %s: %w", reference, err)
	}
	return digest.String(), nil
}

func buildImage(content string, labels map[string]string) (v1.Image, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := w.WriteHeader(&tar.Header{Name: "version", Mode: 0o644, Size: int64(len(content))}); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(w, content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil })
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", "amd64"
	file.Config.Labels = labels
	return mutate.ConfigFile(image, file)
}
