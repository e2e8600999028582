package reconcile

// ListedNames collects the names of the objects in lists of one resource, which can come in pages.
type ListedNames struct {
	byNamespace map[string]map[[2]string]bool // as in List
}

// Add adds a List. It returns the namespaces and names of all its objects if it is complete, else nil.
func (l *ListedNames) Add(in List) map[[2]string]bool {
	if l.byNamespace == nil {
		l.byNamespace = map[string]map[[2]string]bool{}
	}
	if !in.Continues {
		l.byNamespace[in.Namespace] = make(map[[2]string]bool, len(in.Objects))
	}
	names := l.byNamespace[in.Namespace]
	if names == nil {
		return nil // the first pages are unknown
	}
	for _, o := range in.Objects {
		names[[2]string{o.Namespace(), o.Name()}] = true
	}
	if in.More {
		return nil
	}
	delete(l.byNamespace, in.Namespace)
	return names
}
