package git

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/pkg/sealing/book"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// The accounts at the forge: that of the credential, a person who may write, and one who may not.
const (
	bot = 7
	ann = 11
	eve = 12
	// other is the account of another App.
	other = 13
)

// noted is a comment at the forge.
type noted struct {
	id, author int
	body       string
}

// pullForge is what forges do with pull requests and comments, as they document it.
type pullForge struct {
	kind string
	mu   sync.Mutex
	// paths are the files of its one pull request, number 3.
	paths             []string
	head, base, state string
	// tip is the head of the branch that it is for, where that has commits after base. Pages have no more than most entries.
	tip  string
	most int
	fork bool
	// ref and label are what it says of the branch of its pull request, where they are not those of the branch two.
	ref   string
	label *string
	all   []noted
	last  int
	// app reports whether the credential is an App's, which is no account. secretive ones do not show who may write.
	app, secretive bool
	// hidden Apps are not shown their account.
	hidden bool
	// strict has nobody change the comments of others.
	strict bool
	// lost has the answer to the next comment that is made get lost; raced adds one of another process before it.
	lost, raced bool
}

func (f *pullForge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	root := map[string]string{GitHub: "/api/v3", Gitea: "/api/v1", GitLab: "/api/v4"}[f.kind]
	base := map[string]string{GitHub: root + "/repos/team/shop", Gitea: root + "/repos/team/shop", GitLab: root + "/projects/shop"}[f.kind]
	pull := map[string]string{GitHub: "/pulls/3", Gitea: "/pulls/3", GitLab: "/merge_requests/3"}[f.kind]
	list := map[string]string{GitHub: "/issues/3/comments", Gitea: "/issues/3/comments", GitLab: pull + "/notes"}[f.kind]
	one := map[string]string{GitHub: "/issues/comments/", Gitea: "/issues/comments/", GitLab: pull + "/notes/"}[f.kind]
	path := strings.TrimPrefix(r.URL.Path, base)
	id, single := strings.CutPrefix(path, one)
	switch {
	case r.URL.Path == root+"/user" && f.app:
		refuse(w, http.StatusForbidden, "Resource not accessible by integration")
	case r.URL.Path == "/api/graphql" && f.hidden:
		answer(w, http.StatusOK, map[string]any{"data": nil, "errors": []map[string]string{{"message": "no"}}})
	case r.URL.Path == "/api/graphql" && f.kind == GitHub && r.Method == http.MethodPost:
		answer(w, http.StatusOK, map[string]any{"data": map[string]any{"viewer": map[string]int{"databaseId": bot}}})
	case f.kind == GitHub && path == "/compare/"+f.against()+"..."+f.head:
		answer(w, http.StatusOK, map[string]any{"merge_base_commit": map[string]string{"sha": f.base}})
	case r.URL.Path == root+"/user":
		answer(w, http.StatusOK, map[string]any{"id": bot})
	case path == pull:
		answer(w, http.StatusOK, f.shown())
	case path == pull+"/files", path == pull+"/diffs":
		f.files(w, r)
	case path == "/git/commits/"+f.head:
		answer(w, http.StatusOK, map[string]string{"message": "Two replicas"})
	case path == pull+"/commits" && f.kind == GitLab:
		answer(w, http.StatusOK, []map[string]string{{"message": "Two replicas"}})
	case path == pull+"/commits":
		answer(w, http.StatusOK, []map[string]any{{"sha": f.head, "commit": map[string]string{"message": "Two replicas"}}})
	case strings.HasPrefix(path, "/collaborators/"), strings.HasPrefix(path, "/members/all/"):
		f.rights(w, path[strings.LastIndex(strings.TrimSuffix(path, "/permission"), "/")+1:])
	case path == list && r.Method == http.MethodGet:
		f.list(w, r)
	case path == list && r.Method == http.MethodPost:
		f.add(w, r)
	case single:
		f.change(w, r, id)
	default:
		refuse(w, http.StatusNotFound, "Not Found")
	}
}

