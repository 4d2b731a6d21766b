package source

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/cloudevents/sdk-go/v2/binding"
	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// The content types of the three modes of CloudEvents over HTTP; any JSON is binary mode.
const (
	mediaStructured = cloudevents.ApplicationCloudEventsJSON
	mediaBatch      = cloudevents.ApplicationCloudEventsBatchJSON
	mediaJSON       = cloudevents.ApplicationJSON
)

// parseCloudEvents parses CloudEvents 1.0 in binary, structured and batch mode. The accepted types are those that report an artifact (R48),
// or its deletion.
func parseCloudEvents(header http.Header, mediaType string, body []byte) ([]core.Notification, error) {
	if err := checkDocument(body); err != nil {
		return nil, err
	}
	switch mediaType {
	case mediaBatch:
		return parseBatch(body)
	case mediaStructured:
		return single(parseStructured(body, ""))
	default:
		return single(parseBinary(header, body))
	}
}

// parseBatch parses every event of a batch, and reports all problems at once.
func parseBatch(body []byte) ([]core.Notification, error) {
	var raw []json.RawMessage
	if kind(body) != "an array" {
		return nil, invalid("body", found(body)+"; expected an array of CloudEvents")
	}
	if err := json.Unmarshal(body, &raw); err != nil {
		return nil, notJSON(err, 0)
	}
	var problems []fault.Field
	notifications := make([]core.Notification, 0, len(raw))
	for i, one := range raw {
		n, err := parseStructured(one, fmt.Sprintf("[%d].", i))
		if err != nil {
			problems = append(problems, fault.FieldsOf(err)...)
			continue
		}
		notifications = append(notifications, n)
	}
	if len(problems) > 0 {
		return notifications, fault.InvalidFields(problems...)
	}
	return notifications, nil
}

// parseStructured parses one event whose attributes are beside its data; messages use prefix.
func parseStructured(raw []byte, prefix string) (core.Notification, error) {
	attributes, err := object(strings.TrimSuffix("body"+prefix, "."), raw)
	if err != nil {
		return core.Notification{}, err
	}
	ordered, err := order(attributes, prefix)
	if err != nil {
		return core.Notification{}, err
	}
	header := http.Header{cehttp.ContentType: {mediaStructured}}
	e, err := binding.ToEvent(context.Background(), cehttp.NewMessage(header, io.NopCloser(bytes.NewReader(ordered))))
	if err != nil {
		return core.Notification{}, notCloudEvent(err, prefix)
	}
	return notification(*e, prefix, prefix)
}

