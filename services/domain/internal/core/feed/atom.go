package feed

import (
	"encoding/xml"
	"fmt"
	"time"
)

// The elements of an Atom feed (RFC 4287). Package xml escapes every text, and replaces characters that XML cannot have.
type (
	atomFeed struct {
		XMLName xml.Name    `xml:"http://www.w3.org/2005/Atom feed"`
		ID      string      `xml:"id"`
		Title   string      `xml:"title"`
		Updated string      `xml:"updated"`
		Author  atomAuthor  `xml:"author"`
		Links   []atomLink  `xml:"link"`
		Entries []atomEntry `xml:"entry"`
	}
	atomAuthor struct {
		Name string `xml:"name"`
	}
	atomLink struct {
		Rel  string `xml:"rel,attr"`
		Href string `xml:"href,attr"`
	}
	atomEntry struct {
		ID         string         `xml:"id"`
		Title      string         `xml:"title"`
		Updated    string         `xml:"updated"`
		Published  string         `xml:"published"`
		Links      []atomLink     `xml:"link"`
		Categories []atomCategory `xml:"category"`
		Summary    string         `xml:"summary"`
	}
	atomCategory struct {
		Term string `xml:"term,attr"`
	}
)

func instant(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// atom writes the changes of production, the latest first. It has no link to itself: that would have the token.
func (u *UseCases) atom(organization int64, all []Change) ([]byte, error) {
	tag := fmt.Sprintf("tag:%s,2026:organization/%d", u.authority(), organization)
	f := atomFeed{
		ID: tag + "/production-changes", Title: "Changes in production", Author: atomAuthor{"Lockstep"}, Updated: instant(time.Unix(0, 0)),
		Links: u.link(""),
	}
	var latest time.Time
	for _, c := range all {
		if c.UpdatedAt.After(latest) {
			latest = c.UpdatedAt
			f.Updated = instant(latest)
		}
		what := "rollout"
		if c.RollbackOf != 0 {
			what = "rollback"
		}
		f.Entries = append(f.Entries, atomEntry{
			ID:    fmt.Sprintf("%s/rollout/%d/environment/%d", tag, c.RolloutID, c.EnvironmentID),
			Title: fmt.Sprintf("%s in %s: %s %s", c.Application, c.Environment, c.VersionSet, c.State.Words()), Updated: instant(c.UpdatedAt),
			Published: instant(c.StartedAt), Links: u.link(fmt.Sprintf("/rollouts/rollout_%d", c.RolloutID)),
			Categories: []atomCategory{{c.Application}, {c.Environment}},
			Summary:    fmt.Sprintf("The %s of %s to %s is %s in %s.", what, c.Application, c.VersionSet, c.State.Words(), c.Environment),
		})
	}
	body, err := xml.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("write a feed: %w", err)
	}
	return append([]byte(xml.Header), body...), nil
}

func (u *UseCases) link(path string) []atomLink {
	if u.url == "" {
		return nil
	}
	return []atomLink{{Rel: "alternate", Href: u.url + path}}
}