// against is the head of the branch that it is for.
func (f *pullForge) against() string {
	if f.tip != "" {
		return f.tip
	}
	return f.base
}

func (f *pullForge) shown() map[string]any {
	if f.ref == "" {
		f.ref = "two"
	}
	from := 1
	if f.fork {
		from = 2
	}
	var refs any
	if f.base != "" {
		refs = map[string]string{"base_sha": f.base}
	}
	if f.kind == GitLab {
		return map[string]any{
			"iid": 3, "state": map[string]string{"open": "opened"}[f.state] + map[string]string{"closed": "closed"}[f.state], "web_url": "https://forge/3",
			"sha": f.head, "target_branch": "main", "source_project_id": from, "target_project_id": 1, "diff_refs": refs,
		}
	}
	shown := map[string]any{
		"number": 3, "state": f.state, "html_url": "https://forge/3",
		"head": map[string]any{"ref": f.ref, "label": f.label, "sha": f.head, "repo": map[string]int{"id": from}},
		"base": map[string]any{"ref": "main", "sha": f.against(), "repo": map[string]int{"id": 1}},
	}
	if f.kind == Gitea {
		shown["merge_base"] = f.base
	}
	return shown
}

func (f *pullForge) files(w http.ResponseWriter, r *http.Request) {
	size, _ := strconv.Atoi(r.FormValue("per_page") + r.FormValue("limit"))
	page, _ := strconv.Atoi(r.FormValue("page"))
	if f.most > 0 {
		size = min(size, f.most)
	}
	from := min((page-1)*size, len(f.paths))
	all := []map[string]string{}
	for _, p := range f.paths[from:min(from+size, len(f.paths))] {
		all = append(all, map[string]string{"filename": p, "new_path": p, "old_path": strings.Replace(p, "moved", "old", 1)})
		if strings.Contains(p, "moved") {
			all[len(all)-1]["previous_filename"] = all[len(all)-1]["old_path"]
		}
	}
	answer(w, http.StatusOK, all)
}

func (f *pullForge) rights(w http.ResponseWriter, who string) {
	who = strings.TrimSuffix(who, "/permission")
	switch {
	case f.secretive:
		refuse(w, http.StatusForbidden, "Only admins can query all permissions")
	case f.kind == GitLab && who == strconv.Itoa(ann):
		answer(w, http.StatusOK, map[string]int{"access_level": 30})
	case f.kind == GitLab && who == strconv.Itoa(eve):
		answer(w, http.StatusOK, map[string]int{"access_level": 20})
	case who == "ann":
		answer(w, http.StatusOK, map[string]string{"permission": "write"})
	case who == "eve":
		answer(w, http.StatusOK, map[string]string{"permission": "read"})
	default:
		refuse(w, http.StatusNotFound, "Not Found")
	}
}

func (f *pullForge) document(n noted) map[string]any {
	return map[string]any{
		"id": n.id, "body": n.body, "html_url": fmt.Sprintf("https://forge/3#%d", n.id), "user": map[string]int{"id": n.author},
		"author": map[string]int{"id": n.author}, "system": false,
	}
}

func (f *pullForge) list(w http.ResponseWriter, r *http.Request) {
	all := f.all
	if size, _ := strconv.Atoi(r.FormValue("per_page")); size > 0 {
		page, _ := strconv.Atoi(r.FormValue("page"))
		from := min((page-1)*size, len(all))
		all = all[from:min(from+size, len(all))]
	}
	shown := []map[string]any{}
	for _, n := range all {
		shown = append(shown, f.document(n))
	}
	answer(w, http.StatusOK, shown)
}

func (f *pullForge) note(author int, body string) noted {
	f.last++
	f.all = append(f.all, noted{f.last, author, body})
	return f.all[len(f.all)-1]
}

