package forge

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

const (
	// kept is how long statuses are kept after their last change.
	kept = 30 * 24 * time.Hour
	// forgottenAtOnce limits how many old rows are deleted with each mark.
	forgottenAtOnce = 20
	// putOff is how long something waits that has failed because of an error of ours.
	putOff = time.Minute
	// maxCommits is how many commits of a version set have statuses: those of its first versions.
	maxCommits = 100
	// prefix is what the names of all statuses begin with.
	prefix = "lockstep/"
)

// Worked is what a worker did, for the log.
type Worked struct {
	Organization int64
	// What is make (statuses of what may have changed), send, look at a run, plan (a pull request), or put off.
	What string
	// Application and VersionSet, or Status, or Pull are what it was about; 0 for none.
	Application, VersionSet, Status, Pull int64
	State                                 State
	Error                                 string
}

// WorkDue does the next thing that is due: it makes statuses of what may have changed, or sends a status or looks at one that is being
// sent. It reports false if nothing is due. Organizations take turns.
func (u *UseCases) WorkDue(ctx context.Context) (Worked, bool, error) {
	organizations, err := u.store.OrganizationsWithDueForge(ctx, u.clock.Now())
	if err != nil {
		return Worked{}, false, err
	}
	for _, organization := range u.turns(organizations) {
		w, worked, err := u.workIn(ctx, organization)
		if err != nil || worked {
			u.served.Store(organization)
			return w, worked, err
		}
	}
	return Worked{}, false, nil
}

// turns returns organizations, beginning after the one served last, so that none waits for all statuses of another.
func (u *UseCases) turns(organizations []int64) []int64 {
	slices.Sort(organizations)
	first := slices.IndexFunc(organizations, func(o int64) bool { return o > u.served.Load() })
	if first <= 0 {
		return organizations
	}
	return append(slices.Clone(organizations[first:]), organizations[:first]...)
}

// errOld is that something has changed since it was read.
var errOld = errors.New("it has changed since it was read")

// workIn does the next thing of an organization: making statuses first, because it is quick, and only the newest of each name is sent.
func (u *UseCases) workIn(ctx context.Context, organization int64) (Worked, bool, error) {
	w := Worked{Organization: organization, What: "make"}
	var m Mark
	found := false
	err := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) (err error) {
		m, found, err = tx.DueForgeMark(ctx, u.clock.Now())
		return err
	})
	if err != nil {
		return w, false, err
	}
	if !found {
		w, worked, err := u.sendNext(ctx, organization)
		if err != nil || worked {
			return w, worked, err
		}
		if w, worked, err := u.readPlaces(ctx, organization); err != nil || worked {
			return w, worked, err
		}
		return u.pullNext(ctx, organization)
	}
	w.Application, w.VersionSet = m.Application, m.VersionSet
	err = u.make(ctx, organization, m)
	if errors.Is(err, errOld) {
		return w, true, nil // it is still marked
	}
	if err != nil {
		err = fmt.Errorf("make statuses of version set %d: %w", m.VersionSet, err)
		if later := u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
			return tx.PutOffForgeMarks(ctx, m, u.clock.Now().Add(putOff))
		}); later != nil {
			return w, false, fmt.Errorf("put it off: %w, after: %w", later, err)
		}
	}
	return w, err == nil, err
}

// subject is what is known of a version set of an application.
type subject struct {
	mark        Mark
	mirror      Mirror
	publishes   bool
	application core.Application
	set         core.VersionSet
	rollout     core.Rollout
	stops       []core.RolloutEnvironment
	states      []core.CheckState
	// rollouts are those whose deployments are published.
	rollouts []under
	live     map[int64]Live
	names    map[int64]core.Environment
	commits  []commit
	// gaps are what keeps the commits from being all of the version set; none if they are.
	gaps []string
}

// commit is one of a repository.
type commit struct{ repository, host, sha string }

// statement is what is published of a subject under a name.
type statement struct {
	name                 string
	environment, rollout int64
	kind                 Published
	part                 Part
	// onlyKnown means that it changes what is published already, and is published for nothing else.
	onlyKnown bool
}

