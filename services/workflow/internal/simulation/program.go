package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/agent"
)

// organization owns all runs of a simulation, agent is the relay that they call, and foreignAgent one of another
// organization, to which no message must leave.
const (
	organization = 1
	agentID      = 7
	foreignAgent = 8
)

// declared is the registry of agents, as the domain service declares them.
type declared struct{ agent.RegistryStore }

// Agents are the two of a simulation.
func (declared) Agents(context.Context) ([]agent.Agent, error) {
	return []agent.Agent{{ID: agentID, Organization: organization}, {ID: foreignAgent, Organization: organization + 1}}, nil
}

// The types of the events that programs wait for: those that come from outside, and those that runs emit for each other.
const (
	typeGo   = "com.example.go"
	typePeer = event.TypeRolloutHealthy
)

// plan is a program made at random, and what the world sends it.
type plan struct {
	workflow string
	source   string
	// before is the program that it is started with, if it is given source while it waits.
	before string
	// old are the labels of the sides of patched that are in before.
	old []string
	// greeted is set if it is started with a message to its inbox.
	greeted bool
	// messages are the labels of the messages to its inbox.
	messages []string
	// events are the numbers k of the events {wf, k} that it waits for and that will come. Some come before it starts.
	events []int
	// cancelled is set if it is cancelled at some time.
	cancelled bool
}

// author writes programs. Every operation with an effect has a label of its own, by which the world identifies it.
type author struct {
	random   *rand.Rand
	workflow string
	peers    []string
	labels   int
	events   int
	sent     []int
	// suffix is added to every label in the program's text: what a generation does has other labels than what the next one does.
	suffix string
	// patches counts the changes that the program takes by patched. before is the program without them.
	patches     int
	old         []string
	out, before strings.Builder
	// messages are the labels of messages to its inbox.
	messages []string
}

// first is the program that a run is started with.
func (pl plan) first() string {
	if pl.before != "" {
		return pl.before
	}
	return pl.source
}

// write makes a program of up to four branches that use every operation there is
// (TestProgramsUseEveryOperation). All of them end in bounded time: whatever
// does not come has a timeout. A third of the programs continue in further generations, each of which does the same under labels of
// its own, and hands the next one a channel that is answered at the border.
func write(random *rand.Rand, workflow string, peers []string) plan {
	a := &author{random: random, workflow: workflow, peers: peers}
	branches, generations, depth := random.IntN(4), 1, 0
	if random.IntN(3) == 0 {
		generations, depth, a.suffix = 2+random.IntN(2), 1, " + '-g%d' % n"
	}
	for i := range branches {
		a.line(0, "def branch%d(n):", i)
		for range 1 + random.IntN(3) {
			a.step(1)
		}
		a.line(1, "return %d", i)
	}
	a.line(0, "child = %q", "def main(label, fails):\n    run('act', {'label': label, 'fail': fails})\n    return label\n")
	// What is deferred in a generation is called at the end of the last one, under the label of the first: a label is one effect of many.
	a.line(0, "def release(label, fail = False, wait = False):")
	a.line(1, "run('act', {'label': label, 'fail': fail})")
	a.line(1, "if wait:")
	a.line(2, "wait_for_event(%q, filter = {'wf': %q, 'k': 0}, timeout = 60)", typeGo, workflow)
	if generations == 1 {
		a.line(0, "n = 1")
	} else {
		a.line(0, "def generation(n, token):")
		a.line(1, "if token:")
		a.line(2, "receive(token, timeout = %d)", 1+random.IntN(20))
	}
	if random.IntN(2) == 0 {
		a.line(depth, "run('checkpoint', {'state': {'n': n}})")
	}
	for range random.IntN(2) {
		a.step(depth)
	}
	if random.IntN(3) == 0 {
		a.defers(depth)
	}
	for i := range branches {
		a.line(depth, "b%d = spawn(branch%d, n)", i, i)
	}
	for range 1 + random.IntN(3) {
		a.step(depth)
	}
	if branches > 0 && (generations > 1 || random.IntN(4) > 0) {
		names := make([]string, branches)
		for i := range names {
			names[i] = fmt.Sprintf("b%d", i)
		}
		a.line(depth, "print(gather([%s]))", strings.Join(names, ", "))
	}
	if random.IntN(8) == 0 {
		a.line(depth, "run('act', {'label': %s, 'fail': True})", a.label())
	}
	if generations > 1 {
		a.line(1, "if n < %d:", generations)
		a.line(2, "border = channel()")
		a.line(2, "run('act', {'label': %s, 'token': border.token})", a.label())
		a.line(2, "continue_with(generation, n + 1, token = border)")
		a.line(0, "def main():")
		a.line(1, "generation(1, None)")
	}
	pl := plan{
		workflow: workflow, source: a.out.String(), events: a.sent, cancelled: random.IntN(6) == 0, greeted: random.IntN(3) == 0,
		messages: a.messages, old: a.old,
	}
	if a.patches > 0 && random.IntN(2) == 0 {
		pl.before = a.before.String()
	}
	return pl
}

