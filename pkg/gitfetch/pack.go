package gitfetch

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// pack is the data that a server has sent, unchanged, and the position of each object in it. Contents are decompressed when they are read.
type pack struct {
	share   *Share
	data    io.ReaderAt
	size    int64
	entries []entry
	byID    map[plumbing.Hash]int32
	// named maps entries whose base has not been found yet to the name of the base.
	named map[int32]plumbing.Hash
	// tooLarge maps types to the size of the largest object whose name is unknown, because it does not fit into the share.
	tooLarge map[plumbing.ObjectType]int64
	cache    cache
}

// entry is one object of a pack.
type entry struct {
	id plumbing.Hash
	// offset is where its compressed data begins; stored is the length of that data after decompression, full the length of the object.
	offset, stored, full int64
	// base is the entry that a delta applies to; -1 if there is none or it has not been found yet.
	base int32
	// kind is the object's type, 0 until its base is known. known means that id is set.
	kind  plumbing.ObjectType
	delta bool
	known bool
}

const (
	// perObject is the memory of one entry: its record, twice while the list grows, and its place in a map.
	perObject = 192
	// memoryPack is the memory per byte of a pack in memory, while the buffer grows.
	memoryPack = 3
	// patchFactor is the memory per byte of an object that a delta is applied for, while the buffer grows.
	patchFactor = 3
	// perDecompression is the cost of one decompression beside its bytes, counted as bytes: many small ones take time, too.
	perDecompression = 4 << 10
	// longestSizes is the maximum length of the two sizes at the beginning of a delta.
	longestSizes = 20
	// rounds bounds the searches for bases that come after their deltas; servers usually send bases first.
	rounds = 16
)

// errMalformed is the error of invalid data.
var errMalformed = errors.New("malformed pack")

// readPack reads a pack to its end. The data is stored in memory or in a temporary file, and every size in it is checked before memory of
// that size is allocated.
func readPack(share *Share, from io.Reader) (*pack, error) {
	p := &pack{
		share: share, byID: map[plumbing.Hash]int32{}, named: map[int32]plumbing.Hash{}, tooLarge: map[plumbing.ObjectType]int64{},
		cache: newCache(share),
	}
	keep, err := newKeep(share)
	if err != nil {
		return nil, err
	}
	scanner := packfile.NewScanner(io.TeeReader(from, keep))
	_, objects, err := scanner.Header()
	if err != nil {
		return nil, fmt.Errorf("read the header: %w", err)
	}
	if err := share.count(int64(objects)); err != nil {
		return nil, err
	}
	for range objects {
		if err := p.scan(scanner); err != nil {
			return nil, err
		}
	}
	if _, err := scanner.Checksum(); err != nil {
		return nil, fmt.Errorf("read the checksum: %w", err)
	}
	if p.data, p.size, err = keep.done(); err != nil {
		return nil, err
	}
	return p, p.name(func(kind plumbing.ObjectType) bool { return kind != plumbing.BlobObject })
}

// scan reads one object, and keeps only its name.
func (p *pack) scan(scanner *packfile.Scanner) error {
	h, err := scanner.NextObjectHeader()
	if err != nil {
		return fmt.Errorf("read object %d: %w", len(p.entries)+1, err)
	}
	if err := p.share.Use(perObject); err != nil {
		return err
	}
	if err := p.share.inflate(h.Length); err != nil {
		return err
	}
	i := int32(len(p.entries))
	e := entry{offset: h.Offset, stored: h.Length, full: h.Length, base: -1, kind: h.Type}
	sink := io.Discard
	var sizes head
	var name plumbing.Hasher
	switch h.Type {
	case plumbing.OFSDeltaObject:
		e.delta = true
		if e.base = p.at(h.OffsetReference); e.base < 0 {
			return fmt.Errorf("%w: no object begins at %d", errMalformed, h.OffsetReference)
		}
		e.kind, sink = p.entries[e.base].kind, &sizes
	case plumbing.REFDeltaObject:
		e.delta, e.kind, sink = true, 0, &sizes
		p.named[i] = h.Reference
	case plumbing.CommitObject, plumbing.TreeObject, plumbing.TagObject, plumbing.BlobObject:
		// An object larger than any share cannot be read anyway: its name is not needed.
		if e.known = h.Length <= p.share.memory; e.known {
			name = plumbing.NewHasher(h.Type, h.Length)
			sink = name
		}
	default:
		return fmt.Errorf("%w: an object of type %d", errMalformed, h.Type)
	}
	n, _, err := scanner.NextObject(sink)
	if err != nil {
		return fmt.Errorf("read object %d: %w", i+1, err)
	}
	if n != h.Length {
		return fmt.Errorf("%w: object %d has %d bytes, and says %d", errMalformed, i+1, n, h.Length)
	}
	switch {
	case e.delta:
		if e.full, err = sizes.full(); err != nil {
			return err
		}
	case e.known:
		e.id = name.Sum()
		p.byID[e.id] = i
	default:
		p.tooLarge[e.kind] = max(p.tooLarge[e.kind], e.full)
	}
	p.entries = append(p.entries, e)
	return nil
}

