package git

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// fakeForge is the interface of a forge over a bare repository, with those of its documented rules that matter: what it
// refuses, and with which status. It does with Git's own commands what a forge does.
type fakeForge struct {
	dir, index string
	// mu makes the moving of a branch one step, as forges do.
	mu sync.Mutex
	// pulls are the proposals; their numbers are their places, from 1.
	pulls []*fakePull
	// requires is a status without which nothing is merged, and reported those of commits.
	requires string
	reported map[string]map[string]string
	// own is the number of the account of the credential; 5 if it is 0.
	own int64
}

// git runs a command in the repository; ok is false where it fails.
func (f *fakeForge) git(stdin string, env []string, args ...string) (out string, ok bool) {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env, cmd.Stdin = f.dir, append(hermetic(), env...), strings.NewReader(stdin)
	raw, err := cmd.Output()
	return strings.TrimSuffix(string(raw), "\n"), err == nil
}

func (f *fakeForge) commit(ref string) (string, bool) {
	return f.git("", nil, "rev-parse", "--verify", "--quiet", ref+"^{commit}")
}

// at returns mode, type and name of the entry at a path in a commit.
func (f *fakeForge) at(commit, path string) (mode, kind, id string) {
	out, ok := f.git("", nil, "ls-tree", commit, path)
	if fields := strings.Fields(out); ok && len(fields) >= 3 {
		return fields[0], fields[1], fields[2]
	}
	return "", "", ""
}

func (f *fakeForge) content(blob string) string {
	cmd := exec.Command("git", "cat-file", "blob", blob)
	cmd.Dir, cmd.Env = f.dir, hermetic()
	raw, _ := cmd.Output()
	return base64.StdEncoding.EncodeToString(raw)
}

// log are the last commits: identifier, name and address of the author, and message.
func (f *fakeForge) log(commit, most string) [][]string {
	out, _ := f.git("", nil, "log", "-n", most, "--format=%H%n%an%n%ae%n%B%x00", commit)
	var all [][]string
	for one := range strings.SplitSeq(out, "\x00") {
		if c := strings.SplitN(strings.TrimPrefix(one, "\n"), "\n", 4); len(c) == 4 {
			all = append(all, c)
		}
	}
	return all
}

// write makes a commit on top of base, and answers it.
func (f *fakeForge) write(base, message, name, email, tree string) (string, bool) {
	who := []string{
		"GIT_AUTHOR_NAME=" + name, "GIT_AUTHOR_EMAIL=" + email, "GIT_COMMITTER_NAME=forge",
		"GIT_COMMITTER_EMAIL=forge@example.com",
	}
	return f.git(message, who, "commit-tree", tree, "-p", base, "-F", "-")
}

// tree is base's with entries put into it: mode, blob, path.
func (f *fakeForge) tree(base string, entries [][3]string) (string, bool) {
	env := []string{"GIT_INDEX_FILE=" + f.index}
	_ = os.Remove(f.index)
	if _, ok := f.git("", env, "read-tree", base); !ok {
		return "", false
	}
	var lines strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&lines, "%s %s\t%s\n", e[0], e[1], e[2])
	}
	if _, ok := f.git(lines.String(), env, "update-index", "--add", "--index-info"); !ok {
		return "", false
	}
	return f.git("", env, "write-tree")
}

func (f *fakeForge) blob(content string) string {
	raw, _ := base64.StdEncoding.DecodeString(content)
	id, _ := f.git(string(raw), nil, "hash-object", "-w", "--stdin")
	return id
}

// allowed reports whether the rules of the repository let a branch be written.
func (f *fakeForge) allowed() bool {
	_, err := os.Stat(filepath.Join(f.dir, "protected"))
	return err != nil
}

func answer(w http.ResponseWriter, status int, document any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(document)
}

func refuse(w http.ResponseWriter, status int, message string) {
	answer(w, status, map[string]string{"message": message})
}

// change is an action of GitLab's, or an operation of Gitea's.
type fakeChange struct {
	Action, Operation, Content, SHA, Path string
	FilePath                              string `json:"file_path"`
	Last                                  string `json:"last_commit_id"`
}

