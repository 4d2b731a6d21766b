package source

import (
	"encoding/json"
	"net/http"

	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// parseQuay parses Quay's notification of a push. Its updated_tags are a list; in older versions they were a map from tag to image id,
// which is not a digest. It has no digest, no time and no identifier: the registry is queried.
func parseQuay(_ http.Header, _ string, body []byte) ([]core.Notification, error) {
	top, err := open(body)
	if err != nil {
		return nil, err
	}
	if !top.has("updated_tags") {
		return nil, top.err() // builds, scans, mirroring, quotas: no push
	}
	var tags []string
	at := "updated_tags"
	if kind(top.fields[at]) == "an object" {
		tags = top.in(at).keys()
	} else {
		tags = texts(top, at)
	}
	reference, _, _ := splitReference(dropScheme(top.text("docker_url")))
	place, image := split(reference)
	all := make([]core.Notification, 0, len(tags))
	for _, tag := range tags {
		// Without an id: core identifies each by image and tag until Quay has returned its digest.
		all = append(all, core.Notification{
			Place: place, Image: image, Tag: tag, Names: core.Names{Image: "docker_url", Tag: at},
		})
	}
	return all, top.err()
}

// texts returns the array of strings at key.
func texts(n node, key string) []string {
	var out []string
	for _, raw := range n.list(key) {
		one := reader{}
		s := one.text(map[string]json.RawMessage{key: raw}, n.path, key)
		n.problems.problems = append(n.problems.problems, one.problems...)
		if len(one.problems) == 0 {
			out = append(out, s)
		}
	}
	return out
}
