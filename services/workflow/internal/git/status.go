package git

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// reporter is what a forge's interface can do about the statuses of commits.
type reporter interface {
	// statuses are what others have reported about a commit.
	statuses(ctx context.Context, commit string) ([]activity.CommitStatus, error)
	// commitStatuses are those without the results that only Apps report.
	commitStatuses(ctx context.Context, commit string) ([]activity.CommitStatus, error)
	// setStatus adds a status, which is the latest of its name from then on.
	setStatus(ctx context.Context, commit string, s activity.CommitStatus) error
	// has reports whether a status that the forge has says all of another one that a forge of the kind can be given.
	has(known, wanted activity.CommitStatus) bool
}

const (
	// maxPages bounds how much is read of a list, and with it how many statuses of a commit are read.
	maxPages = 10
	// maxText is how many characters of a description are sent: GitHub accepts no more.
	maxText = 140
)

// pages reads a list page by page. read reads one page and returns how many entries it has. A list that is longer than the bound is
// refused: an entry that was left out could be one that has failed.
func (r rest) pages(size int, read func(page int) (entries int, err error)) error {
	for page := 1; page <= maxPages; page++ {
		entries, err := read(page)
		if err != nil || entries < size {
			return err
		}
	}
	return fault.New(fault.Refused, "%s has %d entries or more in a list, expected fewer", r.url, size*maxPages)
}

// same reports whether two statuses say the same.
func same(known, wanted activity.CommitStatus) bool { return known == wanted }

// ReadStatus implements activity.Forge.
func (f *Forge) ReadStatus(ctx context.Context, organization int64, repoURL, commit string) (all []activity.CommitStatus, err error) {
	if !commitID.MatchString(commit) {
		return nil, invalid("commit", "found %q, expected the id of a commit", commit)
	}
	err = f.propose(ctx, organization, repoURL, func(ctx context.Context, h *hosted) (err error) {
		all, err = h.statuses(ctx, commit)
		return err
	})
	slices.SortStableFunc(all, func(a, b activity.CommitStatus) int { return strings.Compare(a.Name, b.Name) })
	return all, err
}

// SetStatus implements activity.Forge. Forges keep every status that they are given, and GitHub a limited number of them, so one that the
// forge has already is not sent again.
func (f *Forge) SetStatus(ctx context.Context, s activity.StatusRequest) (report activity.StatusReport, err error) {
	if !commitID.MatchString(s.Commit) {
		return report, invalid("commit", "found %q, expected the id of a commit", s.Commit)
	}
	wanted := s.Status
	wanted.Description = shortened(wanted.Description)
	err = f.propose(ctx, s.Organization, s.RepoURL, func(ctx context.Context, h *hosted) error {
		report = activity.StatusReport{}
		err := h.publish(ctx, s.Commit, wanted, &report)
		report.Quota, report.Shared = h.seen.quota, h.seen.shared
		return err
	})
	if limit, ok := errors.AsType[*limitError](err); ok {
		report.Limited, report.Wait = fault.Public(err), limit.wait
		return report, nil
	}
	return report, err
}

// publish sets a status, unless the forge has it.
func (h *hosted) publish(ctx context.Context, commit string, wanted activity.CommitStatus, report *activity.StatusReport) error {
	known, err := h.commitStatuses(ctx, commit)
	if err != nil {
		return missing(err, "commit %s does not exist in %s, or the credential does not show it", commit, h.url)
	}
	at := slices.IndexFunc(known, func(k activity.CommitStatus) bool { return k.Name == wanted.Name })
	if report.Unchanged = at >= 0 && h.has(known[at], wanted); report.Unchanged {
		return nil
	}
	return h.setStatus(ctx, commit, wanted)
}

// shortened is a text as long as every forge accepts it.
func shortened(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if utf8.RuneCountInString(text) <= maxText {
		return text
	}
	return string([]rune(text)[:maxText-1]) + "…"
}

// limitError reports that a forge accepts no more requests for now. It is inside of an error of the class Unavailable.
type limitError struct{ wait time.Duration }

// Error implements error.
func (e *limitError) Error() string { return "too many requests" }

// allowance is what the answers of a forge say about the requests that it still accepts.
type allowance struct {
	quota *activity.Quota
	// shared reports whether the credential is the operator's, which other organizations may use as well.
	shared bool
}

// look reads what an answer says about the requests that are still accepted: GitHub's and GitLab's headers.
func (r rest) look(answer *http.Response) {
	for _, prefix := range []string{"X-Ratelimit-", "Ratelimit-"} {
		limit, errLimit := strconv.ParseInt(answer.Header.Get(prefix+"Limit"), 10, 64)
		remaining, errRemaining := strconv.ParseInt(answer.Header.Get(prefix+"Remaining"), 10, 64)
		reset, errReset := strconv.ParseInt(answer.Header.Get(prefix+"Reset"), 10, 64)
		if errLimit == nil && errRemaining == nil && errReset == nil && limit >= 0 && remaining >= 0 && reset >= 0 {
			r.seen.quota = &activity.Quota{Limit: limit, Remaining: remaining, ResetsAt: time.Unix(reset, 0).UTC()}
			return
		}
	}
}

// maxWait bounds what a forge may ask for.
const maxWait = time.Hour

// pause is how long an answer asks to wait: as Retry-After has it, or until the allowance begins again; 0 if it does not say.
func (r rest) pause(answer *http.Response) time.Duration {
	after := answer.Header.Get("Retry-After")
	if seconds, err := strconv.ParseInt(after, 10, 32); err == nil {
		return clamped(time.Duration(seconds) * time.Second)
	}
	if at, err := http.ParseTime(after); err == nil {
		return clamped(at.Sub(r.now()))
	}
	if q := r.seen.quota; q != nil && q.Remaining == 0 {
		return clamped(q.ResetsAt.Sub(r.now()))
	}
	return 0
}

func clamped(d time.Duration) time.Duration { return max(0, min(d, maxWait)) }
