package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// flags has the settings of a command, and what is wrong with them.
type flags struct {
	set      *pflag.FlagSet
	prefix   string // of environment variables
	groups   []group
	hidden   []*setting // of existing installations
	settings map[string]*setting
	errs     []error
	warnings []warning
}

// A group is a heading of the help and the settings below it.
type group struct {
	title    string
	settings []*setting
}

// A setting is a flag with its environment variable.
type setting struct {
	*pflag.Flag
	env       string
	existing  string // variable of existing installations
	setBy     string // the variable that set it
	unsetText string // what happens if a flag without a default is not set
	aliases   []*pflag.Flag
}

// A warning is logged before the component starts.
type warning struct{ setting, reason string }

func newFlags(set *pflag.FlagSet, prefix string) *flags {
	set.SortFlags = false
	return &flags{set: set, prefix: prefix, settings: map[string]*setting{}}
}

// heading starts a group. The settings that follow belong to it.
func (f *flags) heading(title string) { f.groups = append(f.groups, group{title: title}) }

// add declares a flag. Its default is the current content of v.
func (f *flags) add(name string, v pflag.Value, usage string) *setting {
	s := f.declare(name, v, usage)
	last := &f.groups[len(f.groups)-1]
	last.settings = append(last.settings, s)
	return s
}

// addHidden declares a flag of existing installations that the help does not show.
func (f *flags) addHidden(name string, v pflag.Value) {
	s := f.declare(name, v, "")
	s.Hidden = true
	f.hidden = append(f.hidden, s)
}

func (f *flags) declare(name string, v pflag.Value, usage string) *setting {
	s := &setting{Flag: f.set.VarPF(v, name, "", usage), env: f.prefix + environmentName(name)}
	if v.Type() == "" {
		s.NoOptDefVal = "true" // a boolean: --name alone means true
	}
	f.settings[name] = s
	return s
}

// onCommandLine reports whether the command line has the flag or an alias of it.
func (s *setting) onCommandLine() bool {
	return s.Changed || slices.ContainsFunc(s.aliases, func(alias *pflag.Flag) bool { return alias.Changed })
}

// envName sets an environment variable that does not follow the name of the flag.
func (s *setting) envName(variable string) *setting {
	s.env = variable
	return s
}

// defaultText sets what the help shows as default of a flag that has no fixed one.
func (s *setting) defaultText(text string) { s.unsetText = text }

func environmentName(flag string) string {
	return strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// changed reports whether a setting differs from its default. An explicit default value contradicts nothing.
func (f *flags) changed(name string) bool {
	s := f.settings[name]
	return s.Value.String() != s.DefValue
}

// name returns how messages call a setting: by its variable if that has set it, otherwise by its flag.
func (f *flags) name(flag string) string {
	if s := f.settings[flag]; s.setBy != "" {
		return s.setBy
	}
	return "--" + flag
}

// names joins the names of the changed settings among list.
func (f *flags) names(list ...string) string {
	var changed []string
	for _, flag := range list {
		if f.changed(flag) {
			changed = append(changed, f.name(flag))
		}
	}
	return strings.Join(changed, ", ")
}

// fail records an error. All errors are reported together.
func (f *flags) fail(format string, args ...any) {
	f.errs = append(f.errs, fmt.Errorf(format, args...))
}

// failIf records that the value of a setting is invalid, unless err is nil.
func (f *flags) failIf(flag string, err error) {
	if err != nil {
		f.fail("%s %q: %w", f.name(flag), f.settings[flag].Value, err)
	}
}

func (f *flags) warn(setting, reason string) {
	f.warnings = append(f.warnings, warning{setting, reason})
}

// requires records an error if settings of list are changed although the one that they need is not met.
func (f *flags) requires(met bool, needed string, list ...string) {
	if names := f.names(list...); !met && names != "" {
		f.fail("%s has no effect without %s: add %[2]s or remove %[1]s", names, needed)
	}
}

// conflicts records an error if settings of list are changed although another one excludes them.
func (f *flags) conflicts(excluded bool, other, reason string, list ...string) {
	if names := f.names(list...); excluded && names != "" {
		f.fail("%s contradicts %s: %s; remove one of them", names, f.name(other), reason)
	}
}

// readEnvironment sets the flags that the command line has not set. An empty variable counts as absent: manifests use
// it for an optional key of a ConfigMap.
func (f *flags) readEnvironment(environ []string) {
	env := map[string]string{}
	for _, entry := range environ {
		if name, value, ok := strings.Cut(entry, "="); ok && value != "" {
			env[name] = value
		}
	}
	f.warnIgnored(env)
	known := map[string]bool{}
	for _, g := range slices.Concat(f.groups, []group{{settings: f.hidden}}) {
		for _, s := range g.settings {
			known[s.env], known[s.existing] = true, true
			variable := s.env
			value, ok := env[variable]
			if !ok && s.existing != "" {
				variable = s.existing
				value, ok = env[variable]
			}
			switch {
			case !ok || s.onCommandLine():
			case isServiceLink(variable, value):
				f.warn(variable, "this is a service link of Kubernetes ("+value+"), not a setting, and is ignored; set enableServiceLinks: false in the pod")
			default:
				if err := s.Value.Set(value); err != nil {
					f.fail("%s %q: %w", variable, value, err)
					continue
				}
				s.setBy = variable
			}
		}
	}
	for _, variable := range slices.Sorted(maps.Keys(env)) {
		if strings.HasPrefix(variable, f.prefix) && !known[variable] && !isServiceLink(variable, env[variable]) {
			f.warn(variable, f.unknownVariable(variable))
		}
	}
}

func (f *flags) unknownVariable(variable string) string {
	for name, s := range f.settings {
		if f.prefix+environmentName(name) == variable {
			return "unknown setting; the variable of --" + name + " is " + s.env
		}
	}
	return "unknown setting, ignored; --help lists the settings"
}

// serviceLink matches the variables that Kubernetes sets in every pod for the Services in its namespace. A Service
// argocd-agent-metrics causes a variable that looks like the setting --metrics-port.
var serviceLink = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)

func isServiceLink(variable, value string) bool {
	return serviceLink.MatchString(variable) || strings.HasSuffix(variable, "_PORT") && strings.Contains(value, "://")
}
