package git

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// deployer is what a forge's interface can do about deployments.
type deployer interface {
	// deployment returns a deployment by its number, or looks it up for 0: by its key where the forge keeps one, and else among those of the
	// commit and the environment that have not ended. The number is 0 if there is none.
	deployment(ctx context.Context, r activity.DeploymentRequest) (deployed, error)
	// addDeployment makes a deployment, which is under way.
	addDeployment(ctx context.Context, r activity.DeploymentRequest) (deployed, error)
	// deploymentState changes the state of a deployment.
	deploymentState(ctx context.Context, number int64, r activity.DeploymentRequest) error
	// shows reports whether a deployment is shown as a request wants it, as far as a forge of the kind can show it.
	shows(known deployed, r activity.DeploymentRequest) bool
}

// deployed is a deployment as its forge has it. Description and URL are empty where a forge has none.
type deployed struct {
	number                  int64
	state, description, url string
	// address is where what is deployed is reached.
	address string
}

// unsupportedError reports that a forge has no deployments. It is inside of an error of the class Refused.
type unsupportedError struct{}

// Error implements error.
func (unsupportedError) Error() string { return "no deployments" }

// SetDeployment implements activity.Forge. A deployment is ended by its number only: a forge without keys finds those that have not ended,
// so a caller that does not know the number, because an answer was lost, would have it made a second time.
func (f *Forge) SetDeployment(ctx context.Context, r activity.DeploymentRequest) (report activity.DeploymentReport, err error) {
	if !commitID.MatchString(r.Commit) {
		return report, invalid("commit", "found %q, expected the id of a commit", r.Commit)
	}
	r.Description = shortened(r.Description)
	var seen allowance
	err = f.propose(ctx, r.Organization, r.RepoURL, func(ctx context.Context, h *hosted) error {
		report = activity.DeploymentReport{}
		err := h.deploy(ctx, r, &report)
		seen = *h.seen
		return err
	})
	if isUnsupported(err) {
		report.Unsupported = fault.Public(err)
		return report, nil
	}
	report.Limit, err = limitOf(seen, err)
	return report, err
}

func (h *hosted) deploy(ctx context.Context, r activity.DeploymentRequest, report *activity.DeploymentReport) error {
	known, err := h.deployment(ctx, r)
	if r.Number != 0 && fault.Is(err, fault.NotFound) { // it was deleted at the forge
		r.Number = 0
		known, err = h.deployment(ctx, r)
	}
	if err != nil {
		return missing(err, "%s does not exist, or the credential does not show its deployments", h.url)
	}
	created := known.number == 0
	if created {
		if known, err = h.addDeployment(ctx, r); err != nil {
			return missing(err, "commit %s does not exist in %s, or the credential may not write deployments there", r.Commit, h.url)
		}
	}
	switch report.Number = known.number; {
	case h.shows(known, r):
		report.Unchanged = !created
		return nil
	case r.Number == 0 && r.Ended():
		report.Open = true
		return nil
	default:
		return h.deploymentState(ctx, known.number, r)
	}
}

// gitHubDeployment is a deployment as GitHub shows it.
type gitHubDeployment struct {
	ID      int64
	Payload json.RawMessage
}

// key is what we have called it; empty for one of others. The payload is an object, or the same as a text.
func (d gitHubDeployment) key() string {
	raw := []byte(d.Payload)
	var text string
	if json.Unmarshal(raw, &text) == nil {
		raw = []byte(text)
	}
	var payload struct{ Lockstep string }
	_ = json.Unmarshal(raw, &payload) // others may write anything there
	return payload.Lockstep
}

// deploymentTask is what GitHub calls the task of a deployment.
const deploymentTask = "deploy"

func (g gitHub) deployment(ctx context.Context, r activity.DeploymentRequest) (found deployed, err error) {
	if found.number = r.Number; found.number == 0 {
		err = g.pages(100, func(page int) (int, error) {
			var all []gitHubDeployment
			err := g.ask(ctx, http.MethodGet, fmt.Sprintf("/deployments?sha=%s&task=%s&environment=%s&per_page=100&page=%d", r.Commit, deploymentTask,
				url.QueryEscape(r.Environment), page), nil, &all)
			for _, d := range all { // the newest first: of several, which a crash may have left, the oldest counts
				if d.key() == r.Key {
					found.number = d.ID
				}
			}
			return len(all), err
		})
	}
	if err != nil || found.number == 0 {
		return deployed{}, err
	}
	var last []struct {
		State, Description string
		URL                string `json:"log_url"`
		Address            string `json:"environment_url"`
	}
	err = g.ask(ctx, http.MethodGet, fmt.Sprintf("/deployments/%d/statuses?per_page=1", found.number), nil, &last)
	if len(last) > 0 {
		found.state, found.description, found.url, found.address = last[0].State, last[0].Description, last[0].URL, last[0].Address
	}
	return found, err
}

func (g gitHub) addDeployment(ctx context.Context, r activity.DeploymentRequest) (deployed, error) {
	var made gitHubDeployment
	err := g.ask(ctx, http.MethodPost, "/deployments", map[string]any{
		"ref": r.Commit, "task": deploymentTask, "environment": r.Environment, "description": r.Description, "production_environment": r.Production,
		"transient_environment": false, "payload": map[string]string{"lockstep": r.Key},
		// What may be deployed is decided by Lockstep: nothing is merged, and no status is waited for.
		"auto_merge": false, "required_contexts": []string{},
	}, &made)
	return deployed{number: made.ID}, err
}