// order reorders an event so that the attributes that define the encoding come first. The SDK parses attributes in order and would
// otherwise read data_base64 as text or a number as a string.
func order(attributes map[string]json.RawMessage, prefix string) ([]byte, error) {
	r := reader{}
	for _, name := range []string{"specversion", "id", "source", "type", "time", "subject", "datacontenttype", "dataschema", "data_base64"} {
		if text := r.text(attributes, prefix, name); text != "" {
			plain, _ := json.Marshal(text) // a string always encodes
			attributes[name] = plain
		} else {
			delete(attributes, name) // null means absent
		}
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	// Before the SDK, which also accepts 0.3, where attributes have other names.
	if err := checkVersion(r.text(attributes, prefix, "specversion"), prefix+"specversion"); err != nil {
		return nil, err
	}
	// By CloudEvents' JSON format, data without a type is JSON, and so is a type that ends in +json, which the SDK reads as text.
	if _, ok := attributes["datacontenttype"]; !ok || isJSON(r.text(attributes, prefix, "datacontenttype")) {
		attributes["datacontenttype"] = json.RawMessage(`"` + mediaJSON + `"`)
	}
	if _, ok := attributes["data_base64"]; ok {
		if _, both := attributes["data"]; both {
			return nil, invalid(prefix+"data_base64", "found beside data; expected one of the two")
		}
	}
	rest := slices.DeleteFunc(slices.Sorted(maps.Keys(attributes)), func(name string) bool {
		return name == "specversion" || name == "datacontenttype"
	})
	var b bytes.Buffer
	for i, name := range append([]string{"specversion", "datacontenttype"}, rest...) {
		key, _ := json.Marshal(name)
		b.WriteByte("{,"[min(i, 1)])
		b.Write(key)
		b.WriteByte(':')
		if err := json.Compact(&b, attributes[name]); err != nil {
			return nil, notJSON(err, 0)
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// parseBinary parses one event whose attributes are headers and whose data is the body. A duplicate header is refused: the SDK would
// silently use the first, where a proxy may have checked the last.
func parseBinary(header http.Header, body []byte) (core.Notification, error) {
	for name, values := range header {
		if strings.HasPrefix(name, "Ce-") && len(values) > 1 {
			return core.Notification{}, invalid(strings.ToLower(name), fmt.Sprintf("found %d times; expected once", len(values)))
		}
	}
	if err := checkVersion(header.Get("Ce-Specversion"), "ce-specversion"); err != nil {
		return core.Notification{}, err
	}
	e, err := binding.ToEvent(context.Background(), cehttp.NewMessage(header, io.NopCloser(bytes.NewReader(body))))
	if err != nil {
		return core.Notification{}, notCloudEvent(err, "ce-")
	}
	return notification(*e, "ce-", "")
}

func checkVersion(version, name string) error {
	switch version {
	case cloudevents.CloudEventsVersionV1:
		return nil
	case "":
		return invalid(name, `missing; expected "1.0", with the other attributes of a CloudEvent`)
	default:
		return invalid(name, fmt.Sprintf(`found %q; expected "1.0"`, version))
	}
}

// notification converts an event. In messages, attributes are named after prefix, and the fields of its data after dataPrefix: in binary
// mode these differ.
func notification(e event.Event, prefix, dataPrefix string) (core.Notification, error) {
	// Brokers send events of every type, and repeat refused ones: an event of another type is left out and recorded, which is not an error.
	expected := fmt.Sprintf("expected %q or %q", event.TypeArtifactPublished, event.TypeArtifactDeleted)
	if e.Type() == "" {
		return core.Notification{}, invalid(prefix+"type", "missing; "+expected)
	}
	deleted, at := e.Type() == event.TypeArtifactDeleted, "published_at"
	if deleted {
		at = "deleted_at"
	} else if e.Type() != event.TypeArtifactPublished {
		return core.Notification{
			Foreign: fmt.Sprintf("found %q; %s, the only types taken here", e.Type(), expected),
			Names:   core.Names{ID: prefix + "type"},
		}, nil
	}
	if !isJSON(e.DataContentType()) {
		return core.Notification{}, invalid(prefix+"datacontenttype", fmt.Sprintf("found %q; expected %q", e.DataContentType(), mediaJSON))
	}
	organization, err := event.Organization(e)
	if err != nil {
		return core.Notification{}, invalid(prefix+event.ExtensionOrganization,
			fmt.Sprintf("found %q; expected a number above zero", event.Extension(e, event.ExtensionOrganization)))
	}
	if len(e.Data()) == 0 {
		return core.Notification{}, invalid(dataPrefix+"data", "missing; expected an object with image and digest")
	}
	if e.DataBase64 { // the encoded data has not been checked yet
		if err := checkDocument(e.Data()); err != nil {
			return core.Notification{}, invalid(dataPrefix+"data_base64", fault.FieldsOf(err)[0].Problem)
		}
	}
	data, err := object(dataPrefix+"data", e.Data())
	if err != nil {
		return core.Notification{}, err
	}
	in := dataPrefix + "data."
	r := reader{}
	n := core.Notification{
		Source: e.Source(), ID: e.ID(), Organization: organization,
		Correlation: event.Extension(e, event.ExtensionCorrelation),
		TraceParent: event.Extension(e, event.ExtensionTraceParent),
		Image:       r.text(data, in, "image"), Digest: r.text(data, in, "digest"),
		Tag: r.text(data, in, "tag"), PublishedAt: r.text(data, in, at), Deleted: deleted,
		Names: core.Names{
			Source: prefix + "source", ID: prefix + "id", Correlation: prefix + event.ExtensionCorrelation, Image: in + "image",
			Digest: in + "digest",
			Tag:    in + "tag", PublishedAt: in + at,
		},
	}
	return n, r.err()
}

// notCloudEvent describes what the SDK could not read, at prefix.
func notCloudEvent(err error, prefix string) error {
	name := strings.TrimSuffix(prefix, ".")
	if name == "" || name == "ce-" {
		name = "event"
	}
	return fault.InvalidFields(fault.Field{
		Name:    name,
		Problem: "not a CloudEvent 1.0: " + strings.Join(strings.Fields(err.Error()), " ") + "; expected specversion, id, source, type and data",
	})
}

// isJSON reports whether a media type is JSON in UTF-8: application/json, or a type that ends in +json.
func isJSON(contentType string) bool {
	media, parameters, err := mime.ParseMediaType(contentType)
	charset := parameters["charset"]
	return err == nil && (media == mediaJSON || strings.HasSuffix(media, "+json")) && (charset == "" || strings.EqualFold(charset, "utf-8"))
}
