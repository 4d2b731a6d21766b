package store

import "testing"

func TestSourcesAreBounded(t *testing.T) {
	t.Parallel()
	var s sources
	third := make([]byte, sourcesMost/3)
	for i := range byte(4) {
		s.add([32]byte{i}, third)
		s.add([32]byte{i}, third) // counts once
	}
	s.add([32]byte{9}, make([]byte, sourcesMost+1))
	for i, want := range map[byte]bool{0: false, 2: false, 3: true, 9: false} {
		if _, known := s.find([32]byte{i}); known != want {
			t.Errorf("source %d is known: %t", i, known)
		}
	}
	if s.bytes != len(third) {
		t.Errorf("%d bytes are kept, want %d", s.bytes, len(third))
	}
}
