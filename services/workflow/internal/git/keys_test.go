package git

import (
	"fmt"
	"sync"
	"testing"
)

// D56: a key is read once for all operations with it, a value of another digest is another key, and few are kept.
func TestAKeyIsReadOnce(t *testing.T) {
	t.Parallel()
	value, _ := newKey(t, "correct horse")
	var k keys
	first, err := k.read(value)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if again, err := k.read(value); err != nil || again != first {
				t.Errorf("found %v, %v; want the key that was read", again, err)
			}
		})
	}
	wg.Wait()
	if _, err := k.read(value[1:]); err == nil {
		t.Error("a value that is no key is read")
	}
	for i := range 3 * maxKeys {
		_, _ = k.read(fmt.Sprint(i))
		if i%10 == 0 {
			_, _ = k.read(value)
		}
	}
	if again, err := k.read(value); err != nil || again != first || len(k.last) != maxKeys {
		t.Errorf("found %v, %v, and %d keys; want the one that is in use among %d", again, err, len(k.last), maxKeys)
	}
}
