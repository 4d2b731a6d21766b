package forge

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pattern"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// Report is a status of a commit as a forge has it, with the event that brought it.
type Report struct {
	In core.Inbound
	// Hook is the key of the hook that received it.
	Hook string
	// Kind is KindStatus or KindRun; empty in events of older releases, which do not say it.
	Kind string
	// Repository is an address.
	Repository, Commit, Context string
	Phase                       core.CheckPhase
	Description, Link           string
	// ObservedAt and the forge's number of it say which of two is later; of two runs the number alone does.
	ObservedAt time.Time
	Sequence   int64
}

// The kinds of reports: of one context of a commit there may be one of each, and both count.
const (
	KindStatus = "status"
	// KindRun is a check run or a job.
	KindRun = "run"
)

// Received is a report that is recorded. Its repository is host and path.
type Received struct {
	Report
	HookID int64
	// CheckKeys are the checks that the reports of its hook count for; none for all.
	CheckKeys []string
}

const (
	// reportsKept is how long reports are kept after their last change whose commit no version set that was rolled out comes from.
	reportsKept = 90 * 24 * time.Hour
	// maxReport bounds the description of what checks come to.
	maxReport = 1000
	// maxRepository bounds the host and path of a repository, in bytes.
	maxRepository = 1000
)

// ReportStatuses records what forges report of commits, and has the checks looked at that may follow from it. It may be repeated at any
// point, and the order does not matter: the latest report by the forge's own time counts. It answers the error, or nil, of each that was
// tried; while the database is away, none behind the first is.
func (u *UseCases) ReportStatuses(ctx context.Context, all []Report) []error {
	defer u.wake()
	return each(all, func(r Report) error { return u.receive(ctx, r) })
}

// each takes reports one after the other, and ends behind the first that cannot be taken for now: the others are delivered again with it.
func each[T any](all []T, take func(T) error) (tried []error) {
	for _, r := range all {
		err := take(r)
		if tried = append(tried, err); fault.Is(err, fault.Unavailable) {
			break
		}
	}
	return tried
}

func (u *UseCases) receive(ctx context.Context, r Report) error {
	if r.In.Organization <= 0 {
		return fault.InvalidFields(fault.Field{Name: "organizationid", Problem: "missing; expected that of the hook"})
	}
	outcome := &u.counts.ignored
	err := u.store.In(ctx, r.In.Organization, func(ctx context.Context, tx Tx) error {
		outcome = &u.counts.ignored
		if _, err := tx.ClaimAll(ctx, []core.Inbound{r.In}); err != nil {
			return err
		}
		hook, err := tx.ForgeHookByKey(ctx, r.Hook)
		if missing(err) { // it was removed, or never made
			return nil
		}
		if err != nil {
			return err
		}
		r.Repository = RepositoryName(r.Repository)
		if !r.usable() || !slices.ContainsFunc(hook.Repositories, func(p string) bool { return pattern.Match(p, r.Repository) }) {
			return nil
		}
		if err := tx.LockForgeCommit(ctx, r.Commit); err != nil {
			return err
		}
		later, err := tx.SaveForgeReport(ctx, Received{Report: r, HookID: hook.ID})
		if err != nil {
			return err
		}
		if outcome = &u.counts.old; !later {
			return nil
		}
		outcome = &u.counts.taken
		if err := tx.MarkForgeCommit(ctx, r.Commit); err != nil {
			return err
		}
		return tx.ForgetForgeReports(ctx, u.clock.Now().Add(-reportsKept), forgottenAtOnce)
	})
	if err != nil {
		return fmt.Errorf("record a status of commit %.64s: %w", r.Commit, err)
	}
	outcome.Add(1)
	return nil
}

// usable reports whether it can be about anything. What Lockstep itself publishes is no report: it would confirm itself.
func (r Report) usable() bool {
	return r.Repository != "" && commitForm.MatchString(r.Commit) && r.Context != "" && len(r.Context) <= 255 && !strings.HasPrefix(r.Context, prefix)
}

