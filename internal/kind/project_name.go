package kind

import (
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// ProjectName returns the hub's name of an autonomous agent's project.
//
// The convention is `<agent>-<project>`. That alone would let two agents collide: `a` with `b-c`, and `a-b` with `c`.
// So a project with a dash is separated by two, `<agent>--<project>`, and an agent's name may not contain two in a row.
// Then the first `--` of a name or, if there is none, its last `-`, separates agent and project.
//
// A name that would be too long is `<agent>--<project, truncated>-<hash>`. The project is then recorded on the replica.
func ProjectName(agent, project string) string {
	separator := "--"
	if !strings.Contains(project, "-") {
		separator = "-"
	}
	if name := agent + separator + project; len(name) < maxName {
		return name
	}
	return truncateName(agent + "--" + project)
}

// SplitProjectName is the inverse of ProjectName. For a truncated name it returns the agent and the truncated project.
func SplitProjectName(name string) (agent, project string, ok bool) {
	agent, project, ok = strings.Cut(name, "--")
	if !ok {
		i := strings.LastIndexByte(name, '-')
		if i < 0 {
			return "", "", false
		}
		agent, project = name[:i], name[i+1:]
	} else if !strings.Contains(project, "-") && len(name) < maxName {
		return "", "", false // would have one dash
	}
	if ValidateAgentName(agent) != nil || !isSubdomain(project) {
		return "", "", false
	}
	return agent, project, true
}

// ValidateAgentName rejects names that an agent cannot have: it is a namespace on the hub, and the first part of
// project names there.
func ValidateAgentName(agent string) error {
	if !isLabel(agent) {
		return reject(engine.Invalid, "agent name %.80q is not a DNS-1123 label", agent)
	}
	if strings.Contains(agent, "--") {
		return reject(engine.Invalid, "agent name %q contains two dashes in a row", agent)
	}
	if agent == inClusterName {
		return reject(engine.Invalid, "agent name %q is what Argo CD calls the hub's own cluster", agent)
	}
	return nil
}
