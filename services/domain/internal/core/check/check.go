// Package check holds the use cases of checks: reporting a status about a version set in an environment (D48).
//
// It does not decide about passages: package rollout does, and reads what was reported. A report has the passages evaluated again that may
// depend on it, and no others.
package check

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Store keeps what this package needs. Its errors have the classes of pkg/fault.
type Store interface {
	core.Transactions[Tx]
}

// Flows reads pipelines.
type Flows interface {
	Read(definition json.RawMessage) (core.Flow, error)
	// ReadChecks reads the checks of an environment.
	ReadChecks(checks json.RawMessage) (core.CheckSet, error)
}

// Tx is what a use case may do in its transaction.
type Tx interface {
	EnvironmentByName(ctx context.Context, organization int64, name string) (core.Environment, error)
	ApplicationByName(ctx context.Context, organization int64, name string) (core.Application, error)
	EnvironmentsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Environment, error)
	ApplicationsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Application, error)
	VersionSetsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.VersionSet, error)
	// ActiveRollouts is the rollout that is not over yet, by application; no key where there is none.
	ActiveRollouts(ctx context.Context, organization int64, applications []int64) (map[int64]core.Rollout, error)
	// ChecksByRollout are those that are pinned with rollouts.
	ChecksByRollout(ctx context.Context, organization int64, rollouts []int64) (map[int64][]core.PinnedCheck, error)
	// EnvironmentChecks are those that environments require by themselves, as they were written; no key for one that requires none.
	EnvironmentChecks(ctx context.Context, organization int64, environments []int64) (map[int64]json.RawMessage, error)
	// LatestFlowDefinitions is the newest pipeline of each application; no key for one that has none.
	LatestFlowDefinitions(ctx context.Context, organization int64, applications []int64) (map[int64]core.FlowDefinition, error)
	// VersionSetsOfCommit are those that a commit has brought to an environment, the latest first; two at most.
	VersionSetsOfCommit(ctx context.Context, application, environment int64, commit string) ([]int64, error)
	// ProposedCommit is the commit by which a rollout would change an environment; empty where it proposes nothing there.
	ProposedCommit(ctx context.Context, rollout, environment int64) (string, error)
	// VersionSetsOfArtifact are those of the newest of an application, and of the active one, whose artifacts all have a digest or come from
	// a commit, and those of which only some do; the latest first.
	VersionSetsOfArtifact(ctx context.Context, application, active int64, artifact string, built bool) (whole, partly []int64, err error)
	// CheckReports are the latest about version sets, of each environment, key and reporter.
	CheckReports(ctx context.Context, organization int64, sets []int64) (map[int64][]core.CheckReport, error)
	// LockReporter keeps other reports of the same reporter about the same check and subject waiting until the transaction ends.
	LockReporter(ctx context.Context, r core.CheckReport) error
	AddCheckReport(ctx context.Context, r core.CheckReport) (core.CheckReport, error)
	// ScheduleReview has a rollout's passages evaluated at an instant. It is idempotent.
	ScheduleReview(ctx context.Context, rollout int64, due time.Time) error
}

// UseCases records what is reported about checks. It is safe for concurrent use.
type UseCases struct {
	store  Store
	flows  Flows
	clock  clock.Clock
	review func()
}

// New makes the use cases. Review is called when something is to be evaluated now.
func New(store Store, flows Flows, c clock.Clock, review func()) *UseCases {
	return &UseCases{store, flows, c, review}
}

// Report is a status of a check.
type Report struct {
	// ApplicationID and EnvironmentID may be 0 where the names are given.
	ApplicationID, EnvironmentID int64
	Application, Environment     string
	// VersionSetID, Commit or Digest is the subject: what the status is about. A commit is one that a deployment to the environment has
	// recorded, or the one that every artifact of a version set was built from, and is refused if these are several version sets, or the one
	// that was proposed for the environment; a digest is that of every artifact of a version set.
	VersionSetID   int64
	Commit, Digest string
	Key            string
	Phase          core.CheckPhase
	Description    string
	// Link is http or https, or empty.
	Link string
	// ObservedAt is when the reporter found it out; nil for now. Of two reports of one reporter the one that was observed later counts; of
	// those with the same time a failure before a success, and that before pending, in whatever order and how often they come.
	ObservedAt *time.Time
}

