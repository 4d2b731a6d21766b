package git

import (
	"context"
	"crypto/sha1" //nolint:gosec // what Git names its objects by
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// api is what a forge's own interface can do; the rules of reading and committing are hosted's, the same for all of them.
// Errors are classed as activity.Forge has it; what the forge does not let happen is Refused.
type api interface {
	// head is the commit that a branch points to. It is NotFound if there is no such branch.
	head(ctx context.Context, branch string) (string, error)
	// resolve is the commit that a branch, a tag or an id names. It is NotFound if there is none.
	resolve(ctx context.Context, ref string) (string, error)
	// history are the messages of the last commits from one on, newest first.
	history(ctx context.Context, commit string, most int) ([]logged, error)
	// stat is the entry at a path in a commit.
	stat(ctx context.Context, commit, path string) (entry, error)
	// read is the content of a file.
	read(ctx context.Context, commit, path string, e entry) ([]byte, error)
	// add adds one commit to a branch whose head is base, never by force. It is Refused as well if another commit was faster.
	add(ctx context.Context, a addition) (string, error)
	proposer
	reporter
	deployer
	discusser
}

// logged is a commit in a history, with its author.
type logged struct {
	id, message string
	by          author
}

// kind is the kind of entry at a path.
type kind int

const (
	nothing kind = iota
	file
	folder
)

// entry is the entry at a path. The other fields are for files: blob is the object's name, last the last commit that changed it, where
// the forge reports it, and executable its mode.
type entry struct {
	kind       kind
	blob, last string
	executable bool
}

// addition is one commit to be added.
type addition struct {
	branch, base, message string
	author                author
	files                 []change
}

// change is one file's new content, and what stood there.
type change struct {
	path    string
	content []byte
	old     entry
}

// The interfaces of forges, as configurations name them. Plain is Git's own protocol, which all of them speak.
const (
	Plain  = "git"
	GitLab = "gitlab"
	GitHub = "github"
	Gitea  = "gitea"
	// Bitbucket is Bitbucket Cloud; not Bitbucket Data Center, which has another interface.
	Bitbucket = "bitbucket"
)

// Forges are the names of all interfaces.
func Forges() []string { return []string{Plain, GitLab, GitHub, Gitea, Bitbucket} }

// hosted is a repository behind the interface of its forge.
type hosted struct {
	api
	// plain is set if files are read and committed over Git's protocol all the same.
	plain bool
	url   string
	// forge is the name of its interface.
	forge string
	seen  *allowance
}

// hosted is the repository behind its forge's own interface; nil for those that plain Git is configured for, or nothing.
func (f *Forge) hosted(ctx context.Context, organization int64, repoURL string) (*hosted, error) {
	u, err := parseURL("repo_url", repoURL, false)
	if err != nil {
		return nil, err
	}
	c, err := f.credentials.of(ctx, organization, u)
	if err != nil {
		return nil, err
	}
	if c == nil || c.Forge == "" || c.Forge == Plain {
		return nil, nil //nolint:nilnil // plain Git is no error
	}
	auth, err := f.credentials.with(ctx, c, u)
	if err != nil {
		return nil, err
	}
	project := projectOf(u)
	// GitLab finds a project by its number, too; the guard knows repositories by their names.
	if strings.Trim(project, "0123456789") == "" {
		return nil, invalid("repo_url", "found the path %q, expected the project's name and not its number", u.Path)
	}
	base := u.Scheme + "://" + u.Host
	r := rest{client: f.rest, forge: c.Forge, url: repoURL, project: project, now: f.clock.Now, seen: &allowance{shared: c.own == nil}}
	defer func() {
		// Its interface is elsewhere than the repository, and redirects within it, as for a project that was renamed. A credential of an
		// organization goes to the one project only.
		place := r.base
		if api, err := url.Parse(r.base); err == nil && c.own == nil {
			place = api.Scheme + "://" + api.Host
		}
		mayGo(ctx, place, r.user) // whose account it is, its own server may be asked
		if r.graph != "" {
			mayGo(ctx, r.graph)
		}
	}()
	switch c.Forge {
	case GitLab:
		r.base, r.user, r.authorization = base+"/api/v4/projects/"+url.PathEscape(project), base+"/api/v4/user", "Bearer "+auth.Password
		return &hosted{api: gitLab{r}, url: repoURL, forge: c.Forge, seen: r.seen}, nil
	case GitHub:
		base = c.app().APIFor(u)
		r.base, r.user, r.authorization = base+"/repos/"+escape(project), base+"/user", "Bearer "+auth.Password
		r.graph = strings.TrimSuffix(base, "/v3") + "/graphql"
		return &hosted{api: gitHub{r}, url: repoURL, forge: c.Forge, seen: r.seen}, nil
	case Bitbucket:
		if strings.EqualFold(u.Host, "bitbucket.org") {
			base = "https://api.bitbucket.org"
		}
		r.base, r.user = base+"/2.0/repositories/"+escape(project), base+"/2.0/user"
		r.authorization = bitbucketLogin(auth.Username, auth.Password)
		return &hosted{api: bitbucket{r, unwritten{repoURL}}, plain: true, url: repoURL, forge: c.Forge, seen: r.seen}, nil
	default:
		r.base, r.user, r.authorization = base+"/api/v1/repos/"+escape(project), base+"/api/v1/user", "token "+auth.Password
		return &hosted{api: gitea{r}, url: repoURL, forge: c.Forge, seen: r.seen}, nil
	}
}

// escape is a path in a URL, its slashes as they are.
func escape(path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return strings.Join(parts, "/")
}

// readFile is a file's content at a ref, and the commit it was read at.
func (h *hosted) readFile(ctx context.Context, ref, path string) (content []byte, sha string, err error) {
	if sha, err = h.resolve(ctx, ref); err != nil {
		return nil, "", err
	}
	e, err := h.stat(ctx, sha, path)
	switch {
	case err != nil:
		return nil, "", err
	case e.kind == nothing:
		return nil, "", fault.New(fault.NotFound, "path %q does not exist in %s at %s", path, h.url, sha)
	case e.kind == folder:
		return nil, "", invalid("path", "found %q, which is no file at %s", path, sha)
	}
	content, err = h.read(ctx, sha, path, e)
	return content, sha, err
}

// commitOnce is one attempt, as with plain Git: look, and add if the branch still stands where it was looked at. Otherwise
// the error is errMoved.
func (h *hosted) commitOnce(ctx context.Context, c activity.CommitRequest, by author) (string, error) {
	head, err := h.head(ctx, c.Branch)
	if err != nil {
		return "", err
	}
	if found, err := h.findActivity(ctx, head, c, by); err != nil || found != "" {
		return found, err
	}
	a := addition{branch: c.Branch, base: head, message: message(c), author: by}
	if a.files, err = h.changes(ctx, head, c.Files); err != nil {
		return "", err
	}
	if len(a.files) == 0 {
		return head, nil
	}
	if err := h.unchangedSince(ctx, head, c); err != nil {
		return "", err
	}
	sha, err := h.add(ctx, a)
	if err == nil || !fault.Is(err, fault.Refused) {
		return sha, err
	}
	// Too late, or forbidden by a rule: in the first case, and only then, the branch stands elsewhere by now.
	now, lookErr := h.head(ctx, c.Branch)
	if lookErr != nil {
		return "", lookErr
	}
	if now != head {
		return "", errMoved
	}
	return "", err
}

// findActivity looks for the commit of the activity in the history, as with plain Git; empty if there is none.
func (h *hosted) findActivity(ctx context.Context, head string, wanted activity.CommitRequest, by author) (string, error) {
	if len(wanted.Found(true)) == 0 {
		return "", nil
	}
	log, err := h.history(ctx, head, historyDepth)
	if err != nil {
		return "", err
	}
	for _, l := range log {
		lines := wanted.Found(by.is(l.by))
		if slices.ContainsFunc(lines, func(line string) bool { return endsWith(l.message, line) }) {
			return l.id, nil
		}
	}
	return "", nil
}

// changes are the files whose contents differ from what stands in a commit.
func (h *hosted) changes(ctx context.Context, commit string, files map[string][]byte) ([]change, error) {
	var all []change
	for _, name := range slices.Sorted(maps.Keys(files)) {
		e, err := h.stat(ctx, commit, name)
		if err != nil {
			return nil, err
		}
		switch e.kind {
		case folder:
			return nil, invalid("path", "found %q, which is no file in the repository", name)
		case nothing:
			// Some forges would put a folder in the place of a file.
			for parent := path.Dir(name); parent != "."; parent = path.Dir(parent) {
				if up, err := h.stat(ctx, commit, parent); err != nil {
					return nil, err
				} else if up.kind == file {
					return nil, invalid("path", "found %q, which is no folder in the repository", parent)
				}
			}
		case file:
			if e.blob == blobID(files[name]) {
				continue
			}
		}
		all = append(all, change{path: name, content: files[name], old: e})
	}
	return all, nil
}

// unchangedSince refuses to replace files that another commit has changed after the commit that the new contents were
// made from.
func (h *hosted) unchangedSince(ctx context.Context, head string, c activity.CommitRequest) error {
	if c.Base == "" || c.Base == head {
		return nil
	}
	if _, err := h.resolve(ctx, c.Base); fault.Is(err, fault.NotFound) {
		return fault.New(fault.Conflict, "base %s is not in %s", c.Base, h.url)
	} else if err != nil {
		return err
	}
	for _, path := range slices.Sorted(maps.Keys(c.Files)) {
		before, err := h.stat(ctx, c.Base, path)
		if err != nil {
			return err
		}
		now, err := h.stat(ctx, head, path)
		if err != nil {
			return err
		}
		if before.blob != now.blob {
			return fault.New(fault.Conflict, "%s has changed on branch %q of %s since %s", path, c.Branch, h.url, c.Base)
		}
	}
	return nil
}

// blobID is what Git calls a file with this content.
func blobID(content []byte) string {
	sum := sha1.New() //nolint:gosec // see above
	_, _ = fmt.Fprintf(sum, "blob %s\x00", strconv.Itoa(len(content)))
	_, _ = sum.Write(content)
	return hex.EncodeToString(sum.Sum(nil))
}
