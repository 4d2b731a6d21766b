package source

import (
	"net/http"
	"slices"

	"github.com/lockstep-cd/lockstep/pkg/source"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// parse is the type of Format.Parse.
type parse func(header http.Header, mediaType string, body []byte) ([]core.Notification, error)

// whole skips the parts of images, which registries report like images: a manifest pushed without a tag is that of one platform, whose
// index is reported as well, or a signature or an SBOM (OCI distribution specification, "Pushing Manifests with Subject"); so is one with a
// tag that contains another manifest's digest. An untagged image can be reported in one of the formats that registries do not use. Charts,
// SBOMs and other artifacts are skipped, too, if the delivery names their kind. The deletion of a digest is kept: it may be that of an
// image, which only the digest says.
func whole(read parse) parse {
	return func(header http.Header, mediaType string, body []byte) ([]core.Notification, error) {
		all, err := read(header, mediaType, body)
		return slices.DeleteFunc(all, func(n core.Notification) bool {
			kind, _ := n.Manifest.Kind()
			return n.Names.Repository == "" && (n.Tag == "" && (!n.Deleted || n.Digest == "") || source.RefersTo(n.Tag) || kind == core.KindOther)
		}), err
	}
}