func (f *pullForge) add(w http.ResponseWriter, r *http.Request) {
	var in struct{ Body string }
	_ = json.NewDecoder(r.Body).Decode(&in)
	if f.raced {
		f.note(bot, strings.ReplaceAll(in.Body, "new", "of another process"))
		f.raced = false
	}
	made := f.note(bot, in.Body)
	if f.lost {
		f.lost = false
		refuse(w, http.StatusBadGateway, "no")
		return
	}
	answer(w, http.StatusCreated, f.document(made))
}

func (f *pullForge) change(w http.ResponseWriter, r *http.Request, id string) {
	n, _ := strconv.Atoi(id)
	at := slices.IndexFunc(f.all, func(c noted) bool { return c.id == n })
	switch {
	case at < 0:
		refuse(w, http.StatusNotFound, "Not Found")
	case r.Method == http.MethodDelete:
		f.all = slices.Delete(f.all, at, at+1)
		w.WriteHeader(http.StatusNoContent)
	case f.strict && f.all[at].author != bot:
		refuse(w, http.StatusForbidden, "You may not change this comment")
	default:
		var in struct{ Body string }
		_ = json.NewDecoder(r.Body).Decode(&in)
		f.all[at].body = in.Body
		answer(w, http.StatusOK, f.document(f.all[at]))
	}
}

// of are the comments of an account.
func (f *pullForge) of(author int) (all []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.all {
		if n.author == author {
			all = append(all, n.body)
		}
	}
	return all
}

func pullsOn(t *testing.T, kind string) (*server, *pullForge) {
	t.Helper()
	s, f := setupForge(t, kind), &pullForge{kind: kind, state: "open", head: strings.Repeat("b", 40), base: strings.Repeat("a", 40)}
	s.api = f.ServeHTTP
	return s, f
}

func everyForge(t *testing.T, test func(t *testing.T, s *server, f *pullForge)) {
	t.Helper()
	for _, kind := range []string{GitLab, GitHub, Gitea} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s, f := pullsOn(t, kind)
			test(t, s, f)
		})
	}
}

const marker = "<!-- lockstep plan o1 -->"

// R4-27: a pull request has one comment, which is changed in its place: however often it is written, also if an answer was lost after it
// was made, and if another process makes one at the same time. What others have written with the same marker is left alone.
func TestAPullRequestHasOneComment(t *testing.T) {
	t.Parallel()
	everyForge(t, func(t *testing.T, s *server, f *pullForge) {
		t.Helper()
		comment := func(body string, only bool) (activity.CommentReport, error) {
			return s.forge.Comment(t.Context(), activity.CommentRequest{
				Organization: 1, RepoURL: s.url, Number: 3, Marker: marker, Body: body, OnlyKnown: only,
			})
		}
		for range 130 {
			f.note(ann, "fine")
		}
		f.note(eve, marker+"\nnew")
		if got, err := comment("nothing", true); err != nil || got.URL != "" || len(f.of(bot)) != 0 {
			t.Fatalf("found %+v, %v; want no comment", got, err)
		}
		f.lost = true
		if _, err := comment("new", false); !fault.Is(err, fault.Unavailable) {
			t.Fatalf("found %v; want that the answer is lost", err)
		}
		for range 2 {
			got, err := comment("new", false)
			if err != nil || !strings.Contains(got.URL, "#") || !strings.HasSuffix(got.URL, "132") {
				t.Errorf("found %+v, %v; want the comment that was made", got, err)
			}
		}
		if _, err := comment("newer", true); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]string{marker + "\nnewer"}, f.of(bot)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		f.mu.Lock()
		f.all, f.raced = nil, true
		f.mu.Unlock()
		if _, err := comment("new", false); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]string{marker + "\nnew"}, f.of(bot)); diff != "" {
			t.Errorf("two processes (-want +got):\n%s", diff)
		}
		f.note(eve, marker+"\nevil")
		if _, err := comment("newest", false); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]string{marker + "\nevil"}, f.of(eve)); diff != "" {
			t.Errorf("another account's (-want +got):\n%s", diff)
		}
	})
}

