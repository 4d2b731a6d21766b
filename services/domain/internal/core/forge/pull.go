package forge

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pattern"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/trigger"
)

// Step is what a run does with a pull request.
type Step string

// The steps.
const (
	// StepRead reads what it changes, and StepWrite writes the plan into its comment.
	StepRead  Step = "read"
	StepWrite Step = "write"
	// StepAnswer writes the answers to commands into another comment.
	StepAnswer Step = "answer"
)

// Pull is a pull request, or merge request, whose plan is written into a comment (R4-27, D60). The comment is a copy: nothing is decided
// by it.
type Pull struct {
	ID, HookID int64
	// Name is host and path of the repository, Repository its address and Host its server.
	Name, Repository, Host string
	Number                 int64
	// AskedBy are the last ten who have asked by a comment, as the forge knows them: it is planned if one of them may write. They are
	// empty once that was done.
	AskedBy []string
	// Revision counts what was reported of it, BegunRevision is what the present run is about.
	Revision, BegunRevision int
	// Answers counts the answers to commands on it, AnswersBegun is what the present run writes, and AnswersWritten what the comment has.
	Answers, AnswersBegun, AnswersWritten int
	Step                                  Step
	// Reading is what the present run has read; nil before that.
	Reading json.RawMessage
	// Head is the last commit that was planned, Link where the comment is, and Outcome what became of it, in one sentence. AnswersLink is
	// where the comment with answers is. Both comments are found by these links once the account of the credential has changed.
	Head, Link, Outcome, AnswersLink string
	Delivery
}

// Answered is a command in a comment, with its answer.
type Answered struct {
	Author, Command, Answer string
	At                      time.Time
}

// Answering is a pull request that has an answer to write, at an instant.
func Answering(hook int64, name, repository string, number int64, due time.Time) Pull {
	return Pull{HookID: hook, Name: name, Repository: repository, Host: hostOf(repository), Number: number, Delivery: Delivery{DueAt: due}}
}

// PullReport says that a pull request may have changed, or that its plan was asked for, with the event that brought it.
type PullReport struct {
	In core.Inbound
	// Hook is the key of the hook that received it.
	Hook string
	// Repository is an address.
	Repository string
	Number     int64
	AskedBy    string
}

// Plans foresees what changes would roll out.
type Plans interface {
	// Foresee returns the applications that a change would touch, by labels and name; more is that there are others.
	Foresee(ctx context.Context, a core.Actor, c trigger.Change) (all []trigger.Touched, more bool, err error)
	// Follows reports whether an application has a source for a repository, given its URL.
	Follows(ctx context.Context, organization int64, repository string) (bool, error)
}

const (
	// MostPulls is how many pull requests of an organization wait at most: others are not taken.
	MostPulls = 1000
	// shownAnswers is how many answers the comment has, the latest.
	shownAnswers = 5
	// BetweenAnswers is how long the comment with answers is left alone after it was written.
	BetweenAnswers = 20 * time.Second
	// betweenPlans is how long a pull request is left alone after its comment was written.
	betweenPlans = time.Minute
	// pullRate is how many pull requests are begun at a server within a window, and pullsTogether how many at once. They have requests of
	// their own: what anybody may cause takes nothing from statuses.
	pullRate      = 20
	pullsTogether = 3
)

// ReportPulls notes what forges report of pull requests. It may be repeated at any point, in any order: each is only the reason to look. It
// answers the error, or nil, of each that was tried; while the database is away, none behind the first is.
func (u *UseCases) ReportPulls(ctx context.Context, all []PullReport) []error {
	defer u.wake()
	return each(all, func(r PullReport) error { return u.receivePull(ctx, r) })
}

func (u *UseCases) receivePull(ctx context.Context, r PullReport) error {
	organization := r.In.Organization
	if organization <= 0 {
		return fault.InvalidFields(fault.Field{Name: "organizationid", Problem: "missing; expected that of the hook"})
	}
	name, follows := RepositoryName(r.Repository), false
	if name != "" {
		var err error
		if follows, err = u.plans.Follows(ctx, organization, r.Repository); err != nil {
			return err
		}
	}
	taken := false
	err := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
		taken = false
		firsts, err := tx.ClaimAll(ctx, []core.Inbound{r.In})
		if err != nil || !slices.Contains(firsts, true) || name == "" {
			return err
		}
		hook, err := tx.ForgeHookByKey(ctx, r.Hook)
		if missing(err) { // it was removed, or never made
			return nil
		}
		if err != nil || !hook.Plans || !slices.ContainsFunc(hook.Repositories, func(p string) bool { return pattern.Match(p, name) }) {
			return err
		}
		if !follows { // an environment may be deployed from it although no version comes from it
			if may, err := tx.MayHaveForgePlaces(ctx, name, withoutPort(name)); err != nil || !may {
				return err
			}
		}
		asked := []string{}
		if r.AskedBy != "" {
			asked = append(asked, r.AskedBy)
		}
		taken, err = tx.MergeForgePull(ctx, Pull{
			HookID: hook.ID, Name: name, Repository: r.Repository, Host: hostOf(r.Repository), Number: r.Number, AskedBy: asked,
			Delivery: Delivery{DueAt: u.clock.Now()},
		}, MostPulls, betweenPlans)
		return err
	})
	if err != nil {
		return fmt.Errorf("note pull request %d of %.200s: %w", r.Number, r.Repository, err)
	}
	if !taken {
		u.counts.pullsIgnored.Add(1)
	}
	return nil
}

