package git

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// bitbucket is the API of Bitbucket Cloud, for pull requests and statuses of commits. Files are read and committed over Git's protocol: its
// interface has no condition for a commit.
type bitbucket struct {
	rest
	unwritten
}

var _ api = bitbucket{}

// bitbucketAccount is the user name that Git takes with an access token of Bitbucket, which its interface takes as a bearer token.
const bitbucketAccount = "x-token-auth"

// bitbucketLogin is what its interface is shown: an access token, or the e-mail address of an account with an API token.
func bitbucketLogin(username, password string) string {
	if username == "" || username == bitbucketAccount {
		return "Bearer " + password
	}
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(username+":"+password))
}

// unwritten are the parts of an interface that are not used for a forge.
type unwritten struct{ url string }

func (u unwritten) no(what string) error {
	return fault.Because(unsupportedError{}, fault.Refused,
		"found %s at a Bitbucket, for which %s is not supported; expected a repository at GitHub, GitLab or Gitea", u.url, what)
}

func (u unwritten) head(context.Context, string) (string, error) { return "", u.no("its interface") }

func (u unwritten) resolve(context.Context, string) (string, error) { return "", u.no("its interface") }

func (u unwritten) history(context.Context, string, int) ([]logged, error) { //nolint:unparam // of the interface
	return nil, u.no("its interface")
}

func (u unwritten) stat(context.Context, string, string) (entry, error) { //nolint:unparam // of the interface
	return entry{}, u.no("its interface")
}

func (u unwritten) read(context.Context, string, string, entry) ([]byte, error) { //nolint:unparam // of the interface
	return nil, u.no("its interface")
}

func (u unwritten) add(context.Context, addition) (string, error) { return "", u.no("its interface") }

func (u unwritten) deployment(context.Context, activity.DeploymentRequest) (deployed, error) { //nolint:unparam // of the interface
	return deployed{}, u.no("a deployment")
}

func (u unwritten) addDeployment(context.Context, activity.DeploymentRequest) (deployed, error) { //nolint:unparam // of the interface
	return deployed{}, u.no("a deployment")
}

func (u unwritten) deploymentState(context.Context, int64, activity.DeploymentRequest) error {
	return u.no("a deployment")
}

func (unwritten) shows(deployed, activity.DeploymentRequest) bool { return false }

func (u unwritten) reading(context.Context, int64) (reading, error) { //nolint:unparam // of the interface
	return reading{}, u.no("a plan on a pull request")
}

func (u unwritten) changed(context.Context, int64, int) ([]string, int, int, error) { //nolint:unparam // of the interface
	return nil, 0, 0, u.no("a plan on a pull request")
}

func (u unwritten) message(context.Context, int64, string) (string, error) {
	return "", u.no("a plan on a pull request")
}

func (u unwritten) mayWrite(context.Context, string) (bool, error) {
	return false, u.no("a plan on a pull request")
}

func (u unwritten) account(context.Context) (int64, error) { return 0, u.no("a comment") }

func (u unwritten) comments(context.Context, int64) ([]comment, error) { return nil, u.no("a comment") } //nolint:unparam // of the interface

func (u unwritten) addComment(context.Context, int64, string) (comment, error) { //nolint:unparam // of the interface
	return comment{}, u.no("a comment")
}

func (u unwritten) editComment(context.Context, int64, int64, string) error {
	return u.no("a comment")
}

func (u unwritten) removeComment(context.Context, int64, int64) error { return u.no("a comment") }

// bitbucketEnd is one end of a pull request.
type bitbucketEnd struct {
	Branch     struct{ Name string }
	Commit     struct{ Hash string }
	Repository struct {
		Name string `json:"full_name"`
	}
}

// bitbucketPull is a pull request. The ids of commits in it are abbreviated.
type bitbucketPull struct {
	ID                  int64
	State               string
	Source, Destination bitbucketEnd
	Merge               *struct{ Hash string } `json:"merge_commit"`
	ClosedBy            *struct {
		Nickname string
		Name     string `json:"display_name"`
	} `json:"closed_by"`
	Links struct{ HTML struct{ Href string } }
}

