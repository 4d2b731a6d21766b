package gitfetch

// cache holds the most recently assembled contents: the next delta is often based on one of them. It uses at most a quarter of the share,
// and releases it when the memory is needed.
type cache struct {
	share    *Share
	most     int64
	used     int64
	contents map[int32][]byte
	order    []int32
}

func newCache(share *Share) cache {
	return cache{share: share, most: share.memory / 4, contents: map[int32][]byte{}}
}

// get returns a content, or nil.
func (c *cache) get(i int32) []byte { return c.contents[i] }

// perContent is the memory of a content beside its bytes.
const perContent = 128

// put stores a content, if there is room for it.
func (c *cache) put(i int32, content []byte) {
	n := int64(len(content)) + perContent
	if n > c.most || c.contents[i] != nil {
		return
	}
	for c.used+n > c.most {
		c.drop()
	}
	if !c.share.tryUse(n) {
		return
	}
	c.contents[i] = content
	c.order = append(c.order, i)
	c.used += n
}

// drop evicts the oldest.
func (c *cache) drop() {
	oldest := c.order[0]
	c.order = c.order[1:]
	n := int64(len(c.contents[oldest])) + perContent
	delete(c.contents, oldest)
	c.used -= n
	c.share.Free(n)
}

func (c *cache) clear() {
	for len(c.order) > 0 {
		c.drop()
	}
}