// apply does what GitLab and Gitea have in common: changes on top of wherever the branch is by now, each checked.
func (f *fakeForge) apply(
	branch, message, name, email string, changes []fakeChange, check func(head string, c fakeChange, id string) string,
) (sha, problem string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.allowed() {
		return "", "You are not allowed to push into this branch"
	}
	head, ok := f.commit("refs/heads/" + branch)
	if !ok {
		return "", "You can only create or edit files when you are on a branch"
	}
	var entries [][3]string
	for _, c := range changes {
		path := c.Path + c.FilePath
		mode, kind, id := f.at(head, path)
		create := c.Action+c.Operation == "create"
		switch {
		case create && kind != "":
			return "", "A file with this name already exists"
		case !create && kind != "blob":
			return "", "A file with this name doesn't exist"
		}
		if !create {
			if problem := check(head, c, id); problem != "" {
				return "", problem
			}
		}
		if mode == "" {
			mode = "100644"
		}
		entries = append(entries, [3]string{mode, f.blob(c.Content), path})
	}
	tree, ok := f.tree(head, entries)
	if !ok {
		return "", "invalid path"
	}
	if sha, ok = f.write(head, message, name, email, tree); !ok {
		return "", "invalid commit"
	}
	if _, ok := f.git("", nil, "update-ref", "refs/heads/"+branch, sha, head); !ok {
		return "", "Could not update refs/heads/" + branch + ". Please refresh and try again."
	}
	return sha, ""
}

// gitLab serves https://docs.gitlab.com/api/repository_files, /commits, /branches and /repositories.
func (f *fakeForge) gitLab() http.Handler {
	mux := http.NewServeMux()
	const project = "/api/v4/projects/{project}/repository"
	guard := func(pattern string, serve func(w http.ResponseWriter, r *http.Request)) {
		method, path, _ := strings.Cut(pattern, " ")
		mux.HandleFunc(method+" "+project+path, func(w http.ResponseWriter, r *http.Request) {
			if r.PathValue("project") != "shop" {
				refuse(w, http.StatusNotFound, "404 Project Not Found")
				return
			}
			serve(w, r)
		})
	}
	guard("GET /branches/{branch}", func(w http.ResponseWriter, r *http.Request) {
		id, ok := f.commit("refs/heads/" + r.PathValue("branch"))
		if !ok {
			refuse(w, http.StatusNotFound, "404 Branch Not Found")
			return
		}
		answer(w, http.StatusOK, map[string]any{"name": r.PathValue("branch"), "commit": map[string]string{"id": id}})
	})
	guard("GET /commits/{ref}", func(w http.ResponseWriter, r *http.Request) {
		id, ok := f.commit(r.PathValue("ref"))
		if !ok {
			refuse(w, http.StatusNotFound, "404 Commit Not Found")
			return
		}
		answer(w, http.StatusOK, map[string]string{"id": id})
	})
	guard("GET /commits", func(w http.ResponseWriter, r *http.Request) {
		all := []map[string]string{}
		for _, c := range f.log(r.FormValue("ref_name"), r.FormValue("per_page")) {
			all = append(all, map[string]string{"id": c[0], "author_name": c[1], "author_email": c[2], "message": c[3]})
		}
		answer(w, http.StatusOK, all)
	})
	guard("GET /files/{path}", func(w http.ResponseWriter, r *http.Request) {
		mode, kind, id := f.at(r.FormValue("ref"), r.PathValue("path"))
		if kind != "blob" {
			refuse(w, http.StatusNotFound, "404 File Not Found")
			return
		}
		last, _ := f.git("", nil, "log", "-n", "1", "--format=%H", r.FormValue("ref"), "--", r.PathValue("path"))
		answer(w, http.StatusOK, map[string]any{
			"content": f.content(id), "encoding": "base64", "blob_id": id, "last_commit_id": last,
			"execute_filemode": mode == "100755",
		})
	})
	guard("GET /tree", func(w http.ResponseWriter, r *http.Request) {
		if _, kind, id := f.at(r.FormValue("ref"), r.FormValue("path")); kind == "tree" {
			answer(w, http.StatusOK, []map[string]string{{"id": id}})
			return
		}
		refuse(w, http.StatusNotFound, "404 invalid revision or path Not Found")
	})
	guard("POST /commits", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Branch  string `json:"branch"`
			Message string `json:"commit_message"`
			Name    string `json:"author_name"`
			Email   string `json:"author_email"`
			Actions []fakeChange
		}
		_ = json.NewDecoder(r.Body).Decode(&in)
		sha, problem := f.apply(in.Branch, in.Message, in.Name, in.Email, in.Actions, func(head string, c fakeChange, _ string) string {
			last, _ := f.git("", nil, "log", "-n", "1", "--format=%H", head, "--", c.FilePath)
			if _, known := f.commit(c.Last); known && c.Last != last {
				return "You are attempting to update a file that has changed since you started editing it."
			}
			return ""
		})
		if problem != "" {
			refuse(w, http.StatusBadRequest, problem)
			return
		}
		answer(w, http.StatusCreated, map[string]string{"id": sha})
	})
	f.gitLabPulls(mux)
	return mux
}