// at returns the entry that begins at an offset; -1 if there is none.
func (p *pack) at(offset int64) int32 {
	i := sort.Search(len(p.entries), func(i int) bool { return p.entries[i].offset >= offset })
	if i == len(p.entries) || p.entries[i].offset != offset {
		return -1
	}
	return int32(i)
}

// name determines the names of objects that were sent as deltas, for the wanted types: they must be assembled for it. Objects that are too
// large for that are skipped.
func (p *pack) name(wanted func(plumbing.ObjectType) bool) error {
	for range rounds {
		again := false
		for i := range p.entries {
			at := int32(i)
			e := &p.entries[i]
			if e.known || !e.delta {
				continue
			}
			if e.base < 0 {
				base, ok := p.byID[p.named[at]]
				if !ok {
					again = true
					continue
				}
				e.base = base
				delete(p.named, at)
			}
			if e.kind = p.entries[e.base].kind; e.kind == 0 {
				again = true
				continue
			}
			if !wanted(e.kind) {
				continue
			}
			if err := p.nameOne(at); err != nil {
				return err
			}
		}
		if !again || len(p.named) == 0 {
			return nil
		}
	}
	return nil
}

// nameOne determines the name of one object that was sent as a delta.
func (p *pack) nameOne(i int32) error {
	content, use, err := p.read(i)
	if errors.Is(err, errTooLarge) {
		e := p.entries[i]
		p.tooLarge[e.kind] = max(p.tooLarge[e.kind], e.full)
		return nil
	}
	if err != nil {
		return err
	}
	e := &p.entries[i]
	e.id, e.known = plumbing.ComputeHash(e.kind, content), true
	p.byID[e.id] = i
	p.share.Free(use)
	p.cache.put(i, content) // the next object is often a delta to this one
	return nil
}

// errTooLarge is the error for an object that does not fit into the share.
var errTooLarge = errors.New("the object is too large")

// find returns the entry of an object; -1 if there is none. Files that were sent as deltas are named only here, since few are ever read.
func (p *pack) find(kind plumbing.ObjectType, id plumbing.Hash) (int32, error) {
	i, ok := p.byID[id]
	if !ok && (kind == plumbing.BlobObject || kind == plumbing.AnyObject) {
		if err := p.name(func(plumbing.ObjectType) bool { return true }); err != nil {
			return -1, err
		}
		i, ok = p.byID[id]
	}
	if !ok {
		return -1, nil
	}
	return i, nil
}

// unnamed returns the size of the largest object whose name is unknown; 0 if there is none.
func (p *pack) unnamed(kind plumbing.ObjectType) int64 {
	if kind != plumbing.AnyObject {
		return p.tooLarge[kind]
	}
	var largest int64
	for _, n := range p.tooLarge {
		largest = max(largest, n)
	}
	return largest
}

// read returns the content of an object, and the memory of the share that it uses.
func (p *pack) read(i int32) (content []byte, use int64, err error) {
	// From the object down to one that is no delta, or is cached.
	var chain []int32
	at := i
	for p.entries[at].delta {
		if content = p.cache.get(at); content != nil {
			break
		}
		if len(chain) > len(p.entries) {
			return nil, 0, fmt.Errorf("%w: deltas in a circle", errMalformed)
		}
		chain = append(chain, at)
		at = p.entries[at].base
	}
	if content == nil {
		if content = p.cache.get(at); content == nil {
			if content, use, err = p.inflate(at); err != nil {
				return nil, 0, err
			}
		}
	}
	for j := len(chain) - 1; j >= 0; j-- {
		before := use
		if content, use, err = p.patch(content, chain[j]); err != nil {
			p.share.Free(before)
			return nil, 0, err
		}
		p.share.Free(before)
	}
	if use == 0 { // memory of the cache, which may be released at any time
		if !p.fits(int64(len(content))) {
			return nil, 0, errTooLarge
		}
		use = int64(len(content))
	}
	return content, use, nil
}

