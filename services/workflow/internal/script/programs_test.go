package script

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPrograms runs every case of testdata/*.star (testdata/README.md). A case must end well, unless a line says ### "regular expression":
// then the run must fail there with such an error. Each case is also replayed from every prefix of its history.
func TestPrograms(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.star")
	if err != nil || len(files) == 0 {
		t.Fatal("no programs", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		line := 1
		for c := range strings.SplitSeq(string(text), "\n---\n") {
			t.Run(fmt.Sprintf("%s:%d", filepath.Base(file), line), func(t *testing.T) {
				t.Parallel()
				testCase(t, c)
			})
			line += strings.Count(c, "\n") + 2
		}
	}
}

// TestTheCourseNamesEachProgram: testdata/README.md leads through all of them.
func TestTheCourseNamesEachProgram(t *testing.T) {
	t.Parallel()
	course, err := os.ReadFile("testdata/README.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/*.star")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if name := filepath.Base(file); !strings.Contains(string(course), "("+name+")") {
			t.Errorf("testdata/README.md does not name %s", name)
		}
	}
}

func testCase(t *testing.T, source string) {
	t.Helper()
	history, failure := execute(t, source, nil)
	compareFailure(t, source, failure)
	for n := range history {
		again, failureAgain := execute(t, source, history[:n])
		if diff := cmp.Diff(history, again); diff != "" {
			t.Errorf("replayed from %d entries, the history differs (-first +again):\n%s", n, diff)
		}
		if fmt.Sprint(failure) != fmt.Sprint(failureAgain) {
			t.Errorf("replayed from %d entries, it ends with %v, not with %v", n, failureAgain, failure)
		}
	}
}

// expectation is the failure that a line expects.
var expectation = regexp.MustCompile(`### ("(?:[^"\\]|\\.)*")`)

// compareFailure compares how a case ended with what its lines expect.
func compareFailure(t *testing.T, source string, failure error) {
	t.Helper()
	for i, line := range strings.Split(source, "\n") {
		m := expectation.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		pattern := strings.ReplaceAll(m[1][1:len(m[1])-1], `\"`, `"`)
		if failure == nil {
			t.Fatalf("line %d: expected failure %s, but it ended well", i+1, pattern)
		}
		if !regexp.MustCompile(pattern).MatchString(failure.Error()) {
			t.Errorf("line %d: found failure %q, expected %s", i+1, failure, pattern)
		}
		if at := "main.star:" + strconv.Itoa(i+1) + ":"; !strings.HasPrefix(failure.Error(), at) &&
			!strings.Contains(failure.Error(), "every branch waits") {
			t.Errorf("found failure %q, expected it at %s", failure, at)
		}
		return
	}
	if failure != nil {
		t.Error(failure)
	}
}
