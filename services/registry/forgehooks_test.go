package registry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

const forgeKey = "0123456789abcdef"

// deliver posts a body to a path, and answers the status and the body.
func deliver(t *testing.T, url string, header http.Header, body []byte) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

func githubStatus(state, context, at string, id int) []byte {
	return fmt.Appendf(nil, `{"id":%d,"sha":"%040x","name":"shop/api","context":%q,"state":%q,"description":"112 tests passed",
		"target_url":"https://ci.example.com/runs/7","created_at":%q,"updated_at":%q,"repository":{"full_name":"shop/api",
		"clone_url":"https://github.com/shop/api.git"}}`, id, 7, context, state, at, at)
}

func githubSigned(kind, secret string, body []byte) http.Header {
	return http.Header{
		"X-Github-Event": {kind}, "Content-Type": {"application/json"}, "X-Hub-Signature-256": {"sha256=" + hexMAC(sha256MAC(secret, body))},
	}
}

// D48: a forge reports a status to a hook of an organization. It is proved by the secret of this hook alone, each report is one event
// however often it is delivered, and what Lockstep itself publishes is no report.
func TestForgesReportStatusesOfCommits(t *testing.T) {
	t.Parallel()
	s, pool, in := serveConfig(t, Config{ForgeHooks: ForgeHooksConfig{Secrets: []string{secretFile(t, hookSecret)}}})
	of := func(organization int64, key, forge string) (string, string) {
		path, secret, err := answers{in.sources}.ForgeHook(t.Context(), organization, key, forge)
		if err != nil {
			t.Fatal(err)
		}
		return s.URL + path, secret
	}
	url, secret := of(3, forgeKey, "github")
	body := githubStatus("success", "ci/e2e", "2026-03-25T10:00:00Z", 7001)
	for range 2 {
		if code, text := deliver(t, url, githubSigned("status", secret, body), body); code != http.StatusAccepted {
			t.Fatalf("found %d %s; want 202", code, text)
		}
	}
	var raw string
	if err := pool.QueryRow(t.Context(), "SELECT event FROM outbox").Scan(&raw); err != nil {
		t.Fatal(err) // also if there are two
	}
	var sent struct {
		Type           string                     `json:"type"`
		OrganizationID string                     `json:"organizationid"`
		Data           event.CommitStatusReported `json:"data"`
	}
	if err := json.Unmarshal([]byte(raw), &sent); err != nil {
		t.Fatal(err)
	}
	want := event.CommitStatusReported{
		Hook: forgeKey, Repository: "https://github.com/shop/api.git", Commit: fmt.Sprintf("%040x", 7), Kind: "status",
		Context: "ci/e2e", Phase: "success", Description: "112 tests passed", Link: "https://ci.example.com/runs/7", ObservedAt: "2026-03-25T10:00:00Z", Sequence: 7001,
	}
	if sent.Data != want || sent.OrganizationID != "3" || sent.Type != event.TypeCommitStatusReported {
		t.Errorf("found %+v; want %+v of organization 3", sent, want)
	}
	own := githubStatus("success", "lockstep/shop/production/e2e", "2026-03-25T10:00:00Z", 7002)
	if code, text := deliver(t, url, githubSigned("status", secret, own), own); code != http.StatusOK || count(t, pool, "outbox") != 1 {
		t.Errorf("found %d %s and %d events; want that a status of our own is none", code, text, count(t, pool, "outbox"))
	}
	ping := []byte(`{"zen":"Keep it logically awesome.","hook_id":1}`)
	if code, text := deliver(t, url, githubSigned("ping", secret, ping), ping); code != http.StatusOK {
		t.Errorf("found %d %s; want 200", code, text)
	}
	// Neither the secret of another organization, of another hook or of another forge, nor none, proves anything; unknown paths are alike.
	other, otherSecret := of(4, forgeKey, "github")
	_, anotherSecret := of(3, forgeKey+"00", "github")
	_, giteaSecret := of(3, forgeKey, "gitea")
	for _, wrong := range []string{otherSecret, anotherSecret, giteaSecret, "", hookSecret} {
		if code, text := deliver(t, url, githubSigned("status", wrong, body), body); code != http.StatusNotFound {
			t.Errorf("found %d %s; want 404", code, text)
		}
	}
	_, same := deliver(t, other, githubSigned("status", secret, body), body)
	for _, path := range []string{"/v1/forge/github/x", "/v1/forge/github/0-" + forgeKey, "/v1/forge/svn/3-" + forgeKey, "/v1/forge/"} {
		if code, text := deliver(t, s.URL+path, githubSigned("status", secret, body), body); code != http.StatusNotFound || text != same {
			t.Errorf("%s: found %d %s; want 404 with the words of all unknown paths", path, code, text)
		}
	}
	if n := count(t, pool, "outbox"); n != 1 {
		t.Errorf("found %d events; want 1", n)
	}
}

