package event

import (
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
)

// Make combines New and Seal and checks the event once. The usual form is encoded directly, without an SDK event in between, which costs
// several times as much. Everything else, including what will be refused, takes the slow path.
func Make(h Header, data Data) (Sealed, error) {
	if s, ok := straight(h, data); ok {
		return s, nil
	}
	e, err := unchecked(h, data)
	if err != nil {
		return Sealed{}, err
	}
	return Seal(e)
}

// evident is a payload whose fields show whether it fits its schema, so its JSON need not be parsed to check it.
type evident interface {
	// fits reports whether the payload's JSON fits the schema of its type.
	fits() bool
}

// fits checks all that the schema requires: a text that is not empty.
func (d WorkflowCompleted) fits() bool { return d.WorkflowID != "" }

// straight encodes an event in the layout (layout.go). It reports false for other forms, and for an event that may be invalid: Validate
// finds and names the mistake.
func straight(h Header, data Data) (s Sealed, ok bool) {
	d, known := Lookup(data.EventType())
	if !known || h.Time.IsZero() || h.Organization < 0 || !visible(h.ID) || !isPath(h.Source) {
		return Sealed{}, false
	}
	body, ok := payload(d, data)
	if !ok {
		return Sealed{}, false
	}
	subject, err := d.subject(h.Organization, body)
	if err != nil {
		return Sealed{}, false
	}
	const usual = 512 // most attributes fit
	text := append(make([]byte, 0, usual+len(body)), layoutVersion...)
	add := func(name, value string) { text = append(appendMember(text, name, value), ',') }
	add("type", d.Type)
	add("id", h.ID)
	add("source", h.Source)
	add("datacontenttype", cloudevents.ApplicationJSON)
	text = append(h.Time.UTC().AppendFormat(append(text, `"time":"`...), time.RFC3339Nano), `",`...)
	// Extensions are ordered by name.
	for _, extension := range [...]struct{ name, value string }{
		{ExtensionCausation, h.Causation},
		{ExtensionCorrelation, h.Correlation},
		{ExtensionOrganization, number(h.Organization)},
		{ExtensionTraceParent, h.Trace},
	} {
		if extension.value != "" {
			if !utf8.ValidString(extension.value) {
				return Sealed{}, false
			}
			add(extension.name, extension.value)
		}
	}
	attributes := len(text)
	text = append(append(append(text, `"data":`...), body...), '}')
	if !utf8.Valid(body) {
		return Sealed{}, false
	}
	return Sealed{
		text: text, attributes: attributes, eventType: d.Type, id: h.ID, source: h.Source, trace: h.Trace, path: d.Path,
		subj: subject, organization: number(h.Organization), correlation: h.Correlation,
	}, true
}

// payload encodes data, if it fits its schema.
func payload(d Definition, data Data) (body []byte, ok bool) {
	if raw, isRaw := data.(Raw); isRaw {
		body = raw.JSON
	} else {
		var err error
		if body, err = json.Marshal(data); err != nil {
			return nil, false
		}
	}
	if known, can := data.(evident); can && known.fits() {
		return body, true
	}
	return body, schemas()[d.Type].Validate(body) == nil
}

// number formats an organization as an attribute; "" for none.
func number(organization int64) string {
	if organization == 0 {
		return ""
	}
	return strconv.FormatInt(organization, 10)
}

// visible reports whether s is one line of text without white space around it.
func visible(s string) bool { return plain(s) && s != "" && s[0] != ' ' && s[len(s)-1] != ' ' }

// isPath reports whether s is a path of plain names, which is a URI reference with only one spelling.
func isPath(s string) bool {
	for i := range len(s) {
		if c := s[i]; c != '/' && c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return len(s) > 1 && s[0] == '/' && s[1] != '/'
}
