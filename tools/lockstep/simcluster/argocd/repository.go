package argocd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/transport/http"
	"github.com/go-git/go-git/v5/storage/memory"
	"go.yaml.in/yaml/v4"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/tools/lockstep/simcluster/apiserver"
)

// Credentials sign in at the Git server; empty for none.
type Credentials struct {
	Username, Password string
}

// repositories stand in for Argo CD's repository server: what has been fetched stays in memory.
type repositories struct {
	credentials Credentials
	clock       clock.Clock

	mu    sync.Mutex
	known map[string]*git.Repository
}

// maxManifest bounds one file of manifests.
const maxManifest = 4 << 20

// resolve finds the commit of a revision: a commit id, a branch, a tag, or HEAD. What is no commit id is looked up anew.
func (r *repositories) resolve(ctx context.Context, url, revision string) (*object.Commit, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	repository, err := r.open(url)
	if err != nil {
		return nil, err
	}
	if revision == "" {
		revision = "HEAD"
	}
	if plumbing.IsHash(revision) {
		if commit, err := repository.CommitObject(plumbing.NewHash(revision)); err == nil {
			return commit, nil
		}
	}
	head, err := r.fetchSoon(ctx, repository)
	if err != nil {
		return nil, fmt.Errorf("failed to list refs: %w", err)
	}
	for _, name := range []string{"refs/remotes/origin/" + revision, "refs/tags/" + revision, revision} {
		if ref, err := repository.Reference(plumbing.ReferenceName(name), true); err == nil {
			return peel(repository, ref.Hash())
		}
	}
	switch {
	case revision == "HEAD":
		return peel(repository, head)
	case plumbing.IsHash(revision):
		return peel(repository, plumbing.NewHash(revision))
	default:
		return nil, fmt.Errorf("unable to resolve '%s' to a commit SHA", revision)
	}
}

// peel is the commit that an object is, or that a tag is of.
func peel(repository *git.Repository, hash plumbing.Hash) (*object.Commit, error) {
	if tag, err := repository.TagObject(hash); err == nil {
		return tag.Commit()
	}
	commit, err := repository.CommitObject(hash)
	if err != nil {
		return nil, fmt.Errorf("failed to checkout %s: object not found", hash)
	}
	return commit, nil
}

func (r *repositories) open(url string) (*git.Repository, error) {
	if known, ok := r.known[url]; ok {
		return known, nil
	}
	repository, err := git.Init(memory.NewStorage(), nil)
	if err != nil {
		return nil, fmt.Errorf("make a repository in memory: %w", err)
	}
	remote := &config.RemoteConfig{Name: "origin", URLs: []string{url}}
	if _, err := repository.CreateRemote(remote); err != nil {
		return nil, fmt.Errorf("repository %q: %w", url, err)
	}
	r.known[url] = repository
	return repository, nil
}

const (
	// fetchAttempts and fetchPause are how long a Git server that cannot be reached is waited for, as Argo CD's repository server does
	// with ARGOCD_GIT_ATTEMPTS_COUNT.
	fetchAttempts = 20
	fetchPause    = 250 * time.Millisecond
)

// fetchSoon is fetch, and waits a while for a Git server that is being started again.
func (r *repositories) fetchSoon(ctx context.Context, repository *git.Repository) (plumbing.Hash, error) {
	for attempt := 1; ; attempt++ {
		head, err := r.fetch(ctx, repository)
		var away net.Error
		if err == nil || attempt == fetchAttempts || !errors.As(err, &away) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
			return head, err
		}
		if clock.Sleep(ctx, r.clock, fetchPause) != nil {
			return head, err
		}
	}
}

// fetch brings all branches and tags here, and answers what HEAD is.
func (r *repositories) fetch(ctx context.Context, repository *git.Repository) (plumbing.Hash, error) {
	remote, err := repository.Remote("origin")
	if err != nil {
		return plumbing.ZeroHash, fmt.Errorf("remote: %w", err)
	}
	var auth *http.BasicAuth
	fetch := &git.FetchOptions{
		RefSpecs: []config.RefSpec{"+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*"},
		Tags:     git.NoTags, Force: true,
	}
	list := &git.ListOptions{}
	if r.credentials.Username != "" {
		auth = &http.BasicAuth{Username: r.credentials.Username, Password: r.credentials.Password}
		fetch.Auth, list.Auth = auth, auth
	}
	refs, err := remote.ListContext(ctx, list)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	if err := remote.FetchContext(ctx, fetch); err != nil && !errors.Is(err, git.NoErrAlreadyUpToDate) {
		return plumbing.ZeroHash, err
	}
	return headOf(refs), nil
}

// headOf is the commit that HEAD stands for among a server's references.
func headOf(refs []*plumbing.Reference) plumbing.Hash {
	for _, ref := range refs {
		if ref.Name() != plumbing.HEAD {
			continue
		}
		if ref.Type() == plumbing.HashReference {
			return ref.Hash()
		}
		for _, branch := range refs {
			if branch.Name() == ref.Target() {
				return branch.Hash()
			}
		}
	}
	return plumbing.ZeroHash
}

// manifests are the objects in a folder of a commit: its files *.yaml, *.yml and *.json, not those of folders below.
func manifests(commit *object.Commit, folder string) ([]apiserver.Object, error) {
	tree, err := commit.Tree()
	if err != nil {
		return nil, fmt.Errorf("read tree of %s: %w", commit.Hash, err)
	}
	folder = strings.Trim(path.Clean("/"+folder), "/")
	if folder != "" {
		if tree, err = tree.Tree(folder); err != nil {
			return nil, fmt.Errorf("%s: app path does not exist", folder)
		}
	}
	var objects []apiserver.Object
	for _, entry := range tree.Entries {
		if !entry.Mode.IsFile() || !slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(entry.Name)) {
			continue
		}
		file, err := tree.TreeEntryFile(&entry)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", entry.Name, err)
		}
		found, err := parse(file)
		if err != nil {
			return nil, fmt.Errorf("Failed to unmarshal %q: %w", entry.Name, err) //nolint:staticcheck // the text is Argo CD's
		}
		objects = append(objects, found...)
	}
	return objects, nil
}

func parse(file *object.File) ([]apiserver.Object, error) {
	if file.Size > maxManifest {
		return nil, fmt.Errorf("%d bytes, expected at most %d", file.Size, maxManifest)
	}
	text, err := file.Contents()
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	return parseText(text)
}

// parseText reads all documents that have something in them.
func parseText(text string) ([]apiserver.Object, error) {
	var objects []apiserver.Object
	decoder := yaml.NewDecoder(strings.NewReader(text))
	for {
		var document any
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("YAML: %s", strings.Join(strings.Fields(err.Error()), " "))
		}
		if document == nil {
			continue
		}
		o, err := toObject(document)
		if err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
}

// toObject brings what YAML makes of a document into the form of the API's JSON.
func toObject(document any) (apiserver.Object, error) {
	text, err := utiljson.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("not what JSON could say: %w", err)
	}
	o, err := apiserver.ParseObject(text)
	if err != nil || o.Text("kind") == "" {
		return nil, errors.New("Object 'Kind' is missing") //nolint:staticcheck // the text is Argo CD's
	}
	return o, nil
}