func (a *author) line(depth int, format string, args ...any) {
	writeLine(&a.out, depth, format, args...)
	writeLine(&a.before, depth, format, args...)
}

func writeLine(to *strings.Builder, depth int, format string, args ...any) {
	to.WriteString(strings.Repeat("    ", depth))
	fmt.Fprintf(to, format, args...)
	to.WriteByte('\n')
}

// label is the text of a new label.
func (a *author) label() string {
	a.labels++
	return fmt.Sprintf("'%s-%d'%s", a.workflow, a.labels, a.suffix)
}

// step writes one operation, or a few that belong together.
func (a *author) step(depth int) {
	switch a.random.IntN(18) {
	case 13:
		a.children(depth)
	case 14:
		a.line(depth, "set_status('%s', %s)", []string{"step", "place"}[a.random.IntN(2)],
			[]string{"n", "'here'", "None", "True"}[a.random.IntN(4)])
	case 15:
		a.patch(depth)
	case 16:
		a.messages = append(a.messages, fmt.Sprintf("%s-m%d", a.workflow, a.labels))
		a.line(depth, "letter = receive(inbox(), timeout = %d)", 1+a.random.IntN(20))
		a.line(depth, "letter and reply(letter, letter.data)")
	case 17:
		a.line(depth, "print(run('checkpoint', {'state': {'label': %s}}))", a.label())
	case 0, 1, 2:
		a.line(depth, "run('act', {'label': %s, 'fail': %s}, on_error = 'return')", a.label(),
			[]string{"False", "False", "True"}[a.random.IntN(3)])
	case 3:
		called := agentID
		if a.labels%5 == 4 {
			called = foreignAgent
		}
		a.line(depth, "run('k8s.get', {'agent_id': %d, 'label': %s}, timeout = %d, on_error = 'return')", called, a.label(), 5+a.random.IntN(40))
	case 4:
		a.line(depth, "sleep(seconds = %d.5)", a.random.IntN(8))
	case 5, 6:
		a.waits(depth)
	case 7:
		peer := a.peers[a.random.IntN(len(a.peers))]
		a.line(depth, "run('emit', {'type': %q, 'data': {'to': %q, 'label': %s}})", typePeer, peer, a.label())
	case 8:
		a.line(depth, "print(now(), uuid(), random())")
		a.line(depth, "wait_for_event(%q, filter = {'to': %q}, timeout = %d)", typePeer, a.workflow, 1+a.random.IntN(10))
	case 9:
		a.line(depth, "poll('act', {'label': %s, 'poll': True}, until = {'n': %d}, interval = 1, timeout = %d, on_error = 'return')",
			a.label(), 1+a.random.IntN(3), 5+a.random.IntN(20))
	case 11:
		a.attempts(depth)
	case 10:
		a.line(depth, "poll('k8s.get', {'agent_id': %d, 'label': %s, 'poll': True}, until = {'n': 2}, interval = 1, timeout = %d, on_error = 'return')",
			agentID, a.label(), 5+a.random.IntN(20))
	default:
		name := fmt.Sprintf("c%d", a.labels)
		a.line(depth, "%s = channel()", name)
		a.line(depth, "run('act', {'label': %s, 'token': %s.token})", a.label(), name)
		a.line(depth, "%s = receive(%s, timeout = %d)", name, name, 1+a.random.IntN(20))
		a.line(depth, "%s and reply(%s, %s.data)", name, name, name)
	}
}