// make turns a mark into statuses. What is read before the marks are taken is not older than the marks.
func (u *UseCases) make(ctx context.Context, organization int64, m Mark) error {
	s, err := u.read(ctx, organization, m)
	if err != nil {
		return err
	}
	counted := false
	err = u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
		fresh, err := tx.TakeForgeMarks(ctx, m)
		if err != nil {
			return err
		}
		if !fresh {
			return errOld
		}
		now := u.clock.Now()
		if counted, err = u.count(ctx, tx, organization, s); err != nil {
			return err
		}
		for _, st := range append(u.statements(s), u.deployments(s)...) {
			for _, c := range s.commits {
				if err := tx.MergeForgeStatus(ctx, Status{
					Kind: st.kind, Repository: c.repository, Host: c.host, Commit: c.sha, Name: st.name, ApplicationID: m.Application,
					EnvironmentID: st.environment, RolloutID: st.rollout, Part: st.part, Credential: s.mirror.Credential, Delivery: Delivery{DueAt: now},
				}, st.onlyKnown); err != nil {
					return err
				}
			}
		}
		if due := s.next(); due != nil && len(s.commits) > 0 {
			if err := tx.AddForgeMark(ctx, m.Application, m.VersionSet, *due); err != nil {
				return err
			}
		}
		return tx.ForgetForgeStatuses(ctx, now.Add(-kept), forgottenAtOnce)
	})
	if counted && err == nil {
		u.review()
	}
	return err
}

// read reads what is known of the subject of a mark; of what is only published nothing if the application is not.
func (u *UseCases) read(ctx context.Context, organization int64, m Mark) (s subject, err error) {
	var reports []core.CheckReport
	err = u.store.In(ctx, organization, func(ctx context.Context, tx Tx) error {
		s, reports = subject{mark: m}, nil
		mirrors, err := tx.ForgeMirrors(ctx, organization)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(mirrors, func(one Mirror) bool { return one.ApplicationID == m.Application })
		if s.publishes = at >= 0 && mirrors[at].Enabled; s.publishes {
			s.mirror = mirrors[at]
		}
		if reports, err = s.readSet(ctx, tx, organization); err != nil || !s.publishes || len(s.commits) == 0 {
			return err
		}
		return s.readPlaces(ctx, tx, organization, reports)
	})
	if err != nil || len(s.commits) == 0 || !s.publishes {
		return s, err
	}
	if s.rollout.ID != 0 {
		states, err := u.checks.RolloutChecks(ctx, organization, []int64{s.rollout.ID})
		if err != nil {
			return s, err
		}
		s.states = states[s.rollout.ID]
	}
	s.states = append(s.states, u.unpinned(s.states, reports)...)
	return s, nil
}

// readSet reads the version set, its commits, what was reported about it, and its latest rollout.
func (s *subject) readSet(ctx context.Context, tx Tx, organization int64) ([]core.CheckReport, error) {
	versions, err := tx.VersionsOfSet(ctx, s.mark.VersionSet)
	if err != nil {
		return nil, err
	}
	var ids []int64
	for _, v := range versions {
		ids = append(ids, v.ID)
	}
	origins, err := tx.Origins(ctx, organization, ids)
	if err != nil {
		return nil, err
	}
	if s.commits, s.gaps = commitsOf(versions, origins); len(s.commits)+len(s.gaps) == 0 {
		return nil, nil
	}
	applications, err := tx.ApplicationsByID(ctx, organization, []int64{s.mark.Application})
	if err != nil {
		return nil, err
	}
	sets, err := tx.VersionSetsByID(ctx, organization, []int64{s.mark.VersionSet})
	if err != nil {
		return nil, err
	}
	s.application, s.set = applications[s.mark.Application], sets[s.mark.VersionSet]
	id, err := tx.LatestRolloutOfSet(ctx, s.mark.Application, s.mark.VersionSet)
	if err != nil {
		return nil, err
	}
	if id != 0 {
		rollouts, err := tx.RolloutsByID(ctx, organization, []int64{id})
		if err != nil {
			return nil, err
		}
		s.rollout = rollouts[id]
	}
	reports, err := tx.CheckReports(ctx, organization, []int64{s.mark.VersionSet})
	return reports[s.mark.VersionSet], err
}

