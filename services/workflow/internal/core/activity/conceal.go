package activity

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// Concealed are the secrets that were resolved for one use of a Function. Errors come from wherever a Function goes,
// and some servers echo what they were sent.
type Concealed struct {
	mu     sync.Mutex
	values []string
	// forms are how they may be written, the longest first.
	forms []string
}

type concealedKey struct{}

// WithConcealed is a context in which Conceal remembers.
func WithConcealed(ctx context.Context) (context.Context, *Concealed) {
	c := &Concealed{}
	return c.Within(ctx), c
}

// Within is a context in which Conceal adds to them.
func (c *Concealed) Within(ctx context.Context) context.Context {
	return context.WithValue(ctx, concealedKey{}, c)
}

// Empty reports whether there are none.
func (c *Concealed) Empty() bool {
	if c == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.values) == 0
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
	if slices.Contains(c.values, value) {
		return
	}
	c.values = append(c.values, value)
	c.forms = append(c.forms, forms(value)...)
	slices.SortStableFunc(c.forms, func(a, b string) int { return len(b) - len(a) }) // one may be the beginning of another
}

// Redact takes the secrets out of a text, also where they are written as a part of an address, in base64, in hexadecimal or in JSON.
func (c *Concealed) Redact(text string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, form := range c.forms {
		text = strings.ReplaceAll(text, form, history.Redacted)
	}
	return text
}

// forms are a secret as it is, in an address, in each kind of base64, in hexadecimal and in JSON.
func forms(value string) []string {
	inJSON, _ := json.Marshal(value) // a string can be encoded
	var plain bytes.Buffer
	e := json.NewEncoder(&plain)
	e.SetEscapeHTML(false)
	_ = e.Encode(value) // a string can be encoded
	raw := []byte(value)
	inHex := hex.EncodeToString(raw)
	return []string{
		value, url.QueryEscape(value), url.PathEscape(value), string(inJSON[1 : len(inJSON)-1]), plain.String()[1 : plain.Len()-2],
		base64.StdEncoding.EncodeToString(raw), base64.RawStdEncoding.EncodeToString(raw), base64.URLEncoding.EncodeToString(raw),
		base64.RawURLEncoding.EncodeToString(raw), inHex, strings.ToUpper(inHex),
	}
}

// Clean is a decoded JSON value without the secrets that were resolved within ctx: a server may send back what it was sent. It is for
// Functions whose answer nobody writes back to where it came from.
func Clean(ctx context.Context, value any) any {
	c, used := ctx.Value(concealedKey{}).(*Concealed)
	if !used {
		return value
	}
	if c.Empty() {
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