// fits takes memory for an object. In a small share without enough memory the fetch begins again with a large one.
func (p *pack) fits(n int64) bool {
	if p.share.tryUse(n) {
		return true
	}
	p.cache.clear()
	if p.share.tryUse(n) {
		return true
	}
	if !p.share.large {
		p.share.outgrown.Store(true)
	}
	return false
}

// patch applies the delta of an entry to its base.
func (p *pack) patch(base []byte, i int32) (content []byte, use int64, err error) {
	full := p.entries[i].full
	if full > p.share.memory || !p.fits(patchFactor*full) {
		return nil, 0, errTooLarge
	}
	use = patchFactor * full
	delta, deltaUse, err := p.inflate(i)
	if err != nil {
		p.share.Free(use)
		return nil, 0, err
	}
	defer p.share.Free(deltaUse)
	if err := p.share.inflate(full); err != nil {
		p.share.Free(use)
		return nil, 0, err
	}
	if content, err = packfile.PatchDelta(base, delta); err != nil {
		p.share.Free(use)
		return nil, 0, fmt.Errorf("apply a delta: %w", err)
	}
	return content, use, nil
}

// inflate returns the decompressed data of an entry.
func (p *pack) inflate(i int32) (data []byte, use int64, err error) {
	e := p.entries[i]
	if e.stored > p.share.memory || !p.fits(e.stored) {
		return nil, 0, errTooLarge
	}
	if err := p.share.inflate(e.stored + perDecompression); err != nil {
		p.share.Free(e.stored)
		return nil, 0, err
	}
	scanner := packfile.NewScanner(io.NewSectionReader(p.data, 0, p.size))
	if _, err = scanner.SeekObjectHeader(e.offset); err == nil {
		out := bytes.NewBuffer(make([]byte, 0, e.stored))
		if _, _, err = scanner.NextObject(out); err == nil && int64(out.Len()) == e.stored {
			return out.Bytes(), e.stored, nil
		}
	}
	p.share.Free(e.stored)
	return nil, 0, fmt.Errorf("read the object at %d again: %w", e.offset, errors.Join(errMalformed, err))
}

// head captures the beginning of a delta.
type head struct{ bytes []byte }

// Write implements io.Writer.
func (h *head) Write(b []byte) (int, error) {
	h.bytes = append(h.bytes, b[:min(len(b), longestSizes-len(h.bytes))]...)
	return len(b), nil
}

// full returns the size of the object that the delta produces, the second of the two sizes at its beginning.
func (h *head) full() (int64, error) {
	rest := h.bytes
	var size uint64
	for range 2 {
		size = 0
		for shift, more := 0, true; more; shift += 7 {
			if len(rest) == 0 || shift > 56 {
				return 0, fmt.Errorf("%w: a delta without sizes", errMalformed)
			}
			size |= uint64(rest[0]&0x7f) << shift
			more = rest[0]&0x80 != 0
			rest = rest[1:]
		}
	}
	return int64(size), nil
}

// keep stores a pack while it is read.
type keep struct {
	share  *Share
	memory bytes.Buffer
	file   *os.File
	buffer *bufio.Writer
	size   int64
}

// newKeep keeps packs of small shares in memory. Those of large shares go to a temporary file that is unlinked at once: nothing is left
// when the process dies.
func newKeep(share *Share) (*keep, error) {
	k := &keep{share: share}
	if !share.large {
		return k, nil
	}
	var err error
	if k.file, err = os.CreateTemp("", "lockstep-git-"); err != nil {
		return nil, unkept(err)
	}
	share.atEnd(func() { _ = k.file.Close() })
	if err := os.Remove(k.file.Name()); err != nil {
		return nil, unkept(err)
	}
	k.buffer = bufio.NewWriterSize(k.file, 64<<10)
	return k, nil
}

// Write implements io.Writer.
func (k *keep) Write(b []byte) (int, error) {
	k.size += int64(len(b))
	if k.file != nil {
		n, err := k.buffer.Write(b)
		if err != nil {
			return n, unkept(err)
		}
		return n, nil
	}
	if err := k.share.Use(memoryPack * int64(len(b))); err != nil {
		return 0, err
	}
	return k.memory.Write(b)
}

// done returns the stored data.
func (k *keep) done() (io.ReaderAt, int64, error) {
	if k.file == nil {
		return bytes.NewReader(k.memory.Bytes()), k.size, nil
	}
	if err := k.buffer.Flush(); err != nil {
		return nil, 0, unkept(err)
	}
	return k.file, k.size, nil
}

func unkept(err error) error {
	return fault.Because(err, fault.Unavailable,
		"data from a Git server cannot be stored in the folder for temporary files (TMPDIR): no space, or no permission")
}
