package assemble

import (
	"bytes"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
)

// materials returns the modules that a binary was linked from, as CycloneDX JSON: each with its version and the hash from go.sum. It reads
// the binary, so the list always matches it.
func materials(binary []byte, name, version string) ([]byte, error) {
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return nil, fmt.Errorf("read build information: %w", err)
	}
	bom := cyclonedx.NewBOM()
	bom.SerialNumber = "" // would have to be random
	bom.Metadata = &cyclonedx.Metadata{Component: &cyclonedx.Component{
		BOMRef: "main", Type: cyclonedx.ComponentTypeApplication, Name: name, Version: version,
		PackageURL: "pkg:golang/" + info.Path + "@" + version,
	}}
	components := []cyclonedx.Component{{
		BOMRef: "pkg:golang/stdlib@" + info.GoVersion, Type: cyclonedx.ComponentTypeLibrary, Name: "stdlib",
		Version: info.GoVersion, PackageURL: "pkg:golang/stdlib@" + info.GoVersion,
	}}
	for _, m := range info.Deps {
		components = append(components, component(m))
	}
	bom.Components = &components
	var out bytes.Buffer
	if err := cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return nil, fmt.Errorf("encode materials: %w", err)
	}
	return out.Bytes(), nil
}

func component(m *debug.Module) cyclonedx.Component {
	if m.Replace != nil && m.Replace.Version != "" {
		m = m.Replace
	}
	url := "pkg:golang/" + m.Path + "@" + m.Version
	c := cyclonedx.Component{BOMRef: url, Type: cyclonedx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: url}
	if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:")); err == nil && len(sum) > 0 {
		c.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
	}
	return c
}
