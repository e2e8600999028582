package main

import "testing"

func TestCurrentName_MapsOldNames(t *testing.T) {
	for old, want := range map[string]string{
		"key stroke, nobody else, directly, p99": "key stroke without load, direct, p99",
		"a tenth of the agents are swallowed by their links: spec of the others, median over when all are well": "a tenth of the links blackholed: spec of other agents, median, ratio to normal",
		"log of 64 MB, of what it is directly": "log of 64 MB, share of direct",
		"log of 64 MB, share of direct":        "log of 64 MB, share of direct",
		"cold: all agents connected":           "cold: all agents connected",
	} {
		if got := currentName(old); got != want {
			t.Errorf("currentName(%q) = %q, want %q", old, got, want)
		}
	}
}
