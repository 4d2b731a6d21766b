package feed

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// lineBytes is how many bytes a line of a calendar has at most, without its end (RFC 5545, 3.1).
const lineBytes = 75

// calendar writes freezes as iCalendar (RFC 5545).
func (u *UseCases) calendar(organization int64, all []Freeze) []byte {
	var b strings.Builder
	line(&b, "BEGIN:VCALENDAR")
	line(&b, "VERSION:2.0")
	line(&b, "PRODID:-//Lockstep//Freezes//EN")
	line(&b, "CALSCALE:GREGORIAN")
	line(&b, "METHOD:PUBLISH")
	line(&b, "X-WR-CALNAME:Freezes")
	for _, f := range all {
		u.event(&b, organization, f)
	}
	line(&b, "END:VCALENDAR")
	return []byte(b.String())
}

func (u *UseCases) event(b *strings.Builder, organization int64, f Freeze) {
	end, status := f.EndsAt, "CONFIRMED"
	if f.EndedAt != nil && f.EndedAt.Before(end) {
		if end = *f.EndedAt; stamp(end) <= stamp(f.StartsAt) { // it was called off, and an event has to end after it begins
			end, status = f.EndsAt, "CANCELLED"
		}
	}
	scope := "everything"
	if len(f.Scope) > 0 {
		scope = strings.Join(f.Scope, ", ")
	}
	line(b, "BEGIN:VEVENT")
	line(b, fmt.Sprintf("UID:freeze-%d.organization-%d@%s", f.ID, organization, u.authority()))
	line(b, "DTSTAMP:"+stamp(f.UpdatedAt))
	line(b, "DTSTART:"+stamp(f.StartsAt))
	line(b, "DTEND:"+stamp(end))
	line(b, "SUMMARY:"+text("Freeze of "+scope))
	line(b, "STATUS:"+status)
	line(b, "TRANSP:TRANSPARENT")
	line(b, "END:VEVENT")
}

// stamp is an instant in the form of a calendar. A second that has begun counts as its beginning.
func stamp(at time.Time) string { return at.UTC().Format("20060102T150405Z") }

// text writes a value so that nothing in it is a separator, a line or a property of its own (RFC 5545, 3.3.11). Other control characters
// are not allowed, and replaced.
func text(value string) string {
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(value, "\uFFFD") {
		switch {
		case r == '\\' || r == ';' || r == ',':
			b.WriteRune('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t' || r >= ' ' && r != 0x7f && (r < 0x80 || r > 0x9f):
			b.WriteRune(r)
		default:
			b.WriteRune('\uFFFD')
		}
	}
	return b.String()
}

// line writes a line, in parts that are short enough. A character is not divided.
func line(b *strings.Builder, content string) {
	room := lineBytes
	for content != "" {
		n := min(room, len(content))
		for n < len(content) && !utf8.RuneStart(content[n]) {
			n--
		}
		b.WriteString(content[:n])
		b.WriteString("\r\n")
		if content = content[n:]; content != "" {
			b.WriteString(" ")
			room = lineBytes - 1 // with the space
		}
	}
}