// D48: what cannot be a status is refused with the field and recorded; no delivery is larger than 1 MiB, and a flood of one hook is slowed.
func TestStatusesOfForgesAreChecked(t *testing.T) {
	t.Parallel()
	s, pool, in := serveConfig(t, Config{ForgeHooks: ForgeHooksConfig{Secrets: []string{secretFile(t, hookSecret)}, Rate: 5}})
	path, secret, err := answers{in.sources}.ForgeHook(t.Context(), 3, forgeKey, "github")
	if err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]string{
		string(githubStatus("success", "", "2026-03-25T10:00:00Z", 1)):                                          "context: missing; expected 1 to 255 bytes",
		string(githubStatus("success", strings.Repeat("x", 256), "2026-03-25T10:00:00Z", 1)):                    "expected 1 to 255 bytes without control characters",
		string(githubStatus("fine", "ci", "2026-03-25T10:00:00Z", 1)):                                           "state: missing; expected a state that is known",
		string(githubStatus("success", "ci", "2126-03-25T10:00:00Z", 1)):                                        "expected a time that is not in the future",
		string(githubStatus("success", "ci", "yesterday", 1)):                                                   "updated_at: missing; expected a time",
		strings.Replace(string(githubStatus("success", "ci", "2026-03-25T10:00:00Z", 1)), "https:", "file:", 2): "repository.clone_url: found",
	} {
		if _, text := deliver(t, s.URL+path, githubSigned("status", secret, []byte(body)), []byte(body)); !strings.Contains(text, want) {
			t.Errorf("found %s; want %q", text, want)
		}
	}
	if n := count(t, pool, "outbox"); n != 0 {
		t.Errorf("found %d events; want none", n)
	}
	if n := count(t, pool, "refusal"); n != 6 {
		t.Errorf("found %d refusals; want 6", n)
	}
	all, err := answers{in.sources}.ForgeRefusals(t.Context(), 3, []string{"nobody", forgeKey})
	if err != nil || len(all) != 1 || all[0].GetKey() != forgeKey ||
		len(all[0].GetRefused()) != 6 || all[0].GetRefused()[0].GetReason() == "" {
		t.Errorf("found %v, %v; want six refusals of the hook", all, err)
	}
	if theirs, err := (answers{in.sources}).ForgeRefusals(t.Context(), 4, []string{forgeKey}); err != nil || len(theirs) != 0 {
		t.Errorf("found %v, %v of another organization; want none", theirs, err)
	}
	large := bytes.Repeat([]byte(" "), 1<<20+1)
	if code, _ := deliver(t, s.URL+path, githubSigned("status", secret, large), large); code != http.StatusRequestEntityTooLarge {
		t.Errorf("found %d; want 413", code)
	}
	codes := map[int]int{}
	for i := range 40 {
		body := githubStatus("success", fmt.Sprint("ci/", i), "2026-03-25T10:00:00Z", i)
		code, _ := deliver(t, s.URL+path, githubSigned("status", secret, body), body)
		codes[code]++
	}
	if codes[http.StatusTooManyRequests] == 0 || codes[http.StatusAccepted] == 0 {
		t.Errorf("found %v; want some accepted and the rest refused", codes)
	}
}

// D48: however many hooks an organization has, they do not take more together than it may; others are not slowed, one hook that floods
// takes nothing from the rest, and what is remembered does not grow with the hooks.
func TestAnOrganizationIsSlowedWithAllItsHooks(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	s, err := newForgeHooks(ForgeHooksConfig{}, forgeHookDeps{clock: clock.System()})
	if err != nil {
		t.Fatal(err)
	}
	took := func(organization int64, key string, n int) (allowed int) {
		for range n {
			if s.allow(core.StatusHook{Organization: organization, Key: key}, now) {
				allowed++
			}
		}
		return allowed
	}
	if got := []int{took(3, "a", 1000), took(3, "b", 60), took(3, "c", 1000), took(4, "a", 60)}; !slices.Equal(got, []int{100, 60, 40, 60}) {
		t.Errorf("found %v; want 100 of one hook, 200 of an organization, and all of another", got)
	}
	now = now.Add(time.Second)
	if got := took(3, "b", 1000); got != 20 {
		t.Errorf("found %d a second later; want 20", got)
	}
	for i := range 5000 {
		now = now.Add(time.Minute)
		took(int64(i+10), fmt.Sprint(i), 1)
	}
	if len(s.hooked.buckets) > fewBuckets || len(s.organized.buckets) > fewBuckets {
		t.Errorf("found %d and %d buckets; want at most %d", len(s.hooked.buckets), len(s.organized.buckets), fewBuckets)
	}
}

