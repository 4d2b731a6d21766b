package source

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/lockstep-cd/lockstep/services/registry/internal/core"
)

// StatusFormat is a format in which a forge reports statuses of commits and pull requests.
type StatusFormat struct {
	// Name is the format in paths and configurations; it never changes.
	Name string
	// Parse parses one delivery: one status, one pull request, or none. What is about something else is none.
	Parse func(header http.Header, body []byte) (core.ForgeDelivery, error)
	// Proof creates the check of deliveries.
	Proof func(Terms) (Check, error)
}

// StatusFormats returns the formats of all forges, with the proofs of their other hooks.
func StatusFormats() []StatusFormat {
	all := []StatusFormat{
		{Name: "gitea", Parse: withPulls(giteaPull, parseGiteaStatus)},
		{Name: "github", Parse: withPulls(gitHubPull, parseGitHubStatus)},
		{Name: "gitlab", Parse: withPulls(gitLabPull, parseGitLabStatus)},
	}
	for i, f := range all {
		at := slices.IndexFunc(Formats(), func(of Format) bool { return of.Name == f.Name })
		all[i].Proof = Formats()[at].Proof
	}
	return all
}

// parseGitHubStatus parses the events status and check_run of GitHub; it skips ping and all others. The signature covers only the body: the
// header decides only how it is read.
func parseGitHubStatus(header http.Header, body []byte) ([]core.CommitStatus, error) {
	top, err := openPush(body)
	if err != nil {
		return nil, err
	}
	switch header.Get("X-Github-Event") {
	case "status":
		return statusOf(top, "clone_url", map[string]string{
			"pending": "pending", "success": "success", "failure": "failure", "error": "failure",
		})
	case "check_run":
		return checkRun(top)
	default:
		return nil, top.err()
	}
}

// statusOf reads the events of GitHub and of Gitea about a status, which have the same fields.
func statusOf(top node, address string, phases map[string]string) ([]core.CommitStatus, error) {
	repository := top.in("repository")
	s := core.CommitStatus{
		Kind: core.StatusKind, Repository: repository.text(address), Commit: top.text("sha"), Context: top.text("context"), Phase: phases[top.text("state")],
		Description: top.text("description"), Link: top.text("target_url"), ObservedAt: stamp(top.text("updated_at")),
		Names: core.StatusNames{
			Repository: repository.name(address), Commit: top.name("sha"), Context: top.name("context"), Phase: top.name("state"),
			ObservedAt: top.name("updated_at"),
		},
	}
	// Gitea gives a time of change only to a status that was changed; one is added for each report.
	if s.ObservedAt == "" {
		s.ObservedAt = stamp(top.text("created_at"))
	}
	s.Sequence, _ = top.number("id")
	return oneStatus(s, top.err())
}

// beforeAll is the time of a run that was created and of which nothing says when.
const beforeAll = "1970-01-01T00:00:00Z"

// checkRun reads a run of a check at GitHub. Only success is success: GitHub itself lets neutral and skipped runs pass, which have checked
// nothing.
func checkRun(top node) ([]core.CommitStatus, error) {
	run, repository := top.in("check_run"), top.in("repository")
	s := core.CommitStatus{
		Kind: core.RunKind, Repository: repository.text("clone_url"), Commit: run.text("head_sha"), Context: run.text("name"), Phase: "pending",
		Description: run.in("output").text("title"), Link: run.text("html_url"), ObservedAt: stamp(run.text("started_at")),
		Names: core.StatusNames{
			Repository: repository.name("clone_url"), Commit: run.name("head_sha"), Context: run.name("name"), Phase: run.name("conclusion"),
			ObservedAt: run.name("completed_at"),
		},
	}
	if run.text("status") == "completed" {
		conclusion := run.text("conclusion")
		s.Phase, s.ObservedAt = map[string]string{
			"success": "success", "neutral": "pending", "skipped": "pending", "stale": "pending", "action_required": "pending",
			"failure": "failure", "cancelled": "failure", "timed_out": "failure", "startup_failure": "failure",
		}[conclusion], stamp(run.text("completed_at"))
		if s.Phase == "pending" {
			s.Description = "it has ended as " + conclusion
		}
	} else if s.ObservedAt == "" {
		// It is queued: hooks have the creation of a run, and its end, so this is the first of its reports. Its time must be before those of the
		// others also if it is delivered last, which the time of reception would not be. A suite is made before its runs.
		s.ObservedAt = cmp.Or(stamp(run.in("check_suite").text("created_at")), beforeAll)
	}
	s.Sequence, _ = run.number("id")
	return oneStatus(s, top.err())
}

// parseGiteaStatus parses the event status of Gitea and Forgejo; it skips all others.
func parseGiteaStatus(header http.Header, body []byte) ([]core.CommitStatus, error) {
	top, err := openPush(body)
	if err != nil {
		return nil, err
	}
	if header.Get("X-Gitea-Event") != "status" {
		return nil, top.err()
	}
	return statusOf(top, "clone_url", map[string]string{
		"pending": "pending", "skipped": "pending", "success": "success", "failure": "failure", "error": "failure", "warning": "failure",
	})
}

// parseGitLabStatus parses the events of GitLab about jobs, whose names are the contexts; it skips all others. Events about pipelines are
// not read: the state of a pipeline follows from all statuses of its commit, those that Lockstep publishes included.
func parseGitLabStatus(_ http.Header, body []byte) ([]core.CommitStatus, error) {
	top, err := openPush(body)
	if err != nil {
		return nil, err
	}
	if top.text("object_kind") != "build" {
		return nil, top.err()
	}
	project, address := top.in("project"), "git_http_url"
	if !project.has(address) { // of releases without the project
		project, address = top.in("repository"), "git_http_url"
	}
	s := core.CommitStatus{
		Kind: core.RunKind, Repository: project.text(address), Commit: top.text("sha"), Context: top.text("build_name"),
		Phase: map[string]string{
			"created": "pending", "waiting_for_resource": "pending", "preparing": "pending", "pending": "pending", "running": "pending",
			"manual": "pending", "scheduled": "pending", "skipped": "pending", "success": "success", "failed": "failure",
			"canceling": "failure", "canceled": "failure",
		}[top.text("build_status")],
		Description: top.text("build_failure_reason"),
		Names: core.StatusNames{
			Repository: project.name(address), Commit: top.name("sha"), Context: top.name("build_name"), Phase: top.name("build_status"),
			ObservedAt: top.name("build_created_at"),
		},
	}
	if s.Phase != "failure" { // it is unknown_failure for jobs that have not failed
		s.Description = "the job is " + top.text("build_status")
	}
	// The last of them that has come; ISO 8601 since GitLab 17.
	for _, key := range []string{"build_finished_at", "build_started_at", "build_created_at"} {
		for _, name := range []string{key + "_iso", key} {
			if at := stamp(top.text(name)); at != "" && s.ObservedAt == "" {
				s.ObservedAt = at
			}
		}
	}
	s.Sequence, _ = top.number("build_id")
	return oneStatus(s, top.err())
}

func oneStatus(s core.CommitStatus, err error) ([]core.CommitStatus, error) {
	if err != nil {
		return nil, err
	}
	return []core.CommitStatus{s}, nil
}