// R4-27: an App of GitHub has the account of its bot; the comments of other Apps and of people are not its own, also where GitHub does not
// say whose account it is. Any other failure is an error.
func TestAnAppComments(t *testing.T) {
	t.Parallel()
	s, f := pullsOn(t, GitHub)
	f.app = true
	f.note(other, marker+"\nof another App")
	f.note(eve, marker+"\nevil")
	for _, hidden := range []bool{false, true} {
		f.mu.Lock()
		f.hidden = hidden
		f.mu.Unlock()
		for _, body := range []string{"new", "newer", fmt.Sprint("newest ", hidden)} {
			_, err := s.forge.Comment(t.Context(), activity.CommentRequest{Organization: 1, RepoURL: s.url, Number: 3, Marker: marker, Body: body})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{marker + "\n" + body}, f.of(bot)); diff != "" {
				t.Errorf("hidden %t (-want +got):\n%s", hidden, diff)
			}
		}
	}
	got, err := s.forge.Comment(t.Context(), activity.CommentRequest{
		Organization: 1, RepoURL: s.url, Number: 3, Marker: marker, Body: "none", OnlyKnown: true,
	})
	if err != nil || got.URL != "" || !slices.Equal(f.of(bot), []string{marker + "\nnewest true"}) {
		t.Errorf("found %+v, %v and %q; want that none is changed", got, err, f.of(bot))
	}
	if !slices.Equal(f.of(other), []string{marker + "\nof another App"}) || !slices.Equal(f.of(eve), []string{marker + "\nevil"}) {
		t.Errorf("found %q and %q; want those of others left alone", f.of(other), f.of(eve))
	}
	for range 1200 {
		f.note(ann, "fine")
	}
	_, err = s.forge.Comment(t.Context(), activity.CommentRequest{Organization: 1, RepoURL: s.url, Number: 3, Marker: marker, Body: "x"})
	if !fault.Is(err, fault.Refused) { // it could be one that was left out
		t.Errorf("found %v; want a list without an end refused", err)
	}
}

