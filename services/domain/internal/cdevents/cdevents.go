// Package cdevents writes what happened to services as events of CDEvents (https://cdevents.dev), with the SDK that this project publishes. It
// decides nothing: which events there are is package notify's.
package cdevents

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/cdevents/sdk-go/pkg/api"
	events "github.com/cdevents/sdk-go/pkg/api/v05"
	packageurl "github.com/package-url/packageurl-go"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core/notify"
)

// Writer writes events. Its zero value does.
type Writer struct{}

var _ notify.Interchange = Writer{}

// WriteEvent returns an event as a CloudEvent in structured mode. It is checked against the published schema of its type.
func (Writer) WriteEvent(e notify.DeliveryEvent) (json.RawMessage, error) {
	made, err := event(e)
	if err != nil {
		return nil, fmt.Errorf("make event %s: %w", e.ID, err)
	}
	made.SetId(e.ID)
	made.SetSource(e.Source)
	made.SetTimestamp(e.At.UTC())
	made.SetSubjectId(e.Subject)
	made.SetSubjectSource(e.Source)
	wrapped, err := api.AsCloudEvent(made)
	if err != nil {
		return nil, fmt.Errorf("check event %s: %w", e.ID, err)
	}
	wrapped.SetTime(e.At.UTC())
	if e.Type == notify.Notified { // an event of a custom type does not know its type otherwise
		wrapped.SetType(custom().String())
	}
	raw, err := json.Marshal(wrapped)
	if err != nil {
		return nil, fmt.Errorf("write event %s: %w", e.ID, err)
	}
	return raw, nil
}

// event is an event of the type, with what only that type has.
func event(e notify.DeliveryEvent) (api.CDEvent, error) {
	environment := &api.Reference{Id: e.Environment, Source: e.Source}
	artifact := packageURL(e.Artifact)
	switch e.Type {
	case notify.ServiceDeployed:
		made, err := events.NewServiceDeployedEvent()
		if err == nil {
			made.SetSubjectEnvironment(environment)
			made.SetSubjectArtifactId(artifact)
		}
		return made, err //nolint:wrapcheck // the caller says of which event
	case notify.ServiceUpgraded:
		made, err := events.NewServiceUpgradedEvent()
		if err == nil {
			made.SetSubjectEnvironment(environment)
			made.SetSubjectArtifactId(artifact)
		}
		return made, err //nolint:wrapcheck // as above
	case notify.ServiceRolledBack:
		made, err := events.NewServiceRolledbackEvent()
		if err == nil {
			made.SetSubjectEnvironment(environment)
			made.SetSubjectArtifactId(artifact)
		}
		return made, err //nolint:wrapcheck // as above
	case notify.ServiceRemoved:
		made, err := events.NewServiceRemovedEvent()
		if err == nil {
			made.SetSubjectEnvironment(environment)
		}
		return made, err //nolint:wrapcheck // as above
	case notify.Notified:
	}
	made, err := events.NewCustomTypeEvent()
	if err == nil {
		made.SetEventType(custom())
		made.SetSubjectContent(e.Content)
	}
	return made, err //nolint:wrapcheck // as above
}

// custom is the type of what CDEvents has no event for.
func custom() api.CDEventType {
	return api.CDEventType{Custom: "lockstep", Subject: "notification", Predicate: "sent", Version: "0.1.0"}
}

// packageURL names an artifact: an image by its digest, and anything else by its version.
func packageURL(a notify.Artifact) string {
	if !a.Image {
		return packageurl.NewPackageURL(packageurl.TypeGeneric, a.Application, a.Service, a.Version, nil, "").ToString()
	}
	repository, _, _ := strings.Cut(a.Reference, "@")
	if at := strings.LastIndex(repository, ":"); at > strings.LastIndex(repository, "/") {
		repository = repository[:at]
	}
	about := packageurl.Qualifiers{{Key: "repository_url", Value: repository}}
	if a.Version != "" && a.Version != a.Digest {
		about = append(about, packageurl.Qualifier{Key: "tag", Value: a.Version})
	}
	return packageurl.NewPackageURL(packageurl.TypeOCI, "", strings.ToLower(path.Base(repository)), a.Digest, about, "").ToString()
}