// defers writes one to three calls for the end of the run. One that waits is given up when its time is up.
func (a *author) defers(depth int) {
	for range 1 + a.random.IntN(3) {
		a.line(depth, "%s(release, %s, fail = %s, wait = %s, timeout = %d)", []string{"defer", "defer", "on_cancel"}[a.random.IntN(3)], a.label(),
			[]string{"False", "False", "True"}[a.random.IntN(3)], []string{"False", "True"}[a.random.IntN(2)], 5+a.random.IntN(20))
	}
}

// attempts writes an attempt of what spawns branches, one of which may fail.
func (a *author) attempts(depth int) {
	fails := []string{"False", "True"}[a.random.IntN(2)]
	a.line(depth, "print(attempt(lambda: gather(spawn(run, 'act', {'label': %s, 'fail': %s}), spawn(sleep, %d), spawn(release, %s))).ok)", a.label(), fails,
		a.random.IntN(5), a.label())
}

// patch writes a change of the program: the one before has the old side of it alone, and a run that was started with that one and is given
// this one takes the old side where it has been already.
func (a *author) patch(depth int) {
	is, was := a.label(), a.label()
	a.old = append(a.old, fmt.Sprintf("%s-%d", a.workflow, a.labels))
	writeLine(&a.before, depth, "run('act', {'label': %s}, on_error = 'return')", was)
	a.patches++
	writeLine(&a.out, depth, "if patched('p%d'):", a.patches)
	writeLine(&a.out, depth+1, "print(run('act', {'label': %s}, on_error = 'return'))", is)
	writeLine(&a.out, depth, "else:")
	writeLine(&a.out, depth+1, "run('act', {'label': %s}, on_error = 'return')", was)
}

// children writes children: one that is waited for, which may fail, and perhaps one that ends only with its parent.
func (a *author) children(depth int) {
	name := fmt.Sprintf("h%d", a.labels)
	a.line(depth, "%s = start_workflow(program = child, inputs = {'label': %s, 'fails': %s})", name, a.label(),
		[]string{"False", "False", "True"}[a.random.IntN(3)])
	if a.random.IntN(2) == 0 {
		a.line(depth, "start_workflow(program = 'receive(channel(), timeout = 10000000)')")
	}
	a.line(depth, "print(await_workflow(%s, timeout = %d, on_error = 'return').value)", name, 30+a.random.IntN(60))
	if a.random.IntN(2) == 0 { // it does not end with its parent, and ends by itself
		a.line(depth, "start_workflow(program = child, inputs = {'label': %s, 'fails': False}, detached = True)", a.label())
	}
	if a.random.IntN(2) == 0 { // one child for all generations: what it does has one label
		a.labels++
		a.line(depth, "print(await_workflow(start_workflow(program = child, inputs = {'label': '%s-%d', 'fails': False}, id = 'k%d'), timeout = %d, on_error = 'return').ok)",
			a.workflow, a.labels, a.labels, 30+a.random.IntN(60))
	}
}

// waits writes a wait for an event that comes, for one that does not, or for one that another branch waits for too.
func (a *author) waits(depth int) {
	k := a.events
	if k == 0 || a.random.IntN(4) > 0 {
		a.events++
		k = a.events
		if a.random.IntN(5) > 0 {
			a.sent = append(a.sent, k)
		}
	}
	a.line(depth, "wait_for_event(%q, filter = {'wf': %q, 'k': %d}, timeout = %d)", typeGo, a.workflow, k, 1+a.random.IntN(30))
}
