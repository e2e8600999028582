package main

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// flags is a set of flags together with what pflag does not know of them: the
// heading each stands under, and the environment variable that sets it.
type flags struct {
	set      *pflag.FlagSet
	prefix   string // of environment variables
	groups   []group
	env      map[string]string // variable of each flag
	setByEnv map[string]bool   // flags that got their value from it
	unset    map[string]string // what happens when a flag without a default is not set
}

// group is a heading of the help and the flags below it.
type group struct {
	title string
	flags []*pflag.Flag
}

func newFlags(set *pflag.FlagSet, prefix string) *flags {
	set.SortFlags = false
	return &flags{set: set, prefix: prefix, env: map[string]string{}, setByEnv: map[string]bool{}, unset: map[string]string{}}
}

// heading starts a group: the flags that follow belong to it.
func (f *flags) heading(title string) { f.groups = append(f.groups, group{title: title}) }

// add declares a flag. What its value holds is the default.
func (f *flags) add(name string, v pflag.Value, usage string) {
	flag := f.set.VarPF(v, name, "", usage)
	if v.Type() == "" {
		flag.NoOptDefVal = "true" // a switch: --name alone means true
	}
	last := &f.groups[len(f.groups)-1]
	last.flags = append(last.flags, flag)
	f.env[name] = f.prefix + environmentName(name)
}

// envName gives a flag an environment variable that does not follow its name.
func (f *flags) envName(name, variable string) { f.env[name] = variable }

// defaultText says what holds when a flag is not set, where that is no fixed value.
func (f *flags) defaultText(name, means string) { f.unset[name] = means }

// environmentName is the part after the prefix that a flag's variable has by
// rule.
func environmentName(flag string) string {
	return strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// changed reports whether somebody asked for something else than the default. Who
// merely writes the default down contradicts nobody.
func (f *flags) changed(name string) bool {
	flag := f.set.Lookup(name)
	return flag.Value.String() != flag.DefValue
}

// name is how a message calls a setting: as the user has, if they have.
func (f *flags) name(flag string) string {
	if f.setByEnv[flag] {
		return f.env[flag]
	}
	return "--" + flag
}

// names joins the names of those of the flags that were given.
func (f *flags) names(list ...string) string {
	var given []string
	for _, flag := range list {
		if f.changed(flag) {
			given = append(given, f.name(flag))
		}
	}
	return strings.Join(given, ", ")
}

// anyGiven reports whether one of the flags was given.
func (f *flags) anyGiven(list ...string) bool { return f.names(list...) != "" }

// validationErrors collects everything that is wrong with the settings, so that a user
// hears of it all at once.
type validationErrors []error

func (p *validationErrors) add(format string, args ...any) {
	*p = append(*p, fmt.Errorf(format, args...))
}