// D48: without secrets of the operator there are no hooks. While one secret replaces another, hooks that were made with the former work.
func TestSecretsOfForgeHooksAreReplaced(t *testing.T) {
	t.Parallel()
	_, _, in := serveConfig(t, Config{})
	if _, _, err := (answers{in.sources}).ForgeHook(t.Context(), 3, forgeKey, "github"); !fault.Is(err, fault.Refused) {
		t.Errorf("found %v; want it refused", err)
	}
	old, fresh := secretFile(t, hookSecret), secretFile(t, "another-secret-of-the-operator")
	_, _, before := serveConfig(t, Config{ForgeHooks: ForgeHooksConfig{Secrets: []string{old}}})
	path, secret, err := answers{before.sources}.ForgeHook(t.Context(), 3, forgeKey, "gitlab")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := (answers{before.sources}).ForgeHook(t.Context(), 3, "../x", "gitlab"); !fault.Is(err, fault.Invalid) {
		t.Errorf("found %v; want it refused as invalid", err)
	}
	body := []byte(`{"object_kind":"pipeline"}`)
	header := http.Header{"X-Gitlab-Event": {"Pipeline Hook"}, "Content-Type": {"application/json"}, "X-Gitlab-Token": {secret}}
	for want, secrets := range map[int][]string{http.StatusOK: {fresh, old}, http.StatusNotFound: {fresh}} {
		s, _, _ := serveConfig(t, Config{ForgeHooks: ForgeHooksConfig{Secrets: secrets}})
		if code, text := deliver(t, s.URL+path, header, body); code != want {
			t.Errorf("found %d %s; want %d", code, text, want)
		}
	}
	problems := (Config{ForgeHooks: ForgeHooksConfig{Secrets: []string{"hunter2"}, Rate: -1, OrganizationRate: -1}}).Validate()
	if got := fmt.Sprint(problems); strings.Contains(got, "hunter2") || !strings.Contains(got, "forge_hooks.secrets[0]") || !strings.Contains(got, "forge_hooks.rate") ||
		!strings.Contains(got, "forge_hooks.organization_rate") {
		t.Errorf("found %s; want the fields without the value", got)
	}
}

// R4-27: a forge reports a pull request to a hook of an organization. However often it is delivered it is one event, a push after it is
// another, and what cannot be one is refused with the field.
func TestForgesReportPullRequests(t *testing.T) {
	t.Parallel()
	s, pool, in := serveConfig(t, Config{ForgeHooks: ForgeHooksConfig{Secrets: []string{secretFile(t, hookSecret)}}})
	path, secret, err := answers{in.sources}.ForgeHook(t.Context(), 3, forgeKey, "github")
	if err != nil {
		t.Fatal(err)
	}
	pull := func(number int, sha, address string) []byte {
		return fmt.Appendf(nil, `{"action":"synchronize","pull_request":{"number":%d,"updated_at":"2026-03-25T10:00:00Z","head":{"sha":%q,"repo":{"full_name":"shop/api"}},
			"base":{"repo":{"full_name":"shop/api"}}},"repository":{"clone_url":%q}}`, number, sha, address)
	}
	const address = "https://github.com/shop/api.git"
	first := pull(7, "a", address)
	for _, body := range [][]byte{first, first, pull(7, "b", address)} {
		if code, text := deliver(t, s.URL+path, githubSigned("pull_request", secret, body), body); code != http.StatusAccepted {
			t.Fatalf("found %d %s; want 202", code, text)
		}
	}
	if n := count(t, pool, "outbox"); n != 2 {
		t.Errorf("found %d events; want 2", n)
	}
	var raw string
	if err := pool.QueryRow(t.Context(), "SELECT event FROM outbox LIMIT 1").Scan(&raw); err != nil {
		t.Fatal(err)
	}
	var sent struct {
		Type           string                    `json:"type"`
		OrganizationID string                    `json:"organizationid"`
		Data           event.PullRequestReported `json:"data"`
	}
	if err := json.Unmarshal([]byte(raw), &sent); err != nil {
		t.Fatal(err)
	}
	if want := (event.PullRequestReported{Hook: forgeKey, Repository: address, Number: 7}); sent.Data != want || sent.OrganizationID != "3" ||
		sent.Type != event.TypePullRequestReported {
		t.Errorf("found %+v; want %+v of organization 3", sent, want)
	}
	for want, body := range map[string][]byte{
		"pull_request.number: found 0; expected the number of a pull request": pull(0, "c", address),
		"repository.clone_url: found":                                         pull(8, "c", "file:///etc"),
	} {
		want = strings.Replace(want, "found 0", `found \"0\"`, 1)
		if _, text := deliver(t, s.URL+path, githubSigned("pull_request", secret, body), body); !strings.Contains(text, want) {
			t.Errorf("found %s; want %q", text, want)
		}
	}
	if n := count(t, pool, "outbox"); n != 2 {
		t.Errorf("found %d events; want 2", n)
	}
}

