package source

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// The content types of the envelope of notifications of CNCF Distribution, Docker's registry and GitLab's container registry. All have the
// same form.
const (
	mediaEnvelopeV2 = "application/vnd.docker.distribution.events.v2+json"
	mediaEnvelopeV1 = "application/vnd.docker.distribution.events.v1+json"
)

// envelope is a delivery: the events of manifests and blobs since the last one.
type envelope struct {
	Events []json.RawMessage `json:"events"`
}

// parseDistribution parses an envelope. Pulls and blobs are skipped, and malformed parts left out: after an error, a registry
// would send the same envelope again and again, and hold up everything behind it.
func parseDistribution(_ http.Header, _ string, body []byte) ([]core.Notification, error) {
	if err := checkDocument(body); err != nil {
		return nil, err
	}
	top, err := object("body", body)
	if err != nil {
		return nil, err
	}
	if kind(top["events"]) != "an array" {
		return nil, invalid("events", found(top["events"])+"; expected an array of events")
	}
	var e envelope
	if err := json.Unmarshal(body, &e); err != nil {
		return nil, notJSON(err, 0)
	}
	var (
		notifications []core.Notification
		problems      []fault.Field
	)
	for i, raw := range e.Events {
		n, wanted, err := parseManifest(raw, fmt.Sprintf("events[%d]", i))
		switch {
		case err != nil:
			problems = append(problems, fault.FieldsOf(err)...)
		case wanted:
			notifications = append(notifications, n)
		}
	}
	if len(problems) > 0 {
		return notifications, fault.InvalidFields(problems...)
	}
	return notifications, nil
}

// parseManifest parses one event, and reports whether it is the push of an image, or the deletion of a tag or a digest. The deletion of a
// digest does not say whether it was that of a manifest or of a blob.
func parseManifest(raw []byte, at string) (n core.Notification, wanted bool, err error) {
	o, err := object(at, raw)
	if err != nil {
		return n, false, err
	}
	r := reader{}
	action := r.text(o, at+".", "action")
	if action != "push" && action != "delete" {
		return n, false, r.err()
	}
	target, err := object(at+".target", o["target"])
	if err != nil {
		return n, false, err
	}
	manifest, err := manifestOf(&r, target, at+".target.")
	if err != nil {
		return n, false, err
	}
	if action == "delete" {
		manifest = core.Manifest{}
	}
	if kind, _ := manifest.Kind(); kind == core.KindOther {
		return n, false, r.err()
	}
	place, host, err := hostOf(o, target, at+".")
	if err != nil {
		return n, false, err
	}
	n = core.Notification{
		Source: "/distribution/" + host, ID: r.text(o, at+".", "id"), Place: place,
		Image: r.text(target, at+".target.", "repository"), Digest: r.text(target, at+".target.", "digest"),
		Tag: r.text(target, at+".target.", "tag"), PublishedAt: r.text(o, at+".", "timestamp"), Manifest: manifest,
		Deleted: action == "delete",
		Names: core.Names{
			Source: at + ".request.host", ID: at + ".id", Image: at + ".target.repository", Digest: at + ".target.digest",
			Tag: at + ".target.tag", PublishedAt: at + ".timestamp", Place: at + ".request.host",
		},
	}
	return n, true, r.err()
}

// manifestOf returns what a target reports about its kind: the manifest's media type and, since version 3 of Distribution, that of the
// artifact and, with includereferences, those of the referenced descriptors, of which the first is the configuration.
func manifestOf(r *reader, target map[string]json.RawMessage, at string) (core.Manifest, error) {
	m := core.Manifest{MediaType: r.text(target, at, "mediaType"), ArtifactType: r.text(target, at, "artifactType")}
	if m.MediaType == "" {
		m.MediaType = "missing" // a blob, of any type
	}
	var references []json.RawMessage
	if json.Unmarshal(target["references"], &references) != nil || len(references) == 0 {
		return m, nil //nolint:nilerr // a value that is not a list says nothing about the kind
	}
	first, err := object(at+"references[0]", references[0])
	if err != nil {
		return m, err
	}
	if config := r.text(first, at+"references[0].", "mediaType"); strings.Contains(config, "config") ||
		strings.Contains(config, "image.v1") || strings.Contains(config, "empty") {
		m.ConfigType = config
	}
	return m, nil
}

// hostOf returns the registry as the client named it, or as the registry names itself in the target's URL, with the scheme of that URL; and
// the host alone. The former is a header that a client may set to anything; the host of a hook's configuration takes precedence
// (core.Hook.Host), and core validates it. Messages name the fields after the prefix in.
func hostOf(o, target map[string]json.RawMessage, in string) (place, host string, err error) {
	r := reader{}
	link, _ := url.Parse(r.text(target, in+"target.", "url"))
	if link == nil {
		link = &url.URL{}
	}
	if raw, ok := o["request"]; ok && kind(raw) != "null" {
		request, err := object(in+"request", raw)
		if err != nil {
			return "", "", err
		}
		host = r.text(request, in+"request.", "host")
	}
	if host == "" {
		host = link.Host
	}
	if place = host; link.Scheme == "http" && host != "" {
		place = "http://" + host
	}
	return place, host, r.err()
}