// gitea serves /api/v1/repos/{owner}/{repo}: branches, commits and contents.
func (f *fakeForge) gitea() http.Handler {
	mux := http.NewServeMux()
	const repo = "/api/v1/repos/team/shop"
	mux.HandleFunc("GET "+repo+"/branches/{branch...}", func(w http.ResponseWriter, r *http.Request) {
		id, ok := f.commit("refs/heads/" + r.PathValue("branch"))
		if !ok {
			refuse(w, http.StatusNotFound, "The target couldn't be found.")
			return
		}
		answer(w, http.StatusOK, map[string]any{"commit": map[string]string{"id": id}})
	})
	mux.HandleFunc("GET "+repo+"/git/commits/{ref...}", func(w http.ResponseWriter, r *http.Request) {
		id, ok := f.commit(r.PathValue("ref"))
		if !ok {
			refuse(w, http.StatusNotFound, "The target couldn't be found.")
			return
		}
		answer(w, http.StatusOK, map[string]string{"sha": id})
	})
	mux.HandleFunc("GET "+repo+"/commits", func(w http.ResponseWriter, r *http.Request) { f.list(w, r, "limit") })
	mux.HandleFunc("GET "+repo+"/contents/{path...}", func(w http.ResponseWriter, r *http.Request) {
		switch _, kind, id := f.at(r.FormValue("ref"), r.PathValue("path")); kind {
		case "blob":
			answer(w, http.StatusOK, map[string]string{"type": "file", "sha": id, "encoding": "base64", "content": f.content(id)})
		case "tree":
			answer(w, http.StatusOK, []map[string]string{{"type": "file"}})
		default:
			refuse(w, http.StatusNotFound, "The target couldn't be found.")
		}
	})
	mux.HandleFunc("POST "+repo+"/contents", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Branch, Message string
			Author          struct{ Name, Email string }
			Files           []fakeChange
		}
		_ = json.NewDecoder(r.Body).Decode(&in)
		sha, problem := f.apply(in.Branch, in.Message, in.Author.Name, in.Author.Email, in.Files, func(_ string, c fakeChange, id string) string {
			if c.SHA != id {
				return fmt.Sprintf("sha does not match [given: %s, expected: %s]", c.SHA, id)
			}
			return ""
		})
		if problem != "" {
			refuse(w, http.StatusUnprocessableEntity, problem)
			return
		}
		answer(w, http.StatusCreated, map[string]any{"commit": map[string]string{"sha": sha}})
	})
	f.giteaPulls(mux)
	return mux
}

// list answers with a history as GitHub does.
func (f *fakeForge) list(w http.ResponseWriter, r *http.Request, most string) {
	all := []map[string]any{}
	for _, c := range f.log(r.FormValue("sha"), r.FormValue(most)) {
		all = append(all, map[string]any{"sha": c[0], "commit": map[string]any{"message": c[3], "author": map[string]string{"name": c[1], "email": c[2]}}})
	}
	answer(w, http.StatusOK, all)
}

