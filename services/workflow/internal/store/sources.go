package store

import "sync"

// sources caches programs by digest, which saves a query when a run is loaded again. It is never out of date, since a digest has one
// source. It is safe for concurrent use.
type sources struct {
	mu       sync.Mutex
	bytes    int
	byDigest map[[32]byte][]byte
}

// sourcesMost bounds it, in bytes. At the bound it is emptied, which is rare, since programs are few.
const sourcesMost = 16 << 20

func (s *sources) find(sum [32]byte) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	source, known := s.byDigest[sum]
	return source, known
}

func (s *sources) add(sum [32]byte, source []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.byDigest[sum]; known || len(source) > sourcesMost {
		return
	}
	if s.byDigest == nil || s.bytes+len(source) > sourcesMost {
		s.byDigest, s.bytes = map[[32]byte][]byte{}, 0
	}
	s.byDigest[sum] = source
	s.bytes += len(source)
}
