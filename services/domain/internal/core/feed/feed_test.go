package feed

import (
	"encoding/xml"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// hostile are names that try to be more than a text.
func hostile() []string {
	return []string{
		`</title></entry><entry><id>x</id>`, `"><script>alert(1)</script>`, `]]>&lt;!ENTITY x SYSTEM "file:///etc/passwd">`, "a\r\nBEGIN:VEVENT\r\nUID:x",
		"a\nATTACH:file:///etc/passwd", "a;b,c\\d:e", "\x00\x07\x7f\u0085\ufffe", "\u202egpj.exe", strings.Repeat("ü", 200), strings.Repeat("🚀", 99), "\xff\xfe",
	}
}

func at(n int64) time.Time { return time.Unix(1_800_000_000+n, 5e8) }

// contentLine is a line of a calendar as this package writes it: a name without parameters, and a value.
var contentLine = regexp.MustCompile(`^([A-Z-]+):(.*)$`)

// parsed reads a calendar by the grammar of RFC 5545: lines end with CRLF, have at most 75 bytes, and continue behind a space.
func parsed(t *testing.T, body string) (lines [][2]string) {
	t.Helper()
	if !utf8.ValidString(body) || !strings.HasSuffix(body, "\r\n") {
		t.Fatalf("found %q; expected UTF-8 that ends with CRLF", body)
	}
	physical := strings.Split(strings.TrimSuffix(body, "\r\n"), "\r\n")
	var logical []string
	for _, l := range physical {
		if len(l) > 75 || strings.ContainsAny(l, "\r\n") || l == "" || !utf8.ValidString(l) {
			t.Fatalf("found the line %q of %d bytes; expected 1 to 75 without CR and LF", l, len(l))
		}
		if rest, continued := strings.CutPrefix(l, " "); continued {
			logical[len(logical)-1] += rest
		} else {
			logical = append(logical, l)
		}
	}
	for _, l := range logical {
		m := contentLine.FindStringSubmatch(l)
		if m == nil {
			t.Fatalf("found %q; expected a property", l)
		}
		for _, r := range m[2] {
			if r < ' ' && r != '\t' || r == 0x7f {
				t.Fatalf("found the control character %q in %q", r, l)
			}
		}
		lines = append(lines, [2]string{m[1], m[2]})
	}
	return lines
}

// unescaped is a value of the type TEXT.
func unescaped(t *testing.T, value string) string {
	t.Helper()
	if regexp.MustCompile(`(^|[^\\])(\\\\)*[;,]`).MatchString(value) {
		t.Errorf("found %q; expected no separator that is not escaped", value)
	}
	return strings.NewReplacer(`\\`, `\`, `\;`, `;`, `\,`, `,`, `\n`, "\n").Replace(value)
}

// D64: a calendar is one by RFC 5545, whatever names are in it.
func TestACalendarOfHostileNames(t *testing.T) {
	t.Parallel()
	u := New(nil, nil, "https://cd.example.com:8443/", nil)
	early := at(-5)
	all := []Freeze{
		{ID: 1, StartsAt: at(0), EndsAt: at(3600), UpdatedAt: at(-60)},
		{ID: 2, StartsAt: at(0), EndsAt: at(3600), EndedAt: &early, UpdatedAt: at(-60), Scope: []string{"tier production"}},
	}
	for i, name := range hostile() {
		ended := at(60)
		all = append(all, Freeze{
			ID: int64(i + 3), StartsAt: at(0), EndsAt: at(3600), EndedAt: &ended, UpdatedAt: at(0), Scope: []string{name, "x"},
		})
	}
	lines := parsed(t, string(u.calendar(7, all)))
	events, open := []map[string]string{}, false
	for i, l := range lines {
		switch {
		case l == [2]string{"BEGIN", "VEVENT"} && !open:
			events, open = append(events, map[string]string{}), true
		case l == [2]string{"END", "VEVENT"} && open:
			open = false
		case open:
			if _, twice := events[len(events)-1][l[0]]; twice {
				t.Errorf("found %s twice in an event", l[0])
			}
			events[len(events)-1][l[0]] = l[1]
		case i == 0 && l != [2]string{"BEGIN", "VCALENDAR"} || i == len(lines)-1 && l != [2]string{"END", "VCALENDAR"}:
			t.Errorf("found %v; expected one calendar", l)
		}
	}
	if len(events) != len(all) {
		t.Fatalf("found %d events; expected %d", len(events), len(all))
	}
	seen := map[string]bool{}
	for i, e := range events {
		if len(e) != 7 || e["DTSTAMP"] == "" || e["DTEND"] <= e["DTSTART"] || seen[e["UID"]] || !strings.HasSuffix(e["UID"], "@cd.example.com") {
			t.Errorf("found %v; expected an event of its own that ends after it begins", e)
		}
		seen[e["UID"]] = true
		if i > 1 {
			want := strings.ReplaceAll(strings.ToValidUTF8(hostile()[i-2], "\ufffd"), "\r", "\ufffd")
			want = regexp.MustCompile("[\x00-\x08\x0b-\x1f\x7f\u0080-\u009f]").ReplaceAllString(want, "\ufffd")
			if got := unescaped(t, e["SUMMARY"]); got != "Freeze of "+want+", x" {
				t.Errorf("found %q; expected %q", got, want)
			}
			if e["DTEND"] != stamp(at(60)) {
				t.Errorf("found the end %s; expected when it was ended", e["DTEND"])
			}
		}
	}
	if events[0]["SUMMARY"] != "Freeze of everything" || events[1]["STATUS"] != "CANCELLED" || events[0]["DTSTART"] != "20270115T080000Z" {
		t.Errorf("found %v", events[:2])
	}
}

// D64: a feed is one by RFC 4287, whatever names are in it.
func TestAFeedOfHostileNames(t *testing.T) {
	t.Parallel()
	u := New(nil, nil, "https://cd.example.com", nil)
	var all []Change
	for i, name := range append(hostile(), "shop") {
		all = append(all, Change{
			RolloutID: int64(100 - i), EnvironmentID: 3, Application: name, Environment: name, VersionSet: name, State: core.RolloutCompleted,
			StartedAt: at(int64(-i)), UpdatedAt: at(int64(i)), RollbackOf: int64(i % 2),
		})
	}
	body, err := u.atom(7, all)
	if err != nil {
		t.Fatal(err)
	}
	var f struct {
		XMLName xml.Name
		ID      []string `xml:"http://www.w3.org/2005/Atom id"`
		Title   []string `xml:"http://www.w3.org/2005/Atom title"`
		Updated []string `xml:"http://www.w3.org/2005/Atom updated"`
		Author  []string `xml:"http://www.w3.org/2005/Atom author>name"`
		Entries []struct {
			ID      []string `xml:"http://www.w3.org/2005/Atom id"`
			Title   []string `xml:"http://www.w3.org/2005/Atom title"`
			Updated []string `xml:"http://www.w3.org/2005/Atom updated"`
			Links   []struct {
				Href string `xml:"href,attr"`
			} `xml:"http://www.w3.org/2005/Atom link"`
			Summary []string `xml:"http://www.w3.org/2005/Atom summary"`
		} `xml:"http://www.w3.org/2005/Atom entry"`
	}
	decoder := xml.NewDecoder(strings.NewReader(string(body)))
	decoder.Strict = true
	if err := decoder.Decode(&f); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	if f.XMLName.Space+f.XMLName.Local != "http://www.w3.org/2005/Atomfeed" || len(f.ID) != 1 || len(f.Title) != 1 || len(f.Updated) != 1 ||
		len(f.Author) != 1 || len(f.Entries) != len(all) {
		t.Fatalf("found %+v; expected what a feed has to have", f)
	}
	latest, seen := time.Time{}, map[string]bool{}
	for _, e := range f.Entries {
		updated, err := time.Parse(time.RFC3339, e.Updated[0])
		if err != nil || len(e.ID) != 1 || len(e.Title) != 1 || len(e.Updated) != 1 || seen[e.ID[0]] || len(e.Links) != 1 || len(e.Summary) != 1 {
			t.Errorf("found %+v, %v; expected what an entry has to have", e, err)
		}
		seen[e.ID[0]] = true
		if updated.After(latest) {
			latest = updated
		}
		if !strings.HasPrefix(e.Links[0].Href, "https://cd.example.com/rollouts/rollout_") {
			t.Errorf("found the link %s", e.Links[0].Href)
		}
	}
	if f.Updated[0] != latest.UTC().Format(time.RFC3339) {
		t.Errorf("found %s; expected the latest, %s", f.Updated[0], latest)
	}
	last := f.Entries[len(f.Entries)-1]
	if last.Title[0] != "shop in shop: shop completed" || last.ID[0] != "tag:cd.example.com,2026:organization/7/rollout/89/environment/3" {
		t.Errorf("found %+v", last)
	}
	if empty, err := New(nil, nil, "", nil).atom(7, nil); err != nil || !strings.Contains(string(empty), "<updated>1970-") {
		t.Errorf("found %s, %v; expected a feed without entries", empty, err)
	}
}

// D64: a badge is a picture of the names and the state, whatever the names are, and has nothing that runs or is loaded.
func TestABadgeOfHostileNames(t *testing.T) {
	t.Parallel()
	for _, name := range hostile() {
		body := badge(name, name, core.RolloutFailed, true)
		decoder := xml.NewDecoder(strings.NewReader(string(body)))
		decoder.Strict = true
		var elements []string
		for {
			token, err := decoder.Token()
			if token == nil {
				if err.Error() != "EOF" {
					t.Fatalf("%v in %s", err, body)
				}
				break
			}
			if e, is := token.(xml.StartElement); is {
				elements = append(elements, e.Name.Local)
				for _, a := range e.Attr {
					if strings.HasPrefix(a.Name.Local, "on") || strings.HasSuffix(a.Name.Local, "href") || a.Name.Local == "style" {
						t.Errorf("found the attribute %s", a.Name.Local)
					}
				}
			}
		}
		if fmt.Sprint(elements) != "[svg title rect rect g text text]" {
			t.Errorf("found %v for %q; expected a badge", elements, name)
		}
	}
	for state, want := range map[core.RolloutState]string{
		"": "not deployed", core.RolloutCompleted: "deployed", core.RolloutFailed: "failed", core.RolloutPaused: "paused",
		core.RolloutPending: "deploying", core.RolloutInProgress: "deploying", core.RolloutCancelled: "not deployed",
	} {
		if body := string(badge("shop", "production", state, false)); !strings.Contains(body, `aria-label="shop in production: `+want+`"`) {
			t.Errorf("found %s; expected %q", body, want)
		}
	}
}