// R4-27: what a pull request changes, with all pages of its files, both names of one that was moved, and manifests before and after.
func TestAChangeIsRead(t *testing.T) {
	t.Parallel()
	everyForge(t, func(t *testing.T, s *server, f *pullForge) {
		t.Helper()
		s.git(t, s.dir, "config", "uploadpack.allowReachableSHA1InWant", "true")
		f.base = s.add(t, "main", map[string]string{"deploy/api.yaml": "replicas: 1\n", "deploy/gone.yml": "x\n"})
		f.head = s.add(t, "two", map[string]string{"deploy/api.yaml": "replicas: 2\n", "deploy/new.yaml": "y\n"})
		f.tip = s.add(t, "main", map[string]string{"deploy/api.yaml": "replicas: 9\n"})
		for _, ref := range []string{"refs/pull/3/head", "refs/merge-requests/3/head"} {
			s.git(t, s.dir, "update-ref", ref, f.head)
		}
		for i := range 120 {
			f.paths = append(f.paths, fmt.Sprintf("docs/%03d.md", i))
		}
		f.paths = append(f.paths, "deploy/api.yaml", "deploy/new.yaml", "deploy/moved.md", "../odd.yaml")
		got, err := s.forge.ReadChange(t.Context(), activity.ChangeRequest{Organization: 1, RepoURL: s.url, Number: 3})
		if err != nil || got.State != "open" || got.Into != "main" || got.Head != f.head || got.Message != "Two replicas" || got.More || got.Refused != "" {
			t.Fatalf("found %+v, %v", got, err)
		}
		if len(got.Paths) != 125 || !slices.Contains(got.Paths, "deploy/old.md") || !slices.Contains(got.Paths, "docs/119.md") {
			t.Errorf("found %d files: %v", len(got.Paths), got.Paths)
		}
		want := []activity.ChangedFile{
			{Path: "deploy/api.yaml", Before: []byte("replicas: 1\n"), After: []byte("replicas: 2\n")}, {Path: "deploy/new.yaml", After: []byte("y\n")},
		}
		if diff := cmp.Diff(want, got.Files); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		s.git(t, s.dir, "update-ref", "-d", "refs/pull/3/head")
		s.git(t, s.dir, "update-ref", "-d", "refs/merge-requests/3/head")
		if got, err := s.forge.ReadChange(t.Context(), activity.ChangeRequest{Organization: 1, RepoURL: s.url, Number: 3}); err != nil ||
			len(got.Files) != 0 || len(got.Paths) != 125 {
			t.Errorf("without its head: found %d files of %d, %v", len(got.Files), len(got.Paths), err)
		}
		for i := range 2000 {
			f.paths = append(f.paths, fmt.Sprintf("more/%04d.md", i))
		}
		got, err = s.forge.ReadChange(t.Context(), activity.ChangeRequest{Organization: 1, RepoURL: s.url, Number: 3})
		if err != nil || !got.More {
			t.Errorf("found more %t, %v; want that there are others", got.More, err)
		}
		f.state = "closed"
		if got, err := s.forge.ReadChange(t.Context(), activity.ChangeRequest{Organization: 1, RepoURL: s.url, Number: 3}); err != nil ||
			got.State != "closed" || len(got.Paths) != 0 {
			t.Errorf("found %+v, %v; want a closed one without files", got, err)
		}
		_, err = s.forge.ReadChange(t.Context(), activity.ChangeRequest{Organization: 1, RepoURL: s.url, Number: 4})
		if !fault.Is(err, fault.NotFound) {
			t.Errorf("found %v; want that there is no such pull request", err)
		}
	})
}

// R4-27: a server of Gitea that sends fewer entries than it is asked for is asked until there are none.
func TestAChangeInShortPages(t *testing.T) {
	t.Parallel()
	s, f := pullsOn(t, Gitea)
	f.most = 3
	for i := range 8 {
		f.paths = append(f.paths, fmt.Sprintf("docs/%d.md", i))
	}
	got, err := s.forge.ReadChange(t.Context(), activity.ChangeRequest{Organization: 1, RepoURL: s.url, Number: 3})
	if diff := cmp.Diff(f.paths, got.Paths); err != nil || diff != "" || got.More {
		t.Errorf("%v, more %t (-want +got):\n%s", err, got.More, diff)
	}
}

// R4-27: GitLab needs some seconds before it knows what an open merge request is compared with: until then it is a conflict, which is not
// taken for a server that is away.
func TestAChangeThatIsPrepared(t *testing.T) {
	t.Parallel()
	s, f := pullsOn(t, GitLab)
	f.base, f.paths = "", []string{"deploy/api.yaml"}
	read := func() (activity.Change, error) {
		return s.forge.ReadChange(t.Context(), activity.ChangeRequest{Organization: 1, RepoURL: s.url, Number: 3})
	}
	if got, err := read(); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "is still preparing pull request 3") {
		t.Errorf("found %+v, %v; want that it is prepared", got, err)
	}
	f.state = "closed"
	if got, err := read(); err != nil || got.State != "closed" {
		t.Errorf("found %+v, %v; want a closed one", got, err)
	}
}

