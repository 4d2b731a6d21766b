package policy

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
)

// plain are all policies, as cedar-go evaluates them without an index.
type plain []*policy

// All implements cedar.PolicyIterator.
func (p plain) All() iter.Seq2[cedar.PolicyID, *cedar.Policy] {
	return func(yield func(cedar.PolicyID, *cedar.Policy) bool) {
		for _, one := range p {
			if !yield(cedar.PolicyID(one.ID), one.compiled) {
				return
			}
		}
	}
}

// compare decides with the index and without it, and answers how they differ.
func compare(x *index, entities types.EntityMap, r cedar.Request) string {
	fast := x.candidates(r.Principal, r.Action, r.Resource)
	got, gotWhy := cedar.Authorize(&fast, entities, r)
	want, wantWhy := cedar.Authorize(plain(x.all), entities, r)
	names := func(d cedar.Diagnostic) string {
		var all []string
		for _, one := range d.Reasons {
			all = append(all, string(one.PolicyID))
		}
		for _, one := range d.Errors {
			all = append(all, "error "+string(one.PolicyID))
		}
		return strings.Join(all, ", ")
	}
	if got != want || names(gotWhy) != names(wantWhy) {
		return fmt.Sprintf("found %v by %s; expected %v by %s", got, names(gotWhy), want, names(wantWhy))
	}
	return ""
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// randomPolicy is a valid policy of our schema.
func randomPolicy(r *rand.Rand, id int) string {
	name := func(kind string) string { return fmt.Sprintf("%s::%q", kind, pick(r, "a", "b", "c")) }
	principal := pick(r, "principal", "principal == "+name("User"), "principal in "+name("Group"), "principal is Machine", "principal is System",
		"principal is User in "+name("Group"))
	action := pick(r, "action", `action == Action::"environment.enter"`, `action == Action::"rollout.create"`,
		`action in [Action::"environment.enter", Action::"gate.pass"]`, `action in [Action::"rollout.create", Action::"rollout.rollback"]`)
	resource := "resource"
	switch {
	case strings.Contains(action, "enter"):
		resource = pick(r, "resource", "resource == "+name("Environment"), "resource is Environment", "resource in "+name("Environment"))
	case strings.Contains(action, "rollout"):
		resource = pick(r, "resource", "resource == "+name("Application"), "resource is Application")
	}
	condition := pick(r, "", " when { context.automatic }", " unless { context.rolloutsLastDay > 3 }",
		" when { context.rolloutsLastDay * 9223372036854775807 == 0 }", ` when { context.versionSet.services.contains("x") }`)
	return fmt.Sprintf("@id(\"p%d\") %s (%s, %s, %s)%s;\n", id, pick(r, "permit", "permit", "forbid"), principal, action, resource, condition)
}

func randomRequest(r *rand.Rand) Request {
	name := func() string { return pick(r, "a", "b", "c", "d") }
	q := Request{
		Action: pick(r, rolloutActions()...), Application: name(),
		Principal:   Principal{Kind: pick(r, User, Machine, System), ID: name(), Name: "n"},
		Environment: &Environment{Name: name(), Tier: "production"}, Automatic: r.IntN(2) == 0, RolloutsLastDay: r.IntN(6),
		VersionSet: VersionSet{Services: []string{pick(r, "x", "y")}}, At: time.Unix(int64(r.IntN(1<<30)), 0),
	}
	for range r.IntN(3) {
		q.Principal.Groups = append(q.Principal.Groups, name())
	}
	return q
}

// requested is how many requests are compared: so many, or LOCKSTEP_POLICY_REQUESTS.
func requested(t *testing.T, usual int) int {
	t.Helper()
	text := os.Getenv("LOCKSTEP_POLICY_REQUESTS")
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// D51: the index decides as plain evaluation does. LOCKSTEP_POLICY_REQUESTS is how many requests are compared.
func TestTheIndexDecidesAsPlainEvaluationDoes(t *testing.T) {
	t.Parallel()
	requests := requested(t, 20_000)
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 51)) //nolint:gosec // random policies, repeatable by their seed
	verdicts := map[cedar.Decision]int{}
	for done := 0; done < requests; {
		var text strings.Builder
		for i := range 1 + r.IntN(40) {
			text.WriteString(randomPolicy(r, i))
		}
		d, problems := Parse(text.String())
		if len(problems) > 0 {
			t.Fatalf("seed %d: found %v in\n%s", seed, problems, text.String())
		}
		for range 200 {
			w, err := randomRequest(r).world()
			if err != nil {
				t.Fatal(err)
			}
			request := w.request(nil)
			if differs := compare(d.index, w.entities, request); differs != "" {
				t.Fatalf("seed %d: %s for %+v of\n%s", seed, differs, request, text.String())
			}
			verdict, _ := cedar.Authorize(plain(d.policies), w.entities, request)
			verdicts[verdict]++
			done++
		}
	}
	if verdicts[cedar.Allow] == 0 || verdicts[cedar.Deny] == 0 {
		t.Errorf("found %v; expected both verdicts, or the test shows nothing", verdicts)
	}
}