// whole is a pull request with whole ids of commits.
func (b bitbucket) whole(ctx context.Context, p bitbucketPull) (found activity.Proposal, err error) {
	found = activity.Proposal{
		Number: p.ID, URL: p.Links.HTML.Href, State: activity.ProposalOpen, Branch: p.Source.Branch.Name, Into: p.Destination.Branch.Name,
	}
	if !strings.EqualFold(p.Source.Repository.Name, b.project) { // of a fork, whose branches anyone may name; that of a deleted one is empty
		found.Branch = fmt.Sprintf("%s of %s", found.Branch, cmp.Or(p.Source.Repository.Name, "another repository"))
	} else if found.Head, err = b.commit(ctx, p.Source.Commit.Hash); err != nil {
		return found, err
	}
	if p.ClosedBy != nil && p.State != "OPEN" {
		found.By = cmp.Or(p.ClosedBy.Nickname, p.ClosedBy.Name)
	}
	switch p.State {
	case "OPEN":
	case "MERGED":
		found.State, found.Commit = activity.ProposalMerged, found.Head
		if p.Merge != nil {
			found.Commit, err = b.commit(ctx, p.Merge.Hash)
		}
	default: // DECLINED and SUPERSEDED
		found.State = activity.ProposalClosed
	}
	return found, err
}

// commit is the whole id of a commit; "" for none.
func (b bitbucket) commit(ctx context.Context, id string) (string, error) {
	if id == "" || commitID.MatchString(id) {
		return id, nil
	}
	var c struct{ Hash string }
	err := b.ask(ctx, http.MethodGet, "/commit/"+url.PathEscape(id)+"?fields=hash", nil, &c)
	if err == nil && (!commitID.MatchString(c.Hash) || !strings.HasPrefix(c.Hash, id)) {
		err = fault.New(fault.NotFound, "%s does not answer like %s", b.rest.url, b.forge)
	}
	return c.Hash, missing(err, "commit %s does not exist in %s", id, b.rest.url)
}

func (b bitbucket) proposal(ctx context.Context, number int64) (activity.Proposal, error) {
	var p bitbucketPull
	if err := b.ask(ctx, http.MethodGet, fmt.Sprintf("/pullrequests/%d", number), nil, &p); err != nil {
		return activity.Proposal{}, missing(err, "pull request %d does not exist in %s", number, b.rest.url)
	}
	return b.whole(ctx, p)
}

// quoted is a text in a condition of its lists.
func quoted(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}

func (b bitbucket) proposed(ctx context.Context, branch, into string) (activity.Proposal, bool, error) {
	condition := "source.branch.name=" + quoted(branch) + " AND destination.branch.name=" + quoted(into)
	var all struct{ Values []bitbucketPull }
	err := b.ask(ctx, http.MethodGet, "/pullrequests?state=OPEN&state=MERGED&state=DECLINED&state=SUPERSEDED&sort=-created_on&pagelen=50&q="+
		url.QueryEscape(condition), nil, &all)
	for _, p := range all.Values {
		if strings.EqualFold(p.Source.Repository.Name, b.project) && p.Source.Branch.Name == branch && p.Destination.Branch.Name == into {
			found, err := b.whole(ctx, p)
			return found, err == nil, err
		}
	}
	return activity.Proposal{}, false, err
}

func (b bitbucket) open(ctx context.Context, d draft) (activity.Proposal, error) {
	end := func(branch string) any { return map[string]any{"branch": map[string]string{"name": branch}} }
	var made bitbucketPull
	err := b.ask(ctx, http.MethodPost, "/pullrequests", map[string]any{
		"title": d.title, "description": d.body, "source": end(d.branch), "destination": end(d.into), "close_source_branch": false,
	}, &made)
	if err != nil {
		return activity.Proposal{}, err
	}
	return b.whole(ctx, made)
}

