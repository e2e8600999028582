package proc

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Group is the set of components of a lab by name.
type Group struct {
	mu         sync.Mutex
	components []*Component
	closed     bool
}

// Start adds a component and starts it.
func (g *Group) Start(spec Spec) (*Component, error) {
	component := NewComponent(spec)
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return nil, fmt.Errorf("start %s: the lab is going down", spec.Name)
	}
	g.components = append(g.components, component)
	g.mu.Unlock()
	return component, component.Start()
}

// Find returns a component by name.
func (g *Group) Find(name string) (*Component, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var names []string
	for _, component := range g.components {
		if component.spec.Name == name {
			return component, nil
		}
		names = append(names, component.spec.Name)
	}
	slices.Sort(names)
	return nil, fmt.Errorf("there is no component %q; there are: %s", name, strings.Join(names, ", "))
}

// Status returns all components in the order of their start.
func (g *Group) Status() []Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []Status
	for _, component := range g.components {
		all = append(all, component.Status())
	}
	return all
}

// Close kills all components in reverse order of their start, and waits for their end.
func (g *Group) Close() {
	g.mu.Lock()
	g.closed = true
	components := slices.Clone(g.components)
	g.mu.Unlock()
	slices.Reverse(components)
	var kills sync.WaitGroup
	for _, component := range components {
		kills.Go(component.Kill)
	}
	kills.Wait()
}
