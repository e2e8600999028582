package main

import (
	"context"

	"github.com/argocd-agent/argocd-agent/internal/agent"
	"github.com/argocd-agent/argocd-agent/internal/principal"
)

// assemblies are what the commands start. Each runs until its context ends.
type assemblies struct {
	principal func(context.Context, principal.Config) error
	agent     func(context.Context, agent.Config) error
}

var theAssemblies = assemblies{principal: principal.Run, agent: agent.Run}
