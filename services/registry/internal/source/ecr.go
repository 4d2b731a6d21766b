package source

import (
	"net/http"
	"strings"

	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// arrivals maps the kinds of events that report a new image to the fields and values that confirm it: pushed by a client, replicated from
// another region or account, or fetched by a pull-through cache.
func arrivals() map[string][][2]string {
	return map[string][][2]string{
		"ECR Image Action":              {{"action-type", "PUSH"}, {"result", "SUCCESS"}},
		"ECR Replication Action":        {{"action-type", "REPLICATE"}, {"result", "SUCCESS"}},
		"ECR Pull Through Cache Action": {{"sync-status", "SUCCESS"}},
	}
}

// isDeletion reports whether an image was deleted, by a client or a lifecycle policy. If the event names a tag, that tag is gone; the image
// is gone with its last tag.
func isDeletion(top, detail node) bool {
	return top.text("detail-type") == "ECR Image Action" && detail.text("action-type") == "DELETE" && detail.text("result") == "SUCCESS"
}

// parseECR parses the events of Amazon ECR as delivered by an API destination of EventBridge. The registry's host follows from account and
// region.
func parseECR(_ http.Header, _ string, body []byte) ([]core.Notification, error) {
	top, err := open(body)
	if err != nil {
		return nil, err
	}
	detail := top.in("detail")
	wanted, ok := arrivals()[top.text("detail-type")]
	if !ok || top.text("source") != "aws.ecr" {
		return nil, top.err()
	}
	deleted := isDeletion(top, detail)
	for _, field := range wanted {
		if !deleted && detail.text(field[0]) != field[1] {
			return nil, top.err()
		}
	}
	account, region := top.text("account"), top.text("region")
	n := core.Notification{
		// EventBridge delivers at least once, with the same id for the same event.
		ID: top.text("id"), Digest: detail.text("image-digest"), Tag: detail.text("image-tag"),
		PublishedAt: stamp(top.text("time")), Deleted: deleted,
		// Present since 2022; a chart's manifest has the media type of an image.
		Manifest: core.Manifest{MediaType: detail.text("manifest-media-type"), ArtifactType: detail.text("artifact-media-type")},
		Names:    core.Names{ID: "id", Image: detail.name("repository-name"), Digest: detail.name("image-digest"), Tag: detail.name("image-tag")},
	}
	top.require("account", "the account's twelve digits")
	top.require("region", "a region such as eu-central-1")
	if repository := detail.text("repository-name"); repository != "" {
		n.Image = ecrHost(account, region) + "/" + repository
	}
	return single(n, top.err())
}

// partitions maps the prefixes of region names to the domains of AWS's partitions.
func partitions() [][2]string {
	return [][2]string{
		{"cn-", "amazonaws.com.cn"},
		{"us-iso-", "c2s.ic.gov"},
		{"us-isob-", "sc2s.sgov.gov"},
		{"us-isof-", "csp.hci.ic.gov"},
		{"eu-isoe-", "cloud.adc-e.uk"},
		{"eusc-", "amazonaws.eu"},
	}
}

func ecrHost(account, region string) string {
	domain := "amazonaws.com"
	for _, p := range partitions() {
		if strings.HasPrefix(region, p[0]) {
			domain = p[1]
		}
	}
	return account + ".dkr.ecr." + region + "." + domain
}