// Cedar's own integration corpus, which cedar-go carries, through our index: the same decisions, reasons and errors.
func TestCedarsCorpusDecidesAsInCedar(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/cedar-policy/cedar-go").Output()
	if err != nil {
		t.Fatalf("find the module of cedar-go, which this test is compiled with: %v", err)
	}
	files := corpus(t, filepath.Join(strings.TrimSpace(string(out)), "corpus-tests.tar.gz"))
	type uid struct {
		Type types.EntityType `json:"type"`
		ID   types.String     `json:"id"`
	}
	count := 0
	for _, name := range slices.Sorted(maps.Keys(files)) {
		var c struct {
			Policies, Entities string
			Requests           []struct {
				Principal, Action, Resource uid
				Context                     cedar.Record
				Decision                    cedar.Decision
				Reason, Errors              []cedar.PolicyID
			}
		}
		if !strings.HasSuffix(name, ".json") || strings.HasSuffix(name, ".entities.json") || json.Unmarshal(files[name], &c) != nil || c.Policies == "" {
			continue
		}
		list, err := cedar.NewPolicySetFromBytes("policy.cedar", files[c.Policies])
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var entities types.EntityMap
		if err := json.Unmarshal(files[c.Entities], &entities); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var all []*policy
		for _, id := range slices.Sorted(maps.Keys(maps.Collect(list.All()))) {
			all = append(all, &policy{Info: Info{ID: string(id)}, compiled: list.Get(id)})
		}
		x := indexOf(all, true)
		for i, q := range c.Requests {
			request := cedar.Request{
				Principal: types.NewEntityUID(q.Principal.Type, q.Principal.ID), Action: types.NewEntityUID(q.Action.Type, q.Action.ID),
				Resource: types.NewEntityUID(q.Resource.Type, q.Resource.ID), Context: q.Context,
			}
			found := x.candidates(request.Principal, request.Action, request.Resource)
			decision, why := cedar.Authorize(&found, entities, request)
			var reasons, failed []cedar.PolicyID
			for _, one := range why.Reasons {
				reasons = append(reasons, one.PolicyID)
			}
			for _, one := range why.Errors {
				failed = append(failed, one.PolicyID)
			}
			slices.Sort(q.Reason)
			slices.Sort(q.Errors)
			if decision != q.Decision || !slices.Equal(reasons, q.Reason) || !slices.Equal(failed, q.Errors) {
				t.Errorf("%s, request %d: found %v by %v with errors %v; expected %v by %v with errors %v", name, i, decision, reasons, failed,
					q.Decision, q.Reason, q.Errors)
			}
			count++
		}
	}
	if count < 10_000 {
		t.Errorf("found %d requests; expected the corpus", count)
	}
}

func corpus(t *testing.T, path string) map[string][]byte {
	t.Helper()
	packed, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("read the corpus that cedar-go carries: %v", err)
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	files, archive := map[string][]byte{}, tar.NewReader(unpacked)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = content
	}
}

// benchmarked is a document of n policies, as an organization would have: most name an environment and an action.
func benchmarked(b *testing.B, n, first int) *Document {
	b.Helper()
	var text strings.Builder
	text.WriteString(`@id("base") permit (principal, action, resource);` + "\n")
	for i := 1; i < n; i++ {
		_, _ = fmt.Fprintf(&text, `@id("p%d") forbid (principal, action == Action::"environment.enter", resource == Environment::"e%d")
when { context.time.weekday == 5 && context.time.hour >= 16 && context.rolloutsLastDay > %d }
unless { principal in Group::"operators" };`+"\n",
			i, first+i%50, i%7)
	}
	d, problems := Parse(text.String())
	if len(problems) > 0 {
		b.Fatal(problems)
	}
	return d
}

// D51: a decision takes at most 100 µs with 200 policies.
func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{3, 200, 1000} {
		l := Level{Name: "the organization"}
		for i := 0; i < n; i += MaxPolicies {
			l.Members = append(l.Members, Member{Name: fmt.Sprint("set", i), Document: benchmarked(b, min(n, MaxPolicies), i)})
		}
		s, err := Combine(l)
		if err != nil {
			b.Fatal(err)
		}
		q := Request{
			Action: EnterEnvironment, Principal: Principal{Kind: User, ID: "12", Name: "Ada", Groups: []string{"developers"}}, Application: "shop",
			Environment: &Environment{Name: "e7", Tier: "production"}, Gate: "e7", VersionSet: VersionSet{Name: "shop-7", Services: []string{"api", "web"}},
			RolloutsLastDay: 2, At: time.Date(2026, 11, 27, 18, 30, 0, 0, time.UTC),
		}
		b.Run(fmt.Sprintf("%d/index", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Decide(q)
			}
		})
		w, err := q.world()
		if err != nil {
			b.Fatal(err)
		}
		request := w.request(nil)
		b.Run(fmt.Sprintf("%d/plain", n), func(b *testing.B) {
			for b.Loop() {
				for _, m := range l.Members {
					cedar.Authorize(plain(m.policies), w.entities, request)
				}
			}
		})
		b.Run(fmt.Sprintf("%d/indexed", n), func(b *testing.B) {
			for b.Loop() {
				for _, m := range l.Members {
					found := m.index.candidates(request.Principal, request.Action, request.Resource)
					cedar.Authorize(&found, w.entities, request)
				}
			}
		})
	}
}
