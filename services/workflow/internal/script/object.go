package script

import (
	"fmt"
	"slices"
	"strings"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// Object is a JSON object in a program: a dict whose members are attributes as well (D35). A member hides the dict
// method of its name; index access always finds the member.
type Object struct {
	dict *starlark.Dict
}

var (
	_ starlark.IterableMapping = (*Object)(nil)
	_ starlark.Sequence        = (*Object)(nil)
	_ starlark.HasSetKey       = (*Object)(nil)
	_ starlark.HasSetField     = (*Object)(nil)
	_ starlark.Comparable      = (*Object)(nil)
	_ starlark.HasBinary       = (*Object)(nil)
)

func newObject(size int) *Object { return &Object{starlark.NewDict(size)} }

func (o *Object) set(key string, v starlark.Value) { _ = o.dict.SetKey(starlark.String(key), v) } // only fails when frozen

func (o *Object) get(key string) (starlark.Value, bool) {
	v, found, _ := o.dict.Get(starlark.String(key)) // only fails for unhashable keys
	return v, found
}

// String is the dict's.
func (o *Object) String() string { return o.dict.String() }

// Type is "object".
func (*Object) Type() string { return "object" }

// Freeze freezes the members too.
func (o *Object) Freeze() { o.dict.Freeze() }

// Truth is whether there are members.
func (o *Object) Truth() starlark.Bool { return o.dict.Truth() }

// Hash is refused, as for every mutable value.
func (*Object) Hash() (uint32, error) { return 0, fmt.Errorf("unhashable type: object") }

// Get is o[key].
func (o *Object) Get(key starlark.Value) (starlark.Value, bool, error) { return o.dict.Get(key) }

// SetKey is o[key] = v.
func (o *Object) SetKey(key, v starlark.Value) error { return o.dict.SetKey(key, v) }

// SetField is o.name = v.
func (o *Object) SetField(name string, v starlark.Value) error {
	return o.dict.SetKey(starlark.String(name), v)
}

// Len is the number of members.
func (o *Object) Len() int { return o.dict.Len() }

// Iterate goes through the names.
func (o *Object) Iterate() starlark.Iterator { return o.dict.Iterate() }

// Items are the members in the order of the JSON.
func (o *Object) Items() []starlark.Tuple { return o.dict.Items() }

// Attr is o.name: the member, else the dict's method.
func (o *Object) Attr(name string) (starlark.Value, error) {
	if v, found := o.get(name); found {
		return v, nil
	}
	if method, err := o.dict.Attr(name); method != nil || err != nil {
		return method, err
	}
	return nil, starlark.NoSuchAttrError(fmt.Sprintf("object has no .%s; it has %s", name, strings.Join(o.names(), ", ")))
}

// AttrNames are the members and the dict's methods.
func (o *Object) AttrNames() []string {
	names := append(o.names(), o.dict.AttrNames()...)
	slices.Sort(names)
	return slices.Compact(names)
}

func (o *Object) names() []string {
	names := make([]string, 0, o.dict.Len())
	for _, key := range o.dict.Keys() {
		if s, ok := starlark.AsString(key); ok {
			names = append(names, s)
		}
	}
	return names
}

// CompareSameType is == and != between objects.
func (o *Object) CompareSameType(op syntax.Token, y starlark.Value, depth int) (bool, error) {
	other, ok := y.(*Object)
	if !ok {
		return false, fmt.Errorf("object %s %s is not implemented", op, y.Type())
	}
	return o.dict.CompareSameType(op, other.dict, depth)
}

// Binary is the union o | other, with an object or a dict on the other side; the result is an object.
func (o *Object) Binary(op syntax.Token, y starlark.Value, side starlark.Side) (starlark.Value, error) {
	if op != syntax.PIPE {
		return nil, nil //nolint:nilnil // the interpreter's way to say that the operation does not exist
	}
	var other *starlark.Dict
	switch y := y.(type) {
	case *Object:
		other = y.dict
	case *starlark.Dict:
		other = y
	default:
		return nil, nil //nolint:nilnil // as above
	}
	if side == starlark.Left {
		return &Object{o.dict.Union(other)}, nil
	}
	return &Object{other.Union(o.dict)}, nil
}