// gitHub serves the Git database of /repos/{owner}/{repo}.
func (f *fakeForge) gitHub() http.Handler {
	mux := http.NewServeMux()
	const repo = "/api/v3/repos/team/shop"
	mux.HandleFunc("GET "+repo+"/git/ref/heads/{branch...}", func(w http.ResponseWriter, r *http.Request) {
		id, ok := f.commit("refs/heads/" + r.PathValue("branch"))
		if !ok {
			refuse(w, http.StatusNotFound, "Not Found")
			return
		}
		answer(w, http.StatusOK, map[string]any{"object": map[string]string{"sha": id, "type": "commit"}})
	})
	mux.HandleFunc("GET "+repo+"/commits/{ref}", func(w http.ResponseWriter, r *http.Request) {
		id, ok := f.commit(r.PathValue("ref"))
		if !ok {
			refuse(w, http.StatusUnprocessableEntity, "No commit found for SHA: "+r.PathValue("ref"))
			return
		}
		answer(w, http.StatusOK, map[string]string{"sha": id})
	})
	mux.HandleFunc("GET "+repo+"/commits", func(w http.ResponseWriter, r *http.Request) { f.list(w, r, "per_page") })
	mux.HandleFunc("GET "+repo+"/git/trees/{tree}", func(w http.ResponseWriter, r *http.Request) {
		out, ok := f.git("", nil, "ls-tree", r.PathValue("tree"))
		if !ok {
			refuse(w, http.StatusNotFound, "Not Found")
			return
		}
		entries := []map[string]string{}
		for line := range strings.SplitSeq(out, "\n") {
			head, name, _ := strings.Cut(line, "\t")
			if fields := strings.Fields(head); len(fields) == 3 {
				entries = append(entries, map[string]string{"path": name, "mode": fields[0], "type": fields[1], "sha": fields[2]})
			}
		}
		answer(w, http.StatusOK, map[string]any{"sha": r.PathValue("tree"), "tree": entries})
	})
	mux.HandleFunc("GET "+repo+"/git/blobs/{blob}", func(w http.ResponseWriter, r *http.Request) {
		text := f.content(r.PathValue("blob")) // in lines, as GitHub sends it
		var lines bytes.Buffer
		for part := range slices.Chunk([]byte(text), 60) {
			lines.Write(append(part, '\n'))
		}
		answer(w, http.StatusOK, map[string]string{"content": lines.String(), "encoding": "base64"})
	})
	mux.HandleFunc("POST "+repo+"/git/blobs", func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Content string }
		_ = json.NewDecoder(r.Body).Decode(&in)
		answer(w, http.StatusCreated, map[string]string{"sha": f.blob(in.Content)})
	})
	mux.HandleFunc("POST "+repo+"/git/trees", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Base string `json:"base_tree"`
			Tree []struct{ Path, Mode, SHA string }
		}
		_ = json.NewDecoder(r.Body).Decode(&in)
		var entries [][3]string
		for _, e := range in.Tree {
			entries = append(entries, [3]string{e.Mode, e.SHA, e.Path})
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		tree, ok := f.tree(in.Base, entries)
		if !ok {
			refuse(w, http.StatusUnprocessableEntity, "tree.path is invalid")
			return
		}
		answer(w, http.StatusCreated, map[string]string{"sha": tree})
	})
	mux.HandleFunc("POST "+repo+"/git/commits", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Message, Tree string
			Parents       []string
			Author        struct{ Name, Email string }
		}
		_ = json.NewDecoder(r.Body).Decode(&in)
		sha, ok := f.write(in.Parents[0], in.Message, in.Author.Name, in.Author.Email, in.Tree)
		if !ok {
			refuse(w, http.StatusUnprocessableEntity, "Tree SHA does not exist")
			return
		}
		answer(w, http.StatusCreated, map[string]string{"sha": sha})
	})
	mux.HandleFunc("PATCH "+repo+"/git/refs/heads/{branch...}", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			SHA   string
			Force bool
		}
		_ = json.NewDecoder(r.Body).Decode(&in)
		f.mu.Lock()
		defer f.mu.Unlock()
		head, _ := f.commit("refs/heads/" + r.PathValue("branch"))
		_, forward := f.git("", nil, "merge-base", "--is-ancestor", head, in.SHA)
		switch {
		case !f.allowed():
			refuse(w, http.StatusUnprocessableEntity, "Repository rule violations found")
		case !forward && !in.Force:
			refuse(w, http.StatusUnprocessableEntity, "Update is not a fast forward")
		default:
			if _, ok := f.git("", nil, "update-ref", "refs/heads/"+r.PathValue("branch"), in.SHA, head); !ok {
				refuse(w, http.StatusUnprocessableEntity, "Reference cannot be updated")
				return
			}
			answer(w, http.StatusOK, map[string]any{"object": map[string]string{"sha": in.SHA}})
		}
	})
	f.gitHubPulls(mux)
	return mux
}

// setupForge is a repository behind an interface.
func setupForge(t *testing.T, forge string) *server {
	t.Helper()
	if forge == Plain {
		return setup(t)
	}
	f := &fakeForge{index: filepath.Join(t.TempDir(), "index")}
	handler := map[string]func() http.Handler{GitLab: f.gitLab, GitHub: f.gitHub, Gitea: f.gitea, Bitbucket: f.bitbucket}[forge]()
	want := map[string]string{GitLab: "Bearer secret", GitHub: "Bearer secret", Gitea: "token secret", Bitbucket: "Basic " + encode([]byte("lockstep:secret"))}[forge]
	s := setup(t)
	f.dir, s.fake = s.dir, f
	s.api = func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != want {
			refuse(w, http.StatusUnauthorized, "Bad credentials")
			return
		}
		handler.ServeHTTP(w, r)
	}
	s.forge.credentials.all[0].Forge = forge
	if forge != GitLab {
		s.url = strings.Replace(s.url, "/shop.git", "/team/shop.git", 1)
	}
	return s
}
