package trial

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"reflect"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/simcluster/apiserver"
)

// cluster is the API of the simulated cluster.
type cluster struct{ url string }

// put creates an object, with its status.
func (c cluster) put(ctx context.Context, namespace string, o map[string]any) error {
	object := apiserver.Object(o)
	r, _ := apiserver.ByKind(object.Text("apiVersion"), object.Text("kind")) // the table was checked
	key := apiserver.Key{Resource: r, Namespace: cmp.Or(object.Namespace(), namespace)}
	if _, err := c.send(ctx, http.MethodPost, key, "", o); err != nil {
		return err
	}
	key.Name = object.Name()
	if r.Status && object.Map("status") != nil {
		_, err := c.send(ctx, http.MethodPut, key, "/status", map[string]any{
			"apiVersion": r.APIVersion(), "kind": r.Kind, "metadata": map[string]any{"name": key.Name, "namespace": key.Namespace}, "status": o["status"],
		})
		return err
	}
	return nil
}

// differs is what of an object is not as expected; empty if all is.
func (c cluster) differs(ctx context.Context, namespace string, want Object) (string, error) {
	r, _ := apiserver.ByKind(want.APIVersion, want.Kind) // the table was checked
	key := apiserver.Key{Resource: r, Namespace: cmp.Or(want.Namespace, namespace), Name: want.Name}
	found, err := c.send(ctx, http.MethodGet, key, "", nil)
	what := fmt.Sprintf("%s %s", want.Kind, want.Name)
	switch {
	case fault.Is(err, fault.NotFound) && want.Absent:
		return "", nil
	case fault.Is(err, fault.NotFound):
		return what + ": found none, expected it", nil
	case err != nil:
		return "", err
	case want.Absent:
		return what + ": found it, expected it to be absent", nil
	}
	if problem := outdated(found, want.Fields); problem != "" {
		return what + ": " + problem, nil
	}
	if at, problem := compare("", found, want.Fields); problem != "" {
		return what + at + ": " + problem, nil
	}
	return "", nil
}

// outdated reports that a status is compared that the object's controller wrote before it saw the object as it is. Some controllers write
// the generation that they have seen as text.
func outdated(found, want map[string]any) string {
	if _, compared := want["status"]; !compared {
		return ""
	}
	metadata, _ := found["metadata"].(map[string]any)
	status, _ := found["status"].(map[string]any)
	newest, err := strconv.ParseInt(fmt.Sprint(metadata["generation"]), 10, 64)
	if err != nil {
		return "" // it has none
	}
	observed, err := strconv.ParseInt(fmt.Sprint(status["observedGeneration"]), 10, 64)
	if err != nil || observed >= newest {
		return ""
	}
	return fmt.Sprintf("found a status of generation %d, expected one of generation %d: no controller has seen the newest", observed, newest)
}

// compare finds the first value that is not as expected. Of objects, only the members that are expected are compared.
func compare(at string, found, want any) (where, problem string) {
	switch want := want.(type) {
	case map[string]any:
		object, ok := found.(map[string]any)
		if !ok {
			break
		}
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if where, problem := compare(at+"."+name, object[name], want[name]); problem != "" {
				return where, problem
			}
		}
		return "", ""
	case []any:
		list, ok := found.([]any)
		if !ok || len(list) != len(want) {
			break
		}
		for i := range want {
			if where, problem := compare(fmt.Sprintf("%s[%d]", at, i), list[i], want[i]); problem != "" {
				return where, problem
			}
		}
		return "", ""
	}
	if reflect.DeepEqual(found, want) || sameNumber(found, want) {
		return "", ""
	}
	return at, fmt.Sprintf("found %s, expected %s", short(found), short(want))
}

// sameNumber reports whether both are one number, whose spelling may differ. Integers are compared exactly.
func sameNumber(found, want any) bool {
	a, isNumber := found.(json.Number)
	b, too := want.(json.Number)
	if !isNumber || !too {
		return false
	}
	_, aWhole := new(big.Int).SetString(a.String(), 10)
	_, bWhole := new(big.Int).SetString(b.String(), 10)
	if aWhole && bWhole {
		return a == b // JSON has one spelling of each
	}
	x, err := a.Float64()
	y, errToo := b.Float64()
	return err == nil && errToo == nil && x == y
}

// short is a value as JSON, of which a long one is cut.
func short(value any) string {
	if value == nil {
		return "nothing"
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	const most = 200
	if runes := []rune(string(text)); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return string(text)
}

// send is one request. An object that does not exist is NotFound; the cluster's own reason for any refusal is in the error.
func (c cluster) send(ctx context.Context, method string, key apiserver.Key, part string, body map[string]any) (map[string]any, error) {
	path := "/apis/" + key.Resource.APIVersion()
	if key.Resource.Group == "" {
		path = "/api/" + key.Resource.Version
	}
	if key.Resource.Namespaced {
		path += "/namespaces/" + key.Namespace
	}
	path += "/" + key.Resource.Plural
	if key.Name != "" {
		path += "/" + key.Name
	}
	what := fmt.Sprintf("%s %s of the simulated cluster", method, path+part)
	text, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.url+path+part, bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, fault.New(fault.Unavailable, "%s: %w", what, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode >= http.StatusBadRequest {
		var status metav1.Status
		_ = json.NewDecoder(response.Body).Decode(&status) // what is no Status has no message
		class := fault.Invalid
		if response.StatusCode == http.StatusNotFound {
			class = fault.NotFound
		}
		return nil, fault.New(class, "%s: %s: %s", what, response.Status, status.Message)
	}
	var object map[string]any
	decoder := json.NewDecoder(response.Body)
	decoder.UseNumber()
	if err := decoder.Decode(&object); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return object, nil
}
