package resource

import (
	"net/url"
	"strings"
)

// selectors parses the field selector of a list or watch. A selector in another form than Argo CD and kubectl use counts as
// none, so that the request is judged without it.
func (q *Request) selectors(query url.Values) {
	values := query["fieldSelector"]
	if len(values) != 1 || q.Verb != verbList && q.Verb != verbWatch {
		return
	}
	fields, ok := parseEqualities(values[0])
	if !ok {
		return
	}
	q.Selected = fields["metadata.name"]
	if !q.isEvents() {
		return
	}
	prefix := "involvedObject."
	if q.Group != "" {
		prefix = "regarding."
	}
	q.Subject = Subject{
		Kind: fields[prefix+"kind"],
		Name: fields[prefix+"name"],
		UID:  fields[prefix+"uid"],
	}
	namespace, ok := fields[prefix+"namespace"]
	q.Subject.Namespace, q.Subject.AnyNamespace = namespace, !ok
	if !ok && q.Namespace != "" { // events are in the namespace of their subject
		q.Subject.Namespace, q.Subject.AnyNamespace = q.Namespace, false
	}
}

// parseEqualities parses a selector that has only equalities. It rejects escapes, negations and repeated fields.
func parseEqualities(selector string) (map[string]string, bool) {
	if selector == "" || strings.ContainsAny(selector, `\!`) {
		return nil, false
	}
	fields := map[string]string{}
	for term := range strings.SplitSeq(selector, ",") {
		field, value, found := strings.Cut(term, "=")
		value = strings.TrimPrefix(value, "=")
		if _, twice := fields[field]; !found || twice || field == "" || strings.Contains(value, "=") {
			return nil, false
		}
		fields[field] = value
	}
	return fields, true
}
