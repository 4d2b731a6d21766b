package graph

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vektah/gqlparser/v2"

	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/exec"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// D64: the query of the card for Backstage is one of the public schema.
func TestTheQueryForBackstageIsOfTheSchema(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "..", "docs", "how-to", "show-in-backstage.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```graphql\n")
	query, _, found := strings.Cut(rest, "\n```")
	if !found {
		t.Fatal("the page has no query")
	}
	schema := exec.NewExecutableSchema(exec.Config{Resolvers: resolvers{}}).Schema()
	if _, errs := gqlparser.LoadQueryWithRules(schema, query, nil); errs != nil {
		t.Error(errs)
	}
	if _, errs := gqlparser.LoadQueryWithRules(schema, strings.Replace(query, "liveSince", "aliveSince", 1), nil); errs == nil {
		t.Error("a field that does not exist is taken")
	}
}

// D62: the schema has every moment that a route may choose, and every kind of channel: what is answered is what the schema allows, and
// what a preview is asked for is taken.
func TestTheSchemaHasAllMoments(t *testing.T) {
	t.Parallel()
	schema := exec.NewExecutableSchema(exec.Config{Resolvers: resolvers{}}).Schema()
	for _, moment := range core.AllNotificationMoments() {
		if schema.Types["NotificationMoment"].EnumValues.ForName(strings.ToUpper(string(moment))) == nil {
			t.Errorf("found no %s in the schema", moment)
		}
	}
	for _, kind := range core.AllNotificationKinds() {
		if schema.Types["NotificationKind"].EnumValues.ForName(strings.ToUpper(string(kind))) == nil {
			t.Errorf("found no kind %s in the schema", kind)
		}
	}
}
