package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/gitfetch"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// discusser is what a forge's interface can do about what pull requests change, and about comments on them.
type discusser interface {
	// reading is a pull request.
	reading(ctx context.Context, number int64) (reading, error)
	// changed are the names of the files that it changes, those of one page; the last page has fewer entries than size.
	changed(ctx context.Context, number int64, page int) (paths []string, entries, size int, err error)
	// message is that of the last commit of a pull request.
	message(ctx context.Context, number int64, head string) (string, error)
	// mayWrite reports whether a user may write to the repository.
	mayWrite(ctx context.Context, who string) (bool, error)
	// account is the number of the account of the credential; 0 for an App of which the forge does not say it.
	account(ctx context.Context) (int64, error)
	// comments are all of a pull request, the oldest first.
	comments(ctx context.Context, number int64) ([]comment, error)
	addComment(ctx context.Context, number int64, body string) (comment, error)
	editComment(ctx context.Context, number, id int64, body string) error
	removeComment(ctx context.Context, number, id int64) error
}

// reading is a pull request as its forge shows it.
type reading struct {
	activity.Proposal
	// base is the commit that it is compared with, and ref the name under which the server has its head.
	base, ref string
	// fork reports whether its author may lack the right to write: it is from another repository, or is loose, of no branch.
	fork, loose bool
	// preparing reports whether the forge does not know base yet.
	preparing bool
}

// comment is one on a pull request.
type comment struct {
	id, author int64
	body, url  string
}

const (
	// maxManifests is how many manifests of a change are read, maxManifest how large one may be, and maxTogether all of them.
	maxManifests = 20
	maxManifest  = 128 << 10
	maxTogether  = 1 << 20
	// maxNames bounds the names of the files of a change together, in bytes, and maxName each.
	maxNames = 128 << 10
	maxName  = 4096
)

// limitOf separates a forge that accepts no more requests for now from an error.
func limitOf(seen allowance, err error) (activity.Limit, error) {
	found := activity.Limit{Quota: seen.quota, Shared: seen.shared}
	if limit, ok := errors.AsType[*limitError](err); ok {
		found.Limited, found.Wait = fault.Public(err), limit.wait
		return found, nil
	}
	return found, err
}

// ReadChange implements activity.Forge.
func (f *Forge) ReadChange(ctx context.Context, r activity.ChangeRequest) (found activity.Change, err error) {
	var seen allowance
	var base, ref string
	err = f.propose(ctx, r.Organization, r.RepoURL, func(ctx context.Context, h *hosted) (err error) {
		found, base, ref, err = h.readChange(ctx, r)
		seen = *h.seen
		return err
	})
	if found.Limit, err = limitOf(seen, err); err != nil || found.Limited != "" || found.Refused != "" || found.State != activity.ProposalOpen {
		return found, err
	}
	found.Files, err = f.manifests(ctx, r, base, ref, found)
	return found, err
}

func (h *hosted) readChange(ctx context.Context, r activity.ChangeRequest) (found activity.Change, base, ref string, err error) {
	p, err := h.reading(ctx, r.Number)
	if err != nil {
		return found, "", "", missing(err, "pull request %d does not exist in %s", r.Number, h.url)
	}
	found = activity.Change{URL: p.URL, State: p.State, Into: p.Into, Head: p.Head, Fork: p.fork}
	if p.State != activity.ProposalOpen {
		return found, "", "", nil
	}
	if found.Refused, err = h.refuses(ctx, p, r.AskedBy); err != nil || found.Refused != "" {
		return found, "", "", err
	}
	if p.preparing { // for some seconds after it was opened; programs read it again after a conflict
		return found, "", "", fault.New(fault.Conflict, "%s is still preparing pull request %d", h.url, r.Number)
	}
	if commitID.MatchString(p.base) {
		found.Base = p.base
	}
	if found.Message, err = h.message(ctx, r.Number, p.Head); err != nil {
		return found, "", "", err
	}
	total := 0
	for page := 1; ; page++ {
		paths, entries, size, err := h.changed(ctx, r.Number, page)
		if err != nil {
			return found, "", "", err
		}
		for _, path := range paths {
			if total += len(path); path == "" || len(path) > maxName || !utf8.ValidString(path) || total > maxNames {
				found.More = true
				continue
			}
			found.Paths = append(found.Paths, path)
		}
		if entries < size {
			break
		}
		if page == maxPages || total > maxNames {
			found.More = true
			break
		}
	}
	slices.Sort(found.Paths)
	found.Paths = slices.Compact(found.Paths)
	return found, p.base, p.ref, nil
}