// RepositoryName is the host and the path of a repository's address, in lower case; empty if it is malformed, has control characters, or is
// longer than maxRepository. Over SSH it is the same, without the user and the port.
func RepositoryName(address string) string {
	if place, is, err := sealing.ParseSSH(address); is && err == nil {
		address = "https://" + place.URL.Hostname() + place.URL.Path
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || len(address) > 1000 {
		return ""
	}
	name := strings.ToLower(u.Host + strings.TrimSuffix(strings.TrimRight(u.Path, "/"), ".git"))
	if len(name) > maxRepository || !utf8.ValidString(u.Path) || strings.ContainsFunc(name, unicode.IsControl) {
		return ""
	}
	return name
}

// place is a check by what it is reported under.
type place struct {
	environment int64
	key         string
}

// need is a status that a check follows from. One with a gap is never met: there is no commit that a status could be of.
type need struct {
	repository, commit, context, gap string
	// ssh is that the repository is known over SSH, whose name says nothing of the port that its pages have.
	ssh bool
}

// of reports whether a repository that a forge reports about, or that a check names, is the one that is needed.
func (n need) of(reported string) bool {
	if n.ssh {
		reported = withoutPort(reported)
		return reported != "" && reported == withoutPort(n.repository)
	}
	return reported == n.repository
}

// withoutPort is the name of a repository without the port of its host.
func withoutPort(name string) string {
	host, rest, _ := strings.Cut(name, "/")
	if at := strings.LastIndexByte(host, ':'); at > strings.LastIndexByte(host, ']') {
		host = host[:at]
	}
	return host + "/" + rest
}

func (n need) String() string {
	if n.gap != "" {
		return n.gap
	}
	if n.commit == "" {
		return fmt.Sprintf("%s of %s, which no version comes from", n.context, n.repository)
	}
	return fmt.Sprintf("%s of %s@%s", n.context, n.repository, n.commit[:12])
}

// count has the checks of a rollout follow from what forges have reported about the commits of its version set. It reports whether a status
// of a check was added.
func (u *UseCases) count(ctx context.Context, tx Tx, organization int64, s subject) (bool, error) {
	if s.rollout.ID == 0 {
		return false, nil
	}
	var commits []string
	for _, c := range s.commits {
		commits = append(commits, c.sha)
	}
	slices.Sort(commits) // so that no two workers wait for each other
	commits = slices.Compact(commits)
	for _, sha := range commits {
		if err := tx.LockForgeCommit(ctx, sha); err != nil {
			return false, err
		}
	}
	hooks, err := tx.ForgeHooks(ctx, organization)
	if err != nil {
		return false, err
	}
	if len(hooks) > 0 {
		for _, sha := range commits {
			if err := tx.SaveForgeCommit(ctx, s.mark.Application, s.mark.VersionSet, sha); err != nil {
				return false, err
			}
		}
		// They count, however old they become: a check that was green would wait again otherwise.
		if err := tx.KeepForgeReports(ctx, commits); err != nil {
			return false, err
		}
	}
	received, err := tx.ForgeReports(ctx, commits)
	if err != nil {
		return false, err
	}
	pinned, err := tx.ChecksByRollout(ctx, organization, []int64{s.rollout.ID})
	if err != nil {
		return false, err
	}
	known, err := tx.CheckReports(ctx, organization, []int64{s.mark.VersionSet})
	if err != nil {
		return false, err
	}
	places, needs := needed(pinned[s.rollout.ID], s.commits, s.gaps)
	added := false
	for _, p := range places {
		r, follows := conclude(needs[p], p.key, received)
		at := slices.IndexFunc(known[s.mark.VersionSet], func(k core.CheckReport) bool {
			return k.EnvironmentID == p.environment && k.Key == p.key && k.Reporter.Principal == core.ForgeReporter().Principal
		})
		if !follows && at < 0 {
			continue
		}
		if at >= 0 {
			if k := known[s.mark.VersionSet][at]; k.Phase == r.Phase && k.Description == r.Description && k.Link == r.Link {
				continue
			}
		}
		now := u.clock.Now()
		r.ApplicationID, r.EnvironmentID, r.VersionSetID, r.Key = s.mark.Application, p.environment, s.mark.VersionSet, p.key
		r.Reporter, r.CreatedAt = core.ForgeReporter(), now
		if r.ObservedAt.IsZero() || r.ObservedAt.After(now) {
			r.ObservedAt = now
		}
		if _, err := tx.AddCheckReport(ctx, r); err != nil {
			return false, err
		}
		added = true
	}
	if added && s.rollout.FinishedAt == nil {
		return true, tx.ScheduleReview(ctx, s.rollout.ID, u.clock.Now())
	}
	return added, nil
}

// needed are the checks of kind status, in their order, with the statuses that each needs: of every commit of the version set, or of
// those of the repository that the check names. Versions whose commit is not known may come from any repository, and keep a check that
// names none from success; commits that were left out keep every check from it.
func needed(pinned []core.PinnedCheck, commits []commit, gaps []string) (places []place, needs map[place][]need) {
	needs = map[place][]need{}
	for _, c := range pinned {
		if c.Kind != core.CheckStatus {
			continue
		}
		p := place{c.EnvironmentID, c.Key}
		var of struct{ Context, Repository string }
		if len(c.Config) > 0 && json.Unmarshal(c.Config, &of) != nil {
			continue // the pipeline's schema has checked it
		}
		only := strings.ToLower(of.Repository)
		var own []need
		for _, one := range commits {
			_, ssh, _ := sealing.ParseSSH(one.repository)
			n := need{repository: RepositoryName(one.repository), commit: one.sha, context: cmp.Or(of.Context, c.Key), ssh: ssh}
			if only == "" || n.of(only) {
				own = append(own, n)
			}
		}
		for _, gap := range gaps {
			if only == "" || gap == tooMany() {
				own = append(own, need{gap: gap})
			}
		}
		if len(own) == 0 {
			own = append(own, need{repository: only, context: cmp.Or(of.Context, c.Key)})
		}
		if _, again := needs[p]; !again {
			places = append(places, p)
		}
		for _, n := range own { // a check that the environment requires and one of the pipeline may have one key: both have to be green
			if !slices.Contains(needs[p], n) {
				needs[p] = append(needs[p], n)
			}
		}
	}
	return places, needs
}

// conclude is what a check comes to by the statuses that it needs: a failure if one has failed, a success if all have succeeded. It reports
// false if there is none of them.
func conclude(needs []need, key string, received []Received) (core.CheckReport, bool) {
	var worst *Received
	var open need
	var at time.Time
	found := 0
	for _, n := range needs {
		latest := map[string]Received{} // by kind: a run and a status of one name both count
		for _, r := range received {    // of each kind the latest is the last
			if n.gap == "" && r.Commit == n.commit && n.of(r.Repository) && r.Context == n.context && permits(r.CheckKeys, key) {
				latest[r.Kind] = r
			}
		}
		if len(latest) == 0 {
			open = n
			continue
		}
		found++
		until := time.Time{}
		for _, kind := range []string{KindStatus, KindRun, ""} {
			r, reported := latest[kind]
			if !reported || kind == "" && len(latest) > 1 && !r.ObservedAt.After(until) { // it may be one of those that do say their kind
				continue
			}
			if r.ObservedAt.After(until) {
				until = r.ObservedAt
			}
			if worst == nil || rank(r.Phase) > rank(worst.Phase) {
				worst = &r
			}
		}
		if until.After(at) {
			at = until
		}
	}
	if worst == nil {
		text := "no forge reports " + open.String() + " any more"
		if open.gap != "" {
			text = "waits for " + open.gap
		}
		return core.CheckReport{Phase: core.CheckPending, Description: cut(text, maxReport)}, false
	}
	if found < len(needs) && worst.Phase != core.CheckFailure {
		return core.CheckReport{Phase: core.CheckPending, Description: cut("waits for "+open.String(), maxReport), ObservedAt: at}, true
	}
	text := core.Because(need{repository: worst.Repository, commit: worst.Commit, context: worst.Context}.String(), worst.Description)
	link := worst.Link
	if !core.PlainLink(link) {
		link = ""
	}
	return core.CheckReport{Phase: worst.Phase, Description: cut(text, maxReport), Link: link, ObservedAt: at}, true
}
