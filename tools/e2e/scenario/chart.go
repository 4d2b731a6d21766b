package scenario

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// What Helm calls its artifacts: https://helm.sh/docs/topics/registries/#oci-feature-deprecation-and-behavior-changes-with-v380
const (
	chartConfig  types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	chartContent types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// chart pushes a chart.
func (r *run) chart(ctx context.Context, c Chart) error {
	reference, err := name.NewTag(r.Stack.Endpoints().OCI+"/"+r.scenario.Name+"/"+c.Name+":"+c.Tag, name.Insecure)
	if err != nil {
		return fmt.Errorf("name of the chart: %w", err)
	}
	packed, err := r.pack(c)
	if err != nil {
		return fmt.Errorf("pack %s: %w", c.Folder, err)
	}
	artifact, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), chartConfig),
		static.NewLayer(packed, chartContent))
	if err != nil {
		return fmt.Errorf("chart %s: %w", reference, err)
	}
	return remote.Write(reference, artifact, remote.WithContext(ctx))
}

// pack is the archive of a chart's files.
func (r *run) pack(c Chart) ([]byte, error) {
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	archive := tar.NewWriter(zipped)
	for _, path := range slices.Sorted(maps.Keys(r.scenario.Files)) {
		within, ok := strings.CutPrefix(path, c.Folder+"/")
		if !ok {
			continue
		}
		text := r.scenario.Files[path]
		err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: c.Name + "/" + within, Mode: 0o644, Size: int64(len(text))})
		if err == nil {
			_, err = archive.Write([]byte(text))
		}
		if err != nil {
			return nil, err
		}
	}
	err := errors.Join(archive.Close(), zipped.Close())
	return packed.Bytes(), err
}
