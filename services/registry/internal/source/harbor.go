package source

import (
	"net/http"
	"strings"

	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// parseHarbor reads both payload formats of Harbor: Default, whose type was pushImage up to version 1.10 and is
// PUSH_ARTIFACT since 2.0, and CloudEvents, which came with 2.8. Each lists the pushed references of one repository.
func parseHarbor(_ http.Header, _ string, body []byte) ([]core.Notification, error) {
	top, err := open(body)
	if err != nil {
		return nil, err
	}
	data, at, id := top.in("event_data"), top.seconds("occur_at"), ""
	if top.has("specversion") {
		data, at, id = top.in("data"), stamp(top.text("time")), top.text("id")
	}
	switch top.text("type") {
	case "PUSH_ARTIFACT", "pushImage", "harbor.artifact.pushed":
	default:
		return nil, top.err()
	}
	data.require("resources", "an array of what was pushed")
	var all []core.Notification
	for _, resource := range data.objects("resources") {
		image, _, _ := splitReference(dropScheme(resource.text("resource_url")))
		tag := resource.text("tag")
		if isDigest(tag) { // pushed without a tag
			tag = ""
		}
		n := core.Notification{
			Image: image, Digest: resource.text("digest"), Tag: tag, PublishedAt: at,
			Names: core.Names{Image: resource.name("resource_url"), Digest: resource.name("digest"), Tag: resource.name("tag")},
		}
		n.ID = id
		if id == "" {
			// Default has no id. The second, the tag and the digest tell a delivery sent again from another push.
			n.ID = strings.Join([]string{"push", at, n.Image, n.Tag, n.Digest}, " ")
		} else {
			n.ID = strings.Join([]string{id, n.Image, n.Tag, n.Digest}, " ") // one event tells of many
		}
		all = append(all, n)
	}
	return all, top.err()
}
