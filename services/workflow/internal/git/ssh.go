package git

import (
	"cmp"
	"context"
	"net/url"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/transport"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/gitfetch"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/pkg/sshkey"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// sshKey reports whether a credential is a key of SSH.
func (c Credential) sshKey() bool { return c.own != nil && c.own.Proof.SSHKey != sealing.SSHKey{} }

// sshURL is the URL of a repository over SSH, or the beginning of some, as parseURL has it.
func sshURL(field string, place sealing.SSHPlace, prefix bool, err error) (*url.URL, error) {
	switch {
	case err != nil:
		return nil, invalid(field, "%s", fault.FieldsOf(err)[0].Problem)
	case prefix && place.URL.User != nil:
		return nil, invalid(field, "found a user in it, expected scheme, host and the beginning of a path")
	case !prefix && strings.Trim(place.URL.Path, "/") == "":
		return nil, invalid(field, "found %q, expected the path of a repository in it", place.URL)
	}
	return place.URL, nil
}

// overSSH reaches a repository with the key of SSH that the organization has for it. Without one it is not reached: there are no public
// repositories over SSH, and no keys of the operator.
func (f *Forge) overSSH(ctx context.Context, organization int64, repoURL string) (transport.Transport, error) {
	place, _, err := sealing.ParseSSH(repoURL)
	if err != nil { // which parseURL has found before
		return nil, invalid("repo_url", "%s", fault.FieldsOf(err)[0].Problem)
	}
	found, err := f.credentials.of(ctx, organization, place.URL)
	switch {
	case err != nil:
		return nil, err
	case found == nil || !found.sshKey():
		return nil, fault.New(fault.Unauthenticated, "%s wants a key of SSH, and the organization has none for %s; expected a credential for ssh://%s "+
			"(lockstep credential create --kind git --ssh-key)", repoURL, place.Server(), place.URL.Host)
	case f.dial == nil:
		return nil, fault.New(fault.Refused, "%s: this service reaches no servers of SSH", repoURL)
	}
	user := cmp.Or(found.Username, sealing.SSHUser)
	if named := cmp.Or(place.URL.User.Username(), sealing.SSHUser); named != user {
		return nil, fault.New(fault.Unauthenticated, "%s names the user %q, and the credential %q logs in as %q; expected the same", repoURL, named, found.Name, user)
	}
	value, err := f.credentials.password(ctx, *found)
	if err != nil {
		return nil, err
	}
	conceal(ctx, value)
	key, err := f.keys.read(value)
	if err != nil { // of a reference: what is sealed was checked before
		return nil, fault.New(fault.Unauthenticated, "the credential %q has no key that can be used: %s", found.Name, fault.Public(err))
	}
	hosts, err := sshkey.ReadHosts(found.own.Proof.SSHKey.KnownHosts)
	if err != nil {
		return nil, fault.New(fault.Unauthenticated, "the known hosts of the credential %q cannot be read: %s", found.Name, fault.Public(err))
	}
	host, port := place.Address()
	return &gitfetch.SSH{
		Dial: f.dial, Host: host, Port: port, Path: place.Path, User: user, Key: key, Hosts: hosts, Handshake: f.handshake,
	}, nil
}

// conceal keeps the secrets of a value out of what a program gets to see, although they are sent nowhere.
func conceal(ctx context.Context, value string) {
	activity.Conceal(ctx, value)
	passphrase, key := sshkey.Split(value)
	activity.Conceal(ctx, key)
	if passphrase != "" {
		activity.Conceal(ctx, passphrase)
	}
}
