package store

import "sync"

// sources remembers programs that were read, by digest. A digest has one source for ever, so what it knows stays true. A run
// that is not in memory any more is so continued with one question less.
//
// It is safe for concurrent use.
type sources struct {
	mu       sync.Mutex
	bytes    int
	byDigest map[[32]byte][]byte
}

// sourcesMost bounds it, in bytes; beyond it begins anew, since programs are few.
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
