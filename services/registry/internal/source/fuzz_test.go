package source_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// survives checks what must hold for any input: a result or a refusal that names a field, the same one each time.
func survives(t *testing.T, parse func() ([]core.Notification, error)) {
	t.Helper()
	notifications, err := parse()
	if err != nil {
		if !fault.Is(err, fault.Invalid) || len(fault.FieldsOf(err)) == 0 {
			t.Fatalf("refused without a field: %v", err)
		}
		return
	}
	for _, n := range notifications {
		if _, problems := core.Check(n); len(problems) > 0 {
			for _, p := range problems {
				if p.Name == "" {
					t.Fatalf("a problem without a field: %v", p)
				}
			}
		}
	}
	again, err := parse()
	if err != nil || len(again) != len(notifications) {
		t.Fatalf("the second reading differs: %d and then %d, %v", len(notifications), len(again), err)
	}
}

func FuzzCloudEvents(f *testing.F) {
	parse := format(f, "cloudevents").Parse
	f.Add(structured, "", "", []byte(attributes(`,"data":`+data)))
	f.Add(structured, "", "", []byte(attributes(`,"data_base64":"e30="`)))
	f.Add(batch, "", "", []byte("["+attributes(`,"data":`+data)+"]"))
	f.Add(plain, "1", "/ci", []byte(data))
	f.Add(plain, "\x00", "%%", []byte(`{"image":null}`))
	f.Fuzz(func(t *testing.T, media, id, origin string, body []byte) {
		header := binaryHeaders()
		header.Set("ce-id", id)
		header.Set("ce-source", origin)
		survives(t, func() ([]core.Notification, error) { return parse(header, media, body) })
	})
}

func FuzzDistribution(f *testing.F) {
	parse := format(f, "distribution").Parse
	body, err := os.ReadFile(filepath.Join("testdata", "distribution.json"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Add([]byte(`{"events":[]}`))
	f.Add([]byte(`{"events":[{"id":"1","action":"push","target":{"mediaType":"application/vnd.oci.image.index.v1+json","url":"%"}}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		survives(t, func() ([]core.Notification, error) { return parse(nil, "", body) })
	})
}

// fuzz fuzzes a format from its fixtures.
func fuzz(f *testing.F, name string) {
	f.Helper()
	parse := format(f, name).Parse
	for _, x := range fixtures(f, name) {
		f.Add(x.header.Get("X-Github-Event"), x.media, x.body)
	}
	f.Fuzz(func(t *testing.T, event, media string, body []byte) {
		header := http.Header{"X-Github-Event": {event}}
		heard(t, func() ([]core.Notification, error) { return parse(header, media, body) })
	})
}

func FuzzACR(f *testing.F) { fuzz(f, "acr") }

func FuzzArtifactory(f *testing.F) { fuzz(f, "artifactory") }

func FuzzCDEvents(f *testing.F) { fuzz(f, "cdevents") }

func FuzzDockerHub(f *testing.F) { fuzz(f, "dockerhub") }

func FuzzECR(f *testing.F) { fuzz(f, "ecr") }

func FuzzGeneric(f *testing.F) { fuzz(f, "generic") }

func FuzzGitea(f *testing.F) { fuzz(f, "gitea") }

func FuzzGitHub(f *testing.F) { fuzz(f, "github") }

func FuzzGitLab(f *testing.F) { fuzz(f, "gitlab") }

func FuzzGoogle(f *testing.F) { fuzz(f, "google") }

func FuzzHarbor(f *testing.F) { fuzz(f, "harbor") }

func FuzzNexus(f *testing.F) { fuzz(f, "nexus") }

func FuzzQuay(f *testing.F) { fuzz(f, "quay") }
