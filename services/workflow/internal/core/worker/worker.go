// Package worker gives calls of Functions to workers: processes of an organization's own, which have registered these Functions and hold a
// stream to one replica of this service.
//
// A call is a row that any replica may give to any worker of the organization with that Function. Taking it names the worker's session as
// its holder until a time that heartbeats extend; when the session ends or falls silent, the call is offered again. A run whose process has
// a worker with room stores the call as that worker's at once, which saves taking it. Only the holder may answer, and the first answer
// counts, so a call is carried out at least once under one id and answered once.
package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// Declaration is a Function as its workers register it. It is stored, so the JSON names never change.
type Declaration struct {
	Name string `json:"name"`
	// Doc says what it does and answers.
	Doc string `json:"doc,omitempty"`
	// Arguments and Result are JSON schemas; none accepts everything.
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	// Retry is set if a failure which its worker calls retryable is tried again.
	Retry bool `json:"retry,omitempty"`
	// Effect is reads, changes or takes_back.
	Effect string `json:"effect"`
	// Places are what a call changes.
	Places []PlaceForm `json:"places,omitempty"`
	// Secrets are the arguments whose values are names of credentials, or of secrets of the run: the worker is sent what they name beside
	// the arguments.
	Secrets []string `json:"secrets,omitempty"`
}

// PlaceForm is a place of which each member is a JSON pointer into the arguments of a call.
type PlaceForm struct {
	Agent                string `json:"agent,omitempty"`
	Application          string `json:"application,omitempty"`
	ApplicationNamespace string `json:"application_namespace,omitempty"`
	Namespace            string `json:"namespace,omitempty"`
	Name                 string `json:"name,omitempty"`
	Repository           string `json:"repository,omitempty"`
	Branch               string `json:"branch,omitempty"`
	Path                 string `json:"path,omitempty"`
	URL                  string `json:"url,omitempty"`
}

// Function is a Declaration that can be used.
type Function interface {
	activity.Function
	activity.Checker
	// SecretArguments are Declaration.Secrets.
	SecretArguments() []string
	// CheckResult says what is wrong with an answer.
	CheckResult(value json.RawMessage) error
}

// Kept is a Declaration in the store.
type Kept struct {
	Declaration

	RegisteredAt, SeenAt time.Time
	// By is who registered it as it is; empty for one that was registered before that was kept.
	By Registrar
}

// Registrar is who registers Functions: the name of the token, the name of the worker, and the version that its program has given.
type Registrar struct {
	Principal, Worker, Version string
}

// The limits of what a worker may register and have.
const (
	MaxFunctions    = 200      // in one registration, and of one organization
	MaxDeclaration  = 64 << 10 // bytes of JSON
	MaxInFlight     = 1000     // calls of one session
	MaxSessions     = 200      // of one organization, at one replica
	maxName         = 200
	maxVersion      = 100
	keptFor         = 30 * 24 * time.Hour
	maxPlaces       = 20
	maxSecrets      = 16
	maxPausedAnswer = time.Hour
)

// Store keeps calls and declarations.
type Store interface {
	// TakeOffers takes calls of an organization that are offered now, at most so many, for a session that has them until then.
	TakeOffers(ctx context.Context, t Taking) ([]Call, error)
	// ExtendOffers extends what a session has, and returns the ids of the calls that it has no more.
	ExtendOffers(ctx context.Context, session string, ids []string, until time.Time) (lost []string, err error)
	// ReleaseOffers offers calls of a session again, at once.
	ReleaseOffers(ctx context.Context, session string, ids []string, now time.Time) error
	// AnswerOffer stores the answer of a session to a call that it has; accepted is false if it does not have the call.
	AnswerOffer(ctx context.Context, a Answer) (accepted bool, err error)
	// SaveDeclarations stores what a worker has registered, and ends declarations that were last seen before.
	SaveDeclarations(ctx context.Context, r Registration) error
	// SeeDeclarations notes that a worker has these Functions.
	SeeDeclarations(ctx context.Context, organization int64, names []string, now time.Time) error
	// Declarations reads those of an organization.
	Declarations(ctx context.Context, organization int64) ([]Kept, error)
	// SecretsOf reads the references of an execution's secrets, by name.
	SecretsOf(ctx context.Context, execution int64) (map[string]string, error)
	// NotifyOffers has the other replicas look for offered calls.
	NotifyOffers(ctx context.Context) error
	// ListenOffers calls notified when another replica has notified this one, until ctx or the connection ends.
	ListenOffers(ctx context.Context, notified func()) error
}

// Registration is what a worker declares.
type Registration struct {
	Organization int64
	All          []Declaration
	By           Registrar
	// Most is how many Functions an organization may have, and Before until when those were last seen that it has no more.
	Most        int
	Now, Before time.Time
	// Admit decides about what the worker declares, when the organization has these. Its error is returned, and nothing is stored then.
	Admit func(known []Kept) error
}