// readPlaces reads where the latest rollout has come to, and what is live.
func (s *subject) readPlaces(ctx context.Context, tx Tx, organization int64, reports []core.CheckReport) error {
	if s.rollout.ID != 0 {
		stops, err := tx.RolloutEnvironmentsByRollout(ctx, organization, []int64{s.rollout.ID})
		if err != nil {
			return err
		}
		s.stops = stops[s.rollout.ID]
	}
	var err error
	if s.live, err = tx.ForgeLive(ctx, s.mark.Application); err != nil {
		return err
	}
	if err := s.readDeployments(ctx, tx, organization); err != nil {
		return err
	}
	var places []int64
	for _, one := range s.rollouts {
		for _, e := range one.stops {
			places = append(places, e.EnvironmentID)
		}
	}
	for _, r := range reports {
		places = append(places, r.EnvironmentID)
	}
	for _, e := range s.stops {
		places = append(places, e.EnvironmentID)
	}
	for id := range s.live {
		places = append(places, id)
	}
	s.names, err = tx.EnvironmentsByID(ctx, organization, core.Distinct(places))
	return err
}

// unpinned are the checks that were reported about, and that no rollout has pinned.
func (u *UseCases) unpinned(pinned []core.CheckState, reports []core.CheckReport) []core.CheckState {
	c := core.Checks{Reports: reports}
	var places []core.CheckPlace
	for _, r := range reports {
		is := func(p core.PinnedCheck) bool { return p.EnvironmentID == r.EnvironmentID && p.Key == r.Key }
		if r.Reporter.Type == core.PrincipalSystem || slices.ContainsFunc(c.Pinned, is) ||
			slices.ContainsFunc(pinned, func(s core.CheckState) bool { return is(s.PinnedCheck) }) {
			continue
		}
		c.Pinned = append(c.Pinned, core.PinnedCheck{
			Check: core.Check{Key: r.Key, Kind: core.CheckStatus}, EnvironmentID: r.EnvironmentID, Target: core.CheckActive,
		})
		if !slices.ContainsFunc(places, func(p core.CheckPlace) bool { return p.EnvironmentID == r.EnvironmentID }) {
			places = append(places, core.CheckPlace{EnvironmentID: r.EnvironmentID})
		}
	}
	return c.All(places, u.clock.Now())
}

// covers reports whether a mirror is about an environment.
func (m Mirror) covers(environment int64) bool {
	return len(m.EnvironmentIDs) == 0 || slices.Contains(m.EnvironmentIDs, environment)
}

// published reports whether what concerns an environment is published.
func (s subject) published(environment int64) bool {
	e := s.names[environment]
	return e.Name != "" && e.ArchivedAt == nil && s.mirror.covers(environment)
}

// statements are what is published of a subject: of checks with the same key in an environment the worst.
func (u *UseCases) statements(s subject) []statement {
	var all []statement
	add := func(environment int64, key string, phase core.CheckPhase, description, link string) {
		if !s.published(environment) {
			return
		}
		// With the application: who may configure one names any repository in its sources, and must not speak for others there.
		st := statement{name: prefix + s.application.Name + "/" + s.names[environment].Name, environment: environment, kind: PublishedStatus, part: Part{
			Set: s.mark.VersionSet, Phase: phase, Description: cut(description, maxDescription), Link: link,
		}}
		if key != "" {
			st.name += "/" + key
		}
		at := slices.IndexFunc(all, func(other statement) bool { return other.name == st.name })
		switch {
		case at < 0:
			all = append(all, st)
		case rank(st.part.Phase) > rank(all[at].part.Phase):
			all[at] = st
		}
	}
	link := u.link(s.rollout.ID)
	for _, c := range s.states {
		text := c.Detail
		if c.Kind == core.CheckTimer && c.Next != nil { // how much remains changes all the time
			text = "waits until " + c.Next.UTC().Format(time.RFC3339)
		}
		add(c.EnvironmentID, c.Key, c.Phase, text, cmp.Or(link, c.Link))
	}
	for _, e := range s.stops {
		if e.State != core.RolloutCompleted || e.FinishedAt == nil {
			continue
		}
		name := s.names[e.EnvironmentID].Name
		text := fmt.Sprintf("in %s since %s (%s)", name, e.FinishedAt.UTC().Format("2006-01-02 15:04 MST"), s.set.Name)
		if live, is := s.live[e.EnvironmentID]; is && live.VersionSet != s.mark.VersionSet {
			text = fmt.Sprintf("was in %s from %s; now there is %s", name, e.FinishedAt.UTC().Format("2006-01-02 15:04 MST"), live.Name)
		}
		add(e.EnvironmentID, "", core.CheckSuccess, text, link)
	}
	slices.SortFunc(all, func(a, b statement) int { return strings.Compare(a.name, b.name) }) // so that no two workers wait for each other
	return all
}

