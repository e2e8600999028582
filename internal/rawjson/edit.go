package rawjson

import "slices"

// Member is a key of an object with its value, verbatim.
type Member struct {
	Key   string
	Value []byte
}

// Object is a JSON object, split into its members in order. Edits leave the values of other members unchanged, byte for
// byte.
type Object []Member

// Split returns the members of the object b. Their values are part of b.
func Split(b []byte) (Object, error) {
	o := make(Object, 0, 8)
	var bad bool
	err := walk(b, object, func(key, value []byte) bool {
		k, ok := String(key)
		bad = !ok
		o = append(o, Member{k, value})
		return ok
	})
	if err == nil && bad {
		err = fail(0, "malformed key")
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

// Get returns the value of key, or nil.
func (o Object) Get(key string) []byte {
	if i := o.index(key); i >= 0 {
		return o[i].Value
	}
	return nil
}

func (o Object) index(key string) int {
	return slices.IndexFunc(o, func(m Member) bool { return m.Key == key })
}

// Set replaces the value of key, or appends it.
func (o *Object) Set(key string, value []byte) {
	if i := o.index(key); i >= 0 {
		(*o)[i].Value = value
		return
	}
	*o = append(*o, Member{key, value})
}

// Remove removes key and reports whether it was there.
func (o *Object) Remove(key string) bool {
	i := o.index(key)
	if i >= 0 {
		*o = append((*o)[:i], (*o)[i+1:]...)
	}
	return i >= 0
}

// Bytes joins the members.
func (o Object) Bytes() []byte {
	size := 2
	for i := range o {
		size += len(o[i].Key) + len(o[i].Value) + 4
	}
	out := append(make([]byte, 0, size), '{')
	for i := range o {
		if i > 0 {
			out = append(out, ',')
		}
		out = AppendString(out, o[i].Key)
		out = append(out, ':')
		out = append(out, o[i].Value...)
	}
	return append(out, '}')
}

// Elements returns the elements of the array b. They are part of b.
func Elements(b []byte) ([][]byte, error) {
	var list [][]byte
	err := walk(b, array, func(_, value []byte) bool {
		list = append(list, value)
		return true
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// Join returns an array of elements.
func Join(elements [][]byte) []byte {
	size := 2
	for _, e := range elements {
		size += len(e) + 1
	}
	out := append(make([]byte, 0, size), '[')
	for i, e := range elements {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, e...)
	}
	return append(out, ']')
}

// Get returns the value at path, verbatim and part of b, or nil.
func Get(b []byte, path ...string) []byte {
	for _, name := range path {
		if len(b) == 0 {
			return nil // often, and walk would allocate an error
		}
		var found []byte
		if walk(b, object, func(key, value []byte) bool {
			if keyIs(key, name) {
				found = value
				return false
			}
			return true
		}) != nil || found == nil {
			return nil
		}
		b = found
	}
	return b
}

// Text returns the string at path, or "".
func Text(b []byte, path ...string) string {
	s, _ := String(Get(b, path...))
	return s
}

// IsNull reports whether there is no value, or the value is null.
func IsNull(b []byte) bool { return len(b) == 0 || string(b) == "null" }

// Set returns b with the value at path replaced. Missing or null parents are created. Everything else stays.
func Set(b, value []byte, path ...string) ([]byte, error) {
	if len(path) == 0 {
		return value, nil
	}
	var o Object
	if !IsNull(b) {
		var err error
		if o, err = Split(b); err != nil {
			return nil, err
		}
	}
	inner, err := Set(o.Get(path[0]), value, path[1:]...)
	if err != nil {
		return nil, err
	}
	o.Set(path[0], inner)
	return o.Bytes(), nil
}

// Remove returns b without the value at path, or b itself if there is none.
func Remove(b []byte, path ...string) ([]byte, error) {
	if len(path) == 0 || Get(b, path...) == nil {
		return b, nil
	}
	o, err := Split(b)
	if err != nil {
		return nil, err
	}
	if len(path) == 1 {
		o.Remove(path[0])
		return o.Bytes(), nil
	}
	inner, err := Remove(o.Get(path[0]), path[1:]...)
	if err != nil {
		return nil, err
	}
	o.Set(path[0], inner)
	return o.Bytes(), nil
}

// Each calls visit for each member of the object b, with the key decoded, until visit returns false. What is not an
// object has no members.
func Each(b []byte, visit func(key string, value []byte) bool) error {
	return walk(b, object, func(key, value []byte) bool {
		k, _ := String(key)
		return visit(k, value)
	})
}
