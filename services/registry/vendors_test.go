package registry

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstep-cd/lockstep/services/registry/internal/source"
)

// poisoned is a tag that no image can have.
const poisoned = "1 4 0"

// batches are deliveries of [good, poison, good], in the formats whose deliveries may hold several.
func batches() map[string]post {
	push := func(id, host, tag string) string {
		return fmt.Sprintf(`{"id":%q,"timestamp":"2026-03-25T10:00:00Z","action":"push","target":{"mediaType":"application/vnd.oci.image.index.v1+json","digest":%q,"repository":"shop/api","tag":%q},"request":{"host":%q}}`, id, digest, tag, host)
	}
	envelope := fmt.Sprintf(`{"events":[%s,%s,%s,%s]}`, push("1", "registry_1:5000", "1.4.0"), push("2", "[::1", "1.4.1"),
		push("3", "registry_1:5000", poisoned), push("4", "registry_1:5000", "1.4.2"))
	resource := func(tag string) string {
		return fmt.Sprintf(`{"digest":%q,"tag":%q,"resource_url":"harbor:8443/shop/api:x"}`, digest, tag)
	}
	grid := func(id, tag string) string {
		return fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"/r","type":"Microsoft.ContainerRegistry.ImagePushed","data":%s}`,
			id, push(id, "acme.azurecr.io", tag))
	}
	event := func(id, tag string) string {
		return strings.Replace(structured(id), `"tag":"1.4.0"`, fmt.Sprintf(`"tag":%q`, tag), 1)
	}
	typed := func(media string) http.Header { return http.Header{"Content-Type": {media}} }
	return map[string]post{
		"distribution": {header: typed(envelopeMedia), body: envelope},
		"gitlab":       {header: typed(envelopeMedia), body: envelope},
		"harbor": {
			header: typed("application/json"),
			body:   fmt.Sprintf(`{"type":"PUSH_ARTIFACT","occur_at":1680501893,"event_data":{"resources":[%s,{"digest":7,"tag":"x","resource_url":"a.b/c"},%s,%s]}}`, resource("1.4.0"), resource(poisoned), resource("1.4.2")),
		},
		"quay": {
			header: typed("application/json"),
			body:   fmt.Sprintf(`{"docker_url":"quay.io/shop/api","updated_tags":["1.4.0",%q,7,"1.4.2"]}`, poisoned),
		},
		"acr": {header: typed(batchMedia), body: "[" + grid("1", "1.4.0") + "," + grid("2", poisoned) + ",7," + grid("3", "1.4.2") + "]"},
		"cloudevents": {header: typed(batchMedia), body: "[" + event("1", "1.4.0") + "," + event("2", poisoned) + ",7," +
			event("3", "1.4.2") + "]"},
	}
}

var identifiers = regexp.MustCompile(`"(id|messageId|message_id)": *"([^"]+)"`)

// altered returns a delivery with another tag, and with other identifiers.
func altered(format string, body []byte, tag string) []byte {
	if format == "google" {
		var push struct {
			Message      map[string]any `json:"message"`
			Subscription string         `json:"subscription"`
		}
		if json.Unmarshal(body, &push) != nil {
			return nil
		}
		data, _ := push.Message["data"].(string)
		plain, _ := base64.StdEncoding.DecodeString(data)
		push.Message["data"] = base64.StdEncoding.EncodeToString(bytes.ReplaceAll(plain, []byte("1.4.0"), []byte(tag)))
		push.Message["messageId"], push.Message["message_id"] = tag, tag
		out, _ := json.Marshal(push)
		return out
	}
	body = bytes.ReplaceAll(body, []byte("1.4.0"), []byte(tag))
	return identifiers.ReplaceAllFunc(body, func(found []byte) []byte {
		if bytes.Contains(found, []byte("pkg:")) {
			return found
		}
		return append(found[:len(found)-1:len(found)-1], []byte("-"+strings.ReplaceAll(tag, " ", "-")+`"`)...)
	})
}

