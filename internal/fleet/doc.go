// Package fleet keeps the Agent objects of the hub. It registers agents from them, derives cluster Secrets, writes their
// status and completes their deletion. Every principal replica runs all of it.
//
// An Agent decides what its agent is and may do. Nothing that an agent sends can change that.
package fleet

// fieldManager owns the fields that the principal applies.
const fieldManager = "argocd-agent-principal"

const metricPrefix = "argocd_agent_principal"
