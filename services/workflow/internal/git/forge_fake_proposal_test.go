package git

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// fakePull is a pull request, or a merge request.
type fakePull struct {
	number                   int
	branch, into             string
	title, body              string
	state, by, merged, ended string
}

// opened makes a pull request, or says why not.
func (f *fakeForge) opened(branch, into, title, body string) (p *fakePull, status int, problem string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.pulls {
		if p.branch == branch && p.into == into && p.state == "open" {
			return nil, http.StatusConflict, "another open one exists"
		}
	}
	for _, b := range []string{branch, into} {
		if _, ok := f.commit("refs/heads/" + b); !ok {
			return nil, http.StatusUnprocessableEntity, "no branch " + b
		}
	}
	p = &fakePull{number: len(f.pulls) + 1, branch: branch, into: into, title: title, body: body, state: "open"}
	f.pulls = append(f.pulls, p)
	return p, 0, ""
}

func (f *fakeForge) head(p *fakePull) string {
	if p.ended != "" {
		return p.ended
	}
	id, _ := f.commit("refs/heads/" + p.branch)
	return id
}

// end closes a pull request.
func (f *fakeForge) end(p *fakePull, by string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p.ended, p.state, p.by = f.head(p), "closed", by
}

// mergePull merges as forges do: a merge of the trees, on top of wherever the branch is.
func (f *fakeForge) mergePull(p *fakePull, head, message, by string, squash bool) (status int, problem string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.head(p)
	switch {
	case p.state != "open":
		return http.StatusMethodNotAllowed, "it is not open"
	case head != "" && head != now:
		return http.StatusConflict, "head was modified"
	case f.requires != "" && f.reported[now][f.requires] != "success":
		return http.StatusMethodNotAllowed, "Not all required status checks successful"
	}
	base, _ := f.commit("refs/heads/" + p.into)
	tree, ok := f.git("", nil, "merge-tree", "--write-tree", base, now)
	if !ok {
		return http.StatusConflict, "merge conflict"
	}
	args := []string{"commit-tree", tree, "-p", base}
	if !squash {
		args = append(args, "-p", now)
	}
	who := []string{"GIT_AUTHOR_NAME=forge", "GIT_AUTHOR_EMAIL=f@example.com", "GIT_COMMITTER_NAME=forge", "GIT_COMMITTER_EMAIL=f@example.com"}
	made, _ := f.git(message, who, append(args, "-F", "-")...)
	if _, ok := f.git("", nil, "update-ref", "refs/heads/"+p.into, made, base); !ok {
		return http.StatusConflict, "the branch has moved"
	}
	p.state, p.by, p.merged, p.ended = "merged", by, made, now
	return 0, ""
}

func (f *fakeForge) pull(w http.ResponseWriter, r *http.Request) *fakePull {
	n, _ := strconv.Atoi(r.PathValue("number"))
	if n < 1 || n > len(f.pulls) {
		refuse(w, http.StatusNotFound, "Not Found")
		return nil
	}
	return f.pulls[n-1]
}

// account is a user as GitHub and Gitea show it; bot is an App.
func account(login string) map[string]any {
	if login == "bot" {
		return map[string]any{"login": login, "id": 5, "type": "Bot"}
	}
	return map[string]any{"login": login, "id": 9, "type": "User"}
}

// user answers whose the credential is.
func (f *fakeForge) user(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]any{"id": cmp.Or(f.own, 5)})
}

// likeGitHub is a pull request as GitHub and Gitea show it.
func (f *fakeForge) likeGitHub(p *fakePull) map[string]any {
	d := map[string]any{
		"number": p.number, "html_url": fmt.Sprintf("https://forge/pulls/%d", p.number), "state": "open", "merged_at": nil,
		"head": map[string]string{"ref": p.branch, "sha": f.head(p)}, "base": map[string]string{"ref": p.into},
		"merge_commit_sha": "0000000000000000000000000000000000000000", // a trial of GitHub's, before a merge
	}
	switch p.state {
	case "merged":
		d["state"], d["merged_at"], d["merge_commit_sha"] = "closed", "2026-01-01T00:00:00Z", p.merged
		d["merged_by"] = account(p.by)
	case "closed":
		d["state"] = "closed"
	}
	return d
}

