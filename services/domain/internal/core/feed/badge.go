package feed

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"unicode/utf8"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

const (
	// maxLabel is how many characters of a name a badge shows.
	maxLabel = 60
	// glyph is about how wide a character is, and margin what is beside a text, in pixels.
	glyph, margin = 7, 6
)

// shownAs is what a badge says of a state, and in which color: white has enough contrast on each.
func shownAs(state core.RolloutState, live bool) (words, color string) {
	switch state {
	case core.RolloutPending, core.RolloutInProgress:
		return "deploying", "#1565C0"
	case core.RolloutPaused:
		return "paused", "#8A5A00"
	case core.RolloutFailed:
		return "failed", "#C62828"
	case core.RolloutCompleted:
		return "deployed", "#2E7D32"
	case core.RolloutCancelled:
		if live {
			return "deployed", "#2E7D32"
		}
	}
	return "not deployed", "#555555"
}

// badge draws the names and the state: nothing else of the application.
func badge(application, environment string, state core.RolloutState, live bool) []byte {
	words, color := shownAs(state, live)
	label := short(application + " in " + environment)
	left, right := width(label), width(words)
	var b bytes.Buffer
	_, _ = fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="20" role="img" aria-label="%s: %s">`, left+right,
		escaped(label), words)
	_, _ = fmt.Fprintf(&b, `<title>%s: %s</title>`, escaped(label), words)
	_, _ = fmt.Fprintf(&b, `<rect width="%d" height="20" fill="#3A3A3A"/><rect x="%d" width="%d" height="20" fill="%s"/>`, left, left, right, color)
	b.WriteString(`<g fill="#FFFFFF" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">`)
	_, _ = fmt.Fprintf(&b, `<text x="%d" y="14" textLength="%d">%s</text>`, left/2, left-2*margin, escaped(label))
	_, _ = fmt.Fprintf(&b, `<text x="%d" y="14" textLength="%d">%s</text></g></svg>`, left+right/2, right-2*margin, words)
	return b.Bytes()
}

func width(text string) int { return utf8.RuneCountInString(text)*glyph + 2*margin }

func short(text string) string {
	if utf8.RuneCountInString(text) <= maxLabel {
		return text
	}
	return string([]rune(text)[:maxLabel-1]) + "…"
}

// escaped writes a text so that nothing in it is markup; characters that XML cannot have are replaced.
func escaped(text string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(text)) // a buffer does not fail
	return b.String()
}
