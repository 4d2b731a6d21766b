package registry

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// ceCase is one case of the CloudEvents project, as a request to our endpoint.
type ceCase struct {
	name, media string
	header      http.Header
	body        []byte
	// attributes are the expected attributes of the event.
	attributes map[string]string
	// binary reports whether the attributes are headers.
	binary bool
}

const ourType = "com.gitlab.cd.artifact.published"

// ours returns the case with a type and data that our endpoint accepts; the rest is unchanged.
func (c ceCase) ours(t *testing.T) ceCase {
	t.Helper()
	if c.binary {
		c.header = c.header.Clone()
		c.header.Set("Ce-Type", ourType)
		c.body = []byte(data)
		return c
	}
	var document map[string]any
	if err := json.Unmarshal(c.body, &document); err != nil {
		t.Fatal(err)
	}
	document["type"], document["data"] = ourType, json.RawMessage(data)
	body, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	c.body = body
	return c
}

// batched returns a structured case in a batch.
func (c ceCase) batched() ceCase {
	c.name, c.media = c.name+", batch", strings.Replace(c.media, "cloudevents+", "cloudevents-batch+", 1)
	c.body = fmt.Appendf(nil, "[%s]", c.body)
	return c
}

func (c ceCase) post(t *testing.T, base string) (int, string) {
	t.Helper()
	header := c.header.Clone()
	header.Set("Content-Type", c.media)
	header.Set("Authorization", "Bearer "+token)
	status, _, answer := post{path: "/v1/events", header: header, body: string(c.body)}.do(t, base)
	return status, answer
}

var (
	docString = regexp.MustCompile(`(?s)Given an HTTP request\n\s*"""\n(.*?)\n\s*"""`)
	tableRow  = regexp.MustCompile(`(?m)^\s*\|\s*(\S+)\s*\|\s*(\S+(?: charset=\S+)?)\s*\|\s*$`)
	example   = regexp.MustCompile(`(?m)^\s*\|\s*(application/\S+(?: charset=\S+)?)\s*\|\s*$`)
	indented  = regexp.MustCompile(`(?m)^ {8}`)
)

// featureCases returns the scenarios of the feature file, each with all of its examples.
func featureCases(t *testing.T) []ceCase {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "conformance", "http-protocol-binding.feature"))
	if err != nil {
		t.Fatal(err)
	}
	var all []ceCase
	for _, scenario := range strings.Split(string(text), "Scenario Outline: ")[1:] {
		raw := docString.FindStringSubmatch(scenario)
		if raw == nil {
			t.Fatalf("no request in %s", scenario)
		}
		for _, media := range example.FindAllStringSubmatch(scenario, -1) {
			request, err := http.ReadRequest(bufio.NewReader(strings.NewReader(strings.ReplaceAll(indented.ReplaceAllString(raw[1], ""),
				"<contentType>", media[1]))))
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(request.Body)
			if err != nil {
				t.Fatal(err)
			}
			name, _, _ := strings.Cut(scenario, " (")
			c := ceCase{
				name: name + ", " + media[1], media: media[1], header: request.Header, body: body,
				binary: request.Header.Get("Ce-Id") != "", attributes: map[string]string{},
			}
			for _, row := range tableRow.FindAllStringSubmatch(scenario, -1) {
				c.attributes[row[1]] = row[2]
			}
			all = append(all, c)
		}
	}
	if len(all) != 4 {
		t.Fatalf("read %d cases of the feature, want 4", len(all))
	}
	return all
}

// yamlCases returns the events of a file, each in the modes that it does not rule out.
func yamlCases(t *testing.T, file string) []ceCase {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "conformance", file))
	if err != nil {
		t.Fatal(err)
	}
	var all []ceCase
	for decoder, n := yaml.NewDecoder(bytes.NewReader(text)), 1; ; n++ {
		var e struct {
			Mode       string    `yaml:"Mode"`
			Data       string    `yaml:"Data"`
			Attributes yaml.Node `yaml:"ContextAttributes"`
		}
		if err := decoder.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		attributes := map[string]string{}
		for i := 0; i < len(e.Attributes.Content); i += 2 { // as written: 1.0 is no number here
			key, value := e.Attributes.Content[i], e.Attributes.Content[i+1]
			if value.Kind == yaml.ScalarNode {
				attributes[key.Value] = value.Value
				continue
			}
			for j := 0; j < len(value.Content); j += 2 {
				attributes[value.Content[j].Value] = strings.TrimSpace(value.Content[j+1].Value)
			}
		}
		base := fmt.Sprintf("%s %d", file, n)
		media := attributes["datacontenttype"]
		if media == "" {
			media = "application/json"
		}
		binary := ceCase{name: base + ", binary", media: media, header: http.Header{}, body: []byte(e.Data), attributes: attributes, binary: true}
		structured := ceCase{name: base + ", structured", media: structuredMedia, header: http.Header{}, attributes: attributes}
		document := map[string]any{"data": e.Data}
		if strings.HasPrefix(media, "application/json") {
			document["data"] = json.RawMessage(e.Data)
		}
		for name, value := range attributes {
			document[name] = value
			if name != "datacontenttype" {
				binary.header.Set("Ce-"+name, value)
			}
		}
		if structured.body, err = json.Marshal(document); err != nil {
			t.Fatal(err)
		}
		for _, c := range []ceCase{binary, structured} {
			if e.Mode == "" || strings.HasSuffix(c.name, e.Mode) {
				all = append(all, c)
			}
		}
	}
	if len(all) == 0 {
		t.Fatalf("no cases in %s", file)
	}
	return all
}

