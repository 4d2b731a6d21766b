package source

import (
	"net/http"
	"slices"

	"github.com/lockstep-cd/lockstep/pkg/source"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// parse is Format.Parse.
type parse func(header http.Header, mediaType string, body []byte) ([]core.Notification, error)

// whole passes over the parts of images, of which a registry tells as it does of images: what was pushed without a tag is a
// platform's manifest, of which its index tells, or a signature or a list of contents (OCI distribution specification,
// "Pushing Manifests with Subject"), and so is what was pushed under a tag made of another manifest's digest. Somebody who
// means an untagged image says so with one of the formats that registries do not send. Charts, SBOMs and other artifacts are passed over too, where the
// delivery says what they are.
func whole(read parse) parse {
	return func(header http.Header, mediaType string, body []byte) ([]core.Notification, error) {
		all, err := read(header, mediaType, body)
		return slices.DeleteFunc(all, func(n core.Notification) bool {
			kind, _ := n.Manifest.Kind()
			return n.Names.Repository == "" && (n.Tag == "" || source.RefersTo(n.Tag) || kind == core.KindOther)
		}), err
	}
}
