package sim

import (
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file is an operator who changes the flags of the principal. All of its replicas are rolled out.

var settingsActions = []actionType{
	{name: "change label selector", weight: 3, fault: true, rare: 5, do: changeSelector},
	{name: "change allowed namespaces", weight: 3, fault: true, rare: 5, do: changeAllowed},
}

// selectorLabel is what the selector asks for, when there is one.
const selectorLabel = "team"

// changeSelector has the hub exchange only what carries a label, or all again.
func changeSelector(w *world, a action) {
	if slices.ContainsFunc(w.spokes, func(s *spoke) bool { return !s.managed() }) {
		return // what the hub refuses of an autonomous agent's stays as it was
	}
	if w.selects = !w.selects; w.selects {
		selector, err := kind.ParseSelector(selectorLabel)
		if err != nil {
			panic(err)
		}
		w.shape.hubSettings.LabelSelector = selector
	} else {
		w.shape.hubSettings.LabelSelector = nil
	}
	w.tracef("%s: the hub's label selector is %v", userName, w.selects)
	w.rollout(a)
}

// changeAllowed takes a namespace off the list of the hub, or puts it back.
func changeAllowed(w *world, a action) {
	if w.shape.mapping != kind.ByDestination {
		return
	}
	list := w.shape.hubSettings.AllowedNamespaces
	if i := slices.Index(list, "team-*"); i >= 0 {
		list = slices.Delete(slices.Clone(list), i, i+1)
	} else {
		list = append(slices.Clone(list), "team-*")
	}
	w.tracef("%s: the hub allows namespaces %v", userName, list)
	w.shape.hubSettings.AllowedNamespaces = list
	w.rollout(a)
}

func (w *world) rollout(a action) {
	w.ledger.reconsider()
	for i, p := range w.principals {
		p.restartIn(second + span(a.n[i%3+1])/20)
	}
}