func (g gitHub) deploymentState(ctx context.Context, number int64, r activity.DeploymentRequest) error {
	// Several applications of a repository may have an environment of one name: the older ones are made inactive one by one.
	document := map[string]any{"state": r.State, "description": r.Description, "auto_inactive": false}
	if r.URL != "" {
		document["log_url"] = r.URL
	}
	if r.EnvironmentURL != "" {
		document["environment_url"] = r.EnvironmentURL
	}
	return g.ask(ctx, http.MethodPost, fmt.Sprintf("/deployments/%d/statuses", number), document, nil)
}

func (gitHub) shows(known deployed, r activity.DeploymentRequest) bool {
	return known.state == r.State && known.description == r.Description && known.url == r.URL &&
		(r.EnvironmentURL == "" || known.address == r.EnvironmentURL)
}

// gitLabDeployment is a deployment as GitLab shows it.
type gitLabDeployment struct {
	ID          int64
	SHA, Status string
	Environment struct {
		ID          int64
		ExternalURL string `json:"external_url"`
	}
}

func (g gitLab) deployment(ctx context.Context, r activity.DeploymentRequest) (deployed, error) {
	if r.Number != 0 {
		var d gitLabDeployment
		err := g.ask(ctx, http.MethodGet, fmt.Sprintf("/deployments/%d", r.Number), nil, &d)
		return deployed{number: d.ID, state: d.Status}, err
	}
	var found deployed
	err := g.pages(100, func(page int) (int, error) {
		var all []gitLabDeployment
		err := g.ask(ctx, http.MethodGet, fmt.Sprintf("/deployments?environment=%s&status=running&order_by=id&sort=desc&per_page=100&page=%d",
			url.QueryEscape(r.Environment), page), nil, &all)
		for _, d := range all {
			if strings.EqualFold(d.SHA, r.Commit) && !slices.Contains(r.Taken, d.ID) {
				found = deployed{number: d.ID, state: d.Status}
			}
		}
		return len(all), err
	})
	if fault.Is(err, fault.NotFound) { // releases differ in whether there are none of an environment that does not exist yet
		return deployed{}, nil
	}
	return found, err
}

// addDeployment makes it running in any case: of one that has ended GitLab returns the latest of the environment instead if that is the
// same.
func (g gitLab) addDeployment(ctx context.Context, r activity.DeploymentRequest) (deployed, error) {
	var made gitLabDeployment
	err := g.ask(ctx, http.MethodPost, "/deployments", map[string]any{
		"environment": r.Environment, "sha": r.Commit, "ref": r.Commit, "tag": false, "status": "running",
	}, &made)
	if err != nil || r.EnvironmentURL == "" || made.Environment.ID == 0 || made.Environment.ExternalURL == r.EnvironmentURL {
		return deployed{number: made.ID, state: made.Status}, err
	}
	// A credential that may deploy and not change environments still has the deployment shown: it is found again, without this.
	err = g.ask(ctx, http.MethodPut, fmt.Sprintf("/environments/%d", made.Environment.ID), map[string]string{"external_url": r.EnvironmentURL}, nil)
	if fault.Is(err, fault.Denied) || fault.Is(err, fault.NotFound) || fault.Is(err, fault.Unauthenticated) {
		err = nil
	}
	return deployed{number: made.ID, state: made.Status}, err
}

func (g gitLab) deploymentState(ctx context.Context, number int64, r activity.DeploymentRequest) error {
	return g.ask(ctx, http.MethodPut, fmt.Sprintf("/deployments/%d", number), map[string]string{"status": gitLabDeploymentState(r.State)}, nil)
}

func gitLabDeploymentState(state string) string {
	return map[string]string{
		activity.DeploymentSuccess: "success", activity.DeploymentFailure: "failed", activity.DeploymentInactive: "canceled",
	}[state]
}

// shows takes every state before the end for running, and one that has succeeded for inactive as well: GitLab knows by itself which one is
// the latest of an environment, and does not take back an end.
func (gitLab) shows(known deployed, r activity.DeploymentRequest) bool {
	switch r.State {
	case activity.DeploymentQueued, activity.DeploymentInProgress:
		return true
	case activity.DeploymentInactive:
		return known.state != "running" && known.state != "created" && known.state != "blocked"
	default:
		return known.state == gitLabDeploymentState(r.State)
	}
}

func isUnsupported(err error) bool {
	_, is := errors.AsType[unsupportedError](err)
	return is
}

func (g gitea) unsupported() error {
	return fault.Because(unsupportedError{}, fault.Refused, "found %s at a Gitea or Forgejo, which have no interface for deployments; expected a repository at "+
		"GitHub or GitLab", g.url)
}

func (g gitea) deployment(context.Context, activity.DeploymentRequest) (deployed, error) {
	return deployed{}, g.unsupported()
}

func (g gitea) addDeployment(context.Context, activity.DeploymentRequest) (deployed, error) {
	return deployed{}, g.unsupported()
}

func (g gitea) deploymentState(context.Context, int64, activity.DeploymentRequest) error {
	return g.unsupported()
}

func (gitea) shows(deployed, activity.DeploymentRequest) bool { return false }
