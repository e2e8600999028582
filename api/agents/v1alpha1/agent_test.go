package v1alpha1

import (
	"maps"
	"os"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// crdFile is the part of the CRD that is compared with the types.
type crdFile struct {
	Spec struct {
		Group string
		Names struct{ Kind, Plural string }

		Versions []struct {
			Name   string
			Schema struct{ OpenAPIV3Schema schema }
		}
	}
}

type schema struct {
	Type                 string
	Format               string
	Properties           map[string]schema
	Items                *schema
	AdditionalProperties *schema
}

func TestCRD_MatchesTypes(t *testing.T) {
	for _, c := range []struct {
		plural, kind string
		typ          reflect.Type
	}{
		{Resource, Kind, reflect.TypeFor[Agent]()},
		{PolicyResource, PolicyKind, reflect.TypeFor[AgentPolicy]()},
	} {
		text, err := os.ReadFile("../../../install/crds/" + c.plural + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		var crd crdFile
		if err := yaml.Unmarshal(text, &crd); err != nil {
			t.Fatal(err)
		}
		if len(crd.Spec.Versions) != 1 || crd.Spec.Group != Group || crd.Spec.Names.Kind != c.kind || crd.Spec.Names.Plural != c.plural || crd.Spec.Versions[0].Name != Version {
			t.Fatalf("the CRD is for %+v", crd.Spec)
		}
		compare(t, c.kind, c.typ, crd.Spec.Versions[0].Schema.OpenAPIV3Schema)
	}
}

// compare compares a type with its schema.
func compare(t *testing.T, path string, typ reflect.Type, s schema) {
	t.Helper()
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	want := ""
	switch {
	case typ == reflect.TypeFor[metav1.Time]():
		want = "string"
		if s.Format != "date-time" {
			t.Errorf("%s is a time, but its format is %q", path, s.Format)
		}
	case typ == reflect.TypeFor[metav1.Duration]():
		want = "string"
	case typ == reflect.TypeFor[metav1.ObjectMeta]():
		want = "object"
	case typ.Kind() == reflect.Struct:
		want = "object"
		compareFields(t, path, typ, s)
	case typ.Kind() == reflect.Map:
		want = "object"
		compare(t, path+"[]", typ.Elem(), *orEmpty(s.AdditionalProperties))
	case typ.Kind() == reflect.Slice:
		want = "array"
		compare(t, path+"[]", typ.Elem(), *orEmpty(s.Items))
	case typ.Kind() == reflect.String:
		want = "string"
	case typ.Kind() == reflect.Bool:
		want = "boolean"
	case typ.Kind() == reflect.Int:
		want = "integer"
	case typ.Kind() == reflect.Int64 || typ.Kind() == reflect.Uint64:
		want = "integer"
		if s.Format != "int64" {
			t.Errorf("%s has 64 bits, but its format is %q", path, s.Format)
		}
	}
	if s.Type != want {
		t.Errorf("%s is %q in the CRD, want %q", path, s.Type, want)
	}
}

func compareFields(t *testing.T, path string, typ reflect.Type, s schema) {
	t.Helper()
	fields := fieldsOf(typ)
	for name, typ := range fields {
		property, ok := s.Properties[name]
		if !ok {
			t.Errorf("%s.%s is not in the CRD", path, name)
			continue
		}
		compare(t, path+"."+name, typ, property)
	}
	for name := range s.Properties {
		if _, ok := fields[name]; !ok {
			t.Errorf("%s.%s is in the CRD, but not in the type", path, name)
		}
	}
}

// fieldsOf returns the fields of a type and of inlined types by their JSON names.
func fieldsOf(typ reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for f := range typ.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			maps.Copy(fields, fieldsOf(f.Type))
		} else {
			fields[name] = f.Type
		}
	}
	return fields
}

func orEmpty(s *schema) *schema {
	if s == nil {
		return &schema{}
	}
	return s
}
