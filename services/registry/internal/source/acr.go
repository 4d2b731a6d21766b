package source

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// parseACR parses the events of Azure Container Registry, each in the form of Distribution's: from the registry's own webhook one, without
// an envelope; from Event Grid one or a list, as CloudEvents or in Event Grid's schema. The ping with which the portal tests a webhook, and
// charts, are skipped.
func parseACR(_ http.Header, _ string, body []byte) ([]core.Notification, error) {
	if err := checkDocument(body); err != nil {
		return nil, err
	}
	var items []json.RawMessage
	prefix := ""
	if kind(body) != "an array" {
		items = []json.RawMessage{body}
	} else {
		// Into a separate list: decoding into one that shares memory with the body would overwrite it.
		if err := json.Unmarshal(body, &items); err != nil {
			return nil, notJSON(err, 0)
		}
		prefix = "[%d]."
	}
	var (
		all      []core.Notification
		problems []fault.Field
	)
	for i, raw := range items {
		at := indexed(prefix, i)
		fields, err := object(strings.TrimSuffix("body"+at, "."), raw)
		if err == nil {
			var found []core.Notification
			found, err = acrEvent(node{problems: &reader{}, path: at, fields: fields})
			all = append(all, found...)
		}
		problems = append(problems, fault.FieldsOf(err)...)
	}
	if len(problems) > 0 {
		return all, fault.InvalidFields(problems...)
	}
	return all, nil
}

// acrEvent parses one event, with or without an envelope.
func acrEvent(e node) ([]core.Notification, error) {
	if about := e.text("type") + e.text("eventType"); about != "" {
		switch strings.TrimPrefix(strings.ToLower(about), "microsoft.containerregistry.") {
		case "imagepushed", "imagedeleted":
		default:
			return nil, e.err()
		}
		e = e.in("data")
	}
	target := e.in("target")
	manifest := core.Manifest{MediaType: target.text("mediaType"), ArtifactType: target.text("artifactType")}
	action := e.text("action")
	if action != "push" && action != "delete" || manifest.MediaType == "" && action == "push" {
		return nil, e.err()
	}
	// The registry's name as the pushing client used it, which may be a custom domain; a hook's host overrides it.
	place, _, err := hostOf(e.fields, target.fields, e.path)
	if err != nil {
		return nil, err
	}
	n := core.Notification{
		ID: e.text("id"), Digest: target.text("digest"), Tag: target.text("tag"), PublishedAt: stamp(e.text("timestamp")),
		Place: place, Image: target.text("repository"), Manifest: manifest, Deleted: action == "delete",
		Names: core.Names{
			ID: e.name("id"), Image: target.name("repository"), Digest: target.name("digest"), Tag: target.name("tag"),
			Place: e.name("request.host"),
		},
	}
	if n.Deleted && n.Digest != "" {
		n.Tag = "" // a manifest is deleted with all its tags
	}
	return single(n, e.err())
}