// next is when a check may change by itself; nil if none does, or the rollout is over.
func (s subject) next() (due *time.Time) {
	if s.rollout.FinishedAt != nil {
		return nil
	}
	for _, c := range s.states {
		if c.Next != nil && s.published(c.EnvironmentID) && (due == nil || c.Next.Before(*due)) {
			due = c.Next
		}
	}
	return due
}

// rank orders phases: the worst is published.
func rank(p core.CheckPhase) int {
	return slices.Index([]core.CheckPhase{core.CheckSuccess, core.CheckPending, core.CheckFailure}, p)
}

// link leads to a rollout in the console; empty without an address or a rollout.
func (u *UseCases) link(rollout int64) string {
	if u.url == "" || rollout == 0 {
		return ""
	}
	return fmt.Sprintf("%s/rollouts/rollout_%d", strings.TrimSuffix(u.url, "/"), rollout)
}

const maxDescription = 500

func cut(text string, most int) string {
	text = strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "\uFFFD")
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

// tooMany is the gap of a version set that comes from more commits than have statuses.
func tooMany() string {
	return fmt.Sprintf("a version set of fewer commits: found more than %d commits", maxCommits)
}

// commitForm is a full commit ID, of SHA-1 or SHA-256.
var commitForm = regexp.MustCompile(`^[0-9a-f]{40}([0-9a-f]{24})?$`)

// commitsOf are the commits that versions come from: themselves, or what verified provenance states about an image. A repository that is
// written in several ways is one: as its source has it, before what provenance says. The gaps say which versions have no known commit, and
// whether there are more than have statuses.
func commitsOf(versions []SetVersion, origins map[int64]core.Origin) (all []commit, gaps []string) {
	known, more := map[string]bool{}, false
	add := func(repository, sha string) bool {
		u, err := url.Parse(repository)
		sha = strings.ToLower(sha)
		if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" ||
			len(repository) > 1000 || len(u.Host) > 300 || !commitForm.MatchString(sha) || strings.Trim(u.Path, "/") == "" {
			return false
		}
		host := strings.ToLower(u.Host)
		place := &url.URL{Scheme: u.Scheme, Host: host, Path: strings.TrimSuffix(strings.TrimRight(u.Path, "/"), ".git")}
		key := strings.ToLower(host+place.Path) + " " + sha
		switch {
		case known[key]:
		case len(all) == maxCommits:
			more = true
		default:
			known[key] = true
			all = append(all, commit{repository: place.String(), host: host, sha: sha})
		}
		return true
	}
	for _, v := range versions {
		if v.IsImage() {
			continue
		}
		var config struct{ Repository string }
		if json.Unmarshal(v.Config, &config) != nil || !add(config.Repository, v.Digest) { // a source without one has no repository
			gaps = append(gaps, "the repository of "+v.Reference)
		}
	}
	for _, v := range versions {
		if !v.IsImage() {
			continue
		}
		has := false
		if r := origins[v.ID].Report; r != nil {
			for _, source := range r.Sources {
				has = add(source.Repository, source.Revision) || has
			}
		}
		if !has {
			gaps = append(gaps, "provenance of "+v.Reference)
		}
	}
	if more {
		gaps = append(gaps, tooMany())
	}
	slices.SortFunc(all, func(a, b commit) int {
		return cmp.Or(strings.Compare(a.repository, b.repository), strings.Compare(a.sha, b.sha))
	})
	return all, gaps
}

// missing reports whether something does not exist.
func missing(err error) bool { return fault.Is(err, fault.NotFound) }
