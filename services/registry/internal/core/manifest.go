package core

import (
	"strings"
)

// Manifest is what a sender or a registry reports about the kind of a manifest; fields that it does not report are empty.
type Manifest struct {
	// MediaType is the manifest's own, ArtifactType and ConfigType are artifactType and config.mediaType of the OCI image specification.
	MediaType    string `json:",omitempty"`
	ArtifactType string `json:",omitempty"`
	ConfigType   string `json:",omitempty"`
	// Subject means that it refers to another manifest, as signatures and SBOMs do.
	Subject bool `json:",omitempty"`
}

// Kind reports whether a manifest is an image.
type Kind int

// A manifest of an unknown kind may be an image: its configuration decides.
const (
	KindUnknown Kind = iota
	KindImage
	KindOther
)

// OtherKind is the error for a manifest that is not an image: a chart, an SBOM, a signature.
type OtherKind struct{ What string }

// Error names the kind.
func (o OtherKind) Error() string {
	return "found " + o.What + "; expected a container image or an index of images: it does not become a version"
}

// Kind returns whether the manifest is an image; if it is not, OtherKind says what it is.
func (m Manifest) Kind() (Kind, OtherKind) {
	if m.Subject {
		return KindOther, OtherKind{"a manifest that refers to another one (subject)"}
	}
	kind := KindUnknown
	for _, mediaType := range []string{m.MediaType, m.ArtifactType, m.ConfigType} {
		if mediaType == "" {
			continue
		}
		switch row := mediaTypeOf(mediaType); row.role {
		case roleIndex, roleConfig:
			kind = KindImage
		case roleManifest: // its configuration decides
		default:
			return KindOther, OtherKind{row.what}
		}
	}
	return kind, OtherKind{}
}

// role is what a media type is used for.
type role int

const (
	roleOther    role = iota
	roleManifest      // a manifest whose configuration says whether it is an image
	roleIndex         // images of several platforms
	roleConfig        // the configuration of an image
)

// mediaRow is a row of the table of media types. One that ends in a dot matches all types with that prefix.
type mediaRow struct {
	mediaType string
	role      role
	what      string
}

// mediaTypes is the one table of media types, for all ways in which artifacts are reported or found. A type in no row is that of another
// kind of artifact.
func mediaTypes() []mediaRow {
	return []mediaRow{
		{"application/vnd.oci.image.manifest.v1+json", roleManifest, "a manifest"},
		{"application/vnd.docker.distribution.manifest.v2+json", roleManifest, "a manifest"},
		{"application/vnd.oci.image.index.v1+json", roleIndex, "an index"},
		{"application/vnd.docker.distribution.manifest.list.v2+json", roleIndex, "an index"},
		{"application/vnd.oci.image.config.v1+json", roleConfig, "an image"},
		{"application/vnd.docker.container.image.v1+json", roleConfig, "an image"},
		{"application/vnd.wasm.config.v0+json", roleConfig, "a WebAssembly module that container runtimes run"},
		{"application/vnd.docker.container.image.rootfs.", roleOther, "a plugin or layer of Docker's"},
		{"application/vnd.docker.distribution.manifest.v1+", roleOther, "a manifest of schema 1, which container runtimes no longer take"},
		{"application/vnd.docker.plugin.", roleOther, "a plugin of Docker's"},
		{"application/vnd.docker.attestation.", roleOther, "an attestation"},
		{"application/vnd.cncf.helm.", roleOther, "a Helm chart"},
		{"application/vnd.oci.empty.v1+json", roleOther, "an artifact without a configuration"},
		{"application/vnd.oci.artifact.manifest.v1+json", roleOther, "an OCI artifact"},
		{"application/vnd.cncf.oras.artifact.manifest.v1+json", roleOther, "an ORAS artifact"},
		{"application/vnd.cncf.notary.", roleOther, "a signature (Notary)"},
		{"application/vnd.dev.cosign.", roleOther, "a signature or attestation (cosign)"},
		{"application/vnd.dev.sigstore.", roleOther, "a signature or attestation (Sigstore)"},
		{"application/vnd.in-toto", roleOther, "an attestation (in-toto)"},
		{"application/vnd.cyclonedx", roleOther, "an SBOM (CycloneDX)"},
		{"application/spdx", roleOther, "an SBOM (SPDX)"},
		{"text/spdx", roleOther, "an SBOM (SPDX)"},
		{"application/vnd.syft", roleOther, "an SBOM (Syft)"},
		{"application/vnd.cncf.flux.", roleOther, "an artifact of Flux"},
		{"application/vnd.cncf.openpolicyagent.", roleOther, "a bundle of policies"},
		{"application/vnd.lockstep.", roleOther, "a driver of Lockstep"},
	}
}

// mediaTypeOf returns the row of a media type, ignoring parameters and case.
func mediaTypeOf(mediaType string) mediaRow {
	mediaType, _, _ = strings.Cut(strings.ToLower(mediaType), ";")
	mediaType = strings.TrimSpace(mediaType)
	for _, row := range mediaTypes() {
		if mediaType == row.mediaType || row.role == roleOther && strings.HasPrefix(mediaType, row.mediaType) {
			return row
		}
	}
	return mediaRow{mediaType, roleOther, "an artifact of type " + quote(mediaType)}
}
