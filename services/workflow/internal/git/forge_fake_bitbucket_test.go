package git

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// likeBitbucket is a pull request as Bitbucket Cloud shows it, with abbreviated ids of commits.
func (f *fakeForge) likeBitbucket(p *fakePull) map[string]any {
	short := func(id string) map[string]string {
		return map[string]string{"type": "commit", "hash": id[:min(12, len(id))]}
	}
	end := func(branch, id string) map[string]any {
		return map[string]any{
			"branch": map[string]string{"name": branch}, "commit": short(id), "repository": map[string]string{"full_name": "team/shop"},
		}
	}
	d := map[string]any{
		"id": p.number, "title": p.title, "description": p.body, "state": "OPEN", "merge_commit": nil, "closed_by": nil,
		"source": end(p.branch, f.head(p)), "destination": end(p.into, ""),
		"links": map[string]any{"html": map[string]string{"href": fmt.Sprintf("https://forge/pulls/%d", p.number)}},
	}
	switch p.state {
	case "merged":
		d["state"], d["merge_commit"], d["closed_by"] = "MERGED", short(p.merged), map[string]string{"nickname": p.by}
	case "closed":
		d["state"], d["closed_by"] = "DECLINED", map[string]string{"nickname": p.by}
	}
	return d
}

// complain refuses as Bitbucket does.
func complain(w http.ResponseWriter, status int, message string) {
	answer(w, status, map[string]any{"type": "error", "error": map[string]string{"message": message}})
}

// bitbucket serves https://developer.atlassian.com/cloud/bitbucket/rest: pull requests, and statuses of commits.
func (f *fakeForge) bitbucket() http.Handler {
	mux := http.NewServeMux()
	const repo = "/2.0/repositories/team/shop"
	mux.HandleFunc("GET "+repo+"/commit/{id}", func(w http.ResponseWriter, r *http.Request) {
		id, ok := f.commit(r.PathValue("id"))
		if !ok {
			complain(w, http.StatusNotFound, "Commit not found")
			return
		}
		answer(w, http.StatusOK, map[string]string{"hash": id})
	})
	mux.HandleFunc("GET "+repo+"/pullrequests", func(w http.ResponseWriter, r *http.Request) {
		all := []any{}
		for i := len(f.pulls) - 1; i >= 0; i-- {
			p := f.pulls[i]
			condition := fmt.Sprintf("source.branch.name=%q AND destination.branch.name=%q", p.branch, p.into)
			states := strings.Join(r.URL.Query()["state"], " ")
			if d := f.likeBitbucket(p); r.FormValue("q") == condition && strings.Contains(states, fmt.Sprint(d["state"])) {
				all = append(all, d)
			}
		}
		answer(w, http.StatusOK, map[string]any{"pagelen": 50, "values": all})
	})
	mux.HandleFunc("GET "+repo+"/pullrequests/{number}", func(w http.ResponseWriter, r *http.Request) {
		if p := f.pull(w, r); p != nil {
			answer(w, http.StatusOK, f.likeBitbucket(p))
		}
	})
	mux.HandleFunc("POST "+repo+"/pullrequests", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Title, Description  string
			Source, Destination struct{ Branch struct{ Name string } }
		}
		_ = json.NewDecoder(r.Body).Decode(&in)
		p, _, problem := f.opened(in.Source.Branch.Name, in.Destination.Branch.Name, in.Title, in.Description)
		if problem != "" {
			complain(w, http.StatusBadRequest, problem)
			return
		}
		answer(w, http.StatusCreated, f.likeBitbucket(p))
	})
	mux.HandleFunc("PUT "+repo+"/pullrequests/{number}", f.rewritten)
	mux.HandleFunc("POST "+repo+"/pullrequests/{number}/decline", func(w http.ResponseWriter, r *http.Request) {
		if p := f.pull(w, r); p != nil {
			f.end(p, "lockstep")
			answer(w, http.StatusOK, f.likeBitbucket(p))
		}
	})
	mux.HandleFunc("POST "+repo+"/pullrequests/{number}/merge", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Message  string
			Strategy string `json:"merge_strategy"`
		}
		_ = json.NewDecoder(r.Body).Decode(&in)
		p := f.pull(w, r)
		if p == nil {
			return
		}
		if _, problem := f.mergePull(p, "", in.Message, "lockstep", in.Strategy == "squash"); problem != "" {
			complain(w, http.StatusBadRequest, problem)
			return
		}
		answer(w, http.StatusOK, f.likeBitbucket(p))
	})
	mux.HandleFunc("GET "+repo+"/commit/{sha}/statuses", func(w http.ResponseWriter, r *http.Request) {
		all := []map[string]string{}
		for name, state := range f.reported[r.PathValue("sha")] {
			all = append(all, map[string]string{"key": name, "state": map[string]string{
				"success": "SUCCESSFUL", "pending": "INPROGRESS", "failure": "FAILED",
			}[state], "url": "https://ci/" + name})
		}
		answer(w, http.StatusOK, map[string]any{"values": all})
	})
	return mux
}

// rewritten changes the text of a pull request.
func (f *fakeForge) rewritten(w http.ResponseWriter, r *http.Request) {
	p := f.pull(w, r)
	if p == nil {
		return
	}
	var in struct{ Title, Description string }
	_ = json.NewDecoder(r.Body).Decode(&in)
	p.title, p.body = in.Title, in.Description
	answer(w, http.StatusOK, f.likeBitbucket(p))
}