// D63: a comment with a command is one event however often it is delivered, also with another text; one whose signature is forged is none.
func TestForgesReportCommandsInComments(t *testing.T) {
	t.Parallel()
	s, pool, in := serveConfig(t, Config{ForgeHooks: ForgeHooksConfig{Secrets: []string{secretFile(t, hookSecret)}}})
	path, secret, err := answers{in.sources}.ForgeHook(t.Context(), 3, forgeKey, "github")
	if err != nil {
		t.Fatal(err)
	}
	comment := func(id int, text string) []byte {
		return fmt.Appendf(nil, `{"action":"created","issue":{"number":7,"pull_request":{}},"comment":{"id":%d,"created_at":"2026-03-25T10:00:00Z","body":%q,"author_association":"MEMBER",
			"user":{"id":42,"login":"ann","type":"User"}},"repository":{"clone_url":"https://github.com/shop/api.git"}}`, id, text)
	}
	first := comment(9, "/lockstep approve 118 \tlooks good ann@example.com")
	for _, forged := range []string{"", "x", hookSecret} {
		if code, text := deliver(t, s.URL+path, githubSigned("issue_comment", forged, first), first); code != http.StatusNotFound {
			t.Errorf("found %d %s; want 404", code, text)
		}
	}
	for _, body := range [][]byte{first, first, comment(9, "/lockstep reject 118")} {
		if code, text := deliver(t, s.URL+path, githubSigned("issue_comment", secret, body), body); code != http.StatusAccepted {
			t.Fatalf("found %d %s; want 202", code, text)
		}
	}
	var raw string
	if err := pool.QueryRow(t.Context(), "SELECT event FROM outbox").Scan(&raw); err != nil {
		t.Fatal(err) // also if there are two
	}
	var sent struct {
		Data event.PullRequestCommented `json:"data"`
	}
	if err := json.Unmarshal([]byte(raw), &sent); err != nil {
		t.Fatal(err)
	}
	if want := (event.PullRequestCommented{
		Hook: forgeKey, Repository: "https://github.com/shop/api.git", Number: 7, CommentID: 9, AuthorID: 42, Author: "ann",
		MadeAt: "2026-03-25T10:00:00Z", Text: "/lockstep approve 118  looks good ann@example.com",
	}); sent.Data != want {
		t.Errorf("found %+v; want %+v", sent.Data, want)
	}
	for want, body := range map[string][]byte{
		"comment.id: found":                        comment(0, "/lockstep why"),
		"expected a command of at most 2000 bytes": comment(10, "/lockstep why "+strings.Repeat("x", 2000)),
		"comment.user.id: found":                   bytes.Replace(comment(11, "/lockstep why"), []byte(`"id":42`), []byte(`"id":-1`), 1),
		"comment.created_at: found":                bytes.Replace(comment(13, "/lockstep why"), []byte("2026-03-25T"), []byte("soon "), 1),
		"comment.user.login: found":                bytes.Replace(comment(12, "/lockstep why"), []byte(`"ann"`), []byte(`"a\u0000"`), 1),
	} {
		if _, text := deliver(t, s.URL+path, githubSigned("issue_comment", secret, body), body); !strings.Contains(text, want) {
			t.Errorf("found %s; want %q", text, want)
		}
	}
	if n := count(t, pool, "outbox"); n != 1 {
		t.Errorf("found %d events; want 1", n)
	}
}
