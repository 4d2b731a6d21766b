// Package cdevents writes what happened to services, environments and artifacts as events of CDEvents 0.5 (https://cdevents.dev), each
// inside of a CloudEvent. It decides nothing: which events there are is package notify's.
//
// The SDK that CDEvents publishes compiles the schemas of all of its releases whenever a process starts, which takes a third of what a
// command takes. So the documents are written here, and the tests read and check them with the SDK and its schemas.
package cdevents

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	packageurl "github.com/package-url/packageurl-go"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core/notify"
)

// specVersion is the release of CDEvents, in which each type has a version of its own.
const specVersion = "0.5.0"

// Writer writes events. Its zero value does.
type Writer struct{}

var _ notify.Interchange = Writer{}

// cloudEvent is a CloudEvent in structured mode.
type cloudEvent struct {
	SpecVersion     string  `json:"specversion"`
	ID              string  `json:"id"`
	Source          string  `json:"source"`
	Type            string  `json:"type"`
	Subject         string  `json:"subject"`
	Time            string  `json:"time"`
	DataContentType string  `json:"datacontenttype"`
	Data            cdEvent `json:"data"`
}

// cdEvent is an event of CDEvents.
type cdEvent struct {
	Context struct {
		SpecVersion string `json:"specversion"`
		ID          string `json:"id"`
		Source      string `json:"source"`
		Type        string `json:"type"`
		Timestamp   string `json:"timestamp"`
	} `json:"context"`
	Subject struct {
		ID      string `json:"id"`
		Source  string `json:"source"`
		Content any    `json:"content"`
	} `json:"subject"`
}

// environmentContent is that of an event about an environment; an event about one that is deleted has no URI.
type environmentContent struct {
	Name string `json:"name"`
	URI  string `json:"uri,omitempty"`
}

// content is that of an event about a service.
type content struct {
	ArtifactID  string    `json:"artifactId,omitempty"`
	Environment reference `json:"environment"`
}

// reference names something of a source.
type reference struct {
	ID     string `json:"id"`
	Source string `json:"source"`
}

// WriteEvent returns an event as a CloudEvent.
func (Writer) WriteEvent(e notify.DeliveryEvent) (json.RawMessage, error) {
	artifact := e.Type == notify.ArtifactPublished || e.Type == notify.ArtifactDeleted
	if artifact {
		e.Subject = packageURL(e.Artifact)
	}
	switch {
	case e.ID == "" || e.Source == "" || e.Subject == "":
		return nil, errors.New("found an event without an id, a source or a subject")
	case e.Type != notify.Notified && !artifact && e.Environment == "":
		return nil, fmt.Errorf("event %s: found a service without an environment", e.ID)
	}
	about := reference{e.Environment, e.Source}
	var made cdEvent
	made.Subject.ID, made.Subject.Source = e.Subject, e.Source
	kind := ""
	switch e.Type {
	case notify.ServiceDeployed, notify.ServiceUpgraded, notify.ServiceRolledBack:
		kind, made.Subject.Content = "dev.cdevents."+string(e.Type)+".0.3.0", content{packageURL(e.Artifact), about}
	case notify.ServiceRemoved:
		kind, made.Subject.Content = "dev.cdevents."+string(e.Type)+".0.3.0", content{Environment: about}
	case notify.EnvironmentCreated, notify.EnvironmentModified:
		kind, made.Subject.Content = "dev.cdevents."+string(e.Type)+".0.3.0", environmentContent{e.Environment, e.URL}
	case notify.EnvironmentDeleted:
		kind, made.Subject.Content = "dev.cdevents."+string(e.Type)+".0.3.0", environmentContent{Name: e.Environment}
	case notify.ArtifactPublished:
		kind, made.Subject.Content = "dev.cdevents."+string(e.Type)+".0.3.0", struct{}{}
	case notify.ArtifactDeleted:
		kind, made.Subject.Content = "dev.cdevents."+string(e.Type)+".0.2.0", struct{}{}
	case notify.Notified:
		kind, made.Subject.Content = "dev.cdeventsx.lockstep-"+string(e.Type)+".0.1.0", e.Content
	}
	at := e.At.UTC().Format(time.RFC3339Nano)
	made.Context.SpecVersion, made.Context.ID, made.Context.Source, made.Context.Type, made.Context.Timestamp = specVersion, e.ID, e.Source,
		kind, at
	raw, err := json.Marshal(cloudEvent{
		SpecVersion: "1.0", ID: e.ID, Source: e.Source, Type: kind, Subject: e.Subject, Time: at, DataContentType: "application/json", Data: made,
	})
	if err != nil {
		return nil, fmt.Errorf("write event %s: %w", e.ID, err)
	}
	return raw, nil
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
