package client

import (
	"bufio"
	"io"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// endless is text without a line's end.
type endless struct{}

// Read implements io.Reader.
func (endless) Read(into []byte) (int, error) {
	clear(into)
	return len(into), nil
}

// D65: a server that sends a line without an end does not fill the memory of the command line.
func TestLinesOfTheArchiveAreBounded(t *testing.T) {
	t.Parallel()
	if _, err := lineOf(bufio.NewReader(endless{})); !fault.Is(err, fault.Terminal) {
		t.Errorf("found %v; want it refused", err)
	}
	long := strings.Repeat("x", 100_000) + "\n"
	in := bufio.NewReader(strings.NewReader(long + "rest"))
	for _, want := range []struct {
		line string
		err  error
	}{{long, nil}, {"rest", io.EOF}} {
		if line, err := lineOf(in); string(line) != want.line || err != want.err { //nolint:errorlint // as of bufio.Reader
			t.Errorf("found %d bytes and %v; want %d and %v", len(line), err, len(want.line), want.err)
		}
	}
}
