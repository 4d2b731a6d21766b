package demo

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/text"
)

// account prints the demo's steps as they happen.
type account struct {
	mu     sync.Mutex
	out    io.Writer
	colour bool
	clock  clock.Clock
	began  time.Time
}

// The styles, as ANSI sequences.
const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
)

// act prints the heading of an act.
func (a *account) act(title string) {
	a.print("\n" + a.styled(bold, title))
}

// note prints what a reader has to know to understand the steps that follow.
func (a *account) note(format string, args ...any) {
	a.print("         " + a.styled(dim, fmt.Sprintf(format, args...)))
}

// event prints something that happens.
func (a *account) event(format string, args ...any) {
	a.print(a.time() + text.Lines(fmt.Sprintf(format, args...)))
}

// observed prints something that was checked and found to be as expected.
func (a *account) observed(format string, args ...any) {
	a.print(a.time() + a.styled(green, "✓ ") + text.Lines(fmt.Sprintf(format, args...)))
}

// bad prints a failure that the demo provokes on purpose.
func (a *account) bad(format string, args ...any) {
	a.print(a.time() + a.styled(red, fmt.Sprintf(format, args...)))
}

// asks prints that a person has to act.
func (a *account) asks(format string, args ...any) {
	a.print(a.time() + a.styled(yellow, fmt.Sprintf(format, args...)))
}

func (a *account) time() string {
	return fmt.Sprintf("%6.1fs  ", a.clock.Now().Sub(a.began).Seconds())
}

// styled escapes what acts on a terminal but the style: much of a story is the answers of servers.
func (a *account) styled(style, words string) string {
	words = text.Lines(words)
	if !a.colour {
		return words
	}
	return "\x1b[" + style + "m" + words + "\x1b[0m"
}

func (a *account) print(line string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	fmt.Fprintln(a.out, line)
}
