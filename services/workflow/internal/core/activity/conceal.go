package activity

import (
	"context"
	"encoding/base64"
	"net/url"
	"strings"
	"sync"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// Concealed are the secrets that were resolved for one use of a Function. Errors come from wherever a Function goes, and some of that
// says back what it was sent.
type Concealed struct {
	mu     sync.Mutex
	values []string
}

type concealedKey struct{}

// WithConcealed is a context in which Conceal remembers.
func WithConcealed(ctx context.Context) (context.Context, *Concealed) {
	c := &Concealed{}
	return context.WithValue(ctx, concealedKey{}, c), c
}

// Conceal says that a value is a secret (D27). Whoever resolves a reference within Function.Call says so with the ctx that it was
// called with: where an error or a panic of this use shows the value, nobody gets to see it, in no log, history or answer.
func Conceal(ctx context.Context, value string) {
	c, used := ctx.Value(concealedKey{}).(*Concealed)
	if !used || value == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.values = append(c.values, value)
}

// Redact takes the secrets out of a text, also where they are written as a part of an address or in base64.
func (c *Concealed) Redact(text string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, value := range c.values {
		for _, form := range []string{value, url.QueryEscape(value), url.PathEscape(value), base64.StdEncoding.EncodeToString([]byte(value))} {
			text = strings.ReplaceAll(text, form, history.Redacted)
		}
	}
	return text
}
