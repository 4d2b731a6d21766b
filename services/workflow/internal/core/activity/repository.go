package activity

import (
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/sealing"
)

// repository is where a repository is: the parts of its URL in a form that is the same for all spellings that forges accept.
type repository struct {
	// name is the host without a port, and host with it. They are equal over SSH, whose port says nothing of which repositories there are.
	name, host string
	// path is without case, as forges compare it, and without .git.
	path string
	ssh  bool
}

// repositoryOf reads where a repository is.
func repositoryOf(u *url.URL) repository {
	r := repository{host: hostOf(u), path: strings.ToLower(path.Clean("/" + u.Path)), ssh: u.Scheme == sealing.SchemeSSH}
	r.name = hostOf(&url.URL{Host: hostPart(u)})
	if r.ssh {
		r.name = overHTTPS(r.name)
		r.host = r.name
	}
	// Git reads the folder .git of what it is given as well.
	r.path = strings.TrimSuffix(strings.TrimSuffix(r.path, "/.git"), ".git")
	r.ofAzure()
	return r
}

// hostPart is the host of a URL as a URL has it without a port.
func hostPart(u *url.URL) string {
	if strings.Contains(u.Hostname(), ":") {
		return "[" + u.Hostname() + "]"
	}
	return u.Hostname()
}

// overHTTPS is the host that has the same repositories over HTTPS as a host has over SSH.
func overHTTPS(host string) string {
	switch host {
	case "ssh.github.com", "altssh.gitlab.com", "altssh.bitbucket.org": // for networks that let only port 443 through
		_, host, _ = strings.Cut(host, ".")
	}
	return host
}

// ofAzure has repositories of Azure DevOps as dev.azure.com/organization/project/_git/repository, by all of its hosts.
func (r *repository) ofAzure() {
	const host, legacy, git = "dev.azure.com", ".visualstudio.com", "_git"
	parts := strings.Split(strings.Trim(r.path, "/"), "/")
	switch {
	case r.ssh && (r.name == "ssh."+host || r.name == "vs-ssh"+legacy) && len(parts) == 4 && parts[0] == "v3":
		parts = []string{parts[1], parts[2], git, parts[3]}
	case r.name == host:
	case strings.HasSuffix(r.name, legacy) && !r.ssh:
		if parts[0] == "defaultcollection" {
			parts = parts[1:]
		}
		parts = slices.Concat([]string{strings.TrimSuffix(r.name, legacy)}, parts)
	default:
		return
	}
	if len(parts) == 3 && parts[1] == git { // the repository that is named like its project
		parts = []string{parts[0], parts[2], git, parts[2]}
	}
	r.name, r.host, r.path = host, host, "/"+strings.Join(parts, "/")
}

// sameHost reports whether two repositories are at one server.
func (r repository) sameHost(other repository) bool {
	if r.ssh || other.ssh {
		return r.name == other.name
	}
	return r.host == other.host
}

// same reports whether two are one repository. Over SSH, Bitbucket has no /scm.
func (r repository) same(other repository) bool {
	if !r.sameHost(other) {
		return false
	}
	return r.path == other.path || r.ssh && !other.ssh && "/scm"+r.path == other.path || other.ssh && !r.ssh && "/scm"+other.path == r.path
}

// home reports whether the path begins at the home of a user of the server, which is not known here.
func (r repository) home() bool { return r.ssh && strings.HasPrefix(r.path, "/~") }

// endsAs reports whether the path of one ends as that of the other, where one of both is over SSH: it may then begin elsewhere, as at the
// root and at a home. The forges that are known have no such paths.
func (r repository) endsAs(other repository) bool {
	known := []string{"github.com", "gitlab.com", "bitbucket.org", "dev.azure.com"}
	if !r.ssh && !other.ssh || !r.sameHost(other) || slices.Contains(known, r.name) {
		return false
	}
	a, b := r.belowHome(), other.belowHome()
	return strings.HasSuffix(a, b) || strings.HasSuffix(b, a)
}

// belowHome is the path, below the home if it begins at one.
func (r repository) belowHome() string {
	if r.home() {
		_, below, _ := strings.Cut(r.path[1:], "/")
		return "/" + below
	}
	return r.path
}

// sameRepository reports whether two URLs are of one repository, in all spellings that forges accept, and over SSH.
func sameRepository(a, b string) bool {
	of, errA := repositoryURL(a)
	other, errB := repositoryURL(b)
	if errA != nil || errB != nil {
		return a == b
	}
	return repositoryOf(of).same(repositoryOf(other))
}
