package resource

import (
	"net/url"
	"strings"
)

// selectors reads from the field selector what a list or watch is restricted to. Whatever is not as plain as Argo CD and
// kubectl write it counts as no restriction: a request is then judged by what it asks for without.
func (q *Request) selectors(query url.Values) {
	values := query["fieldSelector"]
	if len(values) != 1 || q.Verb != verbList && q.Verb != verbWatch {
		return
	}
	fields, ok := plainTerms(values[0])
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
	namespace, said := fields[prefix+"namespace"]
	q.Subject.Namespace, q.Subject.AnyNamespace = namespace, !said
	if !said && q.Namespace != "" { // events are kept where their subject is
		q.Subject.Namespace, q.Subject.AnyNamespace = q.Namespace, false
	}
}

// plainTerms splits a selector into terms that all have to hold. It refuses those with an escape, with a negation, and
// those that name a field twice.
func plainTerms(selector string) (map[string]string, bool) {
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
