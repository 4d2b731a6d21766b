package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/id"
	"github.com/lockstep-cd/lockstep/pkg/pg"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/store/query"
)

var _ agent.ReportStore = (*Store)(nil)

// observerWatch begins the ids of the watches that observers have at relays.
const observerWatch = "observer/"

// SaveObserver registers an observer.
func (s *Store) SaveObserver(ctx context.Context, o agent.StandingReport) (changed bool, err error) {
	spec, err := json.Marshal(o)
	if err != nil {
		return false, fmt.Errorf("encode observer %s: %w", o.Key(), err)
	}
	n, err := s.queries.SaveObserver(ctx, query.SaveObserverParams{
		Organization: o.Organization, Key: o.Key(), Agent: o.Agent, Spec: spec, CreatedAt: s.Clock.Now(),
	})
	return n > 0, pg.Classify(err, "save observer %s", o.Key())
}

// observerWatches are the watches that the relays of agents keep for observers.
func (s *Store) observerWatches(ctx context.Context, agents ...int64) ([]agent.Watch, error) {
	rows, err := s.queries.ObserversOf(ctx, agents)
	if err != nil {
		return nil, pg.Classify(err, "read observers of agents %v", agents)
	}
	var watches []agent.Watch
	for _, row := range rows {
		var o agent.StandingReport
		if err := json.Unmarshal(row.Spec, &o); err != nil { // the others are watched all the same
			s.Log.ErrorContext(ctx, "an observer cannot be read", "organization", row.Organization, "observer", row.Key, "error", err)
			continue
		}
		if spec, followed := o.Watch(); followed {
			id := fmt.Sprintf("%s%d/%s/%d", observerWatch, row.Organization, row.Key, row.Version)
			watches = append(watches, agent.Watch{ID: id, Agent: row.Agent, Spec: spec})
		}
	}
	return watches, nil
}

// report emits a relay's report about an observer's watch.
func (s *Store) report(ctx context.Context, watch string, agentID int64, e history.Event) error {
	organization, key, version, ok := splitObserver(watch)
	if !ok {
		return fault.New(fault.Invalid, "watch %q is no observer's", watch)
	}
	var seen struct {
		Report     map[string]any `json:"report"`
		ObservedAt time.Time      `json:"observed_at"`
		Error      *struct{ Message string }
	}
	if err := json.Unmarshal(e.Data, &seen); err != nil {
		return fault.Because(err, fault.Invalid, "report to %s is not the expected JSON", watch)
	}
	row, err := s.queries.FindObserver(ctx, query.FindObserverParams{Organization: organization, Key: key})
	if errors.Is(err, pgx.ErrNoRows) || err == nil && row.Version != version {
		return nil // another registration has taken its place
	}
	if err != nil {
		return pg.Classify(err, "find observer %s", key)
	}
	if row.Agent != agentID {
		return fault.New(fault.Denied, "agent %d reports to observer %s, which is not its own", agentID, key)
	}
	o := agent.StandingReport{Organization: organization, Agent: agentID}
	if err := json.Unmarshal(row.Spec, &o); err != nil {
		return fmt.Errorf("observer %s: %w", key, err)
	}
	if seen.Error != nil {
		if o.Report != agent.ReportHealth {
			return nil // the previous report remains valid
		}
		seen.Report = map[string]any{"health": "unknown", "reason": seen.Error.Message}
	}
	if row.ReportedAt != nil && !row.ReportedAt.Before(seen.ObservedAt) {
		return nil // it is late, or a duplicate
	}
	return s.publish(ctx, statement{
		StandingReport: o, version: row.Version, before: row.Report, beforeAt: row.ReportedAt, report: seen.Report, at: seen.ObservedAt,
	})
}

// statement is a report of an observer, with the previous one.
type statement struct {
	agent.StandingReport
	version  int64
	before   []byte
	beforeAt *time.Time
	report   map[string]any
	at       time.Time
}

