package oci

import (
	"bytes"
	"container/list"
	"io"
	"net/http"
	"strings"
	"sync"
)

// conditional requests lists of tags only if they have changed (RFC 9110, If-None-Match), from registries that send an entity tag. To the
// client above, an unchanged list looks like one that was sent again. A 304 comes from the registry, which has checked the account and that
// the list is unchanged.
type conditional struct {
	next http.RoundTripper

	mu sync.Mutex
	// lists is by URL; recent has their keys, the most recently used first; held is the size of all bodies in bytes.
	lists  map[string]*list.Element
	recent list.List
	held   int
}

// tagList is a stored response.
type tagList struct {
	url, etag string
	header    http.Header
	body      []byte
}

// mostLists bounds the memory of all lists in bytes, and mostList that of one: enough for 20,000 tags. The least recently used are evicted,
// and requested in full the next time.
const (
	mostLists = 32 << 20
	mostList  = 2 << 20
)

// RoundTrip implements http.RoundTripper.
func (c *conditional) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/tags/list") {
		return c.next.RoundTrip(r)
	}
	url := r.URL.String()
	known := c.get(url)
	if known != nil {
		r = r.Clone(r.Context())
		r.Header.Set("If-None-Match", known.etag)
	}
	answer, err := c.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	switch {
	case known != nil && answer.StatusCode == http.StatusNotModified:
		_ = answer.Body.Close() // a 304 has no body
		return known.again(answer), nil
	case answer.StatusCode == http.StatusOK && answer.Header.Get("ETag") != "":
		return c.keep(url, answer)
	default:
		return answer, nil
	}
}

// again returns the stored response, as the response to another request.
func (l *tagList) again(unchanged *http.Response) *http.Response {
	answer := *unchanged
	answer.StatusCode, answer.Status = http.StatusOK, http.StatusText(http.StatusOK)
	answer.Header = l.header.Clone()
	answer.ContentLength, answer.Body = int64(len(l.body)), io.NopCloser(bytes.NewReader(l.body))
	return &answer
}

// keep reads and stores a list. One that is too large is passed on unread.
func (c *conditional) keep(url string, answer *http.Response) (*http.Response, error) {
	body, err := io.ReadAll(io.LimitReader(answer.Body, mostList+1))
	if err != nil {
		_ = answer.Body.Close() // the read error is more informative
		return nil, err
	}
	if len(body) > mostList {
		answer.Body = &joined{Reader: io.MultiReader(bytes.NewReader(body), answer.Body), Closer: answer.Body}
		return answer, nil
	}
	_ = answer.Body.Close() // fully read
	header := http.Header{}
	for _, name := range []string{"Content-Type", "Link"} { // Link has the next page
		if v := answer.Header.Values(name); len(v) > 0 {
			header[name] = v
		}
	}
	l := &tagList{url: url, etag: answer.Header.Get("ETag"), header: header, body: body}
	c.put(l)
	return l.again(answer), nil
}

type joined struct {
	io.Reader
	io.Closer
}

func (c *conditional) get(url string) *tagList {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.lists[url]
	if !ok {
		return nil
	}
	c.recent.MoveToFront(e)
	return e.Value.(*tagList) //nolint:forcetypeassert // put stores only these
}

func (c *conditional) put(l *tagList) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lists == nil {
		c.lists = map[string]*list.Element{}
	}
	if old, ok := c.lists[l.url]; ok {
		c.drop(old)
	}
	c.lists[l.url] = c.recent.PushFront(l)
	c.held += l.size()
	for c.held > mostLists {
		c.drop(c.recent.Back())
	}
}

// drop evicts a list. The caller holds mu.
func (c *conditional) drop(e *list.Element) {
	l := c.recent.Remove(e).(*tagList) //nolint:forcetypeassert // put stores only these
	delete(c.lists, l.url)
	c.held -= l.size()
}

// size estimates the memory of a list, with overhead, so that empty ones count as well.
func (l *tagList) size() int { return len(l.body) + 2*len(l.url) + len(l.etag) + 512 }
