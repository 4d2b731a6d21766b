// Package source reads the formats in which registries, CI jobs and forges tell that an artifact exists, and checks the
// proof that each sender can give. Each format is one file and one row of Formats; what they all become is
// core.Notification.
//
// It does not decide whether a notification is acceptable; core does. It refuses only what cannot be read.
package source

import (
	"net/http"

	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// Format is one way in which notifications arrive.
type Format struct {
	// Name is the format in configuration, paths, logs and messages.
	Name string
	// Path is where deliveries with a bearer token are posted; empty for formats that only hooks take.
	Path string
	// MediaTypes are the content types that it takes, without parameters.
	MediaTypes []string
	// Parse reads one delivery, of one of the media types: none, one or many notifications. Its error is Invalid and names
	// the fields of those parts that cannot be understood; the others are in the answer all the same.
	Parse func(header http.Header, mediaType string, body []byte) ([]core.Notification, error)
	// Proof makes the check of a hook's deliveries. The error is about the hook's configuration.
	Proof func(Terms) (Check, error)
	// NeedsHost means that the format does not say at which registry an image is: the hook's configuration has to.
	NeedsHost bool
	// AllKinds means that the sender reports every manifest that is pushed, images or not.
	AllKinds bool
	// MaxBody is how many bytes a delivery may have; 0 for what is usual.
	MaxBody int64
	// Strict means that the sender is a program of the user's, which is answered with an error if nothing of its delivery could be taken. Vendors
	// would send the same again, and hold up what comes behind it.
	Strict bool
}

// maxPush is how much forges may send about a push.
const maxPush = 25 << 20

// Formats are all formats.
func Formats() []Format {
	var (
		any3     = []string{mediaJSON, mediaStructured, mediaBatch}
		plain    = []string{mediaJSON}
		envelope = []string{mediaEnvelopeV2, mediaEnvelopeV1}
	)
	// A Path is only for formats whose senders can hold a token of ours and tell a digest: what comes there is believed as
	// it is. A Proof is the most that the vendor's documentation lets a sender give. A Name is in paths and
	// configurations, and stays for ever.
	//
	// What registries tell is read as whole images: they tell of every manifest, those of parts included.
	return []Format{
		{Name: "cloudevents", Path: "/v1/events", MediaTypes: []string{mediaStructured, mediaBatch, mediaJSON}, Parse: parseCloudEvents, Proof: either(standardWebhook, authorization), Strict: true},
		{Name: "distribution", Path: "/v1/notifications/distribution", MediaTypes: envelope, Parse: whole(parseDistribution), Proof: either(authorization), AllKinds: true},
		{Name: "acr", MediaTypes: any3, Parse: whole(parseACR), Proof: either(authorization), AllKinds: true},
		{Name: "artifactory", MediaTypes: plain, Parse: whole(parseArtifactory), Proof: either(hexSHA256("X-Jfrog-Event-Auth", ""), verbatim("X-Jfrog-Event-Auth")), AllKinds: true},
		{Name: "cdevents", MediaTypes: any3, Parse: parseCDEvents, Proof: either(standardWebhook, authorization)},
		{Name: "dockerhub", MediaTypes: plain, Parse: whole(parseDockerHub), Proof: pathOnly, AllKinds: true},
		{Name: "ecr", MediaTypes: plain, Parse: whole(parseECR), Proof: either(authorization, verbatim("X-Api-Key")), AllKinds: true},
		{Name: "generic", MediaTypes: plain, Parse: parseGeneric, Proof: either(standardWebhook, authorization)},
		{Name: "gitea", MediaTypes: plain, Parse: whole(parseGitea), Proof: either(hexSHA256("X-Gitea-Signature", "")), AllKinds: true, MaxBody: maxPush},
		{Name: "github", MediaTypes: plain, Parse: whole(parseGitHub), Proof: either(hexSHA256("X-Hub-Signature-256", "sha256=")), AllKinds: true, MaxBody: maxPush},
		{Name: "gitlab", MediaTypes: append(plain, envelope...), Parse: parseGitLab, Proof: either(standardWebhook, verbatim("X-Gitlab-Token"), authorization), AllKinds: true, MaxBody: maxPush},
		{Name: "google", MediaTypes: plain, Parse: whole(parseGoogle), Proof: openID, AllKinds: true},
		{Name: "harbor", MediaTypes: any3, Parse: whole(parseHarbor), Proof: either(authorization), AllKinds: true},
		{Name: "nexus", MediaTypes: plain, Parse: whole(parseNexus), Proof: either(hexSHA1("X-Nexus-Webhook-Signature")), NeedsHost: true, AllKinds: true},
		{Name: "quay", MediaTypes: plain, Parse: whole(parseQuay), Proof: pathOnly, AllKinds: true},
	}
}
