package source

import (
	"net/http"
	"strings"

	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// parseECR reads the events of Amazon ECR as an API destination of EventBridge delivers them. The registry's host follows
// from account and region.
func parseECR(_ http.Header, _ string, body []byte) ([]core.Notification, error) {
	top, err := open(body)
	if err != nil {
		return nil, err
	}
	detail := top.in("detail")
	if top.text("source") != "aws.ecr" || top.text("detail-type") != "ECR Image Action" ||
		detail.text("action-type") != "PUSH" || detail.text("result") != "SUCCESS" || !runs(detail) {
		return nil, top.err()
	}
	account, region := top.text("account"), top.text("region")
	n := core.Notification{
		// EventBridge delivers at least once, and the same event with the same id.
		ID: top.text("id"), Digest: detail.text("image-digest"), Tag: detail.text("image-tag"), PublishedAt: stamp(top.text("time")),
		Names: core.Names{ID: "id", Image: detail.name("repository-name"), Digest: detail.name("image-digest"), Tag: detail.name("image-tag")},
	}
	top.require("account", "the account's twelve digits")
	top.require("region", "a region such as eu-central-1")
	if repository := detail.text("repository-name"); repository != "" {
		n.Image = ecrHost(account, region) + "/" + repository
	}
	return []core.Notification{n}, top.err()
}

func ecrHost(account, region string) string {
	host := account + ".dkr.ecr." + region + ".amazonaws.com"
	// The regions of AWS in China are under a domain of their own.
	if strings.HasPrefix(region, "cn-") {
		host += ".cn"
	}
	return host
}

// runs reports whether a pushed manifest may be an image: since 2022 the event says what it is.
func runs(detail node) bool {
	manifest, artifact := detail.text("manifest-media-type"), detail.text("artifact-media-type")
	// A chart's manifest is of an image's media type; only its config tells the two apart.
	if strings.HasPrefix(artifact, "application/vnd.cncf.helm.") {
		return false
	}
	return manifest == "" || isImage(manifest)
}
