package kind

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
)

// LabelSelector is a Kubernetes label selector as a Selector.
type LabelSelector struct{ labels.Selector }

// ParseSelector parses a label selector as kubectl does. An empty one matches everything.
func ParseSelector(s string) (LabelSelector, error) {
	selector, err := labels.Parse(s)
	if err != nil {
		return LabelSelector{labels.Nothing()}, fmt.Errorf("label selector %q: %w", s, err)
	}
	return LabelSelector{selector}, nil
}

// Matches implements Selector.
func (s LabelSelector) Matches(l map[string]string) bool { return s.Selector.Matches(labels.Set(l)) }
