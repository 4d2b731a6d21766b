package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/tools/bench/probe"
	"github.com/lockstep-cd/lockstep/tools/lockstep/gitserver"
)

const (
	// seldom and often are poll intervals in seconds: so seldom that only a webhook helps, and the shortest that a source may have.
	seldom, often = 86_400, 30
	// begunWithin bounds how long one push may take to become a rollout.
	begunWithin = 3 * time.Minute
)

// team is an application whose versions are the commits of its repository, of which one is checked out here.
type team struct{ name, id, work string }

// pushes measures from the start of `git push` to a rollout that is pending: with the webhook that the forge sends, one after the other; and
// without one, for all applications at once, which poll.
func pushes(ctx context.Context, w *world, o options) ([]figure, error) {
	if o.commits == 0 {
		return nil, nil
	}
	teams, err := w.teams(ctx, max(o.teams, 1))
	if err != nil {
		return nil, err
	}
	var hooked []time.Duration
	for i := range o.commits {
		took, err := w.commit(ctx, teams[i%len(teams)], true)
		if err != nil {
			return nil, err
		}
		hooked = append(hooked, took)
	}
	all := []figure{figureOf("git push to pending rollout, webhook", hooked, fmt.Sprintf("goal p95 2000 ms; %d applications", len(teams)))}
	if o.polled == 0 {
		return all, nil
	}
	for _, t := range teams {
		if err := w.source(ctx, t, often); err != nil {
			return nil, err
		}
	}
	polled := make([]time.Duration, o.polled*len(teams))
	for round := range o.polled {
		group, within := errgroup.WithContext(ctx)
		for i, t := range teams {
			group.Go(func() (err error) {
				// Spread over an interval: polls are not in step with pushes.
				apart := time.Duration(i) * often * time.Second / time.Duration(len(teams))
				if err := clock.Sleep(within, clock.System(), apart); err != nil {
					return err
				}
				polled[round*len(teams)+i], err = w.commit(within, t, false)
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return nil, err
		}
	}
	return append(all, figureOf("git push to pending rollout, polled", polled, fmt.Sprintf("goal one poll: %d s", often))), nil
}

// figureOf has p95 in its note, which is what the goal is about.
func figureOf(name string, took []time.Duration, note string) figure {
	f := figure{Name: name, N: len(took)}
	f.P50, f.P99 = probe.Percentiles(took)
	f.Note = fmt.Sprintf("p95 %.1f ms, most %.1f ms; %s", probe.Milliseconds(took[len(took)*95/100]), probe.Milliseconds(took[len(took)-1]), note)
	return f
}

// teams makes applications with a repository, a pipeline to one environment and a trigger of kind git each, and waits for their first
// rollouts.
func (w *world) teams(ctx context.Context, n int) ([]team, error) {
	const environment = `mutation($input: CreateEnvironmentInput!) { createEnvironment(input: $input) { environment { id } errors { field message code } } }`
	if _, err := w.api.Ask(ctx, environment, map[string]any{"input": map[string]any{
		"name": "staging", "tier": "STAGING", "driverRef": "git@1", "driverConfig": map[string]any{},
	}}); err != nil {
		return nil, err
	}
	teams := make([]team, n)
	for i := range teams {
		t := team{name: fmt.Sprintf("team-%d", i), work: filepath.Join(w.dir, "work", strconv.Itoa(i))}
		if err := w.team(ctx, &t); err != nil {
			return nil, fmt.Errorf("make %s: %w", t.name, err)
		}
		teams[i] = t
	}
	// No workflow service is here that would look at the environment.
	for _, table := range []string{"cd_environments", "cd_application_environments"} {
		if _, err := w.db.Exec(ctx, `UPDATE domain.`+table+` SET readiness = 'ready'`); err != nil {
			return nil, fmt.Errorf("make %s ready: %w", table, err)
		}
	}
	for _, t := range teams {
		if err := w.trigger(ctx, t); err != nil {
			return nil, err
		}
		if _, err := w.commit(ctx, t, true); err != nil {
			return nil, err
		}
	}
	return teams, nil
}

// repository is where one is reached, as the forge and its users name it.
func (w *world) repository(name string) string { return w.oci.URL + "/" + name + ".git" }

func (w *world) team(ctx context.Context, t *team) error {
	if err := gitserver.Create(ctx, w.repositories(), t.name, map[string]string{"api.yaml": "image: x\n"}); err != nil {
		return err
	}
	address, err := url.Parse(w.repository(t.name))
	if err != nil {
		return fmt.Errorf("address of the repository: %w", err)
	}
	address.User = url.UserPassword(username, secret)
	if err := w.git(ctx, "", "clone", "--quiet", address.String(), t.work); err != nil {
		return err
	}
	const create = `mutation($input: CreateApplicationInput!) { done: createApplication(input: $input) { application { services { artifactSources { id } } } errors { field message code } } }`
	raw, err := w.api.Ask(ctx, create, map[string]any{"input": map[string]any{"name": t.name, "description": "", "services": []map[string]any{
		{"name": "api", "artifactSources": []map[string]any{{"sourceRef": "git@1", "sourceConfig": w.sourceConfig(*t, seldom)}}},
	}}})
	if err != nil {
		return err
	}
	var made struct {
		Data struct {
			Done struct {
				Application struct {
					Services []struct{ ArtifactSources []struct{ ID string } }
				}
			}
		}
	}
	if err := json.Unmarshal(raw, &made); err != nil || len(made.Data.Done.Application.Services) != 1 {
		return fmt.Errorf("read %.300s: %w", raw, err)
	}
	t.id = made.Data.Done.Application.Services[0].ArtifactSources[0].ID
	_, err = w.api.Ask(ctx, `mutation($input: CreateFlowDefinitionInput!) { createFlowDefinition(input: $input) { flowDefinition { id } errors { field message code } } }`,
		map[string]any{"input": map[string]any{"application": t.name, "definition": map[string]any{"steps": []map[string]any{{
			"type": "deploy", "environment": "staging", "config": map[string]any{
				"repository_url": w.repository(t.name), "branch": "main",
				"services": []map[string]any{{"service": "api", "file": "api.yaml", "field": "image"}},
			},
		}}}}})
	return err
}

func (w *world) sourceConfig(t team, interval int) map[string]any {
	return map[string]any{"repository": w.repository(t.name), "branch": "main", "poll_interval_seconds": interval}
}

// source changes how often the repository of a team is polled.
func (w *world) source(ctx context.Context, t team, interval int) error {
	_, err := w.api.Ask(ctx, `mutation($input: SetArtifactSourceConfigInput!) { setArtifactSourceConfig(input: $input) { errors { field message code } } }`,
		map[string]any{"input": map[string]any{"artifactSourceId": t.id, "sourceConfig": w.sourceConfig(t, interval)}})
	return err
}

func (w *world) trigger(ctx context.Context, t team) error {
	_, err := w.api.Ask(ctx, `mutation($input: PutTriggerInput!) { putTrigger(input: $input) { errors { field message code } } }`,
		map[string]any{"input": map[string]any{"application": t.name, "name": "git", "kind": "GIT", "config": map[string]any{}, "enabled": true}})
	return err
}

// commit pushes a commit, reports it as a forge does if it is to be, and answers how long it took from the start of `git push` until its
// rollout was pending. The rollout is cancelled then: the next one of the application is not to wait for it.
func (w *world) commit(ctx context.Context, t team, report bool) (time.Duration, error) {
	now := clock.System().Now()
	file := filepath.Join(t.work, "api.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "image: %d\n", now.UnixNano()), 0o600); err != nil {
		return 0, fmt.Errorf("change a file: %w", err)
	}
	if err := w.git(ctx, t.work, "commit", "--quiet", "--all", "-m", "a change of the team"); err != nil {
		return 0, err
	}
	sha, err := w.gitOutput(ctx, t.work, "rev-parse", "HEAD")
	if err != nil {
		return 0, err
	}
	began := clock.System().Now()
	if err := w.git(ctx, t.work, "push", "--quiet"); err != nil {
		return 0, err
	}
	if report {
		if err := w.report(ctx, t, sha); err != nil {
			return 0, err
		}
	}
	id, err := w.pending(ctx, t, sha)
	took := clock.System().Now().Sub(began)
	if err != nil {
		return 0, err
	}
	_, err = w.api.Ask(ctx, `mutation($input: CancelRolloutInput!) { cancelRollout(input: $input) { errors { field message code } } }`,
		map[string]any{"input": map[string]any{"rolloutId": fmt.Sprintf("rollout_%d", id), "reason": "measured"}})
	return took, err
}

// report delivers a push as GitHub does: signed, with the address of the repository.
func (w *world) report(ctx context.Context, t team, sha string) error {
	body := fmt.Appendf(nil, `{"ref":"refs/heads/main","after":%q,"repository":{"full_name":"team/%s","clone_url":%q}}`, sha, t.name, w.repository(t.name))
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.deliveries+w.forge, strings.NewReader(string(body)))
	if err != nil {
		return fmt.Errorf("make a request: %w", err)
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	r.Header = http.Header{
		"Content-Type": {"application/json"}, "X-Github-Event": {"push"}, "X-Hub-Signature-256": {"sha256=" + hex.EncodeToString(mac.Sum(nil))},
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return fmt.Errorf("deliver: %w", err)
	}
	if answer.StatusCode != http.StatusAccepted {
		err = fmt.Errorf("deliver the push to %s: answered %d", t.name, answer.StatusCode)
	}
	return errors.Join(err, answer.Body.Close())
}

// pending waits for the rollout of a commit, and answers its number.
func (w *world) pending(ctx context.Context, t team, sha string) (id int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, begunWithin)
	defer cancel()
	for {
		err := w.pool.QueryRow(ctx, `SELECT COALESCE(max(r.id), 0) FROM domain.cd_versions v
			JOIN domain.cd_version_set_entries e ON e.version_id = v.id
			JOIN domain.cd_rollouts r ON r.version_set_id = e.version_set_id AND r.state = 'pending'
			WHERE v.digest = $1`, sha).Scan(&id)
		if err != nil {
			return 0, fmt.Errorf("look for the rollout of %s: %w", t.name, err)
		}
		if id != 0 {
			return id, nil
		}
		if clock.Sleep(ctx, clock.System(), 5*time.Millisecond) != nil {
			return 0, fmt.Errorf("%s: found no rollout of commit %s within %s", t.name, sha, begunWithin)
		}
	}
}

// git runs a command of a user of the repositories.
func (w *world) git(ctx context.Context, dir string, args ...string) error {
	_, err := w.gitOutput(ctx, dir, args...)
	return err
}

func (w *world) gitOutput(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...) //nolint:gosec // arguments of our own
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
		"GIT_SSL_CAINFO="+filepath.Join(w.dir, "oci.pem"), "GIT_AUTHOR_NAME=team", "GIT_AUTHOR_EMAIL=team@example.com",
		"GIT_COMMITTER_NAME=team", "GIT_COMMITTER_EMAIL=team@example.com")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, out)
	}
	return strings.TrimSpace(string(out)), nil
}
