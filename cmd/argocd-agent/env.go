package main

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// warning is something a user should know before the program starts its work.
type warning struct {
	setting string
	reason  string
}

// readEnvironment sets the flags that the command line has not. An empty
// variable counts as absent: a manifest refers to an optional key of a
// ConfigMap that way.
func (f *flags) readEnvironment(environ []string) ([]warning, validationErrors) {
	env := map[string]string{}
	for _, entry := range environ {
		if name, value, ok := strings.Cut(entry, "="); ok && value != "" {
			env[name] = value
		}
	}
	var warnings []warning
	var bad validationErrors
	known := map[string]bool{}
	f.set.VisitAll(func(flag *pflag.Flag) {
		variable, ok := f.env[flag.Name]
		if !ok {
			return // --help
		}
		known[variable] = true
		value, ok := env[variable]
		switch {
		case !ok || flag.Changed:
		case isServiceLink(variable, value):
			warnings = append(warnings, warning{variable, "it is Kubernetes' link to a Service (" + value + "), not a setting, and is ignored; set enableServiceLinks: false in the pod"})
		default:
			if err := flag.Value.Set(value); err != nil {
				bad.add("%s %q: %w", variable, value, err)
				return
			}
			f.setByEnv[flag.Name] = true
		}
	})
	for _, variable := range slices.Sorted(maps.Keys(env)) {
		if strings.HasPrefix(variable, f.prefix) && !known[variable] && !isServiceLink(variable, env[variable]) {
			warnings = append(warnings, warning{variable, f.unknownVariable(variable)})
		}
	}
	return warnings, bad
}

// unknownVariable says what is wrong with a variable that looks like ours.
func (f *flags) unknownVariable(variable string) string {
	rest := strings.TrimPrefix(variable, f.prefix)
	for _, name := range slices.Sorted(maps.Keys(f.env)) {
		if environmentName(name) == rest {
			return "there is no such setting; the variable of --" + name + " is " + f.env[name]
		}
	}
	return "there is no such setting, it is ignored; --help lists them"
}

// serviceLink matches the variables with which Kubernetes tells every pod of the
// Services in its namespace. A Service called argocd-agent-metrics makes one
// that looks like the setting of --metrics-port.
var serviceLink = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)

func isServiceLink(variable, value string) bool {
	return serviceLink.MatchString(variable) || strings.HasSuffix(variable, "_PORT") && strings.Contains(value, "://")
}
