package activity

import (
	"net/netip"
	"net/url"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/sealing"
)

// Ambiguous returns why the URL of a place may be another spelling of one of these places; "" if it cannot. Servers read a path that is
// escaped twice, or that has an escaped slash or dot, in several ways, and SameURL follows only one of them; and which servers have an
// address is not known here. Where a URL is spelled as the place that has it, the spelling is the place's own.
func (p Place) Ambiguous(places []Place) string {
	raw := p.URL
	if p.Repository != "" {
		raw = p.Repository
	}
	if raw == "" || raw == AnyURL {
		return ""
	}
	u, err := repositoryURL(raw)
	if err != nil {
		return "its URL cannot be read"
	}
	named, escaped := repositoryOf(u), spelling(u)
	odd, literal := unclear(escaped), false
	byName, byPart, byHome, byEnd := false, false, false, false
	for _, other := range places {
		of, err := repositoryURL(other.URL + other.Repository) // a place has one of them
		if err != nil || of.Host == "" || (other.Repository != "") != (p.Repository != "") {
			continue
		}
		place := repositoryOf(of)
		if !named.sameHost(place) {
			byName = byName || !isAddress(of.Hostname())
			continue
		}
		if p.Repository != "" && named.same(place) {
			literal = literal || !odd
		} else if p.Repository != "" {
			byHome = byHome || named.home()
			byEnd = byEnd || named.endsAs(place)
		}
		part := strings.TrimSuffix(spelling(of), "/")
		byPart = byPart || part != ""
		if rest, below := strings.CutPrefix(escaped, part); below && (rest == "" || rest[0] == '/') && !unclear(rest) {
			literal = true
		}
	}
	switch {
	case byEnd:
		return "over SSH it may be the repository of another place, whose path ends in the same way; use the https URL"
	case literal:
		return ""
	case byHome:
		return "its path begins at the home of a user (~), and which repository that is is not known here; use the https URL, or a path without ~"
	case odd && byPart:
		return "its URL can be read in several ways (an escaped slash, backslash, dot, percent sign or semicolon in the path); spell it plainly"
	case byName && isAddress(u.Hostname()):
		return "it names a server by its address, and the places of environments are known by host names; use the host name"
	default:
		return ""
	}
}

// repositoryURL reads the URL of a repository, also one that Git alone takes for a URL (git@host:path), or of a web server.
func repositoryURL(raw string) (*url.URL, error) {
	raw = strings.TrimSpace(raw)
	if place, is, err := sealing.ParseSSH(raw); is && err == nil {
		return place.URL, nil
	}
	return url.Parse(raw)
}

// spelling is the path of a URL as it is sent, in lower case.
func spelling(u *url.URL) string { return strings.ToLower(u.EscapedPath()) }

// unclear reports whether servers may read a path in several ways.
func unclear(escaped string) bool {
	for _, part := range []string{"%2f", "%5c", "%2e", "%25", "%3b", ";", "%0", "%1"} {
		if strings.Contains(escaped, part) {
			return true
		}
	}
	return false
}

// isAddress reports whether a host is an IP address, in any of the spellings that resolvers accept, such as 0x7f.1 and 2130706433.
func isAddress(host string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	last := host[strings.LastIndex(host, ".")+1:]
	digits := "0123456789"
	if hex, is := strings.CutPrefix(last, "0x"); is {
		last, digits = hex+"0", digits+"abcdef"
	}
	return last != "" && strings.Trim(last, digits) == ""
}
