package graph

import (
	"context"
	"strings"

	"github.com/99designs/gqlgen/complexity"
	"github.com/99designs/gqlgen/graphql"
	"github.com/99designs/gqlgen/graphql/errcode"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

const (
	// maxDepth is how deep selections may nest: the deepest useful one, from the rollouts of an application down to the
	// artifact sources of a version set, has twelve levels. Tools' introspection needs fourteen.
	maxDepth = 16
	// maxObjects bounds what one request may ask for: the objects of full pages all the way down, whatever there really
	// is. A page of 50 applications with 50 version sets, their entries, and 50 versions of each service is about 25,000.
	maxObjects = 50_000
	// deliveryMetricsWeigh is what one question for them counts: as many rollouts as it may read.
	deliveryMetricsWeigh = 2_200
	// credentialsWeigh is what one list of credentials counts: it has all of the organization.
	credentialsWeigh = 1_000
	// workflowCountWeigh is what one question for a number of runs counts: the engine reads up to 200,000 for each.
	workflowCountWeigh = 5_000
	// workflowTimelineWeigh is what one timeline counts: the engine reads and replays a whole history for it.
	workflowTimelineWeigh = 10_000
	// scheduleContentWeigh is what the content of one schedule counts: the engine is asked for each, so that no page of them asks for it.
	scheduleContentWeigh = 2_000
	// policySimulationWeigh is what one simulation counts: it reads and decides up to 10,000 decisions again.
	policySimulationWeigh = 12_000
	// planPreviewWeigh is what one plan of a change counts: 5,000 files are compared with up to 5,000 filters, and 50 rollouts are planned.
	planPreviewWeigh = 12_000
	// templatesWeigh is what it counts to save the templates of a channel or to preview one: each may compute for some milliseconds.
	templatesWeigh = 1_000
	// causesWeigh is what the rows that led to one rollout count: they are searched for in the journals of at most ten rollouts, and of their
	// deployments.
	causesWeigh = 10 * defaultPage
	// maxFields is how many fields an operation may select, its fragments put in.
	maxFields = 10_000
	// maxTokens is as many words as a query may have.
	maxTokens = 15_000
)

// limits refuses operations that ask for too much before any of it is read.
type limits struct{ schema graphql.ExecutableSchema }

var (
	_ graphql.HandlerExtension        = (*limits)(nil)
	_ graphql.OperationContextMutator = (*limits)(nil)
)

// ExtensionName is for gqlgen.
func (*limits) ExtensionName() string { return "Limits" }

// Validate keeps the schema.
func (l *limits) Validate(schema graphql.ExecutableSchema) error {
	l.schema = schema
	return nil
}

// MutateOperationContext refuses the operation, or lets it pass unchanged.
func (l *limits) MutateOperationContext(ctx context.Context, o *graphql.OperationContext) *gqlerror.Error {
	m := measure(o.Operation.SelectionSet, map[*ast.FragmentDefinition]extent{})
	if m.depth > maxDepth {
		return tooMuch("selections nest %d deep; expected at most %d", m.depth, maxDepth)
	}
	if m.fields > maxFields {
		return tooMuch("the operation selects more than %d fields; expected at most as many", maxFields)
	}
	if c := complexity.Calculate(ctx, l.schema, o.Operation, o.Variables, complexity.WithFixedScalarValue(0)); c > maxObjects {
		return tooMuch("the operation asks for up to %d objects; expected at most %d: ask for smaller pages", c, maxObjects)
	}
	return nil
}

func tooMuch(format string, args ...any) *gqlerror.Error {
	err := gqlerror.Errorf(format, args...)
	errcode.Set(err, errcode.ValidationFailed)
	return err
}

// extent is how much a selection is once its fragments are put in.
type extent struct{ depth, fields int }

// measure looks at each fragment once, however often it is used: thirty of them, each using the next twice, are a
// thousand million fields, which gqlgen would count one by one. That fragments have no cycles is known by now.
func measure(set ast.SelectionSet, known map[*ast.FragmentDefinition]extent) extent {
	var all extent
	for _, selection := range set {
		var one extent
		switch s := selection.(type) {
		case *ast.Field:
			one = measure(s.SelectionSet, known)
			one.depth++
			one.fields++
		case *ast.InlineFragment:
			one = measure(s.SelectionSet, known)
		case *ast.FragmentSpread:
			var ok bool
			if one, ok = known[s.Definition]; !ok {
				one = measure(s.Definition.SelectionSet, known)
				known[s.Definition] = one
			}
		}
		all.depth = max(all.depth, one.depth)
		all.fields = min(all.fields+one.fields, maxFields+1) // no overflow
	}
	return all
}

// weighed is a schema that says what pages cost: their items, as many as are asked for.
type weighed struct{ graphql.ExecutableSchema }

// Complexity is for gqlgen. Every field that is a connection counts, so that a new one cannot be forgotten.
func (w weighed) Complexity(ctx context.Context, typeName, fieldName string, children int, args map[string]any) (int, bool) {
	def := w.Schema().Types[typeName]
	if def == nil {
		return w.ExecutableSchema.Complexity(ctx, typeName, fieldName, children, args)
	}
	field := def.Fields.ForName(fieldName)
	if field != nil && field.Type.Name() == "DeliveryMetrics" {
		return deliveryMetricsWeigh + children, true
	}
	if field != nil && field.Type.Name() == "Credential" && typeName == "Query" {
		return credentialsWeigh + children, true
	}
	if typeName == "Rollout" && fieldName == "causes" {
		return causesWeigh + 3*10*children, true // of each rollout three rows at most
	}
	if field != nil && field.Type.Name() == "WorkflowCount" {
		return workflowCountWeigh + children, true
	}
	if field != nil && field.Type.Name() == "WorkflowTimeline" {
		return workflowTimelineWeigh + children, true
	}
	if field != nil && field.Type.Name() == "ScheduleContent" {
		return scheduleContentWeigh + children, true
	}
	if field != nil && field.Type.Name() == "PolicySimulation" {
		return policySimulationWeigh + children, true
	}
	if field != nil && field.Type.Name() == "PlanPreview" {
		return planPreviewWeigh + children, true
	}
	if field != nil && (field.Type.Name() == "NotificationPreview" || typeName == "Mutation" && fieldName == "putNotificationChannel") {
		return templatesWeigh + children, true
	}
	if field == nil || !strings.HasSuffix(field.Type.Name(), "Connection") {
		return w.ExecutableSchema.Complexity(ctx, typeName, fieldName, children, args)
	}
	items := defaultPage
	switch field.Type.Name() {
	case "MatrixConnection":
		items = matrixPage
	case "JournalConnection":
		items = journalPage
	}
	for _, count := range []string{"first", "last"} {
		if asked, err := graphql.UnmarshalInt(args[count]); err == nil && args[count] != nil {
			items = max(1, min(asked, maxPage))
		}
	}
	return 1 + items*children, true
}
