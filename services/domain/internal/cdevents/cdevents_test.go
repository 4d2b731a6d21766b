package cdevents_test

import (
	stdcmp "cmp"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/cdevents/sdk-go/pkg/api"
	events "github.com/cdevents/sdk-go/pkg/api/v05"
	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/services/domain/internal/cdevents"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/notify"
)

func sample(kind notify.DeliveryEventType) notify.DeliveryEvent {
	return notify.DeliveryEvent{
		Type: kind, ID: "notification_1_7_2_3", Source: "/lockstep/organizations/1", At: time.Date(2026, 11, 29, 1, 2, 3, 0, time.UTC),
		Subject: "shop/api", Environment: "production", Artifact: notify.Artifact{
			Application: "shop", Service: "api", Image: true, Version: "1.4.2", Reference: "registry.example.com:5000/team/api@sha256:" + strings.Repeat("a", 64),
			Digest: "sha256:" + strings.Repeat("a", 64),
		},
		Content: map[string]any{"event": "approval_needed"}, URL: "https://cd.example.com/environments/production",
	}
}

// D62: each event is one that the published SDK reads again, valid by the published schema of its type, inside of a CloudEvent of the same
// id.
func TestEventsAreValidByTheirSchemas(t *testing.T) {
	t.Parallel()
	const image = "pkg:oci/api@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa?repository_url=registry.example.com:5000%2Fteam%2Fapi&tag=1.4.2"
	for kind, want := range map[notify.DeliveryEventType]struct{ name, content, subject string }{
		notify.EnvironmentCreated: {
			"dev.cdevents.environment.created.0.3.0", `{"name":"production","uri":"https://cd.example.com/environments/production"}`, "",
		},
		notify.EnvironmentModified: {
			"dev.cdevents.environment.modified.0.3.0", `{"name":"production","uri":"https://cd.example.com/environments/production"}`, "",
		},
		notify.EnvironmentDeleted: {"dev.cdevents.environment.deleted.0.3.0", `{"name":"production"}`, ""},
		notify.ArtifactPublished:  {"dev.cdevents.artifact.published.0.3.0", `{}`, image},
		notify.ArtifactDeleted:    {"dev.cdevents.artifact.deleted.0.2.0", `{}`, image},
		notify.ServiceDeployed: {
			"dev.cdevents.service.deployed.0.3.0",
			`{"artifactId":"` + image + `","environment":{"id":"production","source":"/lockstep/organizations/1"}}`, "",
		},
		notify.ServiceUpgraded: {
			"dev.cdevents.service.upgraded.0.3.0",
			`{"artifactId":"` + image + `","environment":{"id":"production","source":"/lockstep/organizations/1"}}`, "",
		},
		notify.ServiceRolledBack: {
			"dev.cdevents.service.rolledback.0.3.0",
			`{"artifactId":"` + image + `","environment":{"id":"production","source":"/lockstep/organizations/1"}}`, "",
		},
		notify.ServiceRemoved: {
			"dev.cdevents.service.removed.0.3.0", `{"environment":{"id":"production","source":"/lockstep/organizations/1"}}`, "",
		},
		notify.Notified: {"dev.cdeventsx.lockstep-notification.sent.0.1.0", `{"event":"approval_needed"}`, ""},
	} {
		raw, err := cdevents.Writer{}.WriteEvent(sample(kind))
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		var cloud struct {
			SpecVersion, ID, Source, Type, Subject, Time, DataContentType string
			Data                                                          json.RawMessage
		}
		if err := json.Unmarshal(raw, &cloud); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"1.0", "notification_1_7_2_3", "/lockstep/organizations/1", want.name, stdcmp.Or(want.subject, "shop/api"), "2026-11-29T01:02:03Z", "application/json"},
			[]string{cloud.SpecVersion, cloud.ID, cloud.Source, cloud.Type, cloud.Subject, cloud.Time, cloud.DataContentType}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", kind, diff)
		}
		read, err := events.NewFromJsonBytes(cloud.Data)
		if err != nil {
			t.Errorf("%s is not read: %v", kind, err)
			continue
		}
		if err := api.Validate(read); err != nil {
			t.Errorf("%s is not valid: %v", kind, err)
		}
		var data struct {
			Context struct{ Type string }
			Subject struct{ Content any }
		}
		_ = json.Unmarshal(cloud.Data, &data)
		if data.Context.Type != want.name || read.GetId() != cloud.ID || read.GetVersion() != "0.5.0" {
			t.Errorf("%s: found %s %s %s", kind, data.Context.Type, read.GetId(), read.GetVersion())
		}
		var content any
		_ = json.Unmarshal([]byte(want.content), &content)
		if diff := cmp.Diff(content, data.Subject.Content); diff != "" {
			t.Errorf("%s (-want +got):\n%s", kind, diff)
		}
	}
}

// D62: what has no image is named by its version. What the schemas refuse is not written.
func TestOtherArtifactsAndInvalidEvents(t *testing.T) {
	t.Parallel()
	e := sample(notify.ServiceDeployed)
	e.Artifact = notify.Artifact{Application: "shop", Service: "config", Reference: "git:https://git.example.com/shop", Version: "main ü@1"}
	raw, err := cdevents.Writer{}.WriteEvent(e)
	if err != nil || !strings.Contains(string(raw), `pkg:generic/shop/config@main%20%C3%BC@1`) {
		t.Errorf("found %s, %v", raw, err)
	}
	e.Environment = ""
	if raw, err := (cdevents.Writer{}).WriteEvent(e); err == nil {
		t.Errorf("found %s; want an event without an environment refused", raw)
	}
	e.Environment, e.ID = "production", ""
	if raw, err := (cdevents.Writer{}).WriteEvent(e); err == nil {
		t.Errorf("found %s; want an event without an id refused", raw)
	}
}