// refuses is why a pull request is not planned. One from a fork, or of no branch, is by anybody, and everybody sees the plan.
func (h *hosted) refuses(ctx context.Context, p reading, askedBy []string) (string, error) {
	if !p.fork {
		return "", nil
	}
	from := "it comes from a fork"
	if p.loose {
		from = "it comes from no branch of the repository"
	}
	if len(askedBy) == 0 {
		return from + ", and nobody who may write to the repository has asked for its plan", nil
	}
	for _, who := range askedBy {
		may, err := h.mayWrite(ctx, who)
		switch {
		case fault.Is(err, fault.Denied):
			return fmt.Sprintf("%s, and the credential may not look up whether %.100s may write to the repository", from, who), nil
		case err == nil && may:
			return "", nil
		case err != nil && !fault.Is(err, fault.NotFound):
			return "", err
		}
	}
	if len(askedBy) > 1 {
		return fmt.Sprintf("%s, and none of the %d who have asked may write to the repository", from, len(askedBy)), nil
	}
	return fmt.Sprintf("%s, and %.100s may not write to the repository", from, askedBy[0]), nil
}

// manifests reads those among the files of a change, over Git's protocol: it counts for no limit of the interface. A server that does not
// serve both commits by their names is not asked for its whole history: then there are none.
func (f *Forge) manifests(
	ctx context.Context, r activity.ChangeRequest, base, ref string, c activity.Change,
) (all []activity.ChangedFile, err error) {
	var paths []string
	for _, path := range c.Paths {
		if (strings.HasSuffix(path, ".yaml") || strings.HasSuffix(path, ".yml")) && len(paths) < maxManifests && checkPath(path) == nil {
			paths = append(paths, path)
		}
	}
	if len(paths) == 0 || !commitID.MatchString(base) || !commitID.MatchString(c.Head) {
		return nil, nil
	}
	err = f.within(ctx, r.Organization, r.RepoURL, func(ctx context.Context, share *gitfetch.Share) error {
		all = nil
		remote, err := f.open(ctx, share, r.Organization, r.RepoURL)
		if err != nil {
			return err
		}
		all, err = remote.before(ctx, paths, base, ref, c.Head)
		return err
	})
	if fault.Is(err, fault.Refused) || fault.Is(err, fault.NotFound) { // larger than may be read, or not served
		return nil, nil
	}
	return all, err
}

// before reads files before and after a change.
func (r *repository) before(ctx context.Context, paths []string, base, ref, head string) ([]activity.ChangedFile, error) {
	if hash, ok := r.lookup(ref); !ok || hash != plumbing.NewHash(head) || !r.refs.Capabilities.Supports(capability.AllowReachableSHA1InWant) {
		return nil, nil
	}
	if err := r.fetch(ctx, 1, plumbing.NewHash(base), plumbing.NewHash(head)); err != nil {
		return nil, err
	}
	all, total := make([]activity.ChangedFile, len(paths)), 0
	for i, path := range paths {
		before, err := r.shown(ctx, base, path)
		if err != nil {
			return nil, err
		}
		after, err := r.shown(ctx, head, path)
		if err != nil {
			return nil, err
		}
		all[i].Path = path
		if size := len(before) + len(after); len(before) > maxManifest || len(after) > maxManifest || total+size > maxTogether {
			all[i].Unread = true
			continue
		}
		total += len(before) + len(after)
		all[i].Before, all[i].After = before, after
	}
	return all, nil
}

// shown is the content of a file in a commit; nothing if it is no file there.
func (r *repository) shown(ctx context.Context, commit, path string) ([]byte, error) {
	c, err := r.commit(plumbing.NewHash(commit))
	if err != nil {
		return nil, err
	}
	content, err := r.file(ctx, c, path)
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Invalid) {
		return nil, nil
	}
	return content, err
}

// Comment implements activity.Forge. Between processes, and after a crash between making a comment and knowing of it, only the marker
// decides: it is searched for before and after one is made, and of several the oldest stays.
func (f *Forge) Comment(ctx context.Context, r activity.CommentRequest) (report activity.CommentReport, err error) {
	if r.Marker == "" || strings.Contains(r.Marker, "\n") {
		return report, invalid("marker", "found %q, expected one line", r.Marker)
	}
	release, err := f.writers.Lock(ctx, fmt.Sprintf("%d %s comment %d", r.Organization, r.RepoURL, r.Number))
	if err != nil {
		return report, fault.Because(err, fault.Unavailable, "waited for another comment on pull request %d of %s", r.Number, r.RepoURL)
	}
	defer release()
	var seen allowance
	err = f.propose(ctx, r.Organization, r.RepoURL, func(ctx context.Context, h *hosted) (err error) {
		report.URL, report.Held, err = h.comment(ctx, r)
		seen = *h.seen
		return err
	})
	report.Limit, err = limitOf(seen, err)
	return report, err
}