func (b bitbucket) edit(ctx context.Context, number int64, d draft) error {
	return b.ask(ctx, http.MethodPut, fmt.Sprintf("/pullrequests/%d", number), map[string]string{"title": d.title, "description": d.body}, nil)
}

func (b bitbucket) close(ctx context.Context, number int64) error {
	return b.ask(ctx, http.MethodPost, fmt.Sprintf("/pullrequests/%d/decline", number), nil, nil)
}

// merge looks at the head once more: Bitbucket takes no condition with a merge. What was merged is compared after it.
func (b bitbucket) merge(ctx context.Context, m merging) error {
	now, err := b.proposal(ctx, m.number)
	if err != nil {
		return err
	}
	if now.Head != m.head {
		return fault.New(fault.Refused, "%s: the head of pull request %d is %s, expected %s", b.rest.url, m.number, now.Head, m.head)
	}
	strategy := "merge_commit"
	if m.method == activity.MergeSquash {
		strategy = "squash"
	}
	return b.ask(ctx, http.MethodPost, fmt.Sprintf("/pullrequests/%d/merge", m.number), map[string]any{
		"message": m.title + "\n\n" + m.body, "merge_strategy": strategy, "close_source_branch": false,
	}, nil)
}

// bitbucketStatus is a status of a commit: key is what there is one of for each commit, and name what people see.
type bitbucketStatus struct {
	Key         string `json:"key"`
	Name        string `json:"name,omitempty"`
	State       string `json:"state"`
	URL         string `json:"url"`
	Description string `json:"description"`
}

// statuses are all of a commit by their names, and by their keys where these are others.
func (b bitbucket) statuses(ctx context.Context, commit string) (all []activity.CommitStatus, err error) {
	err = b.pages(100, func(page int) (int, error) {
		var found struct{ Values []bitbucketStatus }
		err := b.ask(ctx, http.MethodGet, fmt.Sprintf("/commit/%s/statuses?pagelen=100&page=%d", commit, page), nil, &found)
		for _, s := range found.Values {
			one := activity.CommitStatus{Name: cmp.Or(s.Name, s.Key), State: bitbucketState(s.State), URL: s.URL, Description: s.Description}
			all = append(all, one)
			if one.Name != s.Key {
				one.Name = s.Key
				all = append(all, one)
			}
		}
		return len(found.Values), err
	})
	return all, err
}

func bitbucketState(state string) string {
	switch state {
	case "SUCCESSFUL":
		return activity.StatusSuccess
	case "INPROGRESS":
		return activity.StatusPending
	default: // FAILED and STOPPED, and what is not known: it must not let anything pass
		return activity.StatusFailure
	}
}

func (b bitbucket) commitStatuses(ctx context.Context, commit string) ([]activity.CommitStatus, error) {
	return b.statuses(ctx, commit)
}

// mostKey is how long a key may be.
const mostKey = 40

func (b bitbucket) setStatus(ctx context.Context, commit string, s activity.CommitStatus) error {
	key := s.Name
	if len(key) > mostKey {
		digest := sha256.Sum256([]byte(s.Name))
		key = strings.ToValidUTF8(key[:27], "") + "-" + hex.EncodeToString(digest[:6])
	}
	state := map[string]string{activity.StatusPending: "INPROGRESS", activity.StatusSuccess: "SUCCESSFUL"}[s.State]
	return b.ask(ctx, http.MethodPost, "/commit/"+commit+"/statuses/build", bitbucketStatus{
		Key: key, Name: s.Name, State: cmp.Or(state, "FAILED"), URL: cmp.Or(s.URL, b.rest.url), Description: s.Description,
	}, nil)
}

// has compares what the forge keeps: a status without an address was given that of the repository.
func (b bitbucket) has(known, wanted activity.CommitStatus) bool {
	wanted.URL = cmp.Or(wanted.URL, b.rest.url)
	return same(known, wanted)
}
