package workflow

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	engine "github.com/lockstep-cd/lockstep/services/workflow"
)

// TestTheTablesInTheExamples plays the tables of the documentation, and those of the built-in driver's programs (issue 18).
func TestTheTablesInTheExamples(t *testing.T) {
	t.Parallel()
	var files []string
	for _, pattern := range []string{"docs/examples/*/*.test.yaml", "docs/examples/*/*.test.star", "services/workflow/testdata/cases/*.yaml"} {
		found, err := filepath.Glob(filepath.Join("../../../..", pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: found %v, error %v", pattern, found, err)
		}
		files = append(files, found...)
	}
	seeds := make([]uint64, 50)
	for i := range seeds {
		seeds[i] = uint64(i) + 1
	}
	for _, file := range files {
		cases, err := readCases(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cases {
			t.Run(filepath.Base(file)+"/"+c.Name, func(t *testing.T) {
				t.Parallel()
				if o := engine.Test(c, seeds); !o.Passed || o.Crashes == 0 {
					t.Errorf("%d crashes: %s", o.Crashes, strings.Join(o.Failures, "\n"))
				}
			})
		}
	}
}

// TestEachRowForThoseWhoComeFromOtherEnginesRuns: each program that the page names is tested by the file of cases, and each program is
// named (issue 18).
func TestEachRowForThoseWhoComeFromOtherEnginesRuns(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../docs/how-to/move-from-workflow-engines.md")
	if err != nil {
		t.Fatal(err)
	}
	cases, err := os.ReadFile("../../../../docs/examples/elsewhere/elsewhere.test.star")
	if err != nil {
		t.Fatal(err)
	}
	programs, err := filepath.Glob("../../../../docs/examples/elsewhere/*.star")
	if err != nil || len(programs) < 10 {
		t.Fatalf("found %d programs, error %v", len(programs), err)
	}
	earlier := 0 // programs as they were, in the row of what they have become
	for _, file := range programs {
		name := filepath.Base(file)
		if strings.HasSuffix(name, ".before.star") {
			earlier++
		}
		if strings.HasSuffix(name, ".test.star") {
			continue
		}
		if !strings.Contains(string(page), "(../examples/elsewhere/"+name+")") {
			t.Errorf("%s has no row", name)
		}
		if !strings.Contains(string(cases), `table("`+name+`"`) {
			t.Errorf("%s has no case", name)
		}
	}
	rows := 0
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "| ") && !strings.Contains(line, "you look for") {
			if rows++; !strings.Contains(line, "../examples/elsewhere/") {
				t.Errorf("the row %q has no program", line)
			}
		}
	}
	if rows != len(programs)-1-earlier {
		t.Errorf("found %d rows for %d programs", rows, len(programs)-1-earlier)
	}
}

// TestCasesInStarlark are refused with what was found and expected, and bounded.
func TestCasesInStarlark(t *testing.T) {
	t.Parallel()
	load := func(name string) ([]byte, error) {
		switch name {
		case "p.star":
			return []byte("def main(n):\n    return n + 1\n"), nil
		case "lib.star":
			return []byte("def case(n):\n    return {\"name\": str(n), \"inputs\": {\"n\": n}, \"expect\": {\"result\": n + 1}}\n"), nil
		case "self.star":
			return []byte("load(\"self.star\", \"x\")\n"), nil
		}
		return nil, os.ErrNotExist
	}
	cases, err := engine.ReadTestStarlark("a.star", []byte("load(\"lib.star\", \"case\")\nprogram = \"p.star\"\ncases = [case(n) for n in range(3)]\n"), load)
	if err != nil || len(cases) != 3 {
		t.Fatalf("found %d cases, %v", len(cases), err)
	}
	for _, c := range cases {
		if o := engine.Test(c, nil); !o.Passed {
			t.Errorf("%s: %v", c.Name, o.Failures)
		}
	}
	for text, want := range map[string]string{
		"program = 1 +":                                  "want primary expression",
		"program = \"p.star\"":                           "0 cases",
		"tables = []":                                    "found no table",
		"tables = [{\"program\": \"p.star\"}]":           "tables[0]",
		"program, cases = \"p.star\", [{\"nme\": \"\"}]": "nme",
		"load(\"self.star\", \"x\")":                     "loads itself",
		"load(\"missing.star\", \"x\")":                  "not exist",
		"while True:\n    pass":                          "too many steps",
		"program, cases = \"p.star\", [len]":             "cannot encode",
		// A code that the Function never answers.
		"program, cases = \"p.star\", [{\"name\": \"a\", \"functions\": {\"git.commit\": [{\"error\": {\"code\": \"away\"}}]}}]": "functions.git.commit[0].error.code",
	} {
		if _, err := engine.ReadTestStarlark("a.star", []byte(text), load); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: found %v, expected %q in it", text, err, want)
		}
	}
}

// TestTheScheduleInTheExamplesIsWhatItsRowShows: the file of schedules reads as `lockstep schedule apply` reads it, and has the program of
// its row, which the cases play (issue 18).
func TestTheScheduleInTheExamplesIsWhatItsRowShows(t *testing.T) {
	t.Parallel()
	const folder = "../../../../docs/examples/elsewhere"
	all, err := readDefinitions(filepath.Join(folder, "schedules.yaml"))
	if err != nil || len(all) != 1 {
		t.Fatalf("found %d schedules, error %v", len(all), err)
	}
	request, err := all[0].whole(1, folder)
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join(folder, "nightly.star"))
	if err != nil || string(request.GetStarlark()) != string(source) {
		t.Errorf("found the program %q, error %v", request.GetStarlark(), err)
	}
	if cron := request.GetSpec().GetCron(); len(cron) != 1 || request.GetCatchUp().GetSeconds() != 7200 ||
		string(request.GetInputs()) != `{"keep_days":30}` {
		t.Errorf("found %v", request)
	}
}