// publish emits a report, unless it repeats the previous one. The event, its copy in the outbox, and the new previous report are one
// transaction.
func (s *Store) publish(ctx context.Context, st statement) error {
	data := map[string]any{}
	for _, name := range st.Members() {
		if value, given := st.report[name]; given {
			data[name] = value
		}
	}
	// A relay says how something is, never what it is: that is what was registered, as in the event's correlation.
	for name, value := range st.Subject {
		data[name] = value
	}
	now, err := json.Marshal(data)
	if err != nil || bytes.Equal(now, st.before) {
		return err //nolint:wrapcheck // maps of JSON are JSON
	}
	data["observed_at"] = st.at.UTC().Format(time.RFC3339Nano)
	body, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("encode report of %s: %w", st.Key(), err)
	}
	emit := history.Emit{
		ID:           fmt.Sprintf("%s%d/%s/%d", observerWatch, st.Organization, st.Key(), st.at.UnixNano()),
		Organization: st.Organization, Workflow: id.Observer(st.Run, st.Key()), Type: st.Event(), Data: body, Time: st.at,
	}
	wire, err := s.Encode(emit, "")
	if err != nil {
		return fmt.Errorf("encode report of %s: %w", st.Key(), err)
	}
	e := history.Event{Organization: emit.Organization, Source: wire.Source(), ID: emit.ID, Type: emit.Type, Data: body, Time: emit.Time}
	_, _, err = s.receive(ctx, &received{alone: true, claim: func(ctx context.Context, tx pgx.Tx) (bool, error) {
		saved, err := s.queries.WithTx(tx).SaveReport(ctx, query.SaveReportParams{
			Report: now, At: &st.at, Organization: st.Organization, Key: st.Key(), Version: st.version, Before: st.beforeAt,
		})
		// No row: another process has stored a newer report since the previous one was read.
		if err != nil || len(saved) == 0 {
			return false, pg.Classify(err, "save report of %s", st.Key())
		}
		return true, s.Add(ctx, tx, wire)
	}}, e)
	if err == nil {
		s.Committed()
	}
	return err
}

// splitObserver parses the id of an observer's watch.
func splitObserver(watch string) (organization int64, key string, version int64, ok bool) {
	rest, isObserver := strings.CutPrefix(watch, observerWatch)
	first, last := strings.IndexByte(rest, '/'), strings.LastIndexByte(rest, '/')
	if !isObserver || first < 0 || last <= first {
		return 0, "", 0, false
	}
	organization, err := strconv.ParseInt(rest[:first], 10, 64)
	version, err2 := strconv.ParseInt(rest[last+1:], 10, 64)
	return organization, rest[first+1 : last], version, err == nil && err2 == nil
}

// SaveBeats stores the newest heartbeats of agents.
func (s *Store) SaveBeats(ctx context.Context, beats []agent.Beat) error {
	var p query.SaveBeatsParams
	for _, b := range beats {
		p.Ids, p.Seen = append(p.Ids, b.Agent), append(p.Seen, b.At)
		p.Reachable, p.Messages = append(p.Reachable, b.Reachable), append(p.Messages, b.Message)
	}
	return pg.Classify(s.queries.SaveBeats(ctx, p), "save heartbeats of %d agents", len(beats))
}

// ReportAgents emits what has changed about agents.
func (s *Store) ReportAgents(ctx context.Context, now time.Time, offlineAfter time.Duration) error {
	rows, err := s.queries.ObserversOfAgents(ctx)
	if err != nil {
		return pg.Classify(err, "read observers of agents")
	}
	for _, row := range rows {
		o := agent.StandingReport{Organization: row.Organization, Agent: row.Agent}
		if err := json.Unmarshal(row.Spec, &o); err != nil {
			return fmt.Errorf("observer %s: %w", row.Key, err)
		}
		report, at := contact(row, now, offlineAfter)
		if report == nil {
			continue
		}
		// Consumers keep the newest report by its time, so a report that is not newer than the previous one gets a later time.
		if row.ReportedAt != nil && !row.ReportedAt.Before(at) {
			at = row.ReportedAt.Add(time.Millisecond)
		}
		err := s.publish(ctx, statement{
			StandingReport: o, version: row.Version, before: row.Report, beforeAt: row.ReportedAt, report: report, at: at,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// contact reports whether the agent is connected and its cluster answers, and since when.
func contact(row query.ObserversOfAgentsRow, now time.Time, offlineAfter time.Duration) (map[string]any, time.Time) {
	switch {
	case row.SeenAt == nil && now.Sub(row.CreatedAt) < offlineAfter:
		return nil, now // it may not have sent a heartbeat yet
	case row.SeenAt == nil:
		return map[string]any{"reachable": false, "reason": fmt.Sprintf("agent %d has never been heard of", row.Agent)}, row.CreatedAt
	case now.Sub(*row.SeenAt) >= offlineAfter:
		return map[string]any{"reachable": false, "reason": fmt.Sprintf("agent %d is offline", row.Agent)}, *row.SeenAt
	case row.Reachable != nil && !*row.Reachable:
		reason := fmt.Sprintf("agent %d does not reach its cluster", row.Agent)
		return map[string]any{"reachable": false, "reason": reason}, *row.SeenAt
	default:
		return map[string]any{"reachable": true, "reason": ""}, *row.SeenAt
	}
}
