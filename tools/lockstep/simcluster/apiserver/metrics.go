package apiserver

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// requests counts requests for objects by verb and client, as the metric apiserver_request_total of a real API server does
// by verb. It is safe for concurrent use.
type requests struct {
	mu     sync.Mutex
	counts map[string]int // by labels
}

// count adds a request; single is set if it is for one object.
func (c *requests) count(r *http.Request, single bool) {
	client, _, _ := strings.Cut(r.UserAgent(), "/")
	labels := fmt.Sprintf("verb=%q,client=%q", verbOf(r, single), client)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	c.counts[labels]++
}

// verbOf is what Kubernetes calls a request in its audit log.
func verbOf(r *http.Request, single bool) string {
	switch {
	case r.Method == http.MethodGet && r.URL.Query().Has("watch"):
		return "watch"
	case r.Method == http.MethodGet && !single:
		return "list"
	case r.Method == http.MethodPost:
		return "create"
	case r.Method == http.MethodPut:
		return "update"
	default:
		return strings.ToLower(r.Method)
	}
}

// text is in the format of Prometheus.
func (c *requests) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	b.WriteString("# TYPE apiserver_request_total counter\n")
	for _, labels := range slices.Sorted(maps.Keys(c.counts)) {
		fmt.Fprintf(&b, "apiserver_request_total{%s} %d\n", labels, c.counts[labels])
	}
	return b.String()
}
