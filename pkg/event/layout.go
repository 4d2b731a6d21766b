package event

import (
	"bytes"
	"encoding/json"
	"maps"
	"mime"
	"slices"
	"unicode/utf8"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
)

// The layout of a sealed event's JSON: all attributes, as strings, followed by the data as JSON. A sender finds everything it needs without
// parsing the data. The type comes second, which distinguishes the layout from that of the SDK.
const (
	layoutVersion = `{"specversion":"1.0",`
	layoutBegin   = layoutVersion + `"type":"`
)

// write returns e in the layout, and the length of the attributes; nil for an event that does not fit it: another version of CloudEvents,
// data that is not embedded JSON, or an attribute that is not a string or not valid Unicode.
func write(e Event) (text []byte, attributes int) {
	c, current := e.Context.(*cloudevents.EventContextV1)
	if !current || e.DataBase64 || !isJSON(c.DataContentType) {
		return nil, 0
	}
	const usual = 512 // most attributes fit
	text = append(make([]byte, 0, usual+len(e.DataEncoded)), layoutVersion...)
	broken := false
	add := func(name, value string) {
		broken = broken || !utf8.ValidString(value)
		text = append(appendMember(text, name, value), ',')
	}
	add("type", c.Type)
	add("id", c.ID)
	add("source", c.Source.String())
	if c.DataContentType != nil {
		add("datacontenttype", *c.DataContentType)
	}
	if c.Subject != nil {
		add("subject", *c.Subject)
	}
	if c.DataSchema != nil {
		add("dataschema", c.DataSchema.String())
	}
	if c.Time != nil {
		add("time", c.Time.String())
	}
	const most = 8 // events carry fewer
	names := slices.AppendSeq(make([]string, 0, most), maps.Keys(c.Extensions))
	slices.Sort(names)
	for _, name := range names {
		value, isText := c.Extensions[name].(string)
		if !isText {
			return nil, 0
		}
		add(name, value)
	}
	if broken {
		return nil, 0
	}
	attributes = len(text)
	text = append(text, `"data":`...)
	return append(append(text, e.DataEncoded...), '}'), attributes
}

// isJSON reports whether data of a content type is embedded in an event's JSON unchanged.
func isJSON(contentType *string) bool {
	if contentType == nil || *contentType == cloudevents.ApplicationJSON {
		return true
	}
	media, _, err := mime.ParseMediaType(*contentType)
	return err == nil && media == cloudevents.ApplicationJSON
}

// appendMember appends a member of an object to text.
func appendMember(text []byte, name, value string) []byte {
	text = append(text, '"')
	text = append(text, name...)
	text = append(text, `":`...)
	if plain(value) {
		return append(append(append(text, '"'), value...), '"')
	}
	quoted, err := json.Marshal(value)
	if err != nil {
		panic(err) // a string always encodes
	}
	return append(text, quoted...)
}

// plain reports whether a string needs no escaping in JSON.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// read parses a text in the layout into a Sealed, without the data; it reports false for any other text.
func read(text []byte) (s Sealed, ok bool) {
	if !bytes.HasPrefix(text, []byte(layoutBegin)) || text[len(text)-1] != '}' {
		return Sealed{}, false
	}
	s.text = text
	for rest := text[len(layoutVersion):]; ; {
		name, after, ok := bytes.Cut(rest, []byte(`":`))
		if !ok || len(name) == 0 || name[0] != '"' {
			return Sealed{}, false
		}
		if string(name[1:]) == "data" {
			s.attributes = len(text) - len(rest)
			return s.placed(after[:len(after)-1])
		}
		value, after, ok := cutString(after)
		if !ok || len(after) == 0 || after[0] != ',' {
			return Sealed{}, false
		}
		rest = after[1:]
		if into := s.attribute(string(name[1:])); into != nil {
			if *into, ok = unquote(value); !ok {
				return Sealed{}, false
			}
		}
	}
}

// attribute returns where the value of an attribute is stored; nil for one that only the receiver needs.
func (s *Sealed) attribute(name string) *string {
	switch name {
	case "type":
		return &s.eventType
	case "id":
		return &s.id
	case "source":
		return &s.source
	case ExtensionTraceParent:
		return &s.trace
	case ExtensionOrganization:
		return &s.organization
	case ExtensionCorrelation:
		return &s.correlation
	default:
		return nil
	}
}

// placed returns s with the subject that follows from its type, organization and data.
func (s Sealed) placed(data []byte) (Sealed, bool) {
	d, known := Lookup(s.eventType)
	if !known || s.id == "" || s.source == "" {
		return Sealed{}, false
	}
	var number int64
	if s.organization != "" {
		var err error
		if number, err = parseOrganization(s.organization); err != nil {
			return Sealed{}, false
		}
	}
	var err error
	s.path = d.Path
	s.subj, err = d.subject(number, data)
	return s, err == nil
}

// cutString splits a JSON string off the beginning of text.
func cutString(text []byte) (quoted, rest []byte, ok bool) {
	if len(text) == 0 || text[0] != '"' {
		return nil, nil, false
	}
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return text[:i+1], text[i+1:], true
		}
	}
	return nil, nil, false
}

// unquote decodes a JSON string.
func unquote(quoted []byte) (value string, ok bool) {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1]), true
	}
	err := json.Unmarshal(quoted, &value)
	return value, err == nil
}
