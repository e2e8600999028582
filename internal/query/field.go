package query

import (
	"fmt"
	"strings"
)

// fieldKind decides how a field is compared.
type fieldKind int

const (
	singleField fieldKind = iota
	listField
	labelField
	ageField
	textField // any of the text fields
)

type field struct {
	name  string
	kind  fieldKind
	index int    // of singleField and listField
	label string // of labelField
}

// Indexes of row.single.
const (
	namespaceAt = iota
	nameAt
	agentAt
	projectAt
	healthAt
	syncAt
	operationAt
	singles
)

// Indexes of row.ends.
const (
	revisionsAt = iota
	imagesAt
	chartsAt
	repositoriesAt
	conditionsAt
	labelsAt // key, value, key, value …
	lists
)

const (
	freshness   = "freshness"
	changed     = "changed"
	labelPrefix = "label."
)

var fields = []field{
	{name: "agent", index: agentAt}, {name: "namespace", index: namespaceAt}, {name: "name", index: nameAt}, {name: "project", index: projectAt},
	{name: "health", index: healthAt}, {name: "sync", index: syncAt}, {name: "operation", index: operationAt},
	{name: "revision", kind: listField, index: revisionsAt}, {name: "image", kind: listField, index: imagesAt}, {name: "chart", kind: listField, index: chartsAt},
	{name: "repo", kind: listField, index: repositoriesAt}, {name: "condition", kind: listField, index: conditionsAt},
	{name: freshness, kind: ageField}, {name: changed, kind: ageField},
}

var anyField = field{name: "text", kind: textField}

// Fields are the names of all fields, for help texts.
func Fields() []string {
	var names []string
	for _, f := range fields {
		names = append(names, f.name)
	}
	return append(names, labelPrefix+"KEY")
}

func fieldOf(name string) (field, error) {
	if key, ok := strings.CutPrefix(name, labelPrefix); ok && key != "" {
		return field{name: name, kind: labelField, label: key}, nil
	}
	for _, f := range fields {
		if f.name == name {
			return f, nil
		}
	}
	return field{}, fmt.Errorf("unknown field %q: use one of %s", name, strings.Join(Fields(), ", "))
}
