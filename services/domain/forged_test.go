package domain

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/testkit/emitters"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/rollout"
)

// aboutRows is an event of every type of the domain path, about rows of the shop. A type without one fails the test.
func (s *shop) aboutRows(r core.Rollout, preview core.Preview) map[string]event.Data {
	stop := s.stops(r)[0]
	deployment := s.deployments(stop)[0].ID
	services, err := s.store.ServicesByApplication(s.t.Context(), org, []int64{s.application.ID})
	s.ok(err)
	var setUp int64
	s.ok(s.pool.QueryRow(s.t.Context(), `SELECT id FROM cd_application_environments WHERE environment_id = $1`,
		stop.EnvironmentID).Scan(&setUp))
	for _, row := range []string{
		`INSERT INTO cd_rollout_checks (organization_id, rollout_id, environment_id, target, key, kind, duration_seconds, kind_digest)
			SELECT organization_id, $1, $2, 'proposed', 'gauge', 'gauge@1', 0, digest FROM cd_driver_bundles LIMIT 1`,
		`INSERT INTO cd_check_runs (organization_id, rollout_id, environment_id, target, key, own, number)
			SELECT organization_id, $1, $2, 'proposed', 'gauge', false, 1 FROM cd_rollouts WHERE id = $1`,
		`WITH made AS (INSERT INTO cd_agents (organization_id, name) SELECT organization_id, 'target' FROM cd_rollouts WHERE id = $1 RETURNING
			organization_id, id),
			of AS (SELECT id FROM cd_rollout_environments WHERE rollout_id = $1 AND environment_id = $2),
			fleet AS (INSERT INTO cd_rollout_fleets (organization_id, rollout_environment_id, fleet, waves, targets, agents) SELECT
			made.organization_id, of.id, '{}', 1, 1, '{}' FROM made, of),
			wave AS (INSERT INTO cd_rollout_waves (organization_id, rollout_environment_id, wave, targets) SELECT made.organization_id, of.id, 1,
				1 FROM made, of)
			INSERT INTO cd_rollout_targets (organization_id, rollout_environment_id, agent_id, name, wave) SELECT made.organization_id, of.id,
				made.id, 'target', 1 FROM made, of`,
	} {
		_, err := s.pool.Exec(s.t.Context(), row, r.ID, stop.EnvironmentID)
		s.ok(err)
	}
	var target int64
	s.ok(s.pool.QueryRow(s.t.Context(), `SELECT agent_id FROM cd_rollout_targets`).Scan(&target))
	all := map[string]event.Data{}
	for _, data := range []event.Data{
		event.RolloutStarted{RolloutID: r.ID},
		event.RolloutGateReached{RolloutID: r.ID, EnvironmentID: stop.EnvironmentID, Weight: 25},
		event.RolloutEnvironmentJobStarted{RolloutID: r.ID, EnvironmentID: stop.EnvironmentID, Job: "migrate", When: "before", Attempt: 1},
		event.RolloutEnvironmentJobEnded{
			RolloutID: r.ID, EnvironmentID: stop.EnvironmentID, Job: "migrate", When: "before", Attempt: 1, Result: "succeeded",
		},
		event.RolloutEnvironmentTargetEnded{
			RolloutID: r.ID, EnvironmentID: stop.EnvironmentID, AgentID: target, Attempt: 1, Result: "failed",
			Reason: "no",
		},
		event.RolloutPassageRequested{RolloutID: r.ID, EnvironmentID: stop.EnvironmentID, GateID: "staging"},
		event.RolloutPassageGranted{RolloutID: r.ID, GateID: "staging"},
		event.RolloutAbortRequested{RolloutID: r.ID},
		event.RolloutAborted{RolloutID: r.ID, EnvironmentID: stop.EnvironmentID},
		event.RolloutRetryRequested{RolloutID: r.ID},
		event.CheckNudged{CheckRunID: 1},
		event.DeploymentNudged{RolloutID: r.ID, DeploymentID: deployment, Watch: "deployment/1"},
		event.CheckReported{CheckRunID: 1, Phase: "success"},
		event.PullRequestRead{PullRequestID: 1, Run: 1, State: "open", Into: "main", Head: strings.Repeat("0", 40)},
		event.RolloutPassagesRevoked{RolloutID: r.ID},
		event.EnvironmentPlacesChanged{EnvironmentID: stop.EnvironmentID, Name: "staging", Sequence: 1, Places: []event.Place{}},
		event.RolloutPreviewed{
			PreviewID:    preview.ID,
			Environments: []event.PreviewedEnvironment{{EnvironmentID: stop.EnvironmentID, Changes: []event.FileChange{}}},
		},
		event.RolloutHealthy{RolloutID: r.ID},
		event.RolloutFailed{RolloutID: r.ID, Reason: "no"},
		event.RolloutEnvironmentStarted{RolloutID: r.ID, EnvironmentID: stop.EnvironmentID},
		event.RolloutEnvironmentHealthy{RolloutID: r.ID, EnvironmentID: stop.EnvironmentID},
		event.RolloutEnvironmentFailed{RolloutID: r.ID, EnvironmentID: stop.EnvironmentID, Reason: "no"},
		event.DeploymentStarted{DeploymentID: deployment},
		event.DeploymentCommitted{
			DeploymentID: deployment, CommitSHA: strings.Repeat("0", 40), ManifestDigest: digestOf(1),
			Parameters: []byte(`{}`),
		},
		event.DeploymentProposed{
			RolloutID: r.ID, Name: "staging", Repository: "https://forged.example.com/shop", Branch: "main", Paths: []string{"a.yaml"}, Number: 1,
			State: "closed", By: "forged", ByID: 1,
		},
		event.DeploymentSubmitted{DeploymentID: deployment, Name: "forged", URL: "https://forged.example.com"},
		event.DeploymentGateReached{DeploymentID: deployment, Weight: 25},
		event.DeploymentAdvance{DeploymentID: deployment, Weight: 25},
		event.DeploymentHealthy{DeploymentID: deployment},
		event.DeploymentDegraded{DeploymentID: deployment, Reason: "no"},
		event.DeploymentFailed{DeploymentID: deployment, Reason: "no"},
		event.EnvironmentReady{EnvironmentID: stop.EnvironmentID},
		event.EnvironmentNotReady{EnvironmentID: stop.EnvironmentID, Reason: "forged"},
		event.ApplicationEnvironmentReady{ApplicationEnvironmentID: setUp, RolloutName: "forged", RolloutNamespace: "forged"},
		event.ApplicationEnvironmentNotReady{ApplicationEnvironmentID: setUp, Reason: "forged"},
		event.ServiceHealthObserved{
			ServiceID: services[s.application.ID][0].ID, EnvironmentID: stop.EnvironmentID, Health: "degraded",
			ObservedAt: wire(1),
		},
		event.ApplicationEnvironmentReconciled{ApplicationEnvironmentID: setUp, Revision: strings.Repeat("0", 40), ObservedAt: wire(1)},
		event.EnvironmentContactChanged{EnvironmentID: stop.EnvironmentID, Reason: "forged", ObservedAt: wire(1)},
		event.ApprovalRequested{RolloutID: r.ID, GateID: "staging"},
		event.ApprovalResolved{RolloutID: r.ID, GateID: "staging", Resolution: "approved", PrincipalType: "user", PrincipalID: 1},
		event.PolicySetChanged{Name: "calls", Version: 1, Mode: "off", TimeZone: "UTC"},
		event.CredentialChanged{
			Name: "api", Sequence: 1, Version: 1, Kind: "http", URLPrefixes: []string{"https://evil.example/"},
			Revoked: true,
		},
		event.CallDecided{WorkflowID: "rollout-" + itoa(r.ID), CallID: "x/0.0!1", Function: "http.request", State: "denied"},
		event.CallAnswered{WorkflowID: "rollout-" + itoa(r.ID), CallID: "x/0.0!1", Approved: true},
		event.WorkflowCompleted{WorkflowID: "rollout-" + itoa(r.ID)},
		event.WorkflowFailed{WorkflowID: "rollout-" + itoa(r.ID), Error: "no"},
		event.WorkflowCancelled{WorkflowID: "rollout-" + itoa(r.ID), Reason: "no"},
	} {
		all[data.EventType()] = data
	}
	return all
}

