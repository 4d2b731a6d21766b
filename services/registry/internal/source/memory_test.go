package source_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/services/registry/internal/source"
)

// hostile returns bodies of 1 MiB that are cheap to send and expensive to parse.
func hostile() map[string]string {
	const size = 1 << 20
	fill := func(head, item, tail string) string {
		n := (size - len(head) - len(tail)) / len(item)
		return head + strings.TrimSuffix(strings.Repeat(item, n), ",") + tail
	}
	within := func(head, item, tail string) string { // the maximum number of items
		return head + strings.TrimSuffix(strings.Repeat(item, 4_900), ",") + tail
	}
	var keys strings.Builder
	for i := 0; keys.Len() < size-100; i++ {
		fmt.Fprintf(&keys, `"%x":0,`, i)
	}
	return map[string]string{
		"keys":      `{` + strings.TrimSuffix(keys.String(), ",") + `}`,
		"tags":      fill(`{"docker_url":"quay.io/a/b","updated_tags":[`, `"",`, `]}`),
		"tag map":   `{"docker_url":"quay.io/a/b","updated_tags":{` + strings.TrimSuffix(keys.String()[:size/2], ",") + `}}`,
		"resources": fill(`{"type":"PUSH_ARTIFACT","event_data":{"resources":[`, `{},`, `]}}`),
		"wrong":     fill(`{"type":"PUSH_ARTIFACT","event_data":{"resources":[`, `1,`, `]}}`),
		"events":    fill(`{"events":[`, `{},`, `]}`),
		"read": within(`{"type":"PUSH_ARTIFACT","event_data":{"resources":[`,
			`{"resource_url":"`+strings.Repeat("r", 150)+`","digest":1,"tag":2},`, `]}}`),
		"read tags": within(`{"docker_url":"`+strings.Repeat("q", 100_000)+`","updated_tags":[`, `"`+strings.Repeat("t", 150)+`",`, `]}`),
		"read push": within(`{"events":[`, `{"action":"push","target":{"mediaType":"application/vnd.oci.image.index.v1+json","url":"http://r/"}},`, `]}`),
		"numbers":   fill(`[`, `0,`, `]`),
	}
}

// TestMemory: no body makes a parser allocate more than 64 MiB, including memory that it frees meanwhile.
func TestMemory(t *testing.T) { //nolint:paralleltest // it measures what the process allocates
	const most = 64 << 20
	header := binaryHeaders()
	header.Set("X-Github-Event", "package")
	for _, f := range source.Formats() {
		for name, body := range hostile() {
			var before, after runtime.MemStats
			for _, media := range f.MediaTypes {
				runtime.ReadMemStats(&before)
				_, _ = f.Parse(header, media, []byte(body))
				runtime.ReadMemStats(&after)
				if took := after.TotalAlloc - before.TotalAlloc; took > most {
					t.Errorf("%s as %s, %s: %d MiB", f.Name, media, name, took>>20)
				}
			}
		}
	}
}
