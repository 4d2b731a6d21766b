package oci

import (
	"bytes"
	"container/list"
	"io"
	"net/http"
	"strings"
	"sync"
)

// conditional asks for lists of tags only if they have changed (RFC 9110, If-None-Match), at registries that tell an entity
// tag. To the client above, a list that has not changed looks like one that was sent again: the answer 304 is the
// registry's, which has checked the account and that the list is still what the tag stands for.
type conditional struct {
	next http.RoundTripper

	mu sync.Mutex
	// lists are by URL, and recent has their keys, the last used first. held counts the bytes of all bodies.
	lists  map[string]*list.Element
	recent list.List
	held   int
}

// tagList is an answer to be had again.
type tagList struct {
	url, etag string
	header    http.Header
	body      []byte
}

// mostLists bounds what lists take in memory, in bytes, and mostList one of them: 20,000 tags are not more. Those that were
// not used for longest go first, and are asked for whole the next time.
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
		_ = answer.Body.Close() // a 304 has none
		return known.again(answer), nil
	case answer.StatusCode == http.StatusOK && answer.Header.Get("ETag") != "":
		return c.keep(url, answer)
	default:
		return answer, nil
	}
}

// again is what the registry said before, as the answer to another request.
func (l *tagList) again(unchanged *http.Response) *http.Response {
	answer := *unchanged
	answer.StatusCode, answer.Status = http.StatusOK, http.StatusText(http.StatusOK)
	answer.Header = l.header.Clone()
	answer.ContentLength, answer.Body = int64(len(l.body)), io.NopCloser(bytes.NewReader(l.body))
	return &answer
}

// keep reads a list and remembers it. One that is too large is handed on as it comes.
func (c *conditional) keep(url string, answer *http.Response) (*http.Response, error) {
	body, err := io.ReadAll(io.LimitReader(answer.Body, mostList+1))
	if err != nil {
		_ = answer.Body.Close() // the error of reading it says more
		return nil, err
	}
	if len(body) > mostList {
		answer.Body = &joined{Reader: io.MultiReader(bytes.NewReader(body), answer.Body), Closer: answer.Body}
		return answer, nil
	}
	_ = answer.Body.Close() // read to its end
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
	return e.Value.(*tagList) //nolint:forcetypeassert // put puts in nothing else
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

// drop forgets a list. The caller holds mu.
func (c *conditional) drop(e *list.Element) {
	l := c.recent.Remove(e).(*tagList) //nolint:forcetypeassert // put puts in nothing else
	delete(c.lists, l.url)
	c.held -= l.size()
}

// size is roughly what a list takes, with what is around it, so that a thousand empty ones are not for nothing.
func (l *tagList) size() int { return len(l.body) + 2*len(l.url) + len(l.etag) + 512 }
