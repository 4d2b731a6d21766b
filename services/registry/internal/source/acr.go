package source

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// parseACR reads the events of Azure Container Registry, each in the form of Distribution's: from the registry's own webhook, one without an envelope;
// and from Event Grid, as CloudEvents or in Event Grid's schema, one or a list. The ping, by which the portal tries a webhook, deletions and charts are
// passed over.
func parseACR(_ http.Header, _ string, body []byte) ([]core.Notification, error) {
	if err := checkDocument(body); err != nil {
		return nil, err
	}
	var items []json.RawMessage
	prefix := ""
	if kind(body) != "an array" {
		items = []json.RawMessage{body}
	} else {
		// Into a list of its own: decoding into one that holds the body would write over it.
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

// acrEvent reads one event, in its envelope if it has one.
func acrEvent(e node) ([]core.Notification, error) {
	if about := e.text("type") + e.text("eventType"); about != "" {
		if !strings.EqualFold(about, "Microsoft.ContainerRegistry.ImagePushed") && !strings.EqualFold(about, "ImagePushed") {
			return nil, e.err()
		}
		e = e.in("data")
	}
	target := e.in("target")
	manifest := core.Manifest{MediaType: target.text("mediaType"), ArtifactType: target.text("artifactType")}
	if e.text("action") != "push" || manifest.MediaType == "" {
		return nil, e.err()
	}
	// What the client that pushed called the registry, a custom domain included; a hook's host puts that right.
	place, _, err := hostOf(e.fields, target.fields, e.path)
	if err != nil {
		return nil, err
	}
	n := core.Notification{
		ID: e.text("id"), Digest: target.text("digest"), Tag: target.text("tag"), PublishedAt: stamp(e.text("timestamp")),
		Place: place, Image: target.text("repository"), Manifest: manifest,
		Names: core.Names{
			ID: e.name("id"), Image: target.name("repository"), Digest: target.name("digest"), Tag: target.name("tag"), Place: e.name("request.host"),
		},
	}
	return single(n, e.err())
}