// rows is everything that events of workflows may change.
func (s *shop) rows() string {
	s.t.Helper()
	var text []string
	for _, table := range []string{
		"cd_rollouts", "cd_rollout_environments", "cd_deployments", "cd_rollout_transitions", "cd_rollout_environment_transitions",
		"cd_deployment_transitions", "cd_environments", "cd_application_environments", "cd_deployment_snapshots", "cd_deployment_attempts", "cd_deployment_links", "cd_rollout_proposals",
		"cd_rollout_previews", "outbox",
		"cd_service_environment_healths", "cd_application_environment_reconciliations", "cd_environment_contacts", "cd_handoffs",
		"cd_call_requests", "cd_call_answers", "cd_credentials",
	} {
		rows, err := s.pool.Query(s.t.Context(), `SELECT '`+table+` ' || x::text FROM `+table+` x ORDER BY 1`)
		s.ok(err)
		for rows.Next() {
			var row string
			s.ok(rows.Scan(&row))
			text = append(text, row)
		}
		s.ok(rows.Err())
	}
	return strings.Join(text, "\n")
}

// TestWhoMayChangeTheRecord (D47): every type of the catalogue, from every source, of its own run and of others. What
// another run of the organization, a caller or the wrong service sends is refused and settled, and no row changes.
func TestWhoMayChangeTheRecord(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	r := s.rollout(s.release(1))
	preview, err := s.rollouts.PreviewRollout(t.Context(), user(), rollout.NewPreview{VersionSetID: s.release(2).ID})
	s.ok(err)
	about := s.aboutRows(r, preview)
	before := s.rows()
	send := func(data event.Data, source, run string) (event.Event, error) {
		s.mu.Lock()
		s.count++
		name := fmt.Sprintf("forged-%d", s.count)
		s.mu.Unlock()
		e, err := event.New(event.Header{ID: name, Source: source, Organization: org, Correlation: run, Time: time.Unix(1_800_000_000, 0)}, data)
		s.ok(err)
		return e, s.on.Domain(t.Context(), []bus.Delivery{{Event: e, Attempt: 1}})[0]
	}
	emitters.Walk(t, func(d event.Definition, by event.Emitter, may bool) {
		data := about[d.Type]
		if data == nil {
			t.Fatalf("%s has no row in aboutRows", d.Type)
		}
		own := s.runFor(data)
		var sent []event.Event
		var errs []error
		try := func(source, run string) {
			e, err := send(data, source, run)
			sent, errs = append(sent, e), append(errs, err)
		}
		switch {
		case by == event.EmitterDomain:
			// It ignores its own events.
			if _, err := send(data, event.SourceDomain, own); err != nil {
				t.Errorf("%s of its own: %v", d.Type, err)
			}
			return
		case may: // of other runs
			for _, run := range []string{
				"", "mine", "rollout-" + itoa(r.ID+1), "rollout-0" + itoa(r.ID), own + ".0", own + "/x", "x" + own,
				"preview-" + itoa(preview.ID+1),
			} {
				if by == event.EmitterObserver && strings.HasPrefix(run, "observer/") {
					continue // a standing report is of no run
				}
				try(emitters.Source(by), run)
			}
		case emitters.Source(by) == event.SourceWorkflow:
			return // programs, engine and standing reports have one source: the workflow service separates them
		default:
			try(emitters.Source(by), own)
		}
		for i, err := range errs {
			fields := fault.FieldsOf(err)
			if !fault.Is(err, fault.Invalid) || len(fields) != 1 || fields[0].Name != "source" && fields[0].Name != event.ExtensionCorrelation {
				t.Errorf("%s from %s of run %q: found %v, expected a refusal of its source or run", d.Type, sent[i].Source(),
					event.Extension(sent[i], event.ExtensionCorrelation), err)
				continue
			}
			s.on.Rejected(t.Context(), bus.Delivery{Event: sent[i]}, err)
			var reason string
			s.ok(s.pool.QueryRow(t.Context(), `SELECT rejected_reason FROM inbox WHERE event_id = $1`, sent[i].ID()).Scan(&reason))
			if !strings.Contains(reason, fields[0].Problem) {
				t.Errorf("%s: the inbox has the reason %q, expected %q", d.Type, reason, fields[0].Problem)
			}
		}
	}, event.PathDomain)
	if diff := cmp.Diff(before, s.rows()); diff != "" {
		t.Errorf("forged events have changed rows (-before +after):\n%s", diff)
	}
	// The run that was started for the row is believed.
	for _, d := range event.Catalogue() {
		if d.Path != event.PathDomain || slices.Contains(d.EmittedBy, event.EmitterDomain) {
			continue
		}
		if _, err := send(about[d.Type], event.SourceWorkflow, s.runFor(about[d.Type])); err != nil {
			t.Errorf("%s of its own run: %v", d.Type, err)
		}
	}
}

// TestAForgedEventDoesNotHoldUpTheOthers: in one batch with it, what is right is applied, in its order.
func TestAForgedEventDoesNotHoldUpTheOthers(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	r := s.rollout(s.release(1))
	all := []event.Event{
		s.emit(event.RolloutStarted{RolloutID: r.ID}, ""), s.emit(event.RolloutHealthy{RolloutID: r.ID}, "mine"),
		s.emit(event.RolloutFailed{RolloutID: r.ID, Reason: "no"}, ""),
	}
	batch := make([]bus.Delivery, len(all))
	for i, e := range all {
		batch[i] = bus.Delivery{Event: e, Attempt: 1}
	}
	errs := s.on.Domain(t.Context(), batch)
	if errs[0] != nil || !fault.Is(errs[1], fault.Invalid) || errs[2] != nil {
		t.Errorf("found %v, expected a refusal of the second alone", errs)
	}
	if after := s.reload(r); after.State != core.RolloutFailed {
		t.Errorf("found %s, expected failed", after.State)
	}
}
