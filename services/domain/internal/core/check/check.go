// Package check holds the use cases of checks: reporting a status about a version set in an environment (D48).
//
// It does not decide about passages: package rollout does, and reads what was reported. A report has the passages evaluated again that may
// depend on it, and no others.
package check

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
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

// Tx is what a use case may do in its transaction.
type Tx interface {
	EnvironmentsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Environment, error)
	ApplicationsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.Application, error)
	VersionSetsByID(ctx context.Context, organization int64, ids []int64) (map[int64]core.VersionSet, error)
	// ActiveRollouts is the rollout that is not over yet, by application; no key where there is none.
	ActiveRollouts(ctx context.Context, organization int64, applications []int64) (map[int64]core.Rollout, error)
	// VersionSetsOfCommit are those that a commit has brought to an environment, the latest first; two at most.
	VersionSetsOfCommit(ctx context.Context, application, environment int64, commit string) ([]int64, error)
	// CheckReports are the latest about version sets, of each environment, key and reporter.
	CheckReports(ctx context.Context, organization int64, sets []int64) (map[int64][]core.CheckReport, error)
	AddCheckReport(ctx context.Context, r core.CheckReport) (core.CheckReport, error)
	// ScheduleReview has a rollout's passages evaluated at an instant. It is idempotent.
	ScheduleReview(ctx context.Context, rollout int64, due time.Time) error
}

// UseCases records what is reported about checks. It is safe for concurrent use.
type UseCases struct {
	store  Store
	clock  clock.Clock
	review func()
}

// New makes the use cases. Review is called when something is to be evaluated now.
func New(store Store, c clock.Clock, review func()) *UseCases { return &UseCases{store, c, review} }

// Report is a status of a check.
type Report struct {
	ApplicationID, EnvironmentID int64
	// VersionSetID or Commit is the subject: what the status is about. A commit is one that a deployment to the environment has recorded.
	VersionSetID int64
	Commit       string
	Key          string
	Phase        core.CheckPhase
	Description  string
	// Link is http or https, or empty.
	Link string
}

// The bounds of a report.
const (
	maxDescription = 1000
	maxLink        = 2000
)

// commitForm is a full commit ID, of SHA-1 or SHA-256.
var commitForm = regexp.MustCompile(`^[0-9a-f]{40}([0-9a-f]{24})?$`)

// plainLink is whether a link is an http or https address without credentials.
func plainLink(link string) bool {
	u, err := url.Parse(link)
	return err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https") && u.User == nil
}

func (r Report) check() error {
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
	if r.Link != "" && !plainLink(r.Link) {
		wrong("/link", "found %.100q; expected an http or https address without credentials", r.Link)
	}
	if len(r.Link) > maxLink {
		wrong("/link", "found %d bytes; expected at most %d", len(r.Link), maxLink)
	}
	if (r.VersionSetID == 0) == (r.Commit == "") {
		wrong("/versionSetId", "expected a version set or a commit, and not both")
	}
	if r.Commit != "" && !commitForm.MatchString(strings.ToLower(r.Commit)) {
		wrong("/commit", "found %.100q; expected the 40 or 64 hexadecimal digits of a commit", r.Commit)
	}
	if len(found) > 0 {
		return fault.InvalidFields(found...)
	}
	return nil
}

// ReportCheck records a status. The latest of each reporter counts, and one that repeats it is not recorded again.
func (u *UseCases) ReportCheck(ctx context.Context, a core.Actor, r Report) (core.CheckReport, error) {
	if err := r.check(); err != nil {
		return core.CheckReport{}, err
	}
	var made core.CheckReport
	err := core.Within(ctx, u.store, a, core.ActionReportCheck, func(ctx context.Context, tx Tx) error {
		set, err := u.subject(ctx, tx, a, r)
		if err != nil {
			return err
		}
		made = core.CheckReport{
			ApplicationID: r.ApplicationID, EnvironmentID: r.EnvironmentID, VersionSetID: set, Key: r.Key, Phase: r.Phase,
			Description: r.Description, Link: r.Link, Reporter: core.AuthorOf(a), CreatedAt: u.clock.Now(),
		}
		known, err := tx.CheckReports(ctx, a.Organization, []int64{set})
		if err != nil {
			return err
		}
		for _, one := range known[set] {
			if one.EnvironmentID == made.EnvironmentID && one.Key == made.Key && one.Reporter.Principal == a.Principal() &&
				one.Phase == made.Phase && one.Description == made.Description && one.Link == made.Link {
				made = one
				return nil
			}
		}
		if made, err = tx.AddCheckReport(ctx, made); err != nil {
			return err
		}
		active, err := tx.ActiveRollouts(ctx, a.Organization, []int64{r.ApplicationID})
		if err != nil {
			return err
		}
		if rollout, busy := active[r.ApplicationID]; busy && rollout.VersionSetID == set {
			return tx.ScheduleReview(ctx, rollout.ID, made.CreatedAt)
		}
		return nil
	})
	u.review()
	return made, err
}

// subject is the version set that a report is about, if the actor may report there.
func (u *UseCases) subject(ctx context.Context, tx Tx, a core.Actor, r Report) (int64, error) {
	environments, err := tx.EnvironmentsByID(ctx, a.Organization, []int64{r.EnvironmentID})
	if err != nil {
		return 0, err
	}
	e, ok := environments[r.EnvironmentID]
	if !ok {
		return 0, fault.New(fault.NotFound, "environment %d does not exist", r.EnvironmentID)
	}
	applications, err := tx.ApplicationsByID(ctx, a.Organization, []int64{r.ApplicationID})
	if err != nil {
		return 0, err
	}
	if _, ok := applications[r.ApplicationID]; !ok {
		return 0, fault.New(fault.NotFound, "application %d does not exist", r.ApplicationID)
	}
	if err := a.MayIn(core.ActionReportCheck, e.Target(r.ApplicationID)); err != nil {
		return 0, err
	}
	if r.Commit != "" {
		sets, err := tx.VersionSetsOfCommit(ctx, r.ApplicationID, r.EnvironmentID, strings.ToLower(r.Commit))
		if err != nil {
			return 0, err
		}
		if len(sets) == 0 {
			return 0, fault.InvalidFields(fault.Field{Name: "/commit", Problem: fmt.Sprintf(
				"found %s, which no deployment of the application to %q has recorded", r.Commit, e.Name,
			)})
		}
		return sets[0], nil
	}
	sets, err := tx.VersionSetsByID(ctx, a.Organization, []int64{r.VersionSetID})
	if err != nil {
		return 0, err
	}
	if set, ok := sets[r.VersionSetID]; !ok || set.ApplicationID != r.ApplicationID {
		return 0, fault.New(fault.NotFound, "version set %d does not exist, or is another application's", r.VersionSetID)
	}
	return r.VersionSetID, nil
}