// taken returns the references that have become events or hints.
func taken(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	var all string
	err := pool.QueryRow(t.Context(), `SELECT coalesce(string_agg(r, ' '), '') FROM (
		SELECT event->'data'->>'image' || ':' || coalesce(event->'data'->>'tag', '') AS r FROM outbox UNION ALL SELECT reference
		FROM hint) AS known`).Scan(&all)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestOneNotificationHoldsUpNoOther: for every vendor, a malformed part is answered with a success, so that it is not repeated; the parts
// beside it and later deliveries are accepted; and the left-out parts are shown, also after a restart.
func TestOneNotificationHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	all := append(senders(), sender{source: "google", fixture: "artifact-registry"})
	done := map[string]bool{}
	for _, s := range all {
		if done[s.source] || s.fixture == "list" && s.source != "quay" {
			continue
		}
		done[s.source] = true
		t.Run(s.source, func(t *testing.T) {
			t.Parallel()
			config := HookConfig{Source: s.source, Host: s.host}
			var authorize func(h http.Header, body []byte)
			if s.sign != nil {
				authorize = func(h http.Header, body []byte) { s.sign(h, hookSecret, body) }
			}
			if s.source == "google" {
				i := newIssuer(t)
				config.Issuer, config.Audience, config.Email = i.URL, "https://lockstep.example.com", "push@acme.iam.gserviceaccount.com"
				authorize = func(h http.Header, _ []byte) { h.Set("Authorization", "Bearer "+i.token(t, i.key, nil)) }
			}
			h := hook(t, config, Config{AllowNetworks: []string{"127.0.0.1"}})
			send := func(header http.Header, body []byte) (int, string) {
				header = header.Clone()
				if authorize != nil {
					authorize(header, body)
				}
				return h.post(t, hookPath(h.config, hookSecret), header, body)
			}
			header, body := recorded(t, s.source, s.fixture)
			for _, tag := range []string{"1.4.0", poisoned, "1.4.2"} {
				if status, answer := send(header, altered(s.source, body, tag)); status != http.StatusAccepted && status != http.StatusOK {
					t.Errorf("%s: answered %d %s", tag, status, answer)
				}
			}
			if b, ok := batches()[s.source]; ok {
				if status, answer := send(b.header, []byte(strings.NewReplacer("1.4.0", "2.4.0", "1.4.2",
					"2.4.2").Replace(b.body))); status != http.StatusAccepted {
					t.Errorf("a batch: answered %d %s", status, answer)
				}
				if known := taken(t, h.pool); !strings.Contains(known, ":2.4.0") || !strings.Contains(known, ":2.4.2") {
					t.Errorf("of a batch there are %s", known)
				}
			}
			if known := taken(t, h.pool); !strings.Contains(known, ":1.4.0") || !strings.Contains(known, ":1.4.2") ||
				strings.Contains(known, poisoned) {
				t.Errorf("there are %s", known)
			}
			shown := h.status(t).Refused
			found := false
			for _, r := range shown {
				found = found || strings.Contains(r.Reason, poisoned)
				if strings.Contains(r.What+r.Reason, hookSecret) || r.Last.IsZero() {
					t.Errorf("shown: %+v", r)
				}
			}
			if !found {
				t.Errorf("what was left out is not shown: %+v", shown)
			}
		})
	}
	for _, f := range source.Formats() {
		if !done[f.Name] {
			t.Errorf("%s has no case", f.Name)
		}
	}
}

// TestHostsAsDockerWritesThem: hosts of Compose, fully qualified names, and single labels are registries; an invalid host is left out and
// holds up no other.
func TestHostsAsDockerWritesThem(t *testing.T) {
	t.Parallel()
	s, pool := serve(t, token)
	for host, want := range map[string]string{
		"registry_1:5000":       "registry_1:5000/shop/web",
		"registry.example.com.": "registry.example.com/shop/web",
		"registry":              "registry:443/shop/web",
		"evil_host":             "evil_host:443/shop/web",
		"REGISTRY.example.com":  "registry.example.com/shop/web",
		"müller.example":        "xn--mller-kva.example/shop/web",
		"EXAMPLE.com:99999":     "",
		"[::1":                  "",
		"a/b":                   "",
		"user:pw@example.com":   "",
	} {
		body := strings.Replace(envelope(host, digest), "r.example.com", host, 1)
		p := post{path: "/v1/notifications/distribution", header: with(envelopeMedia), body: body}
		status, _, answer := p.do(t, s.URL)
		if want == "" {
			if status != http.StatusOK || !strings.Contains(answer, "events[1].request.host") || strings.Contains(answer, "user:pw") {
				t.Errorf("%s: answered %d %s", host, status, answer)
			}
			continue
		}
		if status != http.StatusAccepted || !strings.Contains(taken(t, pool), want+":2") {
			t.Errorf("%s: answered %d %s; there are %s", host, status, answer, taken(t, pool))
		}
	}
}

// TestRefusalsAreBounded: however much is left out, only the latest of each sender are kept, and repeated ones as one.
func TestRefusalsAreBounded(t *testing.T) {
	t.Parallel()
	h := hook(t, HookConfig{Source: "quay", Rate: 1000}, Config{})
	for i := range 60 {
		body := fmt.Appendf(nil, `{"docker_url":"quay.io/shop/api","updated_tags":["no tag %d","the same !"]}`, i)
		if status, answer := h.post(t, hookPath(h.config, hookSecret), plainJSON(), body); status != http.StatusOK {
			t.Fatalf("answered %d %s", status, answer)
		}
	}
	shown := h.status(t).Refused
	if len(shown) != 20 || count(t, h.pool, "refusal") != 20 {
		t.Fatalf("%d are shown and %d kept; want 20", len(shown), count(t, h.pool, "refusal"))
	}
	times := int64(0)
	for _, r := range shown {
		times = max(times, r.Times)
	}
	if times != 60 {
		t.Errorf("the same was left out 60 times, and shows %d", times)
	}
}
