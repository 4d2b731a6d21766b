package offline_test

import (
	"os"
	"strings"
	"testing"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/offline"
)

// anything lets every event leave.
func anything(history.Emit) *history.FunctionError { return nil }

func seeds(n uint64) (all []uint64) {
	for seed := range n {
		all = append(all, seed+1)
	}
	return all
}

const order = `
def main(order):
    paid = run("shop.pay", {"order": order, "amount": 7})
    defer(run, "shop.log", {"order": order})
    set_status("step", "paid")
    print("paid", paid.id)
    sleep(3600)
    e = wait_for_event("com.example.shipped", filter = {"order": order}, timeout = 7200)
    if e == None:
        fail("it was not shipped")
    run("shop.notify", {"order": order, "by": "mail"}, retry = {"attempts": 2}, on_error = "return")
    return {"order": order, "paid": paid.id}
`

const orders = `{"program": "order.star", "inputs": {"order": 3}, "functions": {
  "shop.pay": [{"result": {"id": "p1"}, "error": {"code": "away", "message": "m", "retryable": true}, "times": 2}],
  "shop.log": [{}], "shop.notify": [{"error": {"code": "no", "message": "no"}}]},
 "cases": [
  {"name": "shipped", "steps": [{"event": {"type": "com.example.shipped", "data": {"order": 3}}}],
   "expect": {"state": "completed", "result": {"paid": "p1"}, "prints": ["paid p1"], "status": {"step": "paid"},
    "calls": [{"function": "shop.pay", "args": {"amount": 7}}, {"function": "shop.notify"}, {"function": "shop.log"}]}},
  {"name": "late", "steps": [{"advance": "3h"}], "expect": {"state": "failed", "error": "not shipped"}},
  {"name": "cancelled", "steps": [{"cancel": "no stock"}], "expect": {"state": "cancelled", "error": "no stock",
    "calls": [{"function": "shop.pay"}, {"function": "shop.log"}]}},
  {"name": "waits", "expect": {"state": "waiting"}}%s
 ]}`

func tableOf(t *testing.T, text string) ([]offline.Case, error) {
	t.Helper()
	return offline.ReadTable([]byte(text), func(name string) ([]byte, error) {
		if name != "order.star" {
			return nil, os.ErrNotExist
		}
		return []byte(order), nil
	})
}

func TestATableOfCases(t *testing.T) { // issue 18
	t.Parallel()
	wrong := map[string]string{
		"other state": `{"name": "other state", "expect": {"state": "completed"}}`, // it fails after two hours
		"other call":  `{"name": "other call", "steps": [{"cancel": "x"}], "expect": {"state": "cancelled", "calls": [{"function": "shop.pay", "args": {"amount": 8}}, {"function": "shop.log"}]}}`,
		"other print": `{"name": "other print", "steps": [{"cancel": "x"}], "expect": {"state": "cancelled", "prints": []}}`,
		"no answer":   `{"name": "no answer", "functions": {"shop.other": [{}]}, "steps": [{"send": {"channel": 0}}], "expect": {"state": "failed"}}`,
	}
	all := ""
	for _, c := range wrong {
		all += "," + c
	}
	cases, err := tableOf(t, strings.Replace(orders, "%s", all, 1))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		o := offline.Test(c, seeds(40), anything)
		if _, fails := wrong[c.Name]; o.Passed == fails {
			t.Errorf("%s: passed %t: %s\n%s", c.Name, o.Passed, strings.Join(o.Failures, "\n"), o.History)
		}
	}
}

func TestATableWithoutMeaningIsRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"program": "order.star"}`: "1 to 1000 cases", `{"programs": "x"}`: "programs", `{"program": "x.star", "cases": [{"name": "a"}]}`: "program",
		`{"program": "order.star", "cases": [{}]}`:                                                "name",
		`{"program": "order.star", "cases": [{"name": "a"}, {"name": "a"}]}`:                      "name of its own",
		`{"program": "order.star", "cases": [{"name": "a", "steps": [{}]}]}`:                      "expected one",
		`{"program": "order.star", "cases": [{"name": "a", "steps": [{"advance": "1 hour"}]}]}`:   "duration",
		`{"program": "order.star", "cases": [{"name": "a", "expect": {"state": "done"}}]}`:        "expect.state",
		`{"program": "order.star", "cases": [{"name": "a", "functions": {"shop.pay": []}}]}`:      "shop.pay",
		`{"program": "order.star", "cases": [{"name": "a", "steps": [{"event": {"data": {}}}]}]}`: "type",
		`{"program": "order.star", "modules": ["y.star"], "cases": [{"name": "a"}]}`:              "modules",
	} {
		if _, err := tableOf(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected %s", text, err, want)
		}
	}
}

func TestATestThatDoesNotEndFails(t *testing.T) {
	t.Parallel()
	c, err := offline.ReadScenario("loop", map[string][]byte{offline.MainFile: []byte("while True:\n    sleep(1)\n")})
	if err != nil {
		t.Fatal(err)
	}
	if o := offline.Test(c, nil, anything); o.Passed || !strings.Contains(strings.Join(o.Failures, ""), "does not end") {
		t.Errorf("%v", o.Failures)
	}
}

// TestACaseChangesItsProgram: a program that fits the history is taken from there on, and one that does not fails the case with what
// differs.
func TestACaseChangesItsProgram(t *testing.T) { // issue 18
	t.Parallel()
	files := map[string]string{
		"was.star":   "def main():\n    run(\"a.b\")\n    wait_for_event(\"com.example.go\")\n    return \"was\"\n",
		"fits.star":  "def main():\n    if patched(\"x\"):\n        run(\"c.d\")\n    run(\"a.b\")\n    wait_for_event(\"com.example.go\")\n    return patched(\"x\")\n",
		"entry.star": "def main():\n    run(\"c.d\")\n    wait_for_event(\"com.example.go\")\n",
		"wait.star":  "def main():\n    run(\"a.b\")\n    wait_for_event(\"com.example.stop\")\n",
		"more.star":  "def main():\n    run(\"a.b\")\n    print(1)\n    wait_for_event(\"com.example.go\")\n",
		"ends.star":  "def main():\n    run(\"a.b\")\n",
		"fails.star": "def main():\n    run(\"a.b\")\n    fail(\"x\")\n",
		"text.star":  "def",
	}
	load := func(name string) ([]byte, error) {
		if text, is := files[name]; is {
			return []byte(text), nil
		}
		return nil, os.ErrNotExist
	}
	for file, want := range map[string]string{
		"fits.star": "", "entry.star": "entry 1", "wait.star": "behind entry 1", "more.star": "would first record", "ends.star": "would end",
		"fails.star": "would fail", "text.star": "text.star",
	} {
		cases, err := offline.ReadTable([]byte(`{"program": "was.star", "functions": {"a.b": [{"result": 1}]}, "cases": [{"name": "change",
			"steps": [{"change": "`+file+`"}, {"event": {"type": "com.example.go"}}], "expect": {"result": false}}]}`), load)
		if err != nil {
			t.Fatal(err)
		}
		o := offline.Test(cases[0], seeds(10), anything)
		if o.Passed != (want == "") || !strings.Contains(strings.Join(o.Failures, "\n"), want) {
			t.Errorf("%s: passed %t with %q, expected %q", file, o.Passed, o.Failures, want)
		}
	}
	_, err := offline.ReadTable([]byte(`{"program": "was.star", "cases": [{"name": "none", "steps": [{"change": "none.star"}]}]}`), load)
	if err == nil || !strings.Contains(err.Error(), "steps[0].change") {
		t.Errorf("a file that is missing: %v", err)
	}
}
