package git

import (
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
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// deploymentForge is what GitHub and GitLab do with deployments, as GitHub's REST API description and GitLab's lib/api/deployments.rb have
// it: which members a document has to have, what each answers, and which changes of state are refused.
type deploymentForge struct {
	kind string
	mu   sync.Mutex
	all  []*fakeDeployment
	// textual has payloads answered as texts, as GitHub does with what was stored as one.
	textual bool
	// lose answers the next requests that write with status 502 after they were done.
	lose int
	// address is the external URL of the environment at GitLab, which refuses to change it if refuses is set.
	address string
	refuses bool
}

type fakeDeployment struct {
	id                               int64
	sha, environment, payload, state string
	statuses                         []map[string]any
	production, merges, waits        bool
}

func (f *deploymentForge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	base := map[string]string{GitHub: "/api/v3/repos/team/shop", GitLab: "/api/v4/projects/shop"}[f.kind]
	if r.Method == http.MethodPut && r.URL.Path == base+"/environments/9" && f.kind == GitLab {
		var in struct {
			ExternalURL string `json:"external_url"`
		}
		_ = json.NewDecoder(r.Body).Decode(&in)
		if f.address = in.ExternalURL; f.refuses {
			refuse(w, http.StatusForbidden, "403 Forbidden")
			return
		}
		answer(w, http.StatusOK, map[string]any{"id": 9, "external_url": f.address})
		return
	}
	path, is := strings.CutPrefix(r.URL.Path, base+"/deployments")
	if !is {
		refuse(w, http.StatusNotFound, "Not Found")
		return
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	var one *fakeDeployment
	if id, err := strconv.ParseInt(parts[0], 10, 64); err == nil {
		at := slices.IndexFunc(f.all, func(d *fakeDeployment) bool { return d.id == id })
		if at < 0 {
			refuse(w, http.StatusNotFound, "Not Found")
			return
		}
		one = f.all[at]
	}
	var in map[string]any
	_ = json.NewDecoder(r.Body).Decode(&in)
	status, out := f.serve(r, in, one, len(parts) > 1)
	if r.Method != http.MethodGet && f.lose > 0 {
		f.lose--
		refuse(w, http.StatusBadGateway, "Bad Gateway")
		return
	}
	if text, ok := out.(string); ok {
		refuse(w, status, text)
		return
	}
	answer(w, status, out)
}

func (f *deploymentForge) serve(r *http.Request, in map[string]any, one *fakeDeployment, statuses bool) (int, any) {
	switch {
	case r.Method == http.MethodGet && one == nil:
		return http.StatusOK, f.list(r)
	case r.Method == http.MethodPost && one == nil:
		return f.make(in)
	case f.kind == GitLab && r.Method == http.MethodPut:
		wanted := fmt.Sprint(in["status"])
		if !slices.Contains([]string{"running", "success", "failed", "canceled"}, wanted) {
			return http.StatusBadRequest, "status does not have a valid value"
		}
		if wanted == one.state || wanted == "running" {
			return http.StatusBadRequest, "400 Bad request" // no event leads there
		}
		one.state = wanted
		return http.StatusOK, f.shown(one)
	case statuses && r.Method == http.MethodPost:
		if !slices.Contains([]string{"error", "failure", "inactive", "in_progress", "queued", "pending", "success"}, fmt.Sprint(in["state"])) ||
			len([]rune(fmt.Sprint(in["description"]))) > 140 {
			return http.StatusUnprocessableEntity, "Validation Failed"
		}
		one.statuses = append([]map[string]any{in}, one.statuses...)
		one.state = fmt.Sprint(in["state"])
		return http.StatusCreated, in
	case statuses:
		return http.StatusOK, append([]map[string]any{}, one.statuses[:min(1, len(one.statuses))]...)
	default:
		return http.StatusOK, f.shown(one)
	}
}

func (f *deploymentForge) list(r *http.Request) any {
	found := []map[string]any{}
	size, _ := strconv.Atoi(r.FormValue("per_page"))
	page, _ := strconv.Atoi(r.FormValue("page"))
	for _, d := range slices.Backward(f.all) {
		if d.environment != r.FormValue("environment") || f.kind == GitHub && d.sha != r.FormValue("sha") ||
			f.kind == GitLab && d.state != r.FormValue("status") {
			continue
		}
		found = append(found, f.shown(d))
	}
	from := min((page-1)*size, len(found))
	return found[from:min(from+size, len(found))]
}

func (f *deploymentForge) shown(d *fakeDeployment) map[string]any {
	if f.kind == GitLab {
		return map[string]any{
			"id": d.id, "iid": d.id, "ref": d.sha, "sha": d.sha, "created_at": "2026-11-29T01:00:00.000Z", "status": d.state,
			"environment": map[string]any{"id": 9, "name": d.environment, "external_url": nil}, "deployable": nil,
		}
	}
	var payload any = json.RawMessage(d.payload)
	if f.textual {
		payload = d.payload
	}
	return map[string]any{
		"id": d.id, "sha": d.sha, "ref": d.sha, "task": "deploy", "payload": payload, "original_environment": d.environment,
		"environment": d.environment, "description": nil, "creator": map[string]any{"login": "octocat", "id": 1},
	}
}

func (f *deploymentForge) make(in map[string]any) (int, any) {
	d := &fakeDeployment{id: int64(len(f.all) + 41), environment: fmt.Sprint(in["environment"])}
	if f.kind == GitLab {
		for _, name := range []string{"environment", "sha", "ref", "tag", "status"} {
			if _, given := in[name]; !given {
				return http.StatusBadRequest, name + " is missing"
			}
		}
		if in["status"] != "running" { // an end may be answered with another deployment
			return http.StatusTeapot, "not as it is to be made"
		}
		d.sha, d.state = fmt.Sprint(in["sha"]), fmt.Sprint(in["status"])
	} else {
		payload, _ := json.Marshal(in["payload"])
		d.sha, d.payload, d.production = fmt.Sprint(in["ref"]), string(payload), in["production_environment"] == true
		contexts, given := in["required_contexts"].([]any)
		d.merges, d.waits = in["auto_merge"] != false, !given || len(contexts) > 0
	}
	f.all = append(f.all, d)
	return http.StatusCreated, f.shown(d)
}

// states are what the forge shows of each deployment.
func (f *deploymentForge) states() (all []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.all {
		all = append(all, fmt.Sprintf("%d %s %s", d.id, d.environment, d.state))
	}
	return all
}

func deploymentsOn(t *testing.T, kind string) (*server, *deploymentForge, activity.DeploymentRequest) {
	t.Helper()
	s, f := setupForge(t, kind), &deploymentForge{kind: kind}
	s.api = f.ServeHTTP
	return s, f, activity.DeploymentRequest{
		Organization: 1, RepoURL: s.url, Commit: strings.Repeat("c", 40), Environment: "shop/production", Key: "o1/rollout_7",
		State: activity.DeploymentInProgress, Description: "began", URL: "https://cd.example.com/rollouts/rollout_7", Production: true,
	}
}

// D64: a deployment is made once, and changed as the rollout proceeds, however often each call is repeated and whichever number is known.
func TestADeploymentIsMadeOnceAndChanged(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string][]string{
		GitHub: {"in_progress", "in_progress", "success", "success", "inactive"}, GitLab: {"running", "running", "success", "success", "success"},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s, f, r := deploymentsOn(t, kind)
			set := func(state string, unchanged bool, want string) {
				t.Helper()
				r.State, r.Description = state, "it is "+state
				got, err := s.forge.SetDeployment(t.Context(), r)
				if err != nil || got.Number != 41 || got.Unchanged != unchanged || got.Limited != "" || got.Unsupported != "" {
					t.Fatalf("%s: found %+v, %v; want number 41, unchanged %t", state, got, err, unchanged)
				}
				if diff := cmp.Diff([]string{"41 shop/production " + want}, f.states()); diff != "" {
					t.Errorf("%s (-want +got):\n%s", state, diff)
				}
			}
			set(activity.DeploymentInProgress, false, want[0])
			set(activity.DeploymentInProgress, true, want[1]) // found again without its number
			r.Number = 41
			set(activity.DeploymentSuccess, false, want[2])
			set(activity.DeploymentSuccess, true, want[3])
			set(activity.DeploymentInactive, kind == GitLab, want[4]) // GitLab knows which is the latest
			if kind == GitHub {
				d := f.all[0]
				if !d.production || d.merges || d.waits {
					t.Errorf("found %+v; want production, and that nothing is merged or waited for", d)
				}
				if diff := cmp.Diff(map[string]any{
					"state": "success", "description": "it is success", "log_url": r.URL, "auto_inactive": false,
				}, d.statuses[1]); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

// D64: what began and ended before the first call takes two: one that makes it, one that ends it. Whichever answer is lost, and however
// often the call is repeated, there is one deployment.
func TestADeploymentThatHasEndedIsMadeOnce(t *testing.T) {
	t.Parallel()
	for kind, states := range map[string]map[string]string{
		GitHub: {"success": "success", "failure": "failure", "inactive": "inactive"},
		GitLab: {"success": "success", "failure": "failed", "inactive": "canceled"},
	} {
		for state, want := range states {
			t.Run(kind+" "+state, func(t *testing.T) {
				t.Parallel()
				s, f, r := deploymentsOn(t, kind)
				r.State = state
				lost := func() {
					t.Helper()
					f.lose = 1
					if _, err := s.forge.SetDeployment(t.Context(), r); !fault.Is(err, fault.Unavailable) {
						t.Fatalf("found %v; want that the answer was lost", err)
					}
				}
				lost()
				for range 2 { // it is found again, and not ended as long as its number is not known
					got, err := s.forge.SetDeployment(t.Context(), r)
					if err != nil || got.Number != 41 || !got.Open || got.Unchanged {
						t.Fatalf("found %+v, %v", got, err)
					}
				}
				r.Number = 41
				lost()
				got, err := s.forge.SetDeployment(t.Context(), r)
				if err != nil || got.Number != 41 || got.Open || !got.Unchanged {
					t.Fatalf("found %+v, %v", got, err)
				}
				if diff := cmp.Diff([]string{"41 shop/production " + want}, f.states()); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		}
	}
}

// D64: another rollout of the same commit has another deployment. One that was deleted at the forge is made again. Payloads of others, and
// such as are texts, are read.
func TestDeploymentsOfOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{GitHub, GitLab} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s, f, r := deploymentsOn(t, kind)
			other := &fakeDeployment{id: 7, sha: r.Commit, environment: r.Environment, payload: `"text"`, state: "success"}
			f.all, f.textual = append(f.all, other), true
			call := func() activity.DeploymentReport {
				t.Helper()
				got, err := s.forge.SetDeployment(t.Context(), r)
				if err != nil {
					t.Fatal(err)
				}
				return got
			}
			first := call().Number
			r.Number, r.State = first, activity.DeploymentSuccess
			call()
			r.Key, r.Number, r.State = "o1/rollout_8", 0, activity.DeploymentInProgress
			second := call().Number
			if again := call().Number; first == 7 || second == first || second == 7 || again != second {
				t.Errorf("found %d and %d, and %d again", first, second, again)
			}
			r.Number = 999
			if got := call(); got.Number != second {
				t.Errorf("found %+v; want the one that is found without the number", got)
			}
			if other.state != "success" || len(other.statuses) > 0 {
				t.Errorf("found %+v; want the deployment of another one as it was", other)
			}
		})
	}
}

// D64: GitLab keeps no key: a deployment that belongs to another rollout is not taken for this one, and another one is made.
func TestADeploymentOfAnotherIsNotTaken(t *testing.T) {
	t.Parallel()
	s, f, r := deploymentsOn(t, GitLab)
	f.all = append(f.all, &fakeDeployment{id: 7, sha: r.Commit, environment: r.Environment, state: "running"})
	r.Taken = []int64{7}
	got, err := s.forge.SetDeployment(t.Context(), r)
	if err != nil || got.Number == 7 || got.Number == 0 || len(f.all) != 2 {
		t.Errorf("found %+v, %v and %d deployments; want another one", got, err, len(f.all))
	}
}

// D64: Gitea and Forgejo have no deployments, and nothing is asked of them.
func TestAForgeWithoutDeployments(t *testing.T) {
	t.Parallel()
	s := setupForge(t, Gitea)
	s.api = func(_ http.ResponseWriter, r *http.Request) { t.Errorf("found %s", r.URL) }
	got, err := s.forge.SetDeployment(t.Context(), activity.DeploymentRequest{
		Organization: 1, RepoURL: s.url, Commit: strings.Repeat("c", 40), Environment: "shop/production", Key: "o1/rollout_7", State: "success",
	})
	if err != nil || !strings.Contains(got.Unsupported, "which have no interface for deployments; expected a repository at GitHub or GitLab") {
		t.Errorf("found %+v, %v", got, err)
	}
}

// D64: a forge that accepts no more requests is no error, and the number of what was made before stays known.
func TestALimitAfterADeploymentWasMade(t *testing.T) {
	t.Parallel()
	s, f, r := deploymentsOn(t, GitHub)
	s.api = func(w http.ResponseWriter, q *http.Request) {
		if strings.HasSuffix(q.URL.Path, "/statuses") && q.Method == http.MethodPost {
			w.Header().Set("Retry-After", "60")
			refuse(w, http.StatusTooManyRequests, "wait")
			return
		}
		f.ServeHTTP(w, q)
	}
	got, err := s.forge.SetDeployment(t.Context(), r)
	if err != nil || got.Number != 41 || got.Limited == "" || got.Wait.Seconds() != 60 {
		t.Errorf("found %+v, %v", got, err)
	}
}

// D64: GitHub shows where what is deployed is reached with each deployment, also of one that was published without; GitLab as the external
// URL of the environment. A credential that may not change environments has the deployment shown all the same.
func TestADeploymentHasTheAddressOfWhatIsDeployed(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{GitHub, GitLab} {
		for _, refuses := range []bool{false, true} {
			s, f, r := deploymentsOn(t, kind)
			f.refuses = refuses
			r.State, r.EnvironmentURL = activity.DeploymentInProgress, "https://shop.example.com"
			for _, unchanged := range []bool{false, true} {
				got, err := s.forge.SetDeployment(t.Context(), r)
				if err != nil || got.Number != 41 || got.Unchanged != unchanged {
					t.Fatalf("%s: found %+v, %v; want number 41, unchanged %t", kind, got, err, unchanged)
				}
			}
			if kind == GitLab {
				if f.address != r.EnvironmentURL {
					t.Errorf("GitLab has the address %q", f.address)
				}
				continue
			}
			if found := f.all[0].statuses[0]["environment_url"]; found != r.EnvironmentURL {
				t.Errorf("GitHub has the address %v", found)
			}
			r.EnvironmentURL = "https://new.example.com"
			got, err := s.forge.SetDeployment(t.Context(), r)
			if err != nil || got.Unchanged || f.all[0].statuses[0]["environment_url"] != r.EnvironmentURL {
				t.Errorf("another address: found %+v, %v, %v", got, err, f.all[0].statuses[0])
			}
		}
	}
}
