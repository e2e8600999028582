// Package cli implements the commands of argocd-agentctl, one file per command.
//
// A command reads clusters through client-go and returns a view. One function prints views as table, JSON, YAML or names.
// The package does not read the environment, the clock or the terminal. Program contains them, so that tests can record
// the output in testdata.
package cli