// The bounds of a report.
const (
	maxDescription = 1000
	maxLink        = 2000
	// maxAhead is how far the clock of a reporter may be ahead.
	maxAhead = time.Minute
	// maxAge is how old an observation may be.
	maxAge = 30 * 24 * time.Hour
)

// commitForm is a full commit ID, of SHA-1 or SHA-256.
var commitForm = regexp.MustCompile(`^[0-9a-f]{40}([0-9a-f]{24})?$`)

// digestForm is a digest of an artifact.
var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$|^sha512:[0-9a-f]{128}$`)

func (r Report) check(now time.Time) error {
	var found []fault.Field
	wrong := func(field, format string, args ...any) {
		found = append(found, fault.Field{Name: field, Problem: fmt.Sprintf(format, args...)})
	}
	if !core.CheckKey.MatchString(r.Key) {
		wrong("/key", "found %.100q; expected 1 to 63 lower-case letters, digits and hyphens", r.Key)
	}
	switch r.Phase {
	case core.CheckPending, core.CheckSuccess, core.CheckFailure:
	default:
		wrong("/phase", "found %.100q; expected pending, success or failure", string(r.Phase))
	}
	if len(r.Description) > maxDescription {
		wrong("/description", "found %d bytes; expected at most %d", len(r.Description), maxDescription)
	}
	if r.Link != "" && !core.PlainLink(r.Link) {
		wrong("/link", "found %.100q; expected an http or https address without credentials", r.Link)
	}
	if len(r.Link) > maxLink {
		wrong("/link", "found %d bytes; expected at most %d", len(r.Link), maxLink)
	}
	subjects := 0
	for _, given := range []bool{r.VersionSetID != 0, r.Commit != "", r.Digest != ""} {
		if given {
			subjects++
		}
	}
	if subjects != 1 {
		wrong("/versionSetId", "expected a version set, a commit or a digest, and one of these only")
	}
	if r.Digest != "" && !digestForm.MatchString(r.Digest) {
		wrong("/digest", "found %.100q; expected sha256: and 64 hexadecimal digits in lower case", r.Digest)
	}
	if r.ObservedAt != nil && r.ObservedAt.After(now.Add(maxAhead)) {
		wrong("/observedAt", "found %s, which is in the future; expected at most %s", r.ObservedAt.UTC().Format(time.RFC3339),
			now.UTC().Format(time.RFC3339))
	}
	if r.ObservedAt != nil && r.ObservedAt.Before(now.Add(-maxAge)) {
		wrong("/observedAt", "found %s; expected a time of the last 30 days", r.ObservedAt.UTC().Format(time.RFC3339))
	}
	if r.Commit != "" && !commitForm.MatchString(strings.ToLower(r.Commit)) {
		wrong("/commit", "found %.100q; expected the 40 or 64 hexadecimal digits of a commit", r.Commit)
	}
	if len(found) > 0 {
		return fault.InvalidFields(found...)
	}
	return nil
}

// ReportCheck records a status. The latest of each reporter counts. One that repeats it, or was observed before it, is not recorded: the
// answer is the one that counts.
func (u *UseCases) ReportCheck(ctx context.Context, a core.Actor, r Report) (core.CheckReport, error) {
	if err := a.MaySomewhere(core.ActionReportCheck); err != nil {
		return core.CheckReport{}, err
	}
	if err := r.check(u.clock.Now()); err != nil {
		return core.CheckReport{}, err
	}
	if err := a.MayReportKey(r.Key); err != nil {
		return core.CheckReport{}, err
	}
	var made core.CheckReport
	err := core.Within(ctx, u.store, a, core.ActionReportCheck, func(ctx context.Context, tx Tx) error {
		r, err := named(ctx, tx, a, r)
		if err != nil {
			return err
		}
		active, err := tx.ActiveRollouts(ctx, a.Organization, []int64{r.ApplicationID})
		if err != nil {
			return err
		}
		environment, err := place(ctx, tx, a, r)
		if err != nil {
			return err
		}
		if err := u.known(ctx, tx, a.Organization, r, active[r.ApplicationID].ID); err != nil {
			return err
		}
		set, proposed, err := subject(ctx, tx, a, r, active[r.ApplicationID], environment.Name)
		if err != nil {
			return err
		}
		made = core.CheckReport{
			ApplicationID: r.ApplicationID, EnvironmentID: r.EnvironmentID, VersionSetID: set, Key: r.Key, Phase: r.Phase,
			Description: r.Description, Link: r.Link, Reporter: core.AuthorOf(a), CreatedAt: u.clock.Now(), ProposedCommit: proposed,
		}
		made.ObservedAt = made.CreatedAt
		// A reporter's clock may be ahead: a time in the future would hide what is reported until then.
		if r.ObservedAt != nil && r.ObservedAt.Before(made.CreatedAt) {
			made.ObservedAt = r.ObservedAt.Truncate(time.Microsecond) // as it is stored, so that a repetition has the same one
		}
		if err := tx.LockReporter(ctx, made); err != nil {
			return err
		}
		known, err := tx.CheckReports(ctx, a.Organization, []int64{set})
		if err != nil {
			return err
		}
		for _, one := range known[set] {
			if one.EnvironmentID != made.EnvironmentID || one.Key != made.Key || one.Reporter.Principal != a.Principal() {
				continue
			}
			// A repetition that was observed later is recorded: what was observed in between must not count after it.
			later := r.ObservedAt != nil && made.ObservedAt.After(one.ObservedAt)
			repeats := one.Phase == made.Phase && one.Description == made.Description && one.Link == made.Link &&
				one.ProposedCommit == made.ProposedCommit && !later
			late := made.ObservedAt.Before(one.ObservedAt) ||
				r.ObservedAt != nil && made.ObservedAt.Equal(one.ObservedAt) && rank(made.Phase) < rank(one.Phase)
			if repeats || late {
				made = one
				return nil
			}
		}
		if made, err = tx.AddCheckReport(ctx, made); err != nil {
			return err
		}
		// Every reporter has to agree, so what is no success opens nothing.
		if rollout, busy := active[r.ApplicationID]; busy && rollout.VersionSetID == set && made.Phase == core.CheckSuccess {
			return tx.ScheduleReview(ctx, rollout.ID, made.CreatedAt)
		}
		return nil
	})
	u.review()
	return made, err
}

// rank orders what one reporter has observed at the same time: the highest counts.
func rank(p core.CheckPhase) int {
	return slices.Index([]core.CheckPhase{core.CheckPending, core.CheckSuccess, core.CheckFailure}, p)
}

// named is a report with the numbers of what it names.
func named(ctx context.Context, tx Tx, a core.Actor, r Report) (Report, error) {
	if r.ApplicationID == 0 {
		one, err := tx.ApplicationByName(ctx, a.Organization, r.Application)
		if err != nil {
			return r, err
		}
		r.ApplicationID = one.ID
	}
	if r.EnvironmentID == 0 {
		one, err := tx.EnvironmentByName(ctx, a.Organization, r.Environment)
		if err != nil {
			return r, err
		}
		r.EnvironmentID = one.ID
	}
	return r, nil
}

// known refuses a key that no check of the application in the environment has, or one whose status is not reported: neither of the rollout
// that is active, nor of the pipeline as it is now.
func (u *UseCases) known(ctx context.Context, tx Tx, organization int64, r Report, rollout int64) error {
	var all []core.Check
	if rollout != 0 {
		pinned, err := tx.ChecksByRollout(ctx, organization, []int64{rollout})
		if err != nil {
			return err
		}
		for _, c := range pinned[rollout] {
			if c.EnvironmentID == r.EnvironmentID {
				all = append(all, c.Check)
			}
		}
	}
	reported := func(c core.Check) bool { return c.Key == r.Key && c.Kind == core.CheckStatus }
	if slices.ContainsFunc(all, reported) {
		return nil
	}
	declared, err := u.declared(ctx, tx, organization, r)
	if err != nil {
		return err
	}
	if all = append(all, declared...); slices.ContainsFunc(all, reported) {
		return nil
	}
	var keys []string
	for _, c := range all {
		switch {
		case c.Kind == core.CheckStatus && !slices.Contains(keys, strconv.Quote(c.Key)):
			keys = append(keys, strconv.Quote(c.Key))
		case c.Key == r.Key:
			return fault.InvalidFields(fault.Field{Name: "/key", Problem: fmt.Sprintf(
				"found %q, a check of kind %s, whose status is not reported; expected one of kind status", r.Key, c.Kind,
			)})
		}
	}
	slices.Sort(keys)
	expected := "the pipeline has no check of kind status there"
	if len(keys) > 0 {
		expected = "expected " + strings.Join(keys, ", ")
	}
	return fault.InvalidFields(fault.Field{Name: "/key", Problem: fmt.Sprintf(
		"found %q, which no check of the application in that environment has; %s", r.Key, expected,
	)})
}

// declared are the checks of the application in the environment, as its pipeline and the environment declare them now.
func (u *UseCases) declared(ctx context.Context, tx Tx, organization int64, r Report) ([]core.Check, error) {
	own, err := tx.EnvironmentChecks(ctx, organization, []int64{r.EnvironmentID})
	if err != nil {
		return nil, err
	}
	var all []core.Check
	if text, requires := own[r.EnvironmentID]; requires {
		set, err := u.flows.ReadChecks(text)
		if err != nil {
			return nil, fmt.Errorf("read checks of environment %d: %w", r.EnvironmentID, err)
		}
		all = slices.Concat(set.Active, set.Proposed)
	}
	latest, err := tx.LatestFlowDefinitions(ctx, organization, []int64{r.ApplicationID})
	if err != nil {
		return nil, err
	}
	definition, exists := latest[r.ApplicationID]
	if !exists {
		return all, nil
	}
	flow, err := u.flows.Read(definition.Definition)
	if err != nil {
		return nil, fmt.Errorf("read flow definition %d: %w", definition.ID, err)
	}
	environments, err := tx.EnvironmentsByID(ctx, organization, []int64{r.EnvironmentID})
	if err != nil {
		return nil, err
	}
	for _, step := range flow.Deploys {
		if step.Environment == environments[r.EnvironmentID].Name {
			return slices.Concat(all, step.Active, step.Proposed), nil
		}
	}
	return all, nil
}

// place is the environment that a report is about, if the actor may report there.
func place(ctx context.Context, tx Tx, a core.Actor, r Report) (core.Environment, error) {
	environments, err := tx.EnvironmentsByID(ctx, a.Organization, []int64{r.EnvironmentID})
	if err != nil {
		return core.Environment{}, err
	}
	e, ok := environments[r.EnvironmentID]
	if !ok {
		return e, fault.New(fault.NotFound, "environment %d does not exist", r.EnvironmentID)
	}
	applications, err := tx.ApplicationsByID(ctx, a.Organization, []int64{r.ApplicationID})
	if err != nil {
		return e, err
	}
	if _, ok := applications[r.ApplicationID]; !ok {
		return e, fault.New(fault.NotFound, "application %d does not exist", r.ApplicationID)
	}
	return e, a.MayIn(core.ActionReportCheck, e.Target(r.ApplicationID))
}

// subject is the version set that a report is about, and the proposed commit if it is about that one. Active is the rollout that is not
// over yet; the zero value for none.
func subject(
	ctx context.Context, tx Tx, a core.Actor, r Report, active core.Rollout, environment string,
) (set int64, proposed string, err error) {
	switch {
	case r.Commit != "":
		return ofCommit(ctx, tx, r, active, environment)
	case r.Digest != "":
		absent := fault.Field{Name: "/digest", Problem: "no version set of the application has"}
		set, err = ofArtifact(ctx, tx, r.ApplicationID, active.VersionSetID, absent, r.Digest)
		return set, "", err
	}
	sets, err := tx.VersionSetsByID(ctx, a.Organization, []int64{r.VersionSetID})
	if err != nil {
		return 0, "", err
	}
	if set, ok := sets[r.VersionSetID]; !ok || set.ApplicationID != r.ApplicationID {
		return 0, "", fault.New(fault.NotFound, "version set %d does not exist, or is another application's", r.VersionSetID)
	}
	return r.VersionSetID, "", nil
}

// ofCommit is the version set that a commit has brought to an environment, or that was built from it. Where these are not the same one, as
// in a repository that has the code and what is deployed, it is unknown which the status is about.
func ofCommit(ctx context.Context, tx Tx, r Report, active core.Rollout, environment string) (set int64, proposed string, err error) {
	commit := strings.ToLower(r.Commit)
	refuse := func(format string, args ...any) (int64, string, error) {
		why := fmt.Sprintf(format, args...)
		return 0, "", fault.InvalidFields(fault.Field{Name: "/commit", Problem: fmt.Sprintf("found %s, %s; expected the version set", commit, why)})
	}
	recorded, err := tx.VersionSetsOfCommit(ctx, r.ApplicationID, r.EnvironmentID, commit)
	switch {
	case err != nil:
		return 0, "", err
	case len(recorded) > 1:
		return refuse("which %q had for several version sets", environment)
	case len(recorded) == 0:
		return notDeployed(ctx, tx, r, active, environment, commit)
	}
	whole, partly, err := tx.VersionSetsOfArtifact(ctx, r.ApplicationID, active.VersionSetID, commit, true)
	if err != nil {
		return 0, "", err
	}
	for _, set := range slices.Concat(whole, partly) {
		if set != recorded[0] {
			return refuse("which is of several version sets: %q had it for version set %d, and version set %d was built from it",
				environment, recorded[0], set)
		}
	}
	return recorded[0], "", nil
}

// notDeployed is what a commit is about that no deployment has recorded: that of the proposal by which the environment would change, or one
// that a version set was built from.
func notDeployed(
	ctx context.Context, tx Tx, r Report, active core.Rollout, environment, commit string,
) (set int64, proposed string, err error) {
	absent := fmt.Sprintf("no deployment of the application to %q has recorded, and no version set was built from", environment)
	if active.ID != 0 {
		head, err := tx.ProposedCommit(ctx, active.ID, r.EnvironmentID)
		if err != nil {
			return 0, "", err
		}
		if head == commit {
			return active.VersionSetID, head, nil
		}
		if head != "" {
			absent = fmt.Sprintf("is not %s, which rollout %d has proposed for %q, and which ", head, active.ID, environment) + absent
		}
	}
	set, err = ofArtifact(ctx, tx, r.ApplicationID, active.VersionSetID, fault.Field{Name: "/commit", Problem: absent}, commit)
	return set, "", err
}

// ofArtifact is the version set that consists of an artifact with a digest, or of those that were built from a commit. A part of a version
// set is no subject: its other artifacts would pass with it. Absent is the field, and that nothing is known of it.
func ofArtifact(ctx context.Context, tx Tx, application, active int64, absent fault.Field, artifact string) (int64, error) {
	whole, partly, err := tx.VersionSetsOfArtifact(ctx, application, active, artifact, absent.Name == "/commit")
	if err != nil {
		return 0, err
	}
	why := absent.Problem
	switch {
	case len(whole) == 1:
		return whole[0], nil
	case len(whole) > 1:
		why = "several version sets consist of; expected the version set"
	case len(partly) > 0:
		why = "is not all that a version set consists of; expected the version set"
	}
	return 0, fault.InvalidFields(fault.Field{Name: absent.Name, Problem: fmt.Sprintf("found %s, which %s", artifact, why)})
}
