package main

import (
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/existing"
)

// acceptExisting declares what existing installations use. Call it after the settings are declared.
func (f *flags) acceptExisting() {
	for flag, variable := range existing.Variables[f.prefix] {
		if s := f.settings[flag]; s != nil && s.env != variable {
			s.existing = variable
		}
	}
	for _, ignored := range existing.Ignored[f.prefix] {
		flag := f.set.VarPF(text(new(string), "VALUE", ""), ignored.Flag, "", "")
		flag.Hidden = true
		if ignored.Boolean {
			flag.NoOptDefVal = "true"
		}
	}
	for alias, flag := range existing.Flags[f.prefix] {
		f.alias(f.settings[flag], alias, "")
	}
	f.alias(f.settings["namespace"], "existing-namespace", "n")
}

// alias adds a hidden flag that sets the same value.
func (f *flags) alias(s *setting, name, shorthand string) {
	flag := *s.Flag
	flag.Name, flag.Shorthand, flag.Hidden = name, shorthand, true
	f.set.AddFlag(&flag)
	s.aliases = append(s.aliases, &flag)
}

// warnIgnored warns of settings without a meaning, once for each reason. It removes their variables.
func (f *flags) warnIgnored(env map[string]string) {
	var reasons []string
	byReason := map[string][]string{}
	for _, ignored := range existing.Ignored[f.prefix] {
		given := f.set.Changed(ignored.Flag)
		for _, variable := range []string{ignored.Variable, f.prefix + environmentName(ignored.Flag)} {
			_, inEnvironment := env[variable]
			given = given || inEnvironment
			delete(env, variable)
		}
		if !given {
			continue
		}
		if byReason[ignored.Reason] == nil {
			reasons = append(reasons, ignored.Reason)
		}
		byReason[ignored.Reason] = append(byReason[ignored.Reason], "--"+ignored.Flag)
	}
	for _, reason := range reasons {
		f.warn(strings.Join(byReason[reason], ", "), "no effect: "+reason)
	}
}
