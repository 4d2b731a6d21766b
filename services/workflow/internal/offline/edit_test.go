package offline_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/offline"
)

const editCases = `{"program": "edit.star",
 "inputs": {"repo_url": "https://git.test/shop", "branch": "main", "message": "Update", "trailers": {"Lockstep-Event-Id": "7"}, "credential": "bot",
  "files": [{"path": "a.yaml", "edits": [{"yaml": "tag", "value": "2"}]}, {"path": "b.json", "edits": [{"json": "tag", "value": "2"}]}]},
 "functions": {
  "git.read_file": [
   {"when": {"path": "a.yaml"}, "result": {"content": "tag: a # kept\n", "sha": "c0ffee"}},
   {"when": {"path": "b.json"}, "result": {"content": "{\"tag\": \"2\"}", "sha": "c0ffee"}}],
  "git.commit": [{"result": "decade"}],
  "git.propose": [{"result": {"number": 4, "url": "https://git.test/pulls/4", "state": "open", "branch": "x", "head": "y", "commit": "", "by": ""}}]},
 "cases": [
  {"name": "committed", "expect": {"state": "completed", "status": {"outcome": "committed", "commit": "decade"}, "calls": [
   {"function": "git.read_file", "args": {"ref": "main", "path": "a.yaml", "credential": "bot"}},
   {"function": "git.read_file", "args": {"ref": "c0ffee", "path": "b.json"}},
   {"function": "git.commit", "args": {"base": "c0ffee", "branch": "main", "credential": "bot", "message": "Update", "trailers": {"Lockstep-Event-Id": "7"},
    "files": [{"path": "a.yaml", "content": "tag: \"2\" # kept\n"}]}}]}},
  {"name": "proposed", "inputs": {"repo_url": "https://git.test/shop", "branch": "main", "message": "Update", "trailers": {}, "proposal": true,
   "files": [{"path": "a.yaml", "edits": [{"yaml": "tag", "value": "2"}]}]}, "expect": {"state": "completed", "status": {"outcome": "proposed", "link": "https://git.test/pulls/4"}}},
  {"name": "moved", "functions": {"git.commit": [{"error": {"code": "conflict", "message": "a.yaml has changed"}}]},
   "expect": {"state": "completed", "status": {"outcome": "failed", "why": "commit: conflict: a.yaml has changed"}}},
  {"name": "protected", "functions": {"git.commit": [{"error": {"code": "forbidden", "message": "production is protected"}}]},
   "expect": {"state": "completed", "status": {"outcome": "refused", "why": "commit: forbidden: production is protected"}}},
  {"name": "not there", "functions": {"git.read_file": [{"error": {"code": "not_found", "message": "no file"}}]},
   "expect": {"state": "completed", "status": {"outcome": "refused", "why": "a.yaml: not_found: no file"}}},
  {"name": "unchanged", "functions": {"git.read_file": [{"result": {"content": "{\"tag\": \"2\"}", "sha": "c0ffee"}}]},
   "expect": {"state": "completed", "status": {"outcome": "unchanged", "commit": "c0ffee"}}},
  {"name": "proposed without a change", "inputs": {"repo_url": "https://git.test/shop", "branch": "main", "message": "Update", "trailers": {}, "proposal": true,
   "files": [{"path": "a.yaml", "edits": [{"yaml": "tag", "value": "2"}]}]},
   "functions": {"git.propose": [{"result": {"number": 0, "url": "", "state": "unchanged", "branch": "", "head": "beef", "commit": "beef", "by": ""}}]},
   "expect": {"state": "completed", "status": {"outcome": "unchanged", "commit": "beef", "link": ""}}},
  {"name": "late", "inputs": {"repo_url": "https://git.test/shop", "branch": "main", "message": "Update", "trailers": {"Lockstep-Edit": "k"}, "edit": "k", "not_after": 1,
   "files": [{"path": "a.yaml", "edits": [{"yaml": "tag", "value": "2"}]}]}, "expect": {"state": "completed", "status": {"outcome": "failed", "code": "late"},
   "calls": [{"function": "git.read_file"}]}},
  {"name": "in time", "inputs": {"repo_url": "https://git.test/shop", "branch": "main", "message": "Update", "trailers": {"Lockstep-Edit": "k"}, "edit": "k", "not_after": 99999999999,
   "files": [{"path": "a.yaml", "edits": [{"yaml": "tag", "value": "2"}]}]}, "expect": {"state": "completed", "status": {"outcome": "committed", "commit": "decade"}}},
  {"name": "searched for and found", "inputs": {"repo_url": "https://git.test/shop", "branch": "main", "message": "Update", "trailers": {"Lockstep-Edit": "k"}, "edit": "k",
   "again": true, "look": true, "not_after": 1, "files": [{"path": "a.yaml", "edits": [{"yaml": "tag", "value": "2"}]}]},
   "functions": {"git.read_commit": [{"result": {"sha": "decade"}}]},
   "expect": {"state": "completed", "status": {"outcome": "committed", "commit": "decade"}, "calls": [
    {"function": "git.read_commit", "args": {"ref": "main", "edit": "k"}}]}},
  {"name": "searched for and not found", "inputs": {"repo_url": "https://git.test/shop", "branch": "main", "message": "Update", "trailers": {"Lockstep-Edit": "k"}, "edit": "k",
   "again": true, "look": true, "files": [{"path": "a.yaml", "edits": [{"yaml": "tag", "value": "2"}]}]},
   "functions": {"git.read_commit": [{"result": {"sha": ""}}]},
   "expect": {"state": "completed", "status": {"outcome": "withdrawn"}, "calls": [{"function": "git.read_commit"}]}},
  {"name": "again, with the values", "inputs": {"repo_url": "https://git.test/shop", "branch": "main", "message": "Update", "trailers": {"Lockstep-Edit": "k"}, "edit": "k",
   "again": true, "files": [{"path": "b.json", "edits": [{"json": "tag", "value": "2"}]}]},
   "functions": {"git.read_commit": [{"result": {"sha": "decade"}}]},
   "expect": {"state": "completed", "status": {"outcome": "committed", "commit": "decade"}}},
  {"name": "again, with the values of others", "inputs": {"repo_url": "https://git.test/shop", "branch": "main", "message": "Update", "trailers": {"Lockstep-Edit": "k"}, "edit": "k",
   "again": true, "files": [{"path": "b.json", "edits": [{"json": "tag", "value": "2"}]}]},
   "functions": {"git.read_commit": [{"result": {"sha": ""}}]},
   "expect": {"state": "completed", "status": {"outcome": "unchanged", "commit": "c0ffee"}}},
  {"name": "searched for while the forge is away", "inputs": {"repo_url": "https://git.test/shop", "branch": "main", "message": "Update", "trailers": {"Lockstep-Edit": "k"},
   "edit": "k", "again": true, "look": true, "files": [{"path": "a.yaml", "edits": [{"yaml": "tag", "value": "2"}]}]},
   "functions": {"git.read_commit": [{"error": {"code": "timeout", "message": "no answer"}}]},
   "expect": {"state": "completed", "status": {"outcome": "failed", "code": "timeout", "why": "commit: timeout: no answer"}}}
 ]}`

// R4-28: the program of the domain service that edits files commits, or proposes, only what changes, all of it made from one commit, and
// reports what came of it. Where the files have the values, which may be by an earlier run whose answer was lost, it says in which
// commit. A run that begins late commits nothing; one that is made again finds the commit of an earlier one, and only looks for it if it is
// asked to.
func TestTheProgramThatEditsFiles(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile(filepath.Join("..", "..", "..", "domain", "internal", "core", "trigger", "edit.star"))
	if err != nil {
		t.Fatal(err)
	}
	cases, err := offline.ReadTable([]byte(editCases), func(string) ([]byte, error) { return program, nil })
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		c.Compute = computing(t)
		if o := offline.Test(c, seeds(3), anything); !o.Passed {
			t.Errorf("%s: %v\n%s", c.Name, o.Failures, o.History)
		}
	}
}
