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

// The content types of the envelope in which CNCF Distribution, Docker's registry and GitLab's container registry
// notify. Both have the same form.
const (
	mediaEnvelopeV2 = "application/vnd.docker.distribution.events.v2+json"
	mediaEnvelopeV1 = "application/vnd.docker.distribution.events.v1+json"
)

// envelope is a delivery: what happened to manifests and blobs since the last one.
type envelope struct {
	Events []json.RawMessage `json:"events"`
}

// parseDistribution reads an envelope. Pulls, deletions and blobs are passed over without a look: a registry that is
// answered with an error sends the same envelope again for ever, and everything behind it waits.
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
		n, wanted, err := parsePush(raw, fmt.Sprintf("events[%d]", i))
		switch {
		case err != nil:
			problems = append(problems, fault.FieldsOf(err)...)
		case wanted:
			notifications = append(notifications, n)
		}
	}
	if len(problems) > 0 {
		return nil, fault.InvalidFields(problems...)
	}
	return notifications, nil
}

// parsePush reads one event, and reports whether it is the push of an image.
func parsePush(raw []byte, at string) (n core.Notification, wanted bool, err error) {
	o, err := object(at, raw)
	if err != nil {
		return n, false, err
	}
	r := reader{}
	if action := r.text(o, at+".", "action"); action != "push" {
		return n, false, r.err()
	}
	target, err := object(at+".target", o["target"])
	if err != nil {
		return n, false, err
	}
	if !isImage(r.text(target, at+".target.", "mediaType")) {
		return n, false, r.err()
	}
	host, err := hostOf(o, target, at+".")
	if err != nil {
		return n, false, err
	}
	repository := r.text(target, at+".target.", "repository")
	n = core.Notification{
		Source: "/distribution/" + host, ID: r.text(o, at+".", "id"),
		Image: host + "/" + repository, Digest: r.text(target, at+".target.", "digest"),
		Tag: r.text(target, at+".target.", "tag"), PublishedAt: r.text(o, at+".", "timestamp"),
		Names: core.Names{
			Source: at + ".request.host", ID: at + ".id", Image: at + ".target.repository", Digest: at + ".target.digest",
			Tag: at + ".target.tag", PublishedAt: at + ".timestamp",
		},
	}
	// Or the image would be the host with a slash, and the message about its form instead of what is missing.
	if repository == "" {
		n.Image = ""
	}
	return n, true, r.err()
}

// isImage tells manifests and indexes of images from blobs and from the signed manifests of schema 1, which no
// container runtime takes any more.
func isImage(mediaType string) bool {
	switch mediaType {
	case "application/vnd.oci.image.manifest.v1+json", "application/vnd.oci.image.index.v1+json",
		"application/vnd.docker.distribution.manifest.v2+json", "application/vnd.docker.distribution.manifest.list.v2+json":
		return true
	default:
		return false
	}
}

// hostOf is the registry as the client named it, or as the registry names itself in the target's URL. The former is a
// header that whoever pushes may set to anything; the host of a hook's configuration takes precedence over it
// (core.Hook.Host). Messages name the fields after the prefix in.
func hostOf(o, target map[string]json.RawMessage, in string) (string, error) {
	r := reader{}
	if raw, ok := o["request"]; ok && kind(raw) != "null" {
		request, err := object(in+"request", raw)
		if err != nil {
			return "", err
		}
		host := r.text(request, in+"request.", "host")
		// A host that smuggles in a path, a user or a tag would name a repository elsewhere.
		if strings.ContainsAny(host, `/\?#@ `) {
			return "", invalid(in+"request.host", fmt.Sprintf("found %q; expected a host, with its port if it has one", host))
		}
		if err := r.err(); err != nil || host != "" {
			return host, err
		}
	}
	link := r.text(target, in+"target.", "url")
	if err := r.err(); err != nil {
		return "", err
	}
	u, err := url.Parse(link)
	if err != nil || u.Host == "" {
		return "", invalid(in+"request.host", "missing, and target.url names no host either; expected one of them to name the registry")
	}
	return u.Host, nil
}