// edited changes a pull request as GitHub and Gitea let it be changed.
func (f *fakeForge) edited(w http.ResponseWriter, r *http.Request) {
	p := f.pull(w, r)
	if p == nil {
		return
	}
	var in struct{ Title, Body, State string }
	_ = json.NewDecoder(r.Body).Decode(&in)
	if in.State == "closed" {
		f.end(p, "lockstep")
	}
	if in.Title != "" {
		p.title, p.body = in.Title, in.Body
	}
	answer(w, http.StatusOK, f.likeGitHub(p))
}

// created opens a pull request as GitHub and Gitea do.
func (f *fakeForge) created(w http.ResponseWriter, r *http.Request) {
	var in struct{ Title, Body, Head, Base string }
	_ = json.NewDecoder(r.Body).Decode(&in)
	p, status, problem := f.opened(in.Head, in.Base, in.Title, in.Body)
	if problem != "" {
		refuse(w, status, problem)
		return
	}
	answer(w, http.StatusCreated, f.likeGitHub(p))
}

func (f *fakeForge) gitHubPulls(mux *http.ServeMux) {
	const repo = "/api/v3/repos/team/shop"
	mux.HandleFunc("GET /api/v3/user", f.user)
	mux.HandleFunc("GET "+repo+"/pulls", func(w http.ResponseWriter, r *http.Request) {
		all := []any{}
		for i := len(f.pulls) - 1; i >= 0; i-- {
			if p := f.pulls[i]; "team:"+p.branch == r.FormValue("head") && p.into == r.FormValue("base") {
				all = append(all, f.likeGitHub(p))
			}
		}
		answer(w, http.StatusOK, all)
	})
	mux.HandleFunc("GET "+repo+"/pulls/{number}", func(w http.ResponseWriter, r *http.Request) {
		if p := f.pull(w, r); p != nil {
			answer(w, http.StatusOK, f.likeGitHub(p))
		}
	})
	mux.HandleFunc("GET "+repo+"/issues/{number}", func(w http.ResponseWriter, r *http.Request) {
		if p := f.pull(w, r); p != nil {
			answer(w, http.StatusOK, map[string]any{"closed_by": account(p.by)})
		}
	})
	mux.HandleFunc("POST "+repo+"/pulls", f.created)
	mux.HandleFunc("PATCH "+repo+"/pulls/{number}", f.edited)
	mux.HandleFunc("PUT "+repo+"/pulls/{number}/merge", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			SHA     string
			Method  string `json:"merge_method"`
			Title   string `json:"commit_title"`
			Message string `json:"commit_message"`
		}
		_ = json.NewDecoder(r.Body).Decode(&in)
		if p := f.pull(w, r); p != nil {
			f.merges(w, p, in.SHA, in.Title+"\n\n"+in.Message, in.Method == "squash")
		}
	})
	mux.HandleFunc("GET "+repo+"/commits/{sha}/status", func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusOK, map[string]any{"statuses": f.statusesOf(r.PathValue("sha"), "context", "state")})
	})
	mux.HandleFunc("GET "+repo+"/commits/{sha}/check-runs", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]any{"check_runs": []map[string]string{
			{"name": "action", "status": "in_progress", "html_url": "https://forge/run"},
			{"name": "done", "status": "completed", "conclusion": "neutral"},
			{"name": "gone", "status": "completed", "conclusion": "timed_out"},
		}})
	})
}

// merges answers a request to merge.
func (f *fakeForge) merges(w http.ResponseWriter, p *fakePull, head, message string, squash bool) {
	if status, problem := f.mergePull(p, head, message, "lockstep", squash); problem != "" {
		refuse(w, status, problem)
		return
	}
	answer(w, http.StatusOK, map[string]any{"merged": true, "sha": p.merged})
}

func (f *fakeForge) statusesOf(commit, name, state string) []map[string]string {
	all := []map[string]string{}
	for n, s := range f.reported[commit] {
		all = append(all, map[string]string{name: n, state: s, "target_url": "https://ci/" + n})
	}
	return all
}

