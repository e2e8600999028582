package cli

import (
	"cmp"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

// globals are the flags of all commands.
type globals struct {
	set *pflag.FlagSet

	kubeconfig         string
	principalContext   string
	principalNamespace string
	pkiNamespace       string
	agentContext       string
	agentNamespace     string
	configFile         string
	principal, agent   string // names in that file
}

func (g *globals) addFlags(set *pflag.FlagSet) {
	*g = globals{set: set}
	set.SortFlags = false
	set.StringVar(&g.principalContext, "principal-context", "", "kubeconfig `CONTEXT` of the hub. If unset, the current context. Environment: ARGOCD_AGENT_PRINCIPAL_CONTEXT.")
	set.StringVar(&g.principalNamespace, "principal-namespace", "", "Argo CD `NAMESPACE` on the hub. If unset, that of the context, then argocd. Environment: ARGOCD_AGENT_PRINCIPAL_NAMESPACE.")
	set.StringVar(&g.pkiNamespace, "pki-namespace", "", "`NAMESPACE` of CA, certificates and join tokens on the hub (--pki-namespace of the principal). If unset, --principal-namespace. Environment: ARGOCD_AGENT_PKI_NAMESPACE.")
	set.StringVar(&g.agentContext, "agent-context", "", "kubeconfig `CONTEXT` of the workload cluster. If unset, the current context. Environment: ARGOCD_AGENT_AGENT_CONTEXT.")
	set.StringVar(&g.agentNamespace, "agent-namespace", "", "Argo CD `NAMESPACE` on the workload cluster. If unset, that of the context, then argocd. Environment: ARGOCD_AGENT_AGENT_NAMESPACE.")
	set.StringVar(&g.kubeconfig, "kubeconfig", "", "kubeconfig `FILE`. If unset, the same file as kubectl. Environment: KUBECONFIG.")
	set.StringVar(&g.configFile, "config", "", "`FILE` with short names for hubs and agents, see `argocd-agentctl config --help`. If unset, argocd-agent/ctl.conf in the user's configuration directory. Environment: ARGOCD_AGENT_CTL_CONFIG.")
	set.StringVar(&g.principal, "principal", "", "Short `NAME` of a hub. Sets --principal-context and --principal-namespace.")
	set.StringVar(&g.agent, "agent", "", "Short `NAME` of an agent. Sets --agent-context and --agent-namespace.")
}

// environmentOf returns the environment variable of a flag.
func environmentOf(flag string) string {
	switch flag {
	case "principal-context", "principal-namespace", "pki-namespace", "agent-context", "agent-namespace":
		return "ARGOCD_AGENT_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
	case "config":
		return "ARGOCD_AGENT_CTL_CONFIG"
	}
	return ""
}

// complete sets flags that are not on the command line from the environment, then from the file of short names.
func (g *globals) complete(environ []string) error {
	env := environment(environ)
	g.set.VisitAll(func(f *pflag.Flag) {
		if value := env[environmentOf(f.Name)]; !f.Changed && value != "" {
			_ = f.Value.Set(value) // a string flag accepts any value
		}
	})
	if err := g.fromFile(env); err != nil {
		return err
	}
	for flag, namespace := range map[string]string{"principal-namespace": g.principalNamespace, "pki-namespace": g.pkiNamespace, "agent-namespace": g.agentNamespace} {
		if wrong := validation.IsDNS1123Label(cmp.Or(namespace, "ok")); len(wrong) > 0 {
			return cmdline.UsageErrorf("--%s %q is not a valid namespace name: %s", flag, namespace, strings.Join(wrong, "; "))
		}
	}
	return nil
}

func environment(environ []string) map[string]string {
	env := map[string]string{}
	for _, entry := range environ {
		if name, value, ok := strings.Cut(entry, "="); ok {
			env[name] = value
		}
	}
	return env
}

func (p *Program) getenv(name string) string { return environment(p.Env)[name] }

// fromFile resolves short names. A default principal applies if no context is set.
func (g *globals) fromFile(env map[string]string) error {
	required := g.configFile != ""
	file := cmp.Or(g.configFile, defaultConfigFile(env))
	g.configFile = file
	if file == "" {
		return nil
	}
	c, err := readConfigFile(file, required)
	if err != nil {
		return err
	}
	resolve := func(role, name string, context, namespace *string) error {
		if name == "" || *context != "" {
			return nil
		}
		entry, ok := c.entries(role)[name]
		if !ok {
			return cmdline.UsageErrorf("%s has no %s %q: run `argocd-agentctl config list`", file, role, name)
		}
		*context, *namespace = entry.Context, cmp.Or(*namespace, entry.Namespace)
		return nil
	}
	if err := resolve(rolePrincipal, cmp.Or(g.principal, c.DefaultPrincipal), &g.principalContext, &g.principalNamespace); err != nil {
		return err
	}
	return resolve(roleAgent, g.agent, &g.agentContext, &g.agentNamespace)
}