// TestCloudEventsConformance sends the cases of the CloudEvents project to our endpoint in all three modes. The endpoint accepts one event
// type only, with JSON data: so the original cases are parsed, and left out for their type or refused for their data, for no other reason;
// with our type and data they are accepted as the event that they describe.
func TestCloudEventsConformance(t *testing.T) {
	t.Parallel()
	s, pool := serve(t, token)
	cases := slices.Concat(featureCases(t), yamlCases(t, "v1.yaml"), yamlCases(t, "v1_minimum.yaml"))
	for _, c := range slices.Clone(cases) {
		if !c.binary {
			cases = append(cases, c.batched())
		}
	}
	modes := map[string]int{}
	for _, c := range cases {
		batch := strings.HasPrefix(c.media, batchMedia)
		modes[fmt.Sprintf("binary %v, batch %v", c.binary, batch)]++
		isJSON := !c.binary || strings.HasPrefix(c.media, "application/json")
		status, answer := c.post(t, s.URL)
		switch {
		case isJSON && (status != http.StatusOK || !strings.Contains(answer, `type: found \"`+c.attributes["type"]+`\"`)):
			t.Errorf("%s: answered %d %s, want a refusal of type %s", c.name, status, answer, c.attributes["type"])
		case !isJSON && (status != http.StatusUnsupportedMediaType || !strings.Contains(answer, `"content-type"`)):
			t.Errorf("%s: answered %d %s, want a refusal of %s", c.name, status, answer, c.media)
		}
		if !isJSON || c.attributes["datacontenttype"] != "" && !strings.HasPrefix(c.attributes["datacontenttype"], "application/json") {
			continue
		}
		own := c
		if batch {
			own.body = bytes.Trim(own.body, "[]")
			own = own.ours(t)
			own.body = fmt.Appendf(nil, "[%s]", own.body)
		} else {
			own = own.ours(t)
		}
		want := fmt.Sprintf("{\"events\":[%q]}\n", core.Identify(c.attributes["source"], c.attributes["id"]))
		if status, answer := own.post(t, s.URL); status != http.StatusAccepted || answer != want {
			t.Errorf("%s, with our type: answered %d %s, want %s", c.name, status, answer, want)
		}
	}
	if len(modes) != 3 {
		t.Errorf("the cases are of modes %v, want binary, structured and batch", modes)
	}
	// The project's ids repeat: there are as many events as distinct ids.
	if got := waiting(t, pool); len(got) < 3 || !slices.Contains(got, "1234-1234-1234") || !slices.Contains(got, "4321-4321-4321") ||
		!slices.Contains(got, "conformance-0004") {
		t.Errorf("stored %v", got)
	}
	before := len(waiting(t, pool))
	for _, c := range slices.Concat(yamlCases(t, "v03.yaml"), yamlCases(t, "v03_minimum.yaml")) {
		status, answer := c.post(t, s.URL)
		version := status == http.StatusBadRequest && strings.Contains(answer, `specversion","problem":"found \"0.3\"; expected`)
		if media := status == http.StatusUnsupportedMediaType && c.binary; !version && !media {
			t.Errorf("%s: answered %d %s, want a refusal of version 0.3", c.name, status, answer)
		}
	}
	// Each missing required attribute is reported, in each mode (CloudEvents 1.0, "Required attributes").
	for _, c := range cases {
		for _, name := range []string{"specversion", "id", "source", "type"} {
			if strings.HasPrefix(c.media, batchMedia) || !strings.HasPrefix(c.name, "v1.yaml") {
				continue
			}
			bad := c.ours(t)
			if bad.binary {
				bad.header.Del("Ce-" + name)
			} else {
				bad.body = regexp.MustCompile(`"`+name+`":"[^"]*",?`).ReplaceAll(bad.body, nil)
				bad.body = bytes.Replace(bad.body, []byte(",}"), []byte("}"), 1)
			}
			if status, answer := bad.post(t, s.URL); status != http.StatusBadRequest || !strings.Contains(answer, `"problem"`) {
				t.Errorf("%s without %s: answered %d %s", c.name, name, status, answer)
			}
		}
	}
	if after := len(waiting(t, pool)); after != before {
		t.Errorf("refused events were stored: %d, before that %d", after, before)
	}
}
