// Package cli has the commands of argocd-agentctl, one file each.
//
// A command reads what it was told, asks clusters through client-go, and returns what it found as a view; how that is
// shown (table, JSON, colour) is decided in one place. Nothing here reads the environment, the clock or a terminal by
// itself: a Program is handed all of them, so that tests record what people see, to the letter, below testdata.
package cli
