// Package source reads the formats in which registries, CI jobs and forges tell that an artifact exists. Each format is
// one file and one row of Formats; what they all become is core.Notification.
//
// It does not decide whether a notification is acceptable; core does. It refuses only what cannot be read.
package source

import (
	"net/http"

	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// Format is one way in which notifications arrive.
type Format struct {
	// Name is the format in logs and messages.
	Name string
	// Path is where its deliveries are posted.
	Path string
	// MediaTypes are the content types that it takes, without parameters.
	MediaTypes []string
	// Parse reads one delivery, of one of the media types: none, one or many notifications. Its error is Invalid and names
	// the field.
	Parse func(header http.Header, mediaType string, body []byte) ([]core.Notification, error)
}

// Formats are all formats.
func Formats() []Format {
	return []Format{
		{Name: "cloudevents", Path: "/v1/events", MediaTypes: []string{mediaStructured, mediaBatch, mediaJSON}, Parse: parseCloudEvents},
		{Name: "distribution", Path: "/v1/notifications/distribution", MediaTypes: []string{mediaEnvelopeV2, mediaEnvelopeV1}, Parse: parseDistribution},
	}
}