func (h *hosted) comment(ctx context.Context, r activity.CommentRequest) (url, held string, err error) {
	me, err := h.account(ctx)
	if err != nil {
		return "", "", err
	}
	body := r.Marker + "\n" + r.Body
	if r.Known != "" {
		if url, held, done, err := h.knownComment(ctx, r, me, body); err != nil || done {
			return url, held, err
		}
	}
	url, err = h.ownComment(ctx, r, me, body)
	return url, "", err
}

// knownComment changes the comment that an earlier report has named, also one of another account: the account may have changed since. It is
// done unless that comment is gone, or the account has one of its own. One that the forge does not let the account change stays as it is,
// and none is made beside it.
func (h *hosted) knownComment(
	ctx context.Context, r activity.CommentRequest, me int64, body string,
) (url, held string, done bool, err error) {
	all, err := h.marked(ctx, r)
	if err != nil {
		return "", "", false, err
	}
	at := slices.IndexFunc(all, func(c comment) bool { return c.url == r.Known })
	mine := slices.ContainsFunc(all, func(c comment) bool { return me != 0 && c.author == me })
	if at < 0 || mine {
		return "", "", false, nil
	}
	if hasText(all[at].body, body) {
		return r.Known, "", true, nil
	}
	err = h.editComment(ctx, r.Number, all[at].id, body)
	others := me != 0 && all[at].author != me // a credential that may do less than it should is refused, too
	switch {
	case err == nil:
		return r.Known, "", true, nil
	case fault.Is(err, fault.NotFound): // it was deleted just now, or the forge does not say that it may not be changed
		after, again := h.marked(ctx, r)
		if again != nil {
			return "", "", false, again
		}
		if !slices.ContainsFunc(after, func(c comment) bool { return c.url == r.Known }) {
			return "", "", false, nil
		}
	case !fault.Is(err, fault.Denied):
		return r.Known, "", true, err
	}
	if !others {
		return r.Known, "", true, err
	}
	return r.Known, "another account has written the comment, and that of the credential may not change it", true, nil
}

// hasText reports whether a comment has a text, as forges keep it.
func hasText(found, text string) bool {
	return strings.TrimSpace(strings.ReplaceAll(found, "\r\n", "\n")) == strings.TrimSpace(text)
}

// ownComment writes the comment of the account of the credential, which is 0 where that is not known.
func (h *hosted) ownComment(ctx context.Context, r activity.CommentRequest, me int64, body string) (url string, err error) {
	if me == 0 { // whose a comment is that it has just made is known
		if r.OnlyKnown {
			return "", nil
		}
		made, err := h.addComment(ctx, r.Number, body)
		if err != nil {
			return "", missing(err, "pull request %d does not exist in %s", r.Number, h.url)
		}
		if me = made.author; me == 0 {
			return "", fault.New(fault.Refused, "%s does not say whose the comment is that was made", h.url)
		}
	}
	own, err := h.ownComments(ctx, r, me)
	if err != nil || len(own) == 0 && r.OnlyKnown {
		return "", err
	}
	if len(own) == 0 {
		if _, err := h.addComment(ctx, r.Number, body); err != nil {
			return "", err
		}
		if own, err = h.ownComments(ctx, r, me); err != nil {
			return "", err
		}
		if len(own) == 0 {
			return "", fault.New(fault.Unavailable, "%s does not show the comment that was made", h.url)
		}
	}
	if !hasText(own[0].body, body) {
		if err := h.editComment(ctx, r.Number, own[0].id, body); err != nil {
			return "", err
		}
	}
	for _, c := range own[1:] {
		if err := h.removeComment(ctx, r.Number, c.id); err != nil && !fault.Is(err, fault.NotFound) {
			return "", err
		}
	}
	return own[0].url, nil
}

// ownComments are those with the marker that the account of the credential has written, the oldest first. Anybody may write a marker.
func (h *hosted) ownComments(ctx context.Context, r activity.CommentRequest, me int64) ([]comment, error) {
	all, err := h.marked(ctx, r)
	if err != nil {
		return nil, err
	}
	own := slices.DeleteFunc(all, func(c comment) bool { return c.author != me })
	slices.SortFunc(own, func(a, b comment) int { return cmp.Compare(a.id, b.id) })
	return own, nil
}

// marked are the comments with the marker, also those of others.
func (h *hosted) marked(ctx context.Context, r activity.CommentRequest) ([]comment, error) {
	all, err := h.comments(ctx, r.Number)
	if err != nil {
		return nil, missing(err, "pull request %d does not exist in %s", r.Number, h.url)
	}
	return slices.DeleteFunc(all, func(c comment) bool {
		first, _, _ := strings.Cut(c.body, "\n")
		return strings.TrimSpace(first) != r.Marker
	}), nil
}
