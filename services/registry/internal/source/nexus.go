package source

import (
	"net/http"
	"strings"

	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// parseNexus parses the repository webhooks of Sonatype Nexus 3, for components and for assets. Neither has a digest, or the host of the
// repository's connector. A component's version is the tag; so is the end of an asset's path. Assets that are not manifests are skipped.
func parseNexus(_ http.Header, _ string, body []byte) ([]core.Notification, error) {
	top, err := open(body)
	if err != nil {
		return nil, err
	}
	action := top.text("action")
	if action != "CREATED" && action != "UPDATED" && action != "DELETED" {
		return nil, top.err()
	}
	n := core.Notification{PublishedAt: stamp(top.text("timestamp")), Deleted: action == "DELETED"}
	component, asset := top.in("component"), top.in("asset")
	switch {
	case component.text("format") == "docker":
		n.Image, n.Tag = component.text("name"), component.text("version")
		n.Names = core.Names{Image: component.name("name"), Tag: component.name("version")}
	case asset.text("format") == "docker":
		// The path of the registry's API, v2/shop/api/manifests/1.4.0. Some versions have a leading slash.
		path := strings.TrimPrefix(strings.TrimPrefix(asset.text("name"), "/"), "v2/")
		name, tag, ok := strings.Cut(path, "/manifests/")
		if !ok {
			return nil, top.err()
		}
		n.Image, n.Tag = name, tag
		n.Names = core.Names{Image: asset.name("name"), Tag: asset.name("name")}
	default:
		return nil, top.err()
	}
	if isDigest(n.Tag) {
		n.Digest, n.Tag = n.Tag, ""
		n.Names.Digest = n.Names.Tag
	}
	// Without a time, two pushes of a tag cannot be distinguished: core then derives an identity from the tag, and from the digest once
	// Nexus has returned it.
	if n.PublishedAt != "" {
		n.ID = strings.Join([]string{n.PublishedAt, n.Image, n.Tag, n.Digest}, " ")
		if n.Deleted {
			n.ID = "deleted " + n.ID
		}
	}
	return single(n, top.err())
}
