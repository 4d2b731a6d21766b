package activity

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"
	"sync"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// Concealed are the secrets that were resolved for one use of a Function. Errors come from wherever a Function goes,
// and some servers echo what they were sent.
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

// Conceal declares that a value is a secret (D27). A Function that resolves a reference within Call declares it with the ctx that it was
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

// Redact takes the secrets out of a text, also where they are written as a part of an address, in base64 or in JSON.
func (c *Concealed) Redact(text string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, value := range c.values {
		for _, form := range forms(value) {
			text = strings.ReplaceAll(text, form, history.Redacted)
		}
	}
	return text
}

// forms are a secret as it is, in an address, in base64 and in JSON.
func forms(value string) []string {
	inJSON, _ := json.Marshal(value) // a string can be encoded
	var plain bytes.Buffer
	e := json.NewEncoder(&plain)
	e.SetEscapeHTML(false)
	_ = e.Encode(value) // a string can be encoded
	return []string{
		value, url.QueryEscape(value), url.PathEscape(value), base64.StdEncoding.EncodeToString([]byte(value)),
		string(inJSON[1 : len(inJSON)-1]), plain.String()[1 : plain.Len()-2],
	}
}

// Clean is a decoded JSON value without the secrets that were resolved within ctx: a server may send back what it was sent. It is for
// Functions whose answer nobody writes back to where it came from.
func Clean(ctx context.Context, value any) any {
	c, used := ctx.Value(concealedKey{}).(*Concealed)
	if !used {
		return value
	}
	c.mu.Lock()
	none := len(c.values) == 0
	c.mu.Unlock()
	if none {
		return value
	}
	return c.clean(value)
}

// CleanValue is a decoded JSON value without the secrets.
func (c *Concealed) CleanValue(value any) any { return c.clean(value) }

func (c *Concealed) clean(value any) any {
	switch v := value.(type) {
	case string:
		return c.Redact(v)
	case json.Number:
		if redacted := c.Redact(v.String()); redacted != v.String() {
			return redacted
		}
		return v
	case []any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = c.clean(v[i])
		}
		return all
	case map[string]any:
		all := make(map[string]any, len(v))
		for name, member := range v {
			all[c.Redact(name)] = c.clean(member)
		}
		return all
	default:
		return v
	}
}