func (f *fakeForge) giteaPulls(mux *http.ServeMux) {
	const repo = "/api/v1/repos/team/shop"
	mux.HandleFunc("GET /api/v1/user", f.user)
	mux.HandleFunc("GET "+repo+"/pulls/{base}/{head...}", func(w http.ResponseWriter, r *http.Request) {
		for _, p := range f.pulls {
			if p.branch == r.PathValue("head") && p.into == r.PathValue("base") {
				answer(w, http.StatusOK, f.likeGitHub(p))
				return
			}
		}
		refuse(w, http.StatusNotFound, "The target couldn't be found.")
	})
	mux.HandleFunc("GET "+repo+"/pulls/{number}", func(w http.ResponseWriter, r *http.Request) {
		if p := f.pull(w, r); p != nil {
			answer(w, http.StatusOK, f.likeGitHub(p))
		}
	})
	mux.HandleFunc("POST "+repo+"/pulls", f.created)
	mux.HandleFunc("PATCH "+repo+"/pulls/{number}", f.edited)
	mux.HandleFunc("POST "+repo+"/pulls/{number}/merge", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Do, MergeTitleField, MergeMessageField string
			Head                                   string `json:"head_commit_id"`
		}
		_ = json.NewDecoder(r.Body).Decode(&in)
		if p := f.pull(w, r); p != nil {
			f.merges(w, p, in.Head, in.MergeTitleField+"\n\n"+in.MergeMessageField, in.Do == "squash")
		}
	})
	mux.HandleFunc("GET "+repo+"/commits/{sha}/status", func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusOK, map[string]any{"statuses": f.statusesOf(r.PathValue("sha"), "context", "status")})
	})
}

func (f *fakeForge) likeGitLab(p *fakePull) map[string]any {
	d := map[string]any{
		"iid": p.number, "web_url": fmt.Sprintf("https://forge/pulls/%d", p.number), "state": strings.Replace(p.state, "open", "opened", 1),
		"sha": f.head(p), "source_branch": p.branch, "target_branch": p.into, "merge_commit_sha": nil, "squash_commit_sha": nil,
	}
	if p.state == "merged" {
		d["merge_commit_sha"], d["merge_user"] = p.merged, map[string]any{"username": p.by, "id": 9}
	}
	if p.state == "closed" {
		d["closed_by"] = map[string]any{"username": p.by, "id": 9}
	}
	return d
}

func (f *fakeForge) gitLabPulls(mux *http.ServeMux) {
	const requests = "/api/v4/projects/shop/merge_requests"
	mux.HandleFunc("GET /api/v4/user", f.user)
	mux.HandleFunc("GET "+requests, func(w http.ResponseWriter, r *http.Request) {
		all := []any{}
		for i := len(f.pulls) - 1; i >= 0; i-- {
			if p := f.pulls[i]; p.branch == r.FormValue("source_branch") && p.into == r.FormValue("target_branch") {
				all = append(all, f.likeGitLab(p))
			}
		}
		answer(w, http.StatusOK, all)
	})
	mux.HandleFunc("GET "+requests+"/{number}", func(w http.ResponseWriter, r *http.Request) {
		if p := f.pull(w, r); p != nil {
			answer(w, http.StatusOK, f.likeGitLab(p))
		}
	})
	mux.HandleFunc("POST "+requests, func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Title, Description string
			Source             string `json:"source_branch"`
			Target             string `json:"target_branch"`
		}
		_ = json.NewDecoder(r.Body).Decode(&in)
		p, status, problem := f.opened(in.Source, in.Target, in.Title, in.Description)
		if problem != "" {
			refuse(w, status, problem)
			return
		}
		answer(w, http.StatusCreated, f.likeGitLab(p))
	})
	mux.HandleFunc("PUT "+requests+"/{number}", func(w http.ResponseWriter, r *http.Request) {
		p := f.pull(w, r)
		if p == nil {
			return
		}
		var in struct {
			Title, Description string
			Event              string `json:"state_event"`
		}
		_ = json.NewDecoder(r.Body).Decode(&in)
		if in.Event == "close" {
			f.end(p, "lockstep")
		}
		if in.Title != "" {
			p.title, p.body = in.Title, in.Description
		}
		answer(w, http.StatusOK, f.likeGitLab(p))
	})
	mux.HandleFunc("PUT "+requests+"/{number}/merge", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			SHA           string
			Squash        bool
			Message       string `json:"merge_commit_message"`
			SquashMessage string `json:"squash_commit_message"`
		}
		_ = json.NewDecoder(r.Body).Decode(&in)
		if p := f.pull(w, r); p != nil {
			f.merges(w, p, in.SHA, in.Message, in.Squash)
		}
	})
	mux.HandleFunc("GET /api/v4/projects/shop/repository/commits/{sha}/statuses", func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusOK, f.statusesOf(r.PathValue("sha"), "name", "status"))
	})
}
