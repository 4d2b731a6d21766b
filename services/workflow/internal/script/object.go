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
	// dict has the members. It is nil for an Object that nobody has looked at since it was replayed: then they are in
	// text, the JSON of an object that was decoded before. frozen is what was asked of it meanwhile.
	dict   *starlark.Dict
	text   []byte
	frozen bool
}

var (
	_ starlark.IterableMapping = (*Object)(nil)
	_ starlark.Sequence        = (*Object)(nil)
	_ starlark.HasSetKey       = (*Object)(nil)
	_ starlark.HasSetField     = (*Object)(nil)
	_ starlark.Comparable      = (*Object)(nil)
	_ starlark.HasBinary       = (*Object)(nil)
)

func newObject(size int) *Object { return &Object{dict: starlark.NewDict(size)} }

// recordedObject is the object of a JSON text that this program was given before, so that it is known to be right. Most
// answers of a long history are never looked at again.
func recordedObject(text []byte) *Object { return &Object{text: text} }

// members are the dict, which is made when it is first asked for.
func (o *Object) members() *starlark.Dict {
	if o.dict != nil {
		return o.dict
	}
	o.dict = starlark.NewDict(0)
	if v, err := decode(o.text); err == nil {
		if read, ok := v.(*Object); ok {
			o.dict = read.dict
		}
	}
	o.text = nil
	if o.frozen {
		o.dict.Freeze()
	}
	return o.dict
}

func (o *Object) set(key string, v starlark.Value) { _ = o.members().SetKey(starlark.String(key), v) } // only fails when frozen

func (o *Object) get(key string) (starlark.Value, bool) {
	v, found, _ := o.members().Get(starlark.String(key)) // only fails for unhashable keys
	return v, found
}

// String is the dict's.
func (o *Object) String() string { return o.members().String() }

// Type is "object".
func (*Object) Type() string { return "object" }

// Freeze freezes the members too.
func (o *Object) Freeze() {
	if o.frozen = true; o.dict != nil {
		o.dict.Freeze()
	}
}

// Truth reports whether there are members.
func (o *Object) Truth() starlark.Bool { return o.members().Truth() }

// Hash is refused, as for every mutable value.
func (*Object) Hash() (uint32, error) { return 0, fmt.Errorf("unhashable type: object") }

// Get is o[key].
func (o *Object) Get(key starlark.Value) (starlark.Value, bool, error) { return o.members().Get(key) }

// SetKey is o[key] = v.
func (o *Object) SetKey(key, v starlark.Value) error { return o.members().SetKey(key, v) }

// SetField is o.name = v.
func (o *Object) SetField(name string, v starlark.Value) error {
	return o.members().SetKey(starlark.String(name), v)
}

// Len is the number of members.
func (o *Object) Len() int { return o.members().Len() }

// Iterate goes through the names.
func (o *Object) Iterate() starlark.Iterator { return o.members().Iterate() }

// Items are the members in the order of the JSON.
func (o *Object) Items() []starlark.Tuple { return o.members().Items() }

// Attr is o.name: the member, else the dict's method.
func (o *Object) Attr(name string) (starlark.Value, error) {
	if v, found := o.get(name); found {
		return v, nil
	}
	if method, err := o.members().Attr(name); method != nil || err != nil {
		return method, err
	}
	return nil, starlark.NoSuchAttrError(fmt.Sprintf("object has no .%s; it has %s", name, strings.Join(o.names(), ", ")))
}

// AttrNames are the members and the dict's methods.
func (o *Object) AttrNames() []string {
	names := append(o.names(), o.members().AttrNames()...)
	slices.Sort(names)
	return slices.Compact(names)
}

func (o *Object) names() []string {
	names := make([]string, 0, o.members().Len())
	for _, key := range o.members().Keys() {
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
	return o.members().CompareSameType(op, other.members(), depth)
}

// Binary is the union o | other, with an object or a dict on the other side; the result is an object.
func (o *Object) Binary(op syntax.Token, y starlark.Value, side starlark.Side) (starlark.Value, error) {
	if op != syntax.PIPE {
		return nil, nil //nolint:nilnil // the interpreter's way to say that the operation does not exist
	}
	var other *starlark.Dict
	switch y := y.(type) {
	case *Object:
		other = y.members()
	case *starlark.Dict:
		other = y
	default:
		return nil, nil //nolint:nilnil // as above
	}
	if side == starlark.Left {
		return &Object{dict: o.members().Union(other)}, nil
	}
	return &Object{dict: other.Union(o.members())}, nil
}
