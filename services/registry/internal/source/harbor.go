package source

import (
	"net/http"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// parseHarbor parses both payload formats of Harbor: Default, whose type was pushImage up to version 1.10 and is PUSH_ARTIFACT since 2.0,
// and CloudEvents, since 2.8. Each lists the pushed or deleted references of one repository. An artifact is deleted with all its
// tags, whichever of them the event names; Harbor does not report the deletion of a tag alone.
func parseHarbor(_ http.Header, _ string, body []byte) ([]core.Notification, error) {
	top, err := open(body)
	if err != nil {
		return nil, err
	}
	data, at, id := top.in("event_data"), top.seconds("occur_at"), ""
	if top.has("specversion") {
		data, at, id = top.in("data"), stamp(top.text("time")), top.text("id")
	}
	done := "push"
	switch top.text("type") {
	case "PUSH_ARTIFACT", "pushImage", "harbor.artifact.pushed":
	case "DELETE_ARTIFACT", "deleteImage", "harbor.artifact.deleted":
		done = "delete"
	default:
		return nil, top.err()
	}
	data.require("resources", "an array of what was pushed or deleted")
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
			Place: place, Image: image, Digest: resource.text("digest"), Tag: tag, PublishedAt: at, Deleted: done == "delete",
			Names: core.Names{Image: resource.name("resource_url"), Digest: resource.name("digest"), Tag: resource.name("tag")},
		}
		// Default has no id: the time in seconds, the tag and the digest distinguish a repeated delivery from another push. An event of the
		// other format may contain several artifacts.
		event := id
		if event == "" {
			event = done + " " + at
		}
		if n.Deleted && n.Digest != "" {
			n.Tag = ""
		}
		n.ID = strings.Join([]string{event, reference, n.Tag, n.Digest}, " ")
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
