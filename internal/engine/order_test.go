package engine

// history watches over the order of things: what the replica does with a key follows what the owner did with it. It may
// leave out chapters, but it never goes back, and it invents nothing.
type history struct {
	chapters map[string][]string // by "scope key": contents at the owner; empty: deleted
	read     map[string]int      // how far the replica is
}

func (s *history) watches(st *store, scope string) bool {
	return s != nil && !isPending(st.side.cfg, scope)
}

// owner notes what the owner did.
func (s *history) owner(st *store, scope string, key Key, content string) {
	if !s.watches(st, scope) || !st.isOwner(scope) {
		return
	}
	if s.chapters == nil {
		s.chapters, s.read = map[string][]string{}, map[string]int{}
	}
	name := scope + " " + key.String()
	s.chapters[name] = append(s.chapters[name], content)
}

// replica checks what the replica does. Doing the same again is allowed.
func (s *history) replica(st *store, scope string, key Key, content string) {
	if !s.watches(st, scope) {
		return
	}
	name := scope + " " + key.String()
	chapters, at := s.chapters[name], s.read[name]
	if at > 0 && chapters[at-1] == content {
		return
	}
	for i := at; i < len(chapters); i++ {
		if chapters[i] == content {
			s.read[name] = i + 1
			return
		}
	}
	st.side.w.t.Errorf("%s: %q for %s is not what comes after chapter %d of %q", st.side.name, content, name, at, chapters)
}
