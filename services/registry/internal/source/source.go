// Package source parses the formats in which registries, CI jobs and forges report artifacts, and checks each sender's proof. Each format
// is one file and one row of Formats; all of them become core.Notification.
//
// It does not decide whether a notification is acceptable; core does. It refuses only what cannot be parsed.
package source

import (
	"net/http"

	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// Format is one format of notifications.
type Format struct {
	// Name is the format in configuration, paths, logs and messages.
	Name string
	// Path is where deliveries with a bearer token are posted; empty for formats that only hooks accept.
	Path string
	// MediaTypes are the accepted content types, without parameters.
	MediaTypes []string
	// Parse parses one delivery of one of the media types: none, one or many notifications. The error is Invalid and names the fields that
	// cannot be parsed; the other parts are returned nevertheless.
	Parse func(header http.Header, mediaType string, body []byte) ([]core.Notification, error)
	// Proof creates the check of a hook's deliveries. The error is about the hook's configuration.
	Proof func(Terms) (Check, error)
	// NeedsHost means that the format does not contain an image's registry: the hook's configuration has to.
	NeedsHost bool
	// AllKinds means that the sender reports every pushed manifest, not only images.
	AllKinds bool
	// MaxBody is the maximum size of a delivery in bytes; 0 means the default.
	MaxBody int64
	// Strict means that the sender is a program of the user, for which a delivery without any usable part is an error. Vendors would repeat
	// it, and hold up later deliveries.
	Strict bool
}

// maxPush is the maximum size of a forge's report of a push.
const maxPush = 25 << 20

// Formats returns all formats.
func Formats() []Format {
	var (
		any3     = []string{mediaJSON, mediaStructured, mediaBatch}
		plain    = []string{mediaJSON}
		envelope = []string{mediaEnvelopeV2, mediaEnvelopeV1}
	)
	// A Path is only for formats whose senders can have a token of ours and report a digest: their reports are believed. A Proof is the
	// strongest that the vendor's documentation allows. A Name is in paths and configurations, and never changes.
	//
	// Formats of registries are wrapped in whole, because registries report every manifest, those of parts of images included.
	return []Format{
		{
			Name: "cloudevents", Path: "/v1/events", MediaTypes: []string{mediaStructured, mediaBatch, mediaJSON}, Parse: parseCloudEvents,
			Proof: either(standardWebhook, authorization), Strict: true,
		},
		{
			Name: "distribution", Path: "/v1/notifications/distribution", MediaTypes: envelope, Parse: whole(parseDistribution),
			Proof: either(authorization), AllKinds: true,
		},
		{Name: "acr", MediaTypes: any3, Parse: whole(parseACR), Proof: either(authorization), AllKinds: true},
		{
			Name: "artifactory", MediaTypes: plain, Parse: whole(parseArtifactory),
			Proof: either(hexSHA256("X-Jfrog-Event-Auth", ""), verbatim("X-Jfrog-Event-Auth")), AllKinds: true,
		},
		{Name: "cdevents", MediaTypes: any3, Parse: parseCDEvents, Proof: either(standardWebhook, authorization)},
		{Name: "dockerhub", MediaTypes: plain, Parse: whole(parseDockerHub), Proof: pathOnly, AllKinds: true},
		{Name: "ecr", MediaTypes: plain, Parse: whole(parseECR), Proof: either(authorization, verbatim("X-Api-Key")), AllKinds: true},
		{Name: "generic", MediaTypes: plain, Parse: parseGeneric, Proof: either(standardWebhook, authorization)},
		{
			Name: "gitea", MediaTypes: plain, Parse: whole(parseGitea), Proof: either(hexSHA256("X-Gitea-Signature", "")),
			AllKinds: true, MaxBody: maxPush,
		},
		{
			Name: "github", MediaTypes: plain, Parse: whole(parseGitHub), Proof: either(hexSHA256("X-Hub-Signature-256", "sha256=")),
			AllKinds: true, MaxBody: maxPush,
		},
		{
			Name: "gitlab", MediaTypes: append(plain, envelope...), Parse: parseGitLab,
			Proof: either(standardWebhook, verbatim("X-Gitlab-Token"), authorization), AllKinds: true, MaxBody: maxPush,
		},
		{Name: "google", MediaTypes: plain, Parse: whole(parseGoogle), Proof: openID, AllKinds: true},
		{Name: "harbor", MediaTypes: any3, Parse: whole(parseHarbor), Proof: either(authorization), AllKinds: true},
		{
			Name: "nexus", MediaTypes: plain, Parse: whole(parseNexus), Proof: either(hexSHA1("X-Nexus-Webhook-Signature")),
			NeedsHost: true, AllKinds: true,
		},
		{Name: "quay", MediaTypes: plain, Parse: whole(parseQuay), Proof: pathOnly, AllKinds: true},
	}
}
