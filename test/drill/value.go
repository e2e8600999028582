package main

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// value is what users wrote to one field of the owner's object. A request without a confirmation can take effect, also after a
// later one, until everything is quiet.
type value struct {
	confirmed string
	possible  []string // not confirmed
}

func (v *value) wrote(text string, err error) {
	if err != nil {
		v.possible = append(v.possible, text)
		return
	}
	v.confirmed = text
}

// allows reports whether users can find this value.
func (v *value) allows(now string) bool {
	return now == v.confirmed || slices.Contains(v.possible, now)
}

// settle makes a value the only one: everything is quiet.
func (v *value) settle(now string) { *v = value{confirmed: now} }

// mark is the label and the annotation that users edit. Every object of the drill has it from the start, so that it belongs to
// the owner also on replicas to which users may add some.
const mark = "drill-edit"

// markOf returns the label that users edit.
func markOf(u *unstructured.Unstructured) string { return u.GetLabels()[mark] }
