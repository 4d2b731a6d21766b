package git

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// R4-27, on a real forge: a pull request is read with its files and manifests, has one comment that is changed in its place, also behind
// many others, and of one from a fork nothing is read for a user who may not write.
func TestPlansOnGitea(t *testing.T) {
	t.Parallel()
	g := startGitea(t)
	g.ask(http.MethodDelete, "/repos/ann/deploy/branch_protections/main", nil)
	file := func(repo, branch, path, content string) {
		t.Helper()
		in := map[string]any{"branch": branch, "message": "Change " + path, "content": base64.StdEncoding.EncodeToString([]byte(content))}
		if branch != "main" {
			in["branch"], in["new_branch"] = "main", branch
		}
		method := http.MethodPost
		if content == "replicas: 2\n" {
			found := g.ask(http.MethodGet, "/repos/"+repo+"/contents/"+path+"?ref=main", nil)
			method, in["sha"] = http.MethodPut, found["sha"]
		}
		g.ask(method, "/repos/"+repo+"/contents/"+path, in)
	}
	file("ann/deploy", "main", "deploy/api.yaml", "replicas: 1\n")
	file("ann/deploy", "two", "deploy/api.yaml", "replicas: 2\n")
	pull := g.ask(http.MethodPost, "/repos/ann/deploy/pulls", map[string]string{"title": "Two", "head": "two", "base": "main"})
	number, _ := pull["number"].(float64)
	read := func(number float64, by ...string) activity.Change {
		t.Helper()
		c, err := g.forge.ReadChange(t.Context(), activity.ChangeRequest{Organization: 1, RepoURL: g.url(), Number: int64(number), AskedBy: by})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := read(number)
	if c.State != "open" || c.Into != "main" || strings.TrimSpace(c.Message) != "Change deploy/api.yaml" || !slices.Equal(c.Paths, []string{"deploy/api.yaml"}) || c.Refused != "" {
		t.Errorf("found %+v", c)
	}
	if len(c.Files) != 1 || string(c.Files[0].Before) != "replicas: 1\n" || string(c.Files[0].After) != "replicas: 2\n" {
		t.Errorf("found the manifests %+v", c.Files)
	}

	issue := fmt.Sprintf("/repos/ann/deploy/issues/%d/comments", int(number))
	for i := range 60 {
		g.ask(http.MethodPost, issue, map[string]string{"body": fmt.Sprintf("%s\n%d", marker, i)})
	}
	var first string
	for i, body := range []string{"One plan", "Another plan", "Another plan"} {
		r, err := g.forge.Comment(t.Context(), activity.CommentRequest{
			Organization: 1, RepoURL: g.url(), Number: int64(number), Marker: marker, Body: body,
		})
		if err != nil || r.URL == "" || i > 0 && r.URL != first {
			t.Fatalf("found %+v, %v; want the comment %s", r, err, first)
		}
		first = r.URL
	}
	id := first[strings.LastIndex(first, "-")+1:]
	if shown := g.ask(http.MethodGet, "/repos/ann/deploy/issues/comments/"+id, nil); shown["body"] != marker+"\nAnother plan" {
		t.Errorf("found %v", shown["body"])
	}
	if pull = g.ask(http.MethodGet, fmt.Sprintf("/repos/ann/deploy/pulls/%d", int(number)), nil); pull["comments"] != float64(61) {
		t.Errorf("found %v comments; want 61", pull["comments"])
	}

	g.ask(http.MethodPost, "/admin/users", map[string]any{"username": "eve", "email": "eve@example.com", "password": "Password-12345", "must_change_password": false})
	g.ask(http.MethodPatch, "/repos/ann/deploy", map[string]any{"private": false})
	g.ask(http.MethodPost, "/repos/ann/deploy/forks?sudo=eve", map[string]string{})
	in := map[string]any{"branch": "main", "new_branch": "mine", "message": "Evil", "content": base64.StdEncoding.EncodeToString([]byte("x"))}
	g.ask(http.MethodPost, "/repos/eve/deploy/contents/evil.yaml?sudo=eve", in)
	fork := g.ask(http.MethodPost, "/repos/ann/deploy/pulls?sudo=eve", map[string]string{"title": "Evil", "head": "eve:mine", "base": "main"})
	number, _ = fork["number"].(float64)
	for who, want := range map[string]string{"": "nobody who may write", "eve": "eve", "bot": ""} {
		var by []string
		if who != "" {
			by = append(by, who)
		}
		c := read(number, by...)
		if !strings.Contains(c.Refused, want) || (c.Refused == "") != (want == "") || (len(c.Paths) == 1) != (want == "") {
			t.Errorf("%q: found %+v; want %q", who, c, want)
		}
	}
}