// Taking is a request for calls.
type Taking struct {
	Organization int64
	Functions    []string
	Session      string
	Now, Until   time.Time
	Most         int
}

// Call is one attempt at a Function.
type Call struct {
	// ID is the activity's id, the same for every attempt. Attempt counts from 1.
	ID string
	// Execution is the number of the run that waits for it.
	Execution    int64
	Organization int64
	Workflow     string
	Function     string
	Args         json.RawMessage
	Attempt      int
	Deadline     time.Time
	Trace        string
	// Secrets are the values of the Function's secret arguments, by argument. They are sent to the worker and stored nowhere.
	Secrets map[string]string
	// Taken is when the session has taken it for its worker.
	Taken time.Time
}

// Answer is what a worker answers.
type Answer struct {
	Session string
	Call    string
	// Execution is Call's.
	Execution int64
	Value     json.RawMessage
	Error     *history.FunctionError
	// Began is when the worker was given the call.
	Began time.Time
}

var names = regexp.MustCompile(`^[a-z][a-z0-9_-]*(\.[a-z][a-z0-9_-]*)+$`)

// reserved are the first parts of names that no worker may register: those of Functions that come with Lockstep, now or later.
func reserved() []string {
	return []string{
		"argo", "checkpoint", "emit", "flux", "git", "helm", "http", "job", "k8s", "lockstep", "manifest", "notify", "secret", "template", "workflow",
	}
}

// CheckPrefix says what is wrong with the prefix of a token; "" for nothing.
func CheckPrefix(prefix string) string {
	first, _, _ := strings.Cut(prefix, ".")
	switch {
	case !names.MatchString(prefix + ".x"):
		return fmt.Sprintf("found %q, expected lower-case words with dots between them, such as shop", prefix)
	case slices.Contains(reserved(), first):
		return fmt.Sprintf("found %q, whose first part is reserved for Lockstep's own Functions", prefix)
	}
	return ""
}

// Check finds what is wrong with a declaration, by itself and for a token with this prefix.
func (d Declaration) Check(prefix string) (wrong []fault.Field) {
	report := func(name, format string, args ...any) {
		wrong = append(wrong, fault.Field{Name: name, Problem: fmt.Sprintf(format, args...)})
	}
	if !names.MatchString(d.Name) || len(d.Name) > maxName {
		report("name", "found %.80q, expected lower-case words with dots between them, at most %d bytes", d.Name, maxName)
	} else if !strings.HasPrefix(d.Name, prefix+".") || CheckPrefix(prefix) != "" {
		report("name", "found %q, expected a name that begins with %s., the prefix of the token", d.Name, prefix)
	}
	effect, known := effects()[d.Effect]
	if !known {
		report("effect", "found %q, expected reads, changes or takes_back", d.Effect)
	}
	if size, err := json.Marshal(d); err != nil || len(size) > MaxDeclaration {
		report("doc", "found a declaration of %d bytes, expected at most %d", len(size), MaxDeclaration)
	}
	switch {
	case known && effect.Mutates() && len(d.Places) == 0:
		report("places", "missing, expected what a call changes")
	case known && !effect.Mutates() && len(d.Places) > 0:
		report("places", "found with the effect reads, expected none")
	case len(d.Places) > maxPlaces:
		report("places", "found %d, expected at most %d", len(d.Places), maxPlaces)
	}
	if len(d.Secrets) > maxSecrets {
		report("secrets", "found %d, expected at most %d", len(d.Secrets), maxSecrets)
	}
	for i, name := range d.Secrets {
		if name == "" || len(name) > maxName || history.Storable(name) != name {
			report(fmt.Sprintf("secrets[%d]", i), "found %.80q, expected the name of an argument", name)
		} else if slices.Contains(d.Secrets[:i], name) {
			report(fmt.Sprintf("secrets[%d]", i), "found %q a second time", name)
		}
	}
	for i, p := range d.Places {
		if problem := p.check(); problem != "" {
			report(fmt.Sprintf("places[%d]", i), "%s", problem)
		}
	}
	return wrong
}

func effects() map[string]activity.Effect {
	return map[string]activity.Effect{"reads": activity.Reads, "changes": activity.Changes, "takes_back": activity.TakesBack}
}

// looser returns in which way a declaration takes more calls past the guard than the one before it; "" if it does not. Of a Function that
// is known as one that changes something, a worker could otherwise say that it only reads, or changes something else, and the calls that
// programs make to it by then would no longer need a passage (D46).
func (d Declaration) looser(before Declaration) string {
	rank := func(effect string) int { return slices.Index([]string{"reads", "takes_back", "changes"}, effect) }
	if rank(d.Effect) < rank(before.Effect) {
		return fmt.Sprintf("found the effect %s, and it is registered with %s", d.Effect, before.Effect)
	}
	for _, p := range before.Places {
		if !slices.Contains(d.Places, p) {
			return fmt.Sprintf("found places without %s, with which it is registered", p)
		}
	}
	return ""
}