// R4-27: where a file, a link or a submodule takes the place of a folder, or the other way, and where a path is none to Git, there is no
// manifest before or after.
func TestAChangeOfAFileToAFolder(t *testing.T) {
	t.Parallel()
	s, f := pullsOn(t, Gitea)
	s.git(t, s.dir, "config", "uploadpack.allowReachableSHA1InWant", "true")
	first := s.add(t, "main", map[string]string{
		"deploy": "a file\n", "120000 linked": "deploy", "all.yaml": "a: file\n", "folder.yaml/x.yaml": "x\n", "big.yaml": strings.Repeat("x", maxManifest+1),
	})
	s.gitIn(t, s.dir, "commit refs/heads/main\ncommitter Ann <ann@example.com> now\ndata 5\nhers\n\nfrom refs/heads/main^0\nM 160000 "+first+" module\n",
		"fast-import", "--quiet", "--date-format=now")
	f.base = s.rev(t, "main")
	f.head = s.add(t, "two", map[string]string{
		"deploy/x.yaml": "x: 1\n", "linked/x.yaml": "x: 2\n", "module/x.yaml": "x: 3\n", "all.yaml/x.yaml": "x: 4\n", "folder.yaml": "x: 5\n", "big.yaml": "x: 6\n",
	})
	f.paths = []string{
		"deploy/x.yaml", "linked/x.yaml", "module/x.yaml", "all.yaml/x.yaml", "all.yaml", "folder.yaml", "folder.yaml/x.yaml", "git~1/x.yaml", "big.yaml",
	}
	check := func(want []activity.ChangedFile) {
		t.Helper()
		s.git(t, s.dir, "update-ref", "refs/pull/3/head", f.head)
		got, err := s.forge.ReadChange(t.Context(), activity.ChangeRequest{Organization: 1, RepoURL: s.url, Number: 3})
		if diff := cmp.Diff(want, got.Files); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	want := []activity.ChangedFile{
		{Path: "all.yaml", Before: []byte("a: file\n")},
		{Path: "all.yaml/x.yaml", After: []byte("x: 4\n")},
		{Path: "big.yaml", Unread: true},
		{Path: "deploy/x.yaml", After: []byte("x: 1\n")},
		{Path: "folder.yaml", After: []byte("x: 5\n")},
		{Path: "folder.yaml/x.yaml"},
		{Path: "git~1/x.yaml"},
		{Path: "linked/x.yaml", After: []byte("x: 2\n")},
		{Path: "module/x.yaml", After: []byte("x: 3\n")},
	}
	want[5].Before = []byte("x\n")
	check(want)
	f.base, f.head = f.head, f.base
	for i := range want {
		want[i].Before, want[i].After = want[i].After, want[i].Before
	}
	check(want)
}

// R4-27: of a pull request from a fork nothing is read unless a user asks of whom the forge says that they may write.
func TestAForkIsReadOnlyForThoseWhoMayWrite(t *testing.T) {
	t.Parallel()
	everyForge(t, func(t *testing.T, s *server, f *pullForge) {
		t.Helper()
		f.fork, f.paths = true, []string{"a.md"}
		name := func(id int, name string) string {
			if f.kind == GitLab {
				return strconv.Itoa(id)
			}
			return name
		}
		for _, c := range []struct {
			who  []string
			want string
		}{
			{nil, "nobody who may write"},
			{[]string{name(ann, "ann")}, ""},
			{[]string{name(eve, "eve")}, "may not write to the repository"},
			{[]string{name(99, "mallory")}, "may not write to the repository"},
			{[]string{name(ann, "ann"), name(eve, "eve")}, ""},
			{[]string{name(99, "mallory"), name(ann, "ann")}, ""},
			{[]string{name(99, "mallory"), name(eve, "eve")}, "none of the 2 who have asked may write to the repository"},
		} {
			got, err := s.forge.ReadChange(t.Context(), activity.ChangeRequest{Organization: 1, RepoURL: s.url, Number: 3, AskedBy: c.who})
			if err != nil || !strings.Contains(got.Refused, c.want) || (got.Refused == "") != (c.want == "") || (len(got.Paths) == 1) != (c.want == "") {
				t.Errorf("%q: found %+v, %v; want %q", c.who, got, err, c.want)
			}
		}
		f.secretive = true
		got, err := s.forge.ReadChange(t.Context(), activity.ChangeRequest{
			Organization: 1, RepoURL: s.url, Number: 3, AskedBy: []string{name(ann, "ann")},
		})
		if err != nil || !strings.Contains(got.Refused, "the credential may not look up whether") {
			t.Errorf("found %+v, %v; want that it cannot be looked up", got, err)
		}
	})
}

// R4-27, D60: to push to refs/for/main of Gitea and Forgejo it is enough to read: a pull request of no branch, and one whose branch is
// gone, is planned only as one from a fork.
func TestOneOfNoBranchIsLikeOneFromAFork(t *testing.T) {
	t.Parallel()
	everyForge(t, func(t *testing.T, s *server, f *pullForge) {
		t.Helper()
		if f.kind == GitLab {
			return
		}
		f.paths = []string{"a.md"}
		empty, name := "", "two"
		for _, c := range []struct {
			ref   string
			label *string
			fork  bool
		}{{"two", &name, false}, {"two", nil, false}, {"refs/pull/3/head", &empty, true}, {"refs/pull/3/head", &name, true}, {"two", &empty, true}} {
			f.ref, f.label = c.ref, c.label
			got, err := s.forge.ReadChange(t.Context(), activity.ChangeRequest{Organization: 1, RepoURL: s.url, Number: 3})
			if err != nil || got.Fork != c.fork || strings.Contains(got.Refused, "no branch of the repository, and nobody who may write") != c.fork ||
				(len(got.Paths) == 0) != c.fork {
				t.Errorf("%+v: found %+v, %v", c, got, err)
			}
			asked, err := s.forge.ReadChange(t.Context(), activity.ChangeRequest{
				Organization: 1, RepoURL: s.url, Number: 3, AskedBy: []string{"ann"},
			})
			if err != nil || asked.Fork != c.fork || asked.Refused != "" || len(asked.Paths) != 1 {
				t.Errorf("%+v: found %+v, %v; want it read", c, asked, err)
			}
		}
	})
}

// ownBook has one credential of an organization.
type ownBook struct{ one book.Credential }

func (b ownBook) CredentialNamed(context.Context, int64, string) (*book.Credential, error) {
	return &b.one, nil
}

func (b ownBook) CredentialsOfKind(context.Context, int64, sealing.Kind) ([]book.Credential, error) {
	return []book.Credential{b.one}, nil
}

// R4-27: the credential of an organization goes to the project, and to where its forge says whose account it is; every request has it.
func TestACredentialOfAnOrganizationComments(t *testing.T) {
	t.Parallel()
	everyForge(t, func(t *testing.T, s *server, f *pullForge) {
		t.Helper()
		s.api = func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.Header.Get("Authorization"), " own token") {
				refuse(w, http.StatusUnauthorized, "Bad credentials")
				return
			}
			f.ServeHTTP(w, r)
		}
		own := book.Credential{Sealed: []byte("x"), Terms: sealing.Terms{
			Organization: 1, Name: "forge", Kind: sealing.Git, URLPrefixes: []string{strings.TrimSuffix(s.url, ".git")}, Username: "bot", Forge: f.kind,
		}}
		s.forge.credentials = credentials{own: book.NewBook(book.Deps{
			Store: ownBook{own}, Open: func(context.Context, []byte, sealing.Terms) (string, error) { return "own token", nil },
		})}
		url := strings.TrimSuffix(s.url, ".git")
		for _, body := range []string{"new", "newer"} {
			r := activity.CommentRequest{Organization: 1, RepoURL: url, Number: 3, Marker: marker, Body: body}
			if _, err := s.forge.Comment(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff([]string{marker + "\nnewer"}, f.of(bot)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		f.paths = []string{"README.md"}
		c, err := s.forge.ReadChange(t.Context(), activity.ChangeRequest{Organization: 1, RepoURL: url, Number: 3})
		if err != nil || len(c.Paths) != 1 {
			t.Errorf("found %+v, %v", c, err)
		}
	})
}
