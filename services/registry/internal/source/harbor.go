package source

import (
	"net/http"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
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
	var (
		all      []core.Notification
		problems []fault.Field
	)
	for _, raw := range data.objects("resources") {
		resource := raw.alone()
		reference, _, _ := splitReference(dropScheme(resource.text("resource_url")))
		place, image := split(reference)
		tag := resource.text("tag")
		if isDigest(tag) { // pushed without a tag
			tag = ""
		}
		n := core.Notification{
			Place: place, Image: image, Digest: resource.text("digest"), Tag: tag, PublishedAt: at,
			Names: core.Names{Image: resource.name("resource_url"), Digest: resource.name("digest"), Tag: resource.name("tag")},
		}
		// Default has no id: then the second, the tag and the digest tell a delivery sent again from another push. An event of the other format tells of
		// many.
		told := id
		if told == "" {
			told = "push " + at
		}
		n.ID = strings.Join([]string{told, reference, n.Tag, n.Digest}, " ")
		if err := resource.err(); err != nil {
			problems = append(problems, fault.FieldsOf(err)...)
			continue
		}
		all = append(all, n)
	}
	if problems = append(problems, fault.FieldsOf(top.err())...); len(problems) > 0 {
		return all, fault.InvalidFields(problems...)
	}
	return all, nil
}