// String has the pointers of a form.
func (p PlaceForm) String() string {
	var all []string
	for _, pointer := range p.pointers() {
		if *pointer != "" {
			all = append(all, *pointer)
		}
	}
	return strings.Join(all, " ")
}

// SecretArguments are the arguments that name secrets.
func (d Declaration) SecretArguments() []string { return d.Secrets }

// EffectOf is what the Function does to anything outside of this service; Unstated if the declaration does not say.
func (d Declaration) EffectOf() activity.Effect { return effects()[d.Effect] }

// check says what is wrong with a form. What it leaves out would be all of it, which the places of environments do not cover: so each names
// a part.
func (p PlaceForm) check() string {
	for _, pointer := range p.pointers() {
		if *pointer != "" && !strings.HasPrefix(*pointer, "/") {
			return fmt.Sprintf("found %.80q, expected a JSON pointer into the arguments, such as /namespace", *pointer)
		}
	}
	cluster := p.Application != "" && p.ApplicationNamespace != "" && p.Namespace == "" && p.Name == "" ||
		p.Namespace != "" && p.Application == "" && p.ApplicationNamespace == ""
	inCluster := p.Application+p.ApplicationNamespace+p.Namespace+p.Name != ""
	inRepository := p.Branch+p.Path != ""
	switch {
	case p.Agent != "" && cluster && p.Repository == "" && !inRepository && p.URL == "":
	case p.Repository != "" && p.Branch != "" && p.Path != "" && p.Agent == "" && !inCluster && p.URL == "":
	case p.URL != "" && p.Agent == "" && p.Repository == "" && !inCluster && !inRepository:
	default:
		return "expected agent with namespace (and name) or with application and application_namespace, or repository, branch and path, or url"
	}
	return ""
}

func (p *PlaceForm) pointers() []*string {
	return []*string{
		&p.Agent, &p.Application, &p.ApplicationNamespace, &p.Namespace, &p.Name, &p.Repository, &p.Branch, &p.Path, &p.URL,
	}
}

// Touches are the places that a call changes. If one of them cannot be read, there are none: such a call is refused where anything is
// protected.
func (d Declaration) Touches(args map[string]any) []activity.Place {
	var all []activity.Place
	for _, form := range d.Places {
		place, complete := form.place(args)
		if !complete {
			return nil
		}
		all = append(all, place)
	}
	return all
}

func (p PlaceForm) place(args map[string]any) (place activity.Place, complete bool) {
	complete = true
	text := func(pointer string) string {
		if pointer == "" {
			return ""
		}
		s, isText := lookUp(args, pointer).(string)
		complete = complete && isText && s != ""
		return s
	}
	place = activity.Place{
		Namespace: text(p.Namespace), Name: text(p.Name), Repository: text(p.Repository), Branch: text(p.Branch), URL: text(p.URL),
		Path: strings.TrimPrefix(text(p.Path), "/"),
	}
	if p.Application != "" {
		place.Application = text(p.ApplicationNamespace) + "/" + text(p.Application)
	}
	if p.Agent != "" {
		switch n := lookUp(args, p.Agent).(type) {
		case int64:
			place.Agent = n
		case float64:
			place.Agent = int64(n)
		}
		complete = complete && place.Agent > 0
	}
	// Another spelling of a place would not be found to be the same.
	if place.Path != "" && path.Clean(place.Path) != place.Path || strings.Contains(place.Path, "..") || strings.Contains(place.Path, `\`) {
		complete = false
	}
	for _, u := range []string{place.URL, place.Repository} {
		complete = complete && (u == "" || plain(u))
	}
	return place, complete
}

// plain reports whether a URL has one spelling as far as it names a server: a scheme and a host of ASCII letters. That leaves out what
// Git alone reads as a URL, such as git@host:path, and names in other scripts, which resolvers translate.
func plain(raw string) bool {
	u, err := url.Parse(raw)
	return err == nil && u.Scheme != "" && u.Opaque == "" && u.Hostname() != "" &&
		!strings.ContainsFunc(u.Host, func(r rune) bool { return r <= ' ' || r > '~' || r == '%' })
}

// lookUp follows a JSON pointer through objects.
func lookUp(value any, pointer string) any {
	for _, token := range strings.Split(pointer, "/")[1:] {
		object, isObject := value.(map[string]any)
		if !isObject {
			return nil
		}
		value = object[strings.NewReplacer("~1", "/", "~0", "~").Replace(token)]
	}
	return value
}