func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Host)
}

// Pulls are those of an organization, the newest first.
func (u *UseCases) Pulls(ctx context.Context, organization, before int64, most int) ([]Pull, error) {
	if most < 1 || most > MaxStatuses {
		return nil, invalid("/first", "found %d; expected 1 to %d", most, MaxStatuses)
	}
	return u.store.ForgePulls(ctx, organization, before, most)
}

// reading is what a run has read of a pull request.
type reading struct {
	State     string   `json:"state"`
	Into      string   `json:"into"`
	Head      string   `json:"head"`
	Message   string   `json:"message"`
	Refused   string   `json:"refused"`
	Paths     []string `json:"paths"`
	More      bool     `json:"more"`
	Resources []string `json:"resources"`
	Diffs     []diff   `json:"diffs"`
	// Base is the commit that Head is compared with; empty where nothing is to be rendered, as of a fork.
	Base string `json:"base"`
	// Rendered are the overlays and charts of environments that it changes. The rest is known once it is planned: Withheld are those whose
	// configuration keeps them from being rendered, Unrendered is how many others it may change, Broken how many cannot be rendered before the
	// change either, and in Same of them nothing differs.
	Rendered   []rendered `json:"rendered"`
	Withheld   []rendered `json:"withheld"`
	Unrendered int        `json:"unrendered"`
	Broken     int        `json:"broken"`
	Same       int        `json:"same"`
}

// diff is what differs in one of the resources.
type diff struct {
	Object    string `json:"object"`
	Diff      string `json:"diff"`
	Truncated bool   `json:"truncated"`
}

// planned is what is to be written about a pull request.
type planned struct {
	head string
	// outcome is what became of it where nothing is written.
	outcome string
	body    string
	// summary is the plan in a few words, as the status of the commit says it.
	summary string
	// onlyKnown reports whether only a comment that exists is changed: nothing is to be written about a change that touches no application.
	onlyKnown bool
	// render is what is to be rendered before it can be planned.
	render []target
	// reading is what was read, with what is shown of overlays and charts.
	reading json.RawMessage
}

// plan plans what was read. A rollout that waits for a request is judged as that of a member who is in no group.
func (u *UseCases) plan(ctx context.Context, organization int64, p Pull) (planned, error) {
	var r reading
	if err := json.Unmarshal(p.Reading, &r); err != nil {
		return planned{}, fault.Because(err, fault.Invalid, "what was read of it cannot be decoded")
	}
	made := planned{head: r.Head}
	switch {
	case r.State != "open":
		made.outcome = "it is " + r.State
		return made, nil
	case r.Refused != "":
		made.outcome = r.Refused
		return made, nil
	}
	var mirrors []Mirror
	var targets []target
	err := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) (err error) {
		if mirrors, err = tx.ForgeMirrors(ctx, organization); err != nil {
			return err
		}
		targets, err = u.targets(ctx, tx, p.Name)
		return err
	})
	if err != nil {
		return made, err
	}
	if r.Base != "" && p.readBefore() == nil {
		if made.render = chosen(touched(targets, r)); len(made.render) > 0 {
			return made, nil
		}
	}
	r = r.withTargets(targets)
	all, more, err := u.plans.Foresee(ctx, core.Actor{Organization: organization, Type: core.PrincipalUser}, trigger.Change{
		Repository: p.Repository, Branch: r.Into, Paths: r.Paths, SHA: r.Head, Message: r.Message,
	})
	if err != nil {
		return made, err
	}
	all = slices.DeleteFunc(all, func(t trigger.Touched) bool { return leftOut(mirrors, t.Application.ID) })
	if made.reading, err = json.Marshal(r); err != nil {
		return made, fmt.Errorf("write what was read of pull request %d: %w", p.ID, err)
	}
	made.body, made.summary, made.onlyKnown = comment(r, all, more), summary(r, all, more), len(all) == 0 && !more && r.differing() == 0
	return made, nil
}

// leftOut reports whether plans say nothing of an application.
func leftOut(mirrors []Mirror, application int64) bool {
	return slices.ContainsFunc(mirrors, func(m Mirror) bool { return m.ApplicationID == application && !m.Plans })
}
