package transport

import "slices"

// ConnsOf returns the connections of one agent that are open now. There is more than one only while a newer replaces an
// older.
func (s *Server) ConnsOf(agent string) []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.byAgent[agent])
}
