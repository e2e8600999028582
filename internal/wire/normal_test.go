package wire

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// normal removes what makes no difference: unknown fields, empty nested messages, and 128-bit numbers that are zero.
func normal(m proto.Message) proto.Message {
	m = proto.Clone(m)
	normalise(m.ProtoReflect())
	return m
}

func normalise(m protoreflect.Message) {
	m.SetUnknown(nil)
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case field.IsList() && field.Kind() == protoreflect.MessageKind:
			for i := range v.List().Len() {
				normalise(v.List().Get(i).Message())
			}
		case field.IsList():
		case field.Kind() == protoreflect.MessageKind:
			normalise(v.Message())
			if proto.Size(v.Message().Interface()) == 0 {
				m.Clear(field)
			}
		case field.Kind() == protoreflect.BytesKind && (field.Name() == "version" || field.Name() == "sum"):
			if [16]byte(v.Bytes()) == ([16]byte{}) {
				m.Clear(field)
			}
		}
		return true
	})
}
